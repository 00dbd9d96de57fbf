"""The joints of a log's files: lines that stand in two of them, in two builds, or that were cut short.

The part of a line at the end of a file is carried, and joined with what comes next. What the same file has
grown by continues it. The next file does, unless it begins with a whole stamp: then no more of the line came.

The state of a stream: `files`, for each file that was read its size then, a fingerprint of the last bytes before that
(so that it goes on where it was, `current` also under its later name) and its whole lines so far; `last`, the name of
the file that was read last; `carried`, what is open at its end (base64).
"""

import base64
import hashlib
import io
import itertools
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from spark.logs import packed
from spark.logs.plan import Part, SourceError, State
from spark.match.text import escape
from spark.runtime.places import Entry, Place

_STAMP = re.compile(rb"@[0-9a-f]{24} ")
_NAME = re.compile(r"@[0-9a-f]{24}\.[su]")
_PRINT = 1 << 16  # Bytes before the place up to which a file was read that make its fingerprint.
_LOOK = 1 << 14
LINE_MAX = 1 << 20  # What is longer without a newline is garbage, and not carried.
_REMEMBERED = 1000  # Files of a stream that are gone and still known.


class Kept(NamedTuple):
    """What is new in a log that may be renamed meanwhile: the bytes themselves, or a file's path and where they are."""

    path: str
    start: int
    content: bytes | None


# Called with a log's path below LOGS, and where what is new begins and ends.
Keep = Callable[[str, int, int], Kept]


class Joined(NamedTuple):
    """What is new in a stream, in order; its state after it; what is odd about its files."""

    parts: list[Part]
    state: State
    warnings: list[str]


class _Log(NamedTuple):
    """A file that has something new: from where on, its ends' bytes (unpacked), and how it is compressed."""

    entry: Entry
    start: int
    size: int
    head: bytes
    tail: bytes
    packing: str


