"""Facts from the operating system: the free space of a disk, and the processes of a running suite.

They come from psutil, which takes 30 ms to load; so only a command that prints them imports this module.
"""

import os
import time
from typing import NamedTuple

import psutil

from queue_base.daemon.unix_sockets import connect_to, peer_of
from queue_base.home import Home
from queue_wire.pipes.qmtp import SOCKET

DAEMONS = ("queue-send", "queue-local", "queue-remote", "queue-clean", "queue-todo", "queue-pickup", "queue-intake",
           "queue-ondemand")  # fmt: skip

# Also what psutil lets through from /proc: what cannot be read there, or is not as it expects (a sandbox, a container).
UNKNOWN = (psutil.Error, OSError, ValueError, IndexError, RuntimeError)


class ProcessFacts(NamedTuple):
    """One process: its program, its age in seconds, its resident memory in bytes, and its CPU time in seconds."""

    program: str
    pid: int
    age: float
    memory: int
    cpu: float


class DiskSpace(NamedTuple):
    """The bytes of a file system: those that an ordinary user can still write, and all."""

    free: int
    total: int


def disk_space(path: str) -> DiskSpace:
    """Return the space of the file system that has a path. Raises OSError."""
    found = psutil.disk_usage(path)
    return DiskSpace(found.free, found.total)


def find_processes(pid: int) -> list[ProcessFacts]:
    """Return facts about queue-send, which has this pid, and about the daemons of the same suite.

    A process that has ended, or that cannot be examined, is left out.
    """
    found = []
    try:
        # queue-start forks the daemons and then becomes queue-send, which is why they are its children. The workers of
        # queue-todo are those of queue-todo, and queue-ondemand is one of a queue-start that starts it again.
        processes = [(parent := psutil.Process(pid)), *(children := parent.children())]
        processes += [worker for child in children for worker in _children_of(child)]
    except UNKNOWN:
        return []
    for process in processes:
        facts = _examine(process)
        if facts is not None and facts.program in DAEMONS:
            found.append(facts)
    return sorted(found, key=lambda facts: DAEMONS.index(facts.program))


def find_intake(home: Home) -> tuple[bool, ProcessFacts | None]:
    """Return whether the queue-intake in front of several queues listens on its socket, and facts about it.

    None: there are no facts, because it does not, or its process is not visible from here (another pid namespace).
    """
    try:
        with connect_to(f"{home.run}/{SOCKET}") as connection:
            pid, _ = peer_of(connection)
    except BlockingIOError:
        return True, None  # More connections wait than it has accepted.
    except OSError:
        return False, None
    try:
        facts = _examine(psutil.Process(pid))
    except UNKNOWN:
        facts = None
    return True, facts if facts is not None and facts.program == "queue-intake" else None


def _examine(process: psutil.Process) -> ProcessFacts | None:
    """Return facts about a process, None if it has ended or cannot be examined."""
    try:
        program = _program(process.cmdline())
        age = time.time() - process.create_time()
        times = process.cpu_times()
        return ProcessFacts(program, process.pid, age, process.memory_info().rss, times.user + times.system)
    except UNKNOWN:
        return None


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process that are daemons of the suite; none if it has ended."""
    try:
        return process.children() if _program(process.cmdline()) in ("queue-todo", "queue-start") else []
    except UNKNOWN:
        return []


def _program(words: list[str]) -> str:
    """Return the name of the program in a command line, `python3 -I .../queue-send`; empty if it is none of ours."""
    return next((name for word in words if (name := os.path.basename(word)).startswith("queue-")), "")
