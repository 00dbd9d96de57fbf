"""Reads what strace(1) wrote: the system calls that change files, in the order in which they ended.

`strace_command` is how a process must be traced; `read_trace` turns the file into Call values. Strings
are in hex there (-xx), so that no path and no data can look like anything else. A call that failed is
left out. A call that another process interrupted (`unfinished`, `resumed`) gives two values: one with
`began` when it started and the whole one when it ended. A child may run before its parent's clone has returned:
the whole clone is moved before the child's first call, so that who follows the calls knows the child's descriptors.
"""

import functools
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.tools import need

CALLS = (
    "openat,open,creat,link,linkat,unlink,unlinkat,rename,renameat,renameat2,write,pwrite64,writev,pwritev,pwritev2,"
    "ftruncate,truncate,mkdir,mkdirat,rmdir,symlink,symlinkat,mknod,mknodat,fsync,fdatasync,sync_file_range,syncfs,"
    "sync,close,dup,dup2,dup3,fcntl,lseek,sendfile,copy_file_range,splice,fallocate,exit_group,newfstatat,fstat,statx,"
    "chdir,fchdir,clone,clone3,fork,vfork,execve"
)

_BIRTHS = ("clone", "clone3", "fork", "vfork")

_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (\S+)(.*)$", re.DOTALL)
_UNFINISHED = re.compile(r"^(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_EXITED = re.compile(r"^\+\+\+ exited with (\d+) \+\+\+$")
_HEX = re.compile(r"((?:\\x[0-9a-f]{2})+)")
_DESCRIPTOR = re.compile(r"^(-?\d+|AT_FDCWD)(?:<(.*)>(?:\(deleted\))?)?$")
# Strings are taken as one: they are most of a trace, and divide nothing.
_DIVIDER = re.compile(r'"[^"]*"|[][(){},]')
_INODE = re.compile(r"\bstx?_ino=(\d+)")


class Call(NamedTuple):
    """One call of process `pid`: its arguments as strace shows them, and what it returned."""

    pid: int
    name: str
    arguments: list[str]
    result: str
    began: bool = False

    def data(self, index: int) -> bytes:
        """Return the bytes of a string argument."""
        text = self.arguments[index]
        if not (text.startswith('"') and text.endswith('"')):
            raise ValueError(f"strace cut an argument short: {self}")
        return bytes.fromhex(text[1:-1].replace("\\x", ""))

    def path(self, index: int) -> str:
        """Return a string argument as a path."""
        return self.data(index).decode("utf-8", "surrogateescape")

    def descriptor(self, index: int) -> tuple[int, str]:
        """Return (number, path) of a descriptor argument; AT_FDCWD is -100."""
        return _descriptor(self.arguments[index])

    def opened(self) -> tuple[int, str]:
        """Return (number, path) of the descriptor that the call returned."""
        return _descriptor(self.result)

    def inode(self) -> int:
        """Return the inode number that a stat call reported, 0 where there is none."""
        found = _INODE.search(self.arguments[-1] if self.name == "fstat" else " ".join(self.arguments))
        return int(found[1]) if found else 0

    def shown(self) -> str:
        """Return the call as a person wants to read it."""
        arguments = ", ".join(unhex(argument)[:120] for argument in self.arguments)
        return f"{self.name}({arguments}) = {unhex(self.result)}"


def strace_command(output: Path, command: list[str], fault: str = "") -> list[str]:
    """Return the command that runs `command` and all its children under strace.

    `fault` makes system calls fail, as strace's --inject has it: `fsync:error=EIO:when=2`.
    """
    options = ["-f", "-y", "-xx", "-v", "-s", "10000000", "--seccomp-bpf", "-e", "signal=none"]
    if fault:
        options += ["-e", f"inject={fault}"]
    return [need("strace"), *options, "-e", f"trace={CALLS}", "-o", str(output), "--", *command]


def unhex(text: str) -> str:
    """Return strace's text with its hex strings made readable."""
    return _HEX.sub(lambda found: bytes.fromhex(found[1].replace("\\x", "")).decode("utf-8", "backslashreplace"), text)


def read_trace(output: Path) -> Iterator[Call]:
    """Yield the successful calls; an exit of a process is a call named `exited` with the code as its result."""
    calls = list(_as_written(output))
    births: defaultdict[int, deque[Call]] = defaultdict(deque)  # The clones to come that made a process, by its pid.
    for call in calls:
        if child := _child(call):
            births[child].append(call)
    known: set[int] = set()
    for call in calls:
        if call.pid not in known:
            if births[call.pid]:
                yield births[call.pid].popleft()
            known.add(call.pid)
        if call.name == "exited":
            known.discard(call.pid)  # The number may be another's later.
        child = _child(call)
        if not child:
            yield call
        elif births[child] and births[child][0] is call:
            known.add(child)
            yield births[child].popleft()


def _child(call: Call) -> int:
    """Return the pid of the process that a call made; 0 for every other call."""
    made = call.name in _BIRTHS and not call.began and call.result != "?"  # Its caller was killed meanwhile.
    return int(call.result.split()[0]) if made else 0


def _as_written(output: Path) -> Iterator[Call]:
    waiting: dict[int, str] = {}
    for line in output.read_text("ascii").splitlines():
        pid, text = _whole(line, waiting)
        if exited := _EXITED.match(text):
            yield Call(pid, "exited", [], exited[1])
        elif unfinished := _UNFINISHED.match(text):
            waiting[pid] = text.removesuffix(" <unfinished ...>")
            yield Call(pid, unfinished[1], split_arguments(unfinished[2]), "?", began=True)
        elif (call := _CALL.match(text)) and call[3] != "-1" and not call[4].startswith(" ERESTART"):
            yield Call(pid, call[1], split_arguments(call[2]), call[3] + call[4])


def _whole(line: str, waiting: dict[int, str]) -> tuple[int, str]:
    found = _LINE.match(line)
    if not found:
        raise ValueError(f"not a line of strace -f -o: {line!r}")
    pid, text = int(found[1]), found[2]
    resumed = _RESUMED.match(text)
    return pid, waiting.pop(pid) + resumed[1] if resumed else text


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a call; commas inside braces, brackets and parentheses do not divide."""
    parts, depth, start = [], 0, 0
    for found in _DIVIDER.finditer(text):
        mark = found[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(text[start : found.start()].strip())
            start = found.end()
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


# A trace has few paths, and each of them often.
@functools.lru_cache(10_000)
def _descriptor(text: str) -> tuple[int, str]:
    found = _DESCRIPTOR.match(text.split(" ")[0])
    if not found:
        return -1, ""
    return -100 if found[1] == "AT_FDCWD" else int(found[1]), unhex(found[2] or "")
