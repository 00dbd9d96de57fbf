"""The lines of a segment, block by block, from files that Python can open, or from bytes."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np

from spark.logs import packed
from spark.logs.joints import LINE_MAX
from spark.logs.plan import Part
from spark.match.grammar import parse_event
from spark.match.lines import Lines

BLOCK = 4 << 20
# A block has no more lines than this, so that one of newlines does not take many times its size.
_LINES_MAX = 1 << 16
_STAMP = re.compile(rb"@[0-9a-f]{24} ")
_NULS = re.compile(rb"\0+")


def read_lines(
    parts: Sequence[Part], counted: Counter[str], contents: Mapping[str, bytes] | None = None
) -> Iterator[Lines]:
    """Yield the lines of the parts, in order. Raises OSError.

    counted: how many lines each file (Part.name) has had before in this build; it is kept up to date. contents: what
    files hold, by their path, where no path can be opened.
    """
    for part in parts:
        for block in _lines_of(part, counted[part.name], {} if contents is None else contents):
            for lines in _portions(block):
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
        rest = _Rest(part.head)
        joined = bool(part.head)
        while left > 0:
            chunk = packed.read_some(file, min(left, BLOCK))
            if not chunk:
                break
            left -= len(chunk)
            if joined or rest.is_long:
                end = chunk.find(b"\n")
                rest.add(chunk if end < 0 else chunk[:end])
                if end < 0:
                    continue
                yield _any_line(part, rest.line, None if joined else first)
                first, joined = first + 1, False
                rest, chunk = _Rest(b""), chunk[end + 1 :]
            end = chunk.rfind(b"\n") + 1
            if end:
                for lines in _blocks(part, rest.line + chunk[:end], first):
                    yield lines
                    first += len(lines.starts)
                rest = _Rest(chunk[end:])
            else:
                rest.add(chunk)
        if rest.line:
            # A line too long to be carried whose end is not written yet, or a file that has become shorter meanwhile.
            yield _one_line(part, rest.line[:LINE_MAX], None if joined else first, True)


class _Rest:
    """The beginning of a line whose end is not read yet. Of a line that is too long only the first part is kept.

    NULs are what a file reads as where it lost blocks, and a line may follow: in a long line many count as one.
    """

    def __init__(self, line: bytes) -> None:
        self.line, self.is_long = b"", False
        self.add(line)

    def add(self, more: bytes) -> None:
        self.line += more
        if self.is_long or len(self.line) > LINE_MAX:
            self.is_long = True
            self.line = _NULS.sub(b"\0", self.line)[: LINE_MAX + 1]


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
                packed.skip(file, part.start)
                yield file
        else:
            raw.seek(part.start)
            yield raw


def _is_line(line: bytes) -> bool:
    return _STAMP.match(line) is not None and parse_event(line[26:]) is not None


def _one_line(part: Part, line: bytes, first: int | None, torn: bool) -> Lines:
    ends = np.array([len(line)], np.int64)
    return Lines(line, np.zeros(1, np.int64), ends, part.file, first, torn)


def _any_line(part: Part, line: bytes, first: int | None) -> Lines:
    """Return a line as it is, or its beginning where it is too long, as cut short."""
    line = _Rest(line).line
    return _one_line(part, line[:LINE_MAX], first, len(line) > LINE_MAX)


def _portions(lines: Lines) -> Iterator[Lines]:
    """Yield the lines, not too many at once."""
    count = len(lines.starts)
    if count <= _LINES_MAX:
        yield lines
        return
    for at in range(0, count, _LINES_MAX):
        starts, ends = lines.starts[at : at + _LINES_MAX], lines.ends[at : at + _LINES_MAX]
        begin = int(starts[0])
        first = None if lines.first is None else lines.first + at
        data = lines.data[begin : int(ends[-1]) + 1]
        yield lines._replace(data=data, starts=starts - begin, ends=ends - begin, first=first)


def _blocks(part: Part, data: bytes, first: int) -> Iterator[Lines]:
    """Yield whole lines, the last of which ends with a newline; one that is too long to be a line as cut short."""
    lines = _block(part, data, first)
    done = 0
    for place in np.flatnonzero(lines.ends - lines.starts > LINE_MAX).tolist():
        begin = int(lines.starts[place])
        if place > done:
            yield _block(part, data[int(lines.starts[done]) : begin], first + done)
        yield _any_line(part, data[begin : int(lines.ends[place])], first + place)
        done = place + 1
    if not done:
        yield lines
    elif done < len(lines.starts):
        yield _block(part, data[int(lines.starts[done]) :], first + done)


def _block(part: Part, data: bytes, first: int) -> Lines:
    """Return whole lines, the last of which ends with a newline."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    return Lines(data, starts, ends, part.file, first)
