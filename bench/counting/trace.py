"""Counts system calls by program in what `strace -f` wrote. Pure.

A thread belongs to the program whose thread it is, and a process that was forked to its parent's, until it executes
another. The first lines of a child may come before the line in which its parent's call returns its number, so nothing
is assigned before all is read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SYNCS = frozenset(("fsync", "fdatasync", "msync", "sync", "syncfs", "sync_file_range"))
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)$")
_BIRTHS = frozenset(("clone", "clone3", "fork", "vfork"))
_RESULT = re.compile(r" = (-?\d+)(?: .*)?$")
_PROGRAM = re.compile(r"/(queue-[a-z]+)\b")
_TIMELESS = frozenset(("restart_syscall", "rt_sigreturn"))


class Calls(NamedTuple):
    """System calls of a program, the syncs among them, and those that failed: looks for files that are not there."""

    calls: int
    syncs: int
    failed: int


def count_calls(lines: Iterable[str]) -> Mapping[str, Calls]:
    """Return the calls of each program of the suite, by its name. What runs no such program is left out."""
    parents: dict[str, str] = {}
    programs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    found: dict[str, list[tuple[int, str, bool]]] = defaultdict(list)
    for place, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, name, kind, rest = match.groups()
        result = _RESULT.search(rest)
        if kind == "(" and name == "execve" and (program := _PROGRAM.search(rest)):
            programs[pid].append((place, program[1]))
        if name in _BIRTHS and result and int(result[1]) > 0:
            parents[result[1]] = pid
        # A call that another process interrupted has two lines, the second of which has its result.
        failed = result is not None and result[1].startswith("-")
        if kind == "(" and name not in _TIMELESS:
            found[pid].append((place, name, failed))
        elif failed:
            found[pid].append((place, "", True))
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for pid, calls in found.items():
        for place, name, failed in calls:
            if owner := _owner(pid, place, parents, programs):
                totals[owner]["calls"] += bool(name)
                totals[owner]["syncs"] += name in SYNCS
                totals[owner]["failed"] += failed
    return {program: Calls(**{name: total[name] for name in Calls._fields}) for program, total in totals.items()}


def _owner(pid: str, place: int, parents: Mapping[str, str], programs: Mapping[str, list[tuple[int, str]]]) -> str:
    """Return the program that a process runs at a line; empty for none."""
    while True:
        if executed := [name for line, name in programs.get(pid, []) if line <= place]:
            return executed[-1]
        if pid not in parents:
            return ""
        pid = parents[pid]
