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
        # queue-start forks the daemons and then becomes queue-send, which is why they are its children. The workers of
        # queue-todo are those of queue-todo.
        processes = [(parent := psutil.Process(pid)), *(children := parent.children())]
        processes += [worker for child in children for worker in _workers(child)]
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


def _workers(process: psutil.Process) -> list[psutil.Process]:
    """Return the workers of queue-todo, if a process is that; none if it has ended."""
    try:
        return process.children() if _program(process.cmdline()) == "queue-todo" else []
    except psutil.Error:
        return []


def _program(words: list[str]) -> str:
    """Return the name of the program in a command line, `python3 -I .../queue-send`; empty if it is none of ours."""
    return next((name for word in words if (name := os.path.basename(word)).startswith("queue-")), "")