class Joiner:
    """Goes through the files of one stream, which are in the directory `below` of a place."""

    def __init__(self, place: Place, below: str, keep: Keep) -> None:
        self._place, self._below, self._keep = place, below, keep
        self._parts: list[Part] = []
        self._warnings: list[str] = []

    def join(self, logs: Sequence[Entry], state: State) -> Joined:
        """Return what is new in the logs. Raises SourceError, and OSError where a file cannot be read."""
        self._known: dict[str, Any] = dict(state.get("files", {}))
        self._last: str = state.get("last", "")
        self._carried: bytes = base64.b64decode(state.get("carried", ""))
        starts = [(log, self._start(log)) for log in logs]
        # What goes on where it was read to comes first: its line may be the one that is carried.
        new = [self._look(log, start) for log, start in starts if start < log.size]
        found = [log for log in new if log is not None]
        goes_on = [log for log in found if log.start]
        for one in [*goes_on, *self._in_order([log for log in found if not log.start])]:
            self._take(one)
        self._forget([log.name for log in logs])
        known = {**state, "files": self._known, "last": self._last, "carried": base64.b64encode(self._carried).decode()}
        return Joined(self._parts, known, self._warnings)

    def _path(self, name: str) -> str:
        return posixpath.join(self._below, name) if name else self._below

    def _print(self, name: str, size: int) -> str:
        return self._place.digest(self._path(name), max(0, size - _PRINT), min(size, _PRINT))[:32]

    def _start(self, log: Entry) -> int:
        """Return where what is new begins in a file, and know it by its name from now on."""
        for name in (log.name, "current"):
            known = self._known.get(name)
            if known and known[0] <= log.size and self._print(log.name, known[0]) == known[1]:
                if name != log.name:
                    # `current`, renamed. A file of that name is another one now.
                    self._known[log.name] = self._known.pop(name)
                    self._last = log.name if self._last == name else self._last
                return int(known[0])
            if log.name in self._known and name == log.name:
                break  # Another file of that name, or a `current` that began anew.
        self._known.pop(log.name, None)
        return 0

    def _look(self, log: Entry, start: int) -> _Log | None:
        """Look at the ends of what is new in a file; None where nothing is, or nothing can be read."""
        path = self._path(log.name)
        head = self._place.read(path, start, min(_LOOK, log.size - start))
        packing = "" if start else packed.find_packing(head)
        if not packing:
            if start == 0:
                self._refuse_unstamped(log.name, head)
            return _Log(log, start, log.size, head, self._end(path, start, log.size), "")
        try:
            shape = self._unpack(packing, path)
        except packed.Damaged as error:
            self._warnings.append(f"{self._place.uri(path)}: {error}; it is passed by until it can be read")
            return None
        old = self._known.get(packed.base_name(log.name)) if packed.base_name(log.name) != log.name else None
        if old and old[0] == shape.size and old[1] == hashlib.sha256(shape.tail[-_PRINT:]).hexdigest()[:32]:
            # It was read before it was compressed.
            self._known[log.name] = [log.size, self._print(log.name, log.size), old[2]]
            self._last = log.name if self._last == packed.base_name(log.name) else self._last
            return None
        if not shape.size:
            return None
        self._refuse_unstamped(log.name, shape.head[:_LOOK])
        return _Log(log, 0, shape.size, shape.head[:_LOOK], shape.tail, packing)

    def _unpack(self, packing: str, path: str) -> packed.Shape:
        if self._place.local is None:
            return packed.look_through(packing, io.BytesIO(self._place.read(path)), LINE_MAX)
        with open(posixpath.join(self._place.local, path), "rb") as raw:
            return packed.look_through(packing, raw, LINE_MAX)

    def _end(self, path: str, start: int, size: int) -> bytes:
        """Return the end of what is new in a file: with a newline in it, if there is one in the last MB."""
        look = _LOOK
        while True:
            begin = max(start, size - look)
            data = self._place.read(path, begin, size - begin)
            if b"\n" in data or begin == start or look > LINE_MAX:
                return data
            look *= 4

    def _in_order(self, logs: list[_Log]) -> list[_Log]:
        """Return the files in the order of their lines: that of their names, unless names were swapped.

        The name of a rotated file is a stamp that is not earlier than its last line's. Where names break that, and
        the order of the lines' own stamps does not, they were swapped.
        """
        spans = {log.entry.name: span for log in logs if (span := _span(log)) is not None}
        named = [at for at, log in enumerate(logs) if log.entry.name in spans]
        by_stamp = sorted(named, key=lambda at: spans[logs[at].entry.name])
        moved = [at for at, other in zip(named, by_stamp, strict=True) if at != other]
        if not moved:
            return logs
        names = [logs[at].entry.name for at in moved]
        sources = [logs[other] for at, other in zip(named, by_stamp, strict=True) if at != other]
        broken = any(name[1:25] < spans[name][1] for name in names)
        mended = all(name[1:25] >= spans[log.entry.name][1] for name, log in zip(names, sources, strict=True))
        apart = all(
            spans[one.entry.name][1] <= spans[two.entry.name][0] for one, two in itertools.pairwise(sources)
        )
        if not (broken and mended and apart):
            return logs
        ordered = list(logs)
        for at, log in zip(moved, sources, strict=True):
            ordered[at] = log
        self._warnings.append(
            f"{self._place.uri(self._below)}: the stamps in {' and '.join(names[:4])} "
            "say that their names are swapped; they are read in the order of the stamps"
        )
        return ordered

    def _take(self, log: _Log) -> None:
        name = log.entry.name
        if self._carried and not (log.start and self._last == name) and _STAMP.match(log.head):
            self._tear()
        # Nothing is kept of a line that is too long to be one.
        tail = log.tail[log.tail.rfind(b"\n") + 1 :]
        whole = b"\n" in log.tail or log.size - log.start == len(tail)
        tail = tail if whole else b""
        lines = self._known[name][2] if name in self._known else 0
        end = log.size - len(tail)
        if end > log.start:
            self._add(log, lines, end)
            self._carried = b""
        self._carried += tail
        size = log.entry.size if log.packing else log.size
        self._known[name] = [size, self._print(name, size), lines]
        self._last = name
        if len(self._carried) > LINE_MAX:
            self._tear()

    def _add(self, log: _Log, lines: int, end: int) -> None:
        name = log.entry.name
        path, start, content = self._path(name), log.start, None
        if not log.packing and (name == "current" or name.startswith("_")):
            size = end - start
            path, start, content = self._keep(path, start, end)
            end = start + (size if content is None else len(content))
        else:
            path = posixpath.join(self._place.root, path) if path else self._place.root
        self._append(name, Part(path, "", name, start, end, lines + 1, self._carried, False, log.packing, content))

    def _tear(self) -> None:
        """What is carried was cut short: a part of its own."""
        lines = self._known[self._last][2] if self._last in self._known else 0
        self._append(self._last, Part("", "", self._last, 0, 0, lines + 1, self._carried, True))
        self._carried = b""

    def _append(self, name: str, part: Part) -> None:
        below = posixpath.join(self._below, name) if name else self._below
        path = posixpath.normpath(below) if below else posixpath.basename(self._place.root)
        # A name may have bytes that are no UTF-8, which no table can hold.
        file = escape(path.encode("utf-8", "surrogateescape")).decode()
        self._parts.append(Part(**{**vars(part), "file": file}))

    def _refuse_unstamped(self, name: str, head: bytes) -> None:
        """Raise SourceError for a file that no logger of ours has written: syslog, or multilog without t."""
        lines = head.split(b"\n")
        if any(_STAMP.match(line) for line in lines):
            return
        ours = name == "current" or _NAME.match(name) is not None
        # A file that begins inside a line may have no stamp, but not for many lines.
        if ours and len(lines) <= 8:
            return
        raise SourceError(
            f"{posixpath.join(self._place.root, self._path(name))}: its lines have no TAI64N stamps; expected is "
            "`@4000000067450a1b2c3d4e5f new msg 457`, as multilog with t, or svlogd with -t, writes it"
        )

    def _forget(self, names: list[str]) -> None:
        gone = [name for name in self._known if name not in names and name != self._last]
        for name in sorted(gone)[: max(0, len(gone) - _REMEMBERED)]:
            del self._known[name]


def _span(log: _Log) -> tuple[str, str] | None:
    """Return the stamps (24 digits) of the first and the last stamped line of a rotated file, if both are found."""
    if not _NAME.match(log.entry.name):
        return None
    stamps = [match for end in (log.head, log.tail) for match in re.findall(rb"(?:^|\n)@([0-9a-f]{24}) ", end)]
    return (stamps[0].decode(), stamps[-1].decode()) if stamps else None
