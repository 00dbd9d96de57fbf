"""Counts the syncs of a command and of all that it starts, by strace(1)."""

import re
from pathlib import Path

from support.tools import need

_EACH = ("fsync", "fdatasync", "msync")
_WHOLE = ("syncfs", "sync")


def sync_trace_command(trace: Path, command: list[str]) -> list[str]:
    """Return the words that run a command and write its syncs to a file."""
    options = ["-f", "-qq", "--seccomp-bpf", "-e", f"trace={','.join([*_EACH, *_WHOLE, 'sync_file_range'])}"]
    return [need("strace"), *options, "-e", "signal=none", "-o", str(trace), "--", *command]


def read_syncs(trace: Path) -> tuple[int, int]:
    """Return how many syncs of files and directories, and how many of all of a disk, a trace has."""
    names = re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE)
    return sum(map(names.count, _EACH)), sum(map(names.count, _WHOLE))
