"""Kills a daemon at one system call of one of its threads, with strace's fault injection.

A SIGKILL that strace sends at the entry of a call ends the process before the call has any effect. SIGUSR1, which
ends it as well, does not interrupt a call on the disk: the call takes effect, and the thread does nothing else
before the process dies. So each call gives two points, before and after it. strace does not follow threads or
children here: calls are counted for the one thread alone, and queue-enqueue lives on when its queue-send is killed.
"""

import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.suite import Suite, wait_until
from support.queues.inflow import patched_programs
from support.tools import missing, need

# Seconds for what takes a moment on a machine of its own: many suites run at once, beside other tests.
DEADLINE = 300.0
MAIN, SYNC, CLEAN = "queue-send, loop", "queue-send, thread of the disk", "queue-clean"
TODO = "queue-todo, thread of the disk"
KEEPER, KEEPER_DISK = "queue-ondemand, loop", "queue-ondemand, thread of the disk"
_DISK = (
    "write", "pwrite64", "fsync", "fdatasync", "sync_file_range", "rename", "link", "unlink", "truncate", "ftruncate",
    "utimensat", "mkdir", "rmdir", "symlink", "chmod",
)  # fmt: skip
_CHILDREN = ("memfd_create", "clone", "clone3", "vfork", "pidfd_open", "wait4", "waitid")
# The loop opens files to read them, and writes to pipes, at other times in every run: only what changes
# something is counted there, and the steps of a bounce's injection. To open a file for a mark changes nothing.
CALLS = {
    MAIN: (*_DISK[1:], *_CHILDREN),
    KEEPER: (*_DISK[1:], *_CHILDREN),
    **dict.fromkeys((SYNC, CLEAN, TODO, KEEPER_DISK), ("openat", *_DISK)),
}
# Which daemon a thread is of, but for those of queue-send.
_DAEMONS = {
    CLEAN: "queue-clean", TODO: "queue-todo", KEEPER: "queue-ondemand",
    KEEPER_DISK: "queue-ondemand",
}  # fmt: skip
# What the loop does about bounces, to be traced where another thread is killed.
_BOUNCING = ("clone", "clone3", "vfork", "unlink")
_NAME = re.compile(r"(\w+)\(")
_STOPPED = re.compile(r"--- stopped by SIGSTOP|--- SIGSTOP")
_DIED = re.compile(r"\+\+\+ killed by SIG(KILL|USR1)")


# queue-clean may have work as soon as it runs, before strace is attached. So it waits for that, or for the end of
# queue-send. It then looks for leftovers, in each run alike; its work begins with this file.
_REMOVING = "/queue/pid/removing."
_WAITING_CLEAN = """
import os
import select
import queue_clean.main as clean
real = clean.loop
def wait_for_strace(*arguments):
    poll = select.poll()
    poll.register(0, 0)
    status = os.open("/proc/self/status", os.O_RDONLY)
    while b"TracerPid:\\t0\\n" in os.pread(status, 4096, 0) and not poll.poll(5):
        pass
    os.close(status)
    return real(*arguments)
clean.loop = wait_for_strace
"""


class Point(NamedTuple):
    """The `number`-th call of a name, from 1, in a thread; `shown` is the call as a person wants to read it.

    With `everybody` all processes are killed after the call, and not only the one that makes it.
    """

    thread: str
    call: str
    number: int
    after: bool
    shown: str = ""
    everybody: bool = False

    def __str__(self) -> str:
        who = f"everybody, at {self.thread}" if self.everybody else self.thread
        return f"{who}, {'after' if self.after else 'before'} {self.call} {self.number}: {self.shown}"


def loop_trace(trace: Path, point: Point) -> Path:
    """Return the trace that has the loop of the program that bounces; that of the point, `trace`, if it is that loop.
    """
    return trace if point.thread in (MAIN, KEEPER) else trace.with_suffix(".loop")


def _trace_words(trace: Path, calls: tuple[str, ...]) -> list[str]:
    words = [need("strace"), "-q", "-y", "-s", "200", "-e", "signal=KILL,USR1", "-o", str(trace)]
    return [*words, "-e", f"trace={','.join(calls)}"]


def _kill_words(trace: Path, point: Point) -> list[str]:
    """Return strace and its options, to trace a point's thread into a file until it is killed there."""
    words = _trace_words(trace, CALLS[point.thread])
    if point.everybody:
        words += ["-e", "signal=KILL,USR1,STOP", "-e", f"inject={point.call}:signal=STOP:when={point.number}"]
    elif point.number:
        words += ["-e", f"inject={point.call}:signal={'USR1' if point.after else 'KILL'}:when={point.number}"]
    return words


def _kill_everybody(suite: Suite, trace: Path, tracer: "subprocess.Popen[bytes] | None") -> None:
    """Kill all processes of a suite when the traced one is stopped at its point; return when that one has ended.

    It is queue-send if there is no `tracer`. Another one may come to its point after queue-send has ended.
    """
    while (suite.process if tracer is None else tracer).poll() is None:
        if trace.exists() and any(_STOPPED.search(line) for line in read_lines(trace)):
            os.killpg(suite.process.pid, signal.SIGKILL)
            return
        time.sleep(0.002)


def _begin_killer(suite: Suite, trace: Path, tracer: "subprocess.Popen[bytes] | None") -> None:
    threading.Thread(target=_kill_everybody, args=(suite, trace, tracer)).start()


