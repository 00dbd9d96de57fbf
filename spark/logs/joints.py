"""The joints of a log's files: lines that stand in two of them, in two builds, or that were cut short.

The part of a line at the end of a file is carried, and joined with what comes next. What the same file has
grown by continues it. The next file does, unless it begins with a whole stamp: then no more of the line came.

The state of a stream: `files`, for each file that was read its size then, a fingerprint of the last bytes before that
and its whole lines so far, of a compressed one also the size and the fingerprint unpacked; `last`, the name of the
file that was read last; `carried`, what is open at its end (base64). By size and fingerprint a file is recognized,
also under a later name or compressed, and goes on where it was read to.
"""

import base64
import hashlib
import io
import itertools
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from spark.logs import packed
from spark.logs.plan import Part, SourceError, State
from spark.match.text import escape
from spark.runtime.places import Entry, Place

_STAMP = re.compile(rb"@[0-9a-f]{24} ")
_A_LINE = re.compile(rb"(?:^|\n)@[0-9a-f]{24} [^\n]*\n")
_NAME = re.compile(r"@[0-9a-f]{24}\.[su]")
# What a logger, or its processor, has at work: it may get another name, or be removed, at any time.
AT_WORK = frozenset(("current", "previous"))
_PRINT = 1 << 16  # Bytes before the place up to which a file was read that make its fingerprint.
_LOOK = 1 << 14
LINE_MAX = 1 << 20  # What is longer without a newline is garbage, and not carried.
_PLAIN = 3  # The entries of a file that is not compressed: size, fingerprint, lines.
_REMEMBERED = 1000  # Files of a stream that are gone and still known.


class Kept(NamedTuple):
    """What is new in a log that may be renamed meanwhile: the bytes themselves, or a file's path and where they are."""

    path: str
    start: int
    content: bytes | None


class Keep(Protocol):
    """Keeps bytes until they are matched. most: so many of one file may stay in memory."""

    most: int

    def __call__(self, path: str, start: int, end: int) -> Kept:
        """Keep what is new in a log, whose path is below LOGS, and where that begins and ends."""

    def take_room(self, size: int) -> bool:
        """Return whether so many bytes may stay in memory; then they count."""


class Joined(NamedTuple):
    """What is new in a stream, in order; its state after it; what is odd about its files."""

    parts: list[Part]
    state: State
    warnings: list[str]


