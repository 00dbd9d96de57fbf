"""Trouble on purpose: processes without root's way around permissions, full disks, programs that talk nonsense."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.processes.forked import BIN
from support.processes.suite import program, wait_until
from support.tools import need

GOOD_ENVELOPE = b"Fjoe@me.example.org\0Tsomebody@me.example.org\0\0"

# What root is allowed regardless of permissions. Without it, root is an owner like any other.
_OPTIONS = ("--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", "--")


def held_to_permissions() -> tuple[str, ...]:
    """Return the words before a command that is to obey modes, whoever runs the tests."""
    return (need("setpriv"), *_OPTIONS) if os.geteuid() == 0 else ()


def held_to_size(most: int) -> tuple[str, ...]:
    """Return the words before a command that may write no file beyond `most` bytes, as on a disk that gets full."""
    return (need("prlimit"), f"--fsize={most}", "--")


def run_enqueue(
    home: Home, message: bytes, envelope: bytes, wrapper: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run queue-enqueue on the bytes of an envelope, which need not be one; return its end."""
    pipe, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        stream.write(envelope)
    try:
        return subprocess.run(
            [*wrapper, *program("queue-enqueue"), "--home", home.path],
            input=message,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(pipe)


def disk_full(pid: int) -> None:
    """Let a process write no file any more, as on a full disk; pipes go on."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def disk_free(pid: int) -> None:
    """Let it write again."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def put_in_todo(home: Home, message: bytes, todo: bytes) -> int:
    """Queue a message by hand with any bytes for its todo/ file; return its id."""
    layout = open_layout(home.queue)
    name = Path(home.queue, "pid", "by-hand")
    name.write_bytes(message)
    number = name.stat().st_ino
    name.rename(layout.mess(number))
    made = Path(layout.intd(number))
    made.write_bytes(todo)
    os.link(made, layout.todo(number))
    return number


def nonsense_program(top: Path, name: str, said: bytes, *, answer: bool = False) -> Path:
    """Copy bin/ so that one daemon says `said` on fd 1 first, and then goes on as the real one.

    With `answer` it says so only when it has been sent a job, which is lost; `?` in `said` becomes the job's number,
    which has one digit in a suite that has just started. Return the copy.
    """
    directory = top / "bin"
    shutil.copytree(BIN, directory)
    program_file = directory / name
    program_file.write_text(
        "import os, sys\n"
        f"if {answer}:\n"
        # Its greeting, and then the first thing that it is asked.
        "    os.write(1, b'8:ready\\x0020,')\n"
        "    job = os.read(0, 65536)\n"
        "    number = job.partition(b':')[2].partition(b'\\0')[0]\n"
        "else:\n"
        "    number = b'?'\n"
        f"os.write(1, {said!r}.replace(b'?', number))\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, {str(BIN / name)!r}, *sys.argv[1:]])\n"
    )
    return directory


@contextmanager
def refusing(pid: int, call: str, error: str) -> Iterator[None]:
    """Let all calls of a name fail in a daemon."""
    if call == "write":
        disk_full(pid)
        yield
        disk_free(pid)
        return
    fault = ["-e", f"trace={call}", "-e", f"inject={call}:error={error}"]
    # Not its children: strace -f may stop one that is made by vfork, for ever.
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    threads = [word for task in tasks for word in ("-p", task.name)]
    tracer = subprocess.Popen([need("strace"), "-qq", "-o", "/dev/null", *fault, *threads], stderr=subprocess.DEVNULL)
    traced = f"TracerPid:\t{tracer.pid}\n"
    try:
        wait_until(lambda: all(traced in (task / "status").read_text() for task in tasks), why="strace to attach")
        yield
    finally:
        _end(tracer)


def _end(tracer: subprocess.Popen[bytes]) -> None:
    """End strace; what it traces goes on.

    A strace that is asked to detach from threads that have just been killed may wait for the first of them for ever,
    because the kernel waits for strace to collect another. There is nothing to detach from then.
    """
    tracer.terminate()
    try:
        tracer.wait(3)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.wait(30)