@contextmanager
def traced_suite(home: Home, trace: Path, point: Point, programs: Path = BIN) -> Iterator[Suite]:
    """Give a suite, with a point's thread and the loop traced; at the end nothing of it is left, the traces are whole.

    Where the daemon was killed, what is left of the suite goes on until it ends by itself.
    """
    words = _kill_words(trace, point)
    if point.thread == CLEAN and programs == BIN:
        programs = patched_programs(trace.with_suffix(".programs"), queue_clean=_WAITING_CLEAN)
    # -DD: strace is no parent of queue-send, and outlives what kills the suite's processes.
    suite = Suite(home, send_wrapper=(*words, "-DD", "--") if point.thread == MAIN else (), programs=programs)
    tracers: list[subprocess.Popen[bytes]] = []
    try:
        if point.everybody and point.thread == MAIN:
            # Its point may come before its first line.
            _begin_killer(suite, trace, None)
        # In the first turn of its loop it can be killed before its first line is out.
        wait_until(lambda: suite.count("^status: local 0/") or suite.process.poll() is not None, DEADLINE, "the start")
        if point.thread != MAIN:
            # Two of them: one strace would count the calls of both threads for its point.
            tracers.append(_attach(words, _task(suite, point.thread)))
            if point.thread != KEEPER:
                loop = suite.daemon("queue-ondemand") if point.thread == KEEPER_DISK else suite.process.pid
                tracers.append(_attach(_trace_words(loop_trace(trace, point), _BOUNCING), loop))
            if point.everybody:
                _begin_killer(suite, trace, tracers[0])
        yield suite
        if suite.process.poll() is None:
            # Not SIGKILL: the trace shows who was killed at a point.
            os.killpg(suite.process.pid, signal.SIGUSR2)
        for tracer in tracers:
            tracer.wait(DEADLINE)
        settle(suite)
    except OSError as error:
        # A process that was looked at in /proc is gone: the log says why.
        suite.stop()
        raise AssertionError("\n".join([f"{error}; the log ends:", *suite.lines[-40:]])) from error
    finally:
        suite.kill()
        for tracer in tracers:
            tracer.kill()
            tracer.wait(DEADLINE)
        suite.stop()


def settle(suite: Suite) -> None:
    """Wait until every process of a suite has ended, also strace: all of them hold its log open."""
    suite._reader.join(DEADLINE)
    assert not suite._reader.is_alive(), "a process of the suite outlives it"
    suite.process.wait(DEADLINE)
    assert suite.process.stdout is not None
    suite.process.stdout.close()


def _task(suite: Suite, thread: str) -> int:
    pid = suite.daemon(_DAEMONS[thread]) if thread in _DAEMONS else suite.process.pid
    if thread in (CLEAN, KEEPER):
        return pid
    tasks: set[int] = set()

    def has_one() -> bool:
        tasks.update({int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()} - {pid})
        return len(tasks) == 1

    wait_until(has_one, DEADLINE, f"one thread in {thread} beside its loop")
    return tasks.pop()


def _attach(words: list[str], task: int) -> "subprocess.Popen[bytes]":
    tracer = subprocess.Popen([*words, "-p", str(task)], stderr=subprocess.DEVNULL)
    status = Path(f"/proc/{task}/status")

    def attached() -> bool:
        found = status.read_text()
        if "State:\tZ" in found:
            raise ProcessLookupError(f"{task} has ended")
        if tracer.poll() is not None:
            missing("permission to trace processes: root, or kernel.yama.ptrace_scope=0")
        return f"TracerPid:\t{tracer.pid}\n" in found

    wait_until(attached, DEADLINE, "strace to attach")
    return tracer


def died(lines: list[str]) -> bool:
    """Return whether the traced process was killed at its point."""
    return any(_DIED.search(line) for line in lines[-1:])


def read_lines(trace: Path) -> list[str]:
    """Return the lines of a trace."""
    return trace.read_text("utf-8", "replace").splitlines()


def all_points(lines: list[str], thread: str, since: tuple[str, ...] = ()) -> list[Point]:
    """Return both points of every call on the disk, in the trace of a run in which nobody was killed.

    What comes before queue-send listens, before queue-clean's first request, or before each pattern of `since` has
    matched a call, is left out, but strace counts it. A write to a pipe is counted, too, and is none on the disk: the
    other side goes on at once, so that nobody knows what was done after it.
    """
    listens = [at for at, line in enumerate(lines) if line.startswith("unlink(") and '/lock/control"' in line]
    first = listens[-1] if thread == MAIN else -1
    if thread == CLEAN:
        first = next((at for at, line in enumerate(lines) if _REMOVING in line), len(lines)) - 1
    if since:
        # All of them: which comes first is a matter of how busy the machine is.
        matches = [next(at for at, line in enumerate(lines) if at > first and re.search(each, line)) for each in since]
        first = max(matches)
    points: list[Point] = []
    counts: Counter[str] = Counter()
    for at, line in enumerate(lines):
        name = _NAME.match(line)
        if name:
            counts[name[1]] += 1
            if at > first and "<pipe:" not in line:
                points += [Point(thread, name[1], counts[name[1]], after, line[:160]) for after in (False, True)]
    return points


def drive(suite: Suite, done: Callable[[], bool], deadline: float = 600.0) -> None:
    """Make everything due again and again, until `done` or the end of queue-send."""
    end = time.monotonic() + deadline
    while suite.process.poll() is None and not done():
        assert time.monotonic() < end, "\n".join(["the queue is not empty; the log ends:", *suite.lines[-40:]])
        if suite.count("^status: local"):
            suite.process.send_signal(signal.SIGALRM)
        suite._reader.join(0.05)