class _Log(NamedTuple):
    """A file that has something new: from where on, its ends' bytes (unpacked), and how it is compressed.

    content: all that is new, unpacked, where it was kept.
    """

    entry: Entry
    start: int
    size: int
    head: bytes
    tail: bytes
    packing: str = ""
    content: bytes | None = None


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
        # Files that are those which were read by these names, though they may have grown.
        self._same = {log.name: log.size for log in logs if self._is_same(log)}
        self._doubt_unstamped(logs)
        found = [one for log in logs if (one := self._look(log)) is not None]
        # What goes on where it was read to comes first, most of all the file whose line is carried.
        goes_on = sorted((log for log in found if log.start), key=lambda log: log.entry.name != self._last)
        for one in [*goes_on, *self._in_order([log for log in found if not log.start])]:
            self._take(one)
        self._forget([log.name for log in logs])
        known = {**state, "files": self._known, "last": self._last, "carried": base64.b64encode(self._carried).decode()}
        return Joined(self._parts, known, self._warnings)

    def _path(self, name: str) -> str:
        return posixpath.join(self._below, name) if name else self._below

    def _print(self, name: str, size: int) -> str:
        return self._place.digest(self._path(name), max(0, size - _PRINT), min(size, _PRINT))[:32]

    def _is_same(self, log: Entry) -> bool:
        known = self._known.get(log.name)
        return bool(known and known[0] <= log.size and self._print(log.name, known[0]) == known[1])

    def _doubt_unstamped(self, logs: Sequence[Entry]) -> None:
        """Let files with new names be tried before a file at work of which no stamped line was read yet.

        Two stamped lines are never equal, but parts of lines may be. A logger may rename a file inside a line, and the
        next file begin with the same bytes. Then the file that was read is the one with the new name.
        """
        if all(log.name in self._same for log in logs):
            return
        for name in AT_WORK.intersection(self._same):
            known = self._known[name]
            small = len(known) == _PLAIN and known[0] <= _PRINT
            if small and not _A_LINE.search(self._place.read(self._path(name), 0, known[0])):
                del self._same[name]

    def _look(self, log: Entry) -> _Log | None:
        """Look at the ends of what is new in a file; None where nothing is, or nothing can be read."""
        if log.name in self._same:
            known = self._known[log.name]
            if known[0] == log.size:
                return None
            if len(known) == _PLAIN:
                return self._plain(log, known[0])
        path = self._path(log.name)
        head = self._place.read(path, 0, min(_LOOK, log.size))
        packing = packed.find_packing(head)
        if packing:
            return self._look_into(log, packing)
        for name, size, fingerprint in self._earlier(log.name):
            if size > log.size or self._print(log.name, size) != fingerprint:
                continue
            if size == log.size or self._is_rest(name, log):
                self._rename(name, log, size < log.size, [size, fingerprint, self._known[name][2]])
                return self._plain(log, size) if size < log.size else None
        self._known.pop(log.name, None)
        self._refuse_unstamped(log.name, head)
        return self._plain(log, 0)

    def _plain(self, log: Entry, start: int) -> _Log:
        path = self._path(log.name)
        head = self._place.read(path, start, min(_LOOK, log.size - start))
        return _Log(log, start, log.size, head, self._end(path, start, log.size))

    def _look_into(self, log: Entry, packing: str) -> _Log | None:
        """Do as _look for a compressed file."""
        earlier = list(self._earlier(log.name))
        looks = [(size - min(size, _PRINT), size + _LOOK) for _, size, _ in earlier]
        try:
            shape = self._unpack(packing, log.name, looks)
        except packed.Damaged as error:
            uri = self._place.uri(self._path(log.name))
            self._warnings.append(f"{uri}: {error}; it is passed by until it can be read")
            return None
        start, head, lines = 0, shape.head[:_LOOK], 0
        for (name, size, fingerprint), look in zip(earlier, shape.looks, strict=True):
            before = look[: min(size, _PRINT)]
            if size > shape.size or _fingerprint(before) != fingerprint:
                continue
            if size == shape.size or self._is_rest(name, log):
                start, head, lines = size, look[len(before) :], self._known[name][2]
                self._rename(name, log, size < shape.size, [])
                break
        # It is known by these until what is new in it is read, too; of most files that is nothing.
        self._known[log.name] = self._entry(log, shape.size, shape.tail, lines)
        if start == shape.size:
            return None
        if not start:
            self._refuse_unstamped(log.name, head)
        tail = shape.tail[-(shape.size - start) :]
        content = shape.content
        if content is not None:
            content = content[start:] if self._keep.take_room(shape.size - start) else None
        return _Log(log, start, shape.size, head, tail, packing, content)

    def _entry(self, log: Entry, size: int, tail: bytes, lines: int) -> list[Any]:
        """Return the entries of a compressed file whose content has `size` bytes and ends with `tail`."""
        return [log.size, self._print(log.name, log.size), lines, size, _fingerprint(tail[-_PRINT:])]

    def _earlier(self, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield by which names a file may have been read before, and what was read: its size, its fingerprint.

        A logger renames `current`, a processor makes another file of it (by way of `previous`, or a name with .u), an
        administrator compresses files, or unpacks them.
        """
        base = packed.base_name(name)
        stem = base.removesuffix(".s")
        names = (name, base, f"{stem}.u", "current", "previous", *(base + suffix for suffix in packed.SUFFIXES))
        for one in dict.fromkeys(names):
            if known := self._known.get(one):
                yield one, *(known[3:5] if len(known) > _PLAIN else known[:2])

    def _is_rest(self, old: str, log: Entry) -> bool:
        """Return whether a file that begins as one that was read by the name `old` goes on where that was read to.

        A file of the old name that is there, and has something new, goes on there itself; then the other is a copy.
        """
        return old == log.name or old not in self._same or self._same[old] == self._known[old][0]

    def _rename(self, old: str, log: Entry, goes_on: bool, known: list[Any]) -> None:
        """Know a file that was read by the name `old` by its own; by both, if there is one of the old name still."""
        if goes_on or old not in self._same:
            self._last = log.name if self._last == old else self._last
        if old not in self._same:
            del self._known[old]
        self._known[log.name] = known
        self._same[log.name] = log.size

    def _unpack(self, packing: str, name: str, looks: Sequence[tuple[int, int]]) -> packed.Shape:
        path, most = self._path(name), self._keep.most
        if self._place.local is None:
            return packed.look_through(packing, io.BytesIO(self._place.read(path)), LINE_MAX, looks, most)
        with open(posixpath.join(self._place.local, path), "rb") as raw:
            return packed.look_through(packing, raw, LINE_MAX, looks, most)

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
        # Nothing is carried of a line that is too long to be one: what is there of it is read as cut short.
        tail = log.tail[log.tail.rfind(b"\n") + 1 :]
        whole = b"\n" in log.tail or log.size - log.start == len(tail)
        tail = tail if whole else b""
        lines = self._known[name][2] if name in self._known else 0
        end = log.size - len(tail)
        if end > log.start:
            self._add(log, lines, end)
            self._carried = b""
        self._carried += tail
        if not log.packing:
            self._known[name] = [log.size, self._print(name, log.size), lines]
        self._last = name
        if len(self._carried) > LINE_MAX:
            self._tear()

    def _add(self, log: _Log, lines: int, end: int) -> None:
        name = log.entry.name
        path, start, content, packing = self._path(name), log.start, None, log.packing
        if log.content is not None:
            path, start, content, packing = "", 0, log.content[: end - start], ""
            end = len(content)
        elif not log.packing and (name in AT_WORK or name.startswith("_")):
            size = end - start
            path, start, content = self._keep(path, start, end)
            end = start + (size if content is None else len(content))
        else:
            path = posixpath.join(self._place.root, path) if path else self._place.root
        self._append(name, Part(path, "", name, start, end, lines + 1, self._carried, False, packing, content))

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
        ours = name in AT_WORK or _NAME.match(name) is not None
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


def _fingerprint(end: bytes) -> str:
    """Return what Joiner._print returns of a file whose last bytes are these."""
    return hashlib.sha256(end).hexdigest()[:32]


def _span(log: _Log) -> tuple[str, str] | None:
    """Return the stamps (24 digits) of the first and the last stamped line of a rotated file, if both are found."""
    if not _NAME.match(log.entry.name):
        return None
    stamps = [match for end in (log.head, log.tail) for match in re.findall(rb"(?:^|\n)@([0-9a-f]{24}) ", end)]
    return (stamps[0].decode(), stamps[-1].decode()) if stamps else None
