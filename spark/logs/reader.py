"""The lines of a segment, block by block, from files that this machine's system calls know, or from bytes."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from spark.logs import packed
from spark.logs.plan import Part
from spark.match.grammar import parse_event
from spark.match.lines import Lines

BLOCK = 4 << 20
_STAMP = re.compile(rb"@[0-9a-f]{24} ")


def read_lines(
    parts: Sequence[Part], counted: Counter[str], contents: Mapping[str, bytes] | None = None
) -> Iterator[Lines]:
    """Yield the lines of the parts, in order. Raises OSError.

    counted: how many lines each file (Part.name) has had before in this build; it is kept up to date. contents: what
    files hold, by their path, where no path can be opened.
    """
    for part in parts:
        for lines in _lines_of(part, counted[part.name], {} if contents is None else contents):
            yield lines
            counted[part.name] += len(lines.starts)


def _lines_of(part: Part, before: int, contents: Mapping[str, bytes]) -> Iterator[Lines]:
    first = part.first + before
    if part.torn:
        # A logger completes a file before it calls it .s: what ends there without a newline was written so.
        torn = not (packed.base_name(part.name).endswith(".s") and _is_line(part.head))
        yield _one_line(part, part.head, first, torn)
        return
    with _open(part, contents) as file:
        left = part.end - part.start
        rest = part.head
        joined = bool(part.head)
        while left > 0:
            chunk = packed.read_some(file, min(left, BLOCK))
            if not chunk:
                break
            left -= len(chunk)
            if joined:
                end = chunk.find(b"\n")
                if end < 0:
                    rest += chunk
                    continue
                yield _one_line(part, rest + chunk[:end], None, False)
                first, joined = first + 1, False
                rest, chunk = b"", chunk[end + 1 :]
            end = chunk.rfind(b"\n") + 1
            if end:
                lines = _block(part, rest + chunk[:end], first)
                yield lines
                first += len(lines.starts)
                rest = chunk[end:]
            else:
                rest += chunk


@contextmanager
def _open(part: Part, contents: Mapping[str, bytes]) -> Iterator[BinaryIO]:
    """Open what reads a part from its start on."""
    if part.content is not None:
        raw: BinaryIO = io.BytesIO(part.content)
    elif part.path in contents:
        raw = io.BytesIO(contents[part.path])
    else:
        raw = open(part.path, "rb", buffering=0)  # noqa: SIM115 - closed below
    with raw:
        if part.packed:
            with packed.unpack(part.packed, raw) as file:
                yield file
        else:
            raw.seek(part.start)
            yield raw


def _is_line(line: bytes) -> bool:
    return _STAMP.match(line) is not None and parse_event(line[26:]) is not None


def _one_line(part: Part, line: bytes, first: int | None, torn: bool) -> Lines:
    ends = np.array([len(line)], np.int64)
    return Lines(line, np.zeros(1, np.int64), ends, part.file, first, torn)


def _block(part: Part, data: bytes, first: int) -> Lines:
    """Return whole lines, the last of which ends with a newline."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    return Lines(data, starts, ends, part.file, first)
