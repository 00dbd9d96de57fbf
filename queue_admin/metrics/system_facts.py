"""Facts from the operating system: the free space of a disk, and the processes of a running suite.

They come from psutil, which takes 30 ms to load; so only a command that prints them imports this module.
"""

import os
import time
from typing import NamedTuple

import psutil

DAEMONS = ("queue-send", "queue-local", "queue-remote", "queue-clean", "queue-todo", "queue-pickup", "queue-intake",
           "queue-ondemand")  # fmt: skip


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
        # queue-start forks the daemons and then becomes queue-send, which is why they are its children.
        processes = [(parent := psutil.Process(pid)), *parent.children()]
    except psutil.Error:
        return []
    for process in processes:
        try:
            program = _program(process.cmdline())
            if program in DAEMONS:
                age = time.time() - process.create_time()
                times = process.cpu_times()
                cpu = times.user + times.system
                found.append(ProcessFacts(program, process.pid, age, process.memory_info().rss, cpu))
        except psutil.Error:
            continue
    return sorted(found, key=lambda facts: DAEMONS.index(facts.program))


def _program(words: list[str]) -> str:
    """Return the name of the program in a command line, `python3 -I .../queue-send`; empty if it is none of ours."""
    return next((name for word in words if (name := os.path.basename(word)).startswith("queue-")), "")
