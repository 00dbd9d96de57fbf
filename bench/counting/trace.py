"""Counts system calls by program in what `strace -f` wrote, in one part of it after the other. Pure.

A thread belongs to the program whose thread it is, and a process that was forked to its parent's, until it executes
another. The first lines of a child may come before the line in which its parent's call returns its number, so nothing
is assigned before all is read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SYNCS = frozenset(("fsync", "fdatasync", "msync", "sync", "syncfs", "sync_file_range"))
_LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(\(| resumed>)(.*)$")
_BIRTHS = frozenset(("clone", "clone3", "fork", "vfork"))
_RESULT = re.compile(r" = (-?\d+)(?: .*)?$")
_PROGRAM = re.compile(r"/(queue-[a-z]+)\b")
# How often threads wait for each other is a matter of when the machine lets them run. Wake-ups tell of it, too.
_TIMELESS = frozenset(("futex", "restart_syscall", "rt_sigreturn"))
# Calls that name a file, or ask about an open one. What a daemon does with a message's files is the same however many
# messages it finds at once.
_FILES = re.compile(
    r"access|chdir|creat|f?l?chmod(at)?|[fl]?chown(at)?|faccessat2?|[fl]?stat(at64|fs|x)?|newfstatat|fstatfs|"
    r"[fl]?(get|set|list|remove)xattr|(sym)?link(at)?|mk(dir|nod)(at)?|open(at2?)?|readlink(at)?|rename(at2?)?|rmdir|"
    r"truncate|unlink(at)?|utime(s|nsat)?|futimesat"
)


class Calls(NamedTuple):
    """System calls of a program; those among them for files, the syncs, and those that failed."""

    calls: int
    files: int
    syncs: int
    failed: int


def count_calls(parts: Sequence[Iterable[str]]) -> list[Mapping[str, Calls]]:
    """Return the calls of each program of the suite, by its name, in each part of what strace wrote.

    What runs no such program is left out.
    """
    parents: dict[str, str] = {}
    programs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    found: dict[str, list[tuple[int, int, str, bool]]] = defaultdict(list)
    lines = ((number, line) for number, part in enumerate(parts) for line in part)
    for place, (number, line) in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, name, kind, rest = match.groups()
        result = _RESULT.search(rest)
        if kind == "(" and name == "execve" and (program := _PROGRAM.search(rest)):
            programs[pid].append((place, program[1]))
        if name in _BIRTHS and result and int(result[1]) > 0:
            parents[result[1]] = pid
        if name in _TIMELESS:
            continue
        # A call that another process interrupted has two lines, the second of which has its result.
        failed = result is not None and result[1].startswith("-")
        if kind == "(":
            found[pid].append((place, number, name, failed))
        elif failed:
            found[pid].append((place, number, "", True))
    totals: list[dict[str, Counter[str]]] = [defaultdict(Counter) for _ in parts]
    for pid, calls in found.items():
        for place, number, name, failed in calls:
            if owner := _owner(pid, place, parents, programs):
                total = totals[number][owner]
                total["calls"] += bool(name)
                total["files"] += bool(_FILES.fullmatch(name))
                total["syncs"] += name in SYNCS
                total["failed"] += failed
    return [
        {program: Calls(**{name: total[name] for name in Calls._fields}) for program, total in each.items()}
        for each in totals
    ]


def _owner(pid: str, place: int, parents: Mapping[str, str], programs: Mapping[str, list[tuple[int, str]]]) -> str:
    """Return the program that a process runs at a line; empty for none."""
    while True:
        if executed := [name for line, name in programs.get(pid, []) if line <= place]:
            return executed[-1]
        if pid not in parents:
            return ""
        pid = parents[pid]
