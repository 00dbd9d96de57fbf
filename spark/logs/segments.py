"""Streams are cut into segments, which are matched side by side: at the ends of files and, in large ones, of lines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark.logs.plan import Part, Stream
from spark.runtime.places import Place

# Where a segment is to end, the end of a line is looked for in so many bytes.
_LOOK = 1 << 16
# No segment is much smaller than this: its edges would cost more than is won.
LEAST = 8 << 20
# Nor larger: its rows wait in memory until they are written.
MOST = 64 << 20
# So many segments a core keep all cores at work to the end.
A_CORE = 3


@dataclass(frozen=True)
class Segment:
    """What one task matches: parts of one stream that follow each other. number: its place among them, from 0."""

    stream: Stream
    number: int
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def choose_size(total: int, cores: int) -> int:
    """Return how many bytes a segment of so many in all is to have."""
    return max(LEAST, min(MOST, total // max(1, cores * A_CORE)))


def cut(place: Place, stream: Stream, parts: Sequence[Part], size: int) -> list[Segment]:
    """Return the parts of a stream as segments of about `size` bytes. Raises OSError."""
    segments: list[Segment] = []
    held: list[Part] = []
    room = size
    for part in parts:
        for piece in _divide(place, part, size):
            if held and piece.size > room + size // 2:
                segments.append(Segment(stream, len(segments), tuple(held)))
                held, room = [], size
            held.append(piece)
            room -= piece.size
            if room <= 0:
                segments.append(Segment(stream, len(segments), tuple(held)))
                held, room = [], size
    if held:
        segments.append(Segment(stream, len(segments), tuple(held)))
    return segments


def _divide(place: Place, part: Part, size: int) -> list[Part]:
    """Return a large part in pieces that end with a line."""
    # Of another file system each file is read whole by Spark.
    if part.content is not None or part.packed or part.torn or place.local is None or part.size <= size * 3 // 2:
        return [part]
    ends: list[int] = []
    for wanted in range(part.start + size, part.end - size // 2, size):
        if ends and wanted <= ends[-1]:
            continue  # A line that is longer than a segment.
        end = _line_end(part.path, wanted, part.end)
        if end is None or end >= part.end:
            break
        ends.append(end)
    starts = [part.start, *ends]
    pieces = [replace(part, start=one, end=two) for one, two in zip(starts, [*ends, part.end], strict=True)]
    return [pieces[0], *(replace(piece, head=b"") for piece in pieces[1:])]


def _line_end(path: str, wanted: int, end: int) -> int | None:
    """Return where the first line ends that ends at `wanted` or behind it."""
    with open(path, "rb") as file:
        file.seek(wanted)
        while wanted < end:
            found = file.read(_LOOK)
            if not found:
                return None
            if (at := found.find(b"\n")) >= 0:
                return wanted + at + 1
            wanted += len(found)
    return None
