"""Runs the project's programs under strace, for the crash model."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from support.faults.crash.crash_model import CrashModel
from support.faults.strace import strace_command
from support.processes.suite import wait_until

SECONDS = 60.0
# How the scripts begin that are traced instead of a program.
HEAD = """
import os, sys
from queue_base.durable import Commit, sync_filesystem, sync_path
"""


def run_traced(
    model: CrashModel,
    trace: Path,
    command: list[str],
    *,
    stdin: bytes = b"",
    envelope: bytes | None = None,
    fault: str = "",
) -> int:
    """Run a command to its end, add its trace to the model, return its exit code.

    `envelope` is what it can read from descriptor 1; without it, descriptor 1 takes output. `fault` is an
    expression of strace's --inject.
    """
    command = strace_command(trace, command, fault)
    if envelope is None:
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, timeout=SECONDS, check=False)
    else:
        reader, writer = os.pipe()
        # A thread, since what does not fit the pipe must be written while the command runs.
        thread = threading.Thread(target=_fill, args=(writer, envelope))
        thread.start()
        try:
            done = subprocess.run(command, input=stdin, stdout=reader, timeout=SECONDS, check=False)
        finally:
            os.close(reader)
            thread.join()
    model.load(trace)
    return done.returncode


def _fill(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        pass  # The command gave up before it had read everything.
    finally:
        os.close(descriptor)


def converse_traced(
    model: CrashModel,
    trace: Path,
    command: list[str],
    request: bytes,
    enough: Callable[[bytes], bool],
    done: Callable[[], bool] = lambda: True,
    answers: Callable[[bytes], bytes] = lambda output: b"",
) -> bytes:
    """Run a daemon that talks on descriptors 0 and 1 until `enough` of its output has come and `done` is true.

    Then end its input, and return the output. It must exit with 0. `answers` returns all that is to be written to it
    after the request, given all of its output.
    """
    with subprocess.Popen(strace_command(trace, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        output, deadline, answered = b"", time.monotonic() + SECONDS, 0
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            while not enough(output):
                data = os.read(process.stdout.fileno(), 65536)
                assert data and time.monotonic() < deadline, f"the daemon stopped after {output!r}"
                output += data
                answer = answers(output)[answered:]
                answered += len(answer)
                process.stdin.write(answer)
                process.stdin.flush()
            wait_until(done, SECONDS, "the daemon's work")
            process.stdin.close()
            assert process.wait(SECONDS) == 0
        finally:
            timer.cancel()
    model.load(trace)
    return output


def traced_script(root: Path, script: str, *arguments: str) -> CrashModel:
    """Return the model of `root` after a Python script was run and traced; fail where the script does."""
    model = CrashModel(root)
    output = root.parent / "trace"
    command = [sys.executable, "-c", script, *arguments]
    subprocess.run(strace_command(output, command), check=True, timeout=60, stdout=subprocess.PIPE)
    model.load(output)
    return model
