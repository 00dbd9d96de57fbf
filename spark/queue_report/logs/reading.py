"""What is new in the files of one stream, as lines in their order, wherever a file was cut, renamed or compressed.

A file is known by its first bytes and by how many bytes of it were read: so it is recognized when it has grown, has got
another name, or was compressed. Names give the order, since a logger's names are stamps; what goes on where it was read
to comes first. The part of a line at the end of a file is carried to the next build. What the same file has grown by
continues it. The next file does, unless it begins with a whole stamp: then no more of the line came, and it is torn.

A logger may rename `current` at any time. So it is opened before the directory is listed, and has its name still
afterwards, or all is done again; then it is read by what was opened, whatever its name is by now.
"""

import base64
import errno
import hashlib
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from queue_report.logs import packed
from queue_report.logs.streams import SourceError, choose_logs
from queue_report.match.block import Lines, split_lines
from queue_report.match.grammar import is_line
from queue_report.match.stamps import IS_STAMPED
from queue_report.match.text import escape
from queue_report.runtime.files import Entry, Files

BLOCK = 4 << 20
LINE_MAX = 1 << 20  # What is longer without a newline is garbage; of it no more is kept than this.
# A block has no more lines than this, so that one of newlines does not take many times its size.
_LINES_MAX = 1 << 16
# So many of its first bytes a file is known by.
HEAD = 1 << 10
# So many of the last bytes that were read show that a file still has them.
_LAST = 1 << 8
_LOOK = 1 << 14
# What a logger, or its processor, has at work: it may get another name, or be removed, at any time.
_AT_WORK = ("current", "previous")
# What says of one of these that there is no such file: it may be a directory or a socket.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
_TRIES = 5
_REMEMBERED = 1000  # Files of a stream that are gone and still known.
_TAIL = 1 << 16
_OLD = "tail:"
_NAME = re.compile(r"@[0-9a-f]{24}\.[su]")
_STAMPS = re.compile(rb"(?:^|\n)@([0-9a-f]{24}) ")
_MAY_BE_STAMP = re.compile(rb"@[0-9a-f]{0,24}")
_NULS = re.compile(rb"\0+")


@dataclass
class Known:
    """A file that was read: its size then, how many bytes of its content were read, a hash of the first HEAD of these,
    its lines so far, and a hash of the last _LAST bytes, `` where these are not known. damaged: when a file that cannot
    be unpacked had changed (Entry.changed), so that it is not tried again before it changes.

    A head `tail:…` is that of a lake of the form before: a hash of the last bytes that were read.
    """

    size: int
    read: int
    head: str
    lines: int
    last: str = ""
    damaged: int = 0

    def is_as_it_was(self, entry: Entry) -> bool:
        """Return whether a file of this name has nothing new."""
        return self.size == entry.size and self.damaged in (0, entry.changed)


class _Log(NamedTuple):
    """A file that may have something new. head, tail: the first bytes of its content, and the last, if it is not
    packed. start, lines: what was read of it."""

    entry: Entry
    head: bytes
    tail: bytes
    packed: bool
    start: int = 0
    lines: int = 0

    @property
    def name(self) -> str:
        return self.entry.name


def find_new(state: Mapping[str, Any], entries: Sequence[Entry]) -> int | None:
    """Return about how many bytes of a stream's files are new, None if nothing is; state: see Reading."""
    known = {name: Known(*one) for name, one in state.get("files", {}).items()}
    if all(one.name in known and known[one.name].is_as_it_was(one) for one in entries):
        return None
    return sum(max(0, one.size - known[one.name].size if one.name in known else one.size) for one in entries)


class Reading:
    """Reads what is new in the stream whose directory is `below`; state: what `pack` of the last one gave, or {}.

    warnings: what is odd about its files. bytes, opened: how much was read, of how many files.
    """

    def __init__(self, files: Files, below: str, state: Mapping[str, Any]) -> None:
        self.warnings: list[str] = []
        self.bytes = self.opened = 0
        self._files, self._below = files, below
        self._known = {name: Known(*one) for name, one in state.get("files", {}).items()}
        self._last: str = state.get("last", "")
        self._carried = base64.b64decode(state.get("carried", ""))
        self._at_work: dict[str, BinaryIO] = {}

    def pack(self) -> dict[str, Any]:
        """Return the state after what was read, for JSON."""
        return {
            "files": {name: list(astuple(one)) for name, one in self._known.items()},
            "last": self._last,
            "carried": base64.b64encode(self._carried).decode(),
        }

    def lines(self) -> Iterator[Lines]:
        """Yield the lines that are new, in order. Raises SourceError, and OSError where a file cannot be read."""
        for left in reversed(range(_TRIES)):
            try:
                with ExitStack() as stack:
                    yield from self._read_in_order(*self._look_at(self._list(stack)))
                break
            except FileNotFoundError:
                # Some file has another name now, and those behind it must not be read before it.
                if not left:
                    raise
        self.warnings = list(dict.fromkeys(self.warnings))

    def _read_in_order(self, grown: list[_Log], others: list[_Log], new: list[_Log]) -> Iterator[Lines]:
        yield from self._read_all(grown)
        aside = self._carried, self._last
        if others:
            self._carried, self._last = b"", ""
            yield from self._read_all(others)
            if self._carried:
                yield self._torn()
            self._carried, self._last = aside
        yield from self._read_all(new)

    def _read_all(self, logs: Sequence[_Log]) -> Iterator[Lines]:
        for log in logs:
            try:
                yield from self._read(log)
            except packed.Damaged as error:
                if not log.packed:
                    raise
                self._give_back(log)
                self._pass_by(log.entry, error)
            except FileNotFoundError:
                if not self._is_removed(log.name):
                    raise

    def _path(self, name: str) -> str:
        return posixpath.join(self._below, name) if name else self._below

    def _uri(self, name: str) -> str:
        return posixpath.join(self._files.root, self._path(name)).rstrip("/")

    def _list(self, stack: ExitStack) -> list[Entry]:
        """Return the logs; open those at work first, so that each is what was listed by its name."""
        for _ in range(_TRIES):
            self._at_work.clear()
            for name in _AT_WORK:
                try:
                    self._at_work[name] = stack.enter_context(self._files.open(self._path(name)))
                except OSError as error:
                    if error.errno not in _NO_FILE:
                        raise
            found = choose_logs(self._files.list(self._below))
            at_work = [one.name for one in found if one.name in _AT_WORK]
            if all(name in self._at_work for name in at_work) and all(
                self._files.is_same(file, self._path(name)) for name, file in self._at_work.items()
            ):
                return found
        # There is always a new one: those at work are left to the next build.
        self._at_work.clear()
        return [one for one in found if one.name not in _AT_WORK]

    def _open(self, name: str) -> tuple[BinaryIO, BinaryIO]:
        """Return a file, and what reads its content from the beginning."""
        raw = self._at_work.get(name)
        if raw is None:
            raw = self._files.open(self._path(name))
        else:
            raw.seek(0)
        return raw, packed.unpack(raw)

    def _close(self, name: str, raw: BinaryIO) -> None:
        if name not in self._at_work:
            raw.close()

    def _look_at(self, entries: Sequence[Entry]) -> tuple[list[_Log], list[_Log], list[_Log]]:
        """Return what may have something new, in the order of its lines: files that go on, others, and new ones.

        Others are new, but `current` goes on, so that none of their lines was before or after its own: old files that
        were brought back, copies.
        """
        names = {one.name for one in entries}
        looks = []
        for entry in entries:
            known = self._known.get(entry.name)
            if known is None or not known.is_as_it_was(entry) or entry.name in _AT_WORK:
                try:
                    looks.append(self._look(entry))
                except FileNotFoundError:
                    if not self._is_removed(entry.name):
                        raise
                except packed.Damaged as error:
                    self._pass_by(entry, error)
        found = self._find_earlier(looks)
        own, claimed = names.difference(_AT_WORK), set[str]()
        own |= {log.name for log in looks if log.name in found[log.name] and _is_sure(self._known[log.name], log)}
        goes_on, new = [], []
        after = {name: one for name, one in self._known.items() if name in names}
        now_called = {name: name for name in after if name not in found}
        for log in looks:
            name = self._earlier(log.name, found[log.name], own, claimed)
            if name is None:
                self._refuse_unstamped(log)
                after[log.name] = Known(-1, 0, "", 0)
                new.append(log)
                continue
            if name != log.name:
                claimed.add(name)
            known = self._known[name]
            if self._was_cut(known, log):
                # As a power cut leaves it. All of it is read again: what counted does not count twice.
                after[log.name] = Known(-1, 0, "", 0)
                new.append(log)
                if name == self._last:
                    self._carried = b""
                continue
            known = replace(known, head=_hash(log.head[: min(known.read, HEAD)]), damaged=0)
            is_new = log.packed or log.entry.size > known.read or log.name in _AT_WORK
            after[log.name] = replace(known, size=-1 if is_new else log.entry.size)
            if name == log.name or name not in now_called:
                now_called[name] = log.name
            if is_new:
                goes_on.append(log._replace(start=known.read, lines=known.lines))
        self._last = now_called.get(self._last, self._last)
        self._remember(after, names)
        goes_on.sort(key=lambda log: log.name != self._last)
        in_order = self._in_order(new)
        if any(log.name == self._last in _AT_WORK for log in goes_on):
            others = [log for log in in_order if log.name not in _AT_WORK]
            return goes_on, others, [log for log in in_order if log.name in _AT_WORK]
        return goes_on, [], in_order

    def _find_earlier(self, looks: Sequence[_Log]) -> dict[str, list[str]]:
        """Return for each file the names by which it may have been read before."""
        sizes = {min(one.read, HEAD) for one in self._known.values()} - {0}
        by_head: dict[str, list[str]] = {}
        for name, one in self._known.items():
            by_head.setdefault(one.head, []).append(name)
        tails = [name for name, one in self._known.items() if one.head.startswith(_OLD)]
        found = {}
        for log in looks:
            heads = {_hash(log.head[:size]) for size in sizes if size <= len(log.head)}
            same = [
                name for head in heads for name in by_head.get(head, ())
                if _is_sure(self._known[name], log) or _may_be_called(name, log.name)
            ] + [name for name in tails if self._is_tail(name, log)]  # fmt: skip
            # Of several that begin alike it is the one with its name.
            found[log.name] = [name for name in same if _stem(name) == _stem(log.name)] or same
        return found

    def _is_removed(self, name: str) -> bool:
        """Return whether a file that was listed is gone, as a logger removes its oldest; else it was renamed."""
        if any(_stem(one.name) == _stem(name) for one in self._files.list(self._below)):
            return False
        self.warnings.append(f"{self._uri(name)}: it was removed before it was read")
        if name in self._known and not self._known[name].read:
            del self._known[name]
        return True

    def _give_back(self, log: _Log) -> None:
        """Have what is read of a damaged file later, once it is mended, begin with a whole line."""
        known = self._known[log.name]
        part = min(len(self._carried), known.read - log.start)
        self._carried = self._carried[: len(self._carried) - part]
        known.read -= part
        known.head = _hash(log.head[: min(known.read, HEAD)]) if known.read else ""
        known.last = ""

    def _pass_by(self, entry: Entry, error: packed.Damaged) -> None:
        """Have a damaged file wait until it changes."""
        known = self._known.get(entry.name, Known(0, 0, "", 0))
        self._known[entry.name] = replace(known, size=entry.size, damaged=entry.changed)
        self.warnings.append(f"{self._uri(entry.name)}: {error}; it is passed by until it changes")

    def _look(self, entry: Entry) -> _Log:
        raw, file = self._open(entry.name)
        try:
            tail = head = _read_up_to(file, _LOOK)
            if file is raw and entry.size > len(head):
                raw.seek(max(0, entry.size - _LOOK))
                tail = raw.read(_LOOK)
            return _Log(entry, head, tail, file is not raw)
        finally:
            self._close(entry.name, raw)

    def _earlier(self, name: str, same: Sequence[str], own: set[str], claimed: set[str]) -> str | None:
        """Return by which name a file was read before, None if it was not.

        same: those that it may have had. own: names of files that surely keep theirs. claimed: names from which
        another file was renamed. Of few bytes, or of a part of a line, it is doubtful which file they were: then a
        file at work gives way to one with a new name, which is what it was renamed to.
        """
        if name in same and (name in own or name not in claimed):
            return name
        # One that is there still is another file, of which this is a copy: then its lines are repeats.
        other = own | claimed
        gone = [one for one in same if one != name and (one not in other or _stem(one) == _stem(name))]
        return max(gone, key=lambda one: self._known[one].read, default=None)

    def _is_tail(self, name: str, log: _Log) -> bool:
        """Return whether a file that an earlier version has read is this one: it knew the last bytes before a place."""
        known = self._known[name]
        if log.packed and not _may_be_called(name, log.name):
            return False
        last = self._last_bytes(log, known.read, _TAIL)
        return last is not None and known.head == old_head(hashlib.sha256(last).hexdigest()[:32])

    def _was_cut(self, known: Known, log: _Log) -> bool:
        """Return whether a file has not all bytes any more that were read of it."""
        if log.packed or not known.last:
            return False
        last = self._last_bytes(log, known.read, _LAST)
        return last is None or _hash(last) != known.last

    def _last_bytes(self, log: _Log, place: int, most: int) -> bytes | None:
        """Return the last bytes before a place in a file; None where it ends before that."""
        raw, file = self._open(log.name)
        try:
            start = max(0, place - most)
            _go_to(file, log, start)
            found = _read_up_to(file, place - start)
        except packed.Damaged:
            return None
        finally:
            self._close(log.name, raw)
        return found if len(found) == place - start else None

    def _remember(self, after: dict[str, Known], names: set[str]) -> None:
        """Know the files that are there, and the last that are gone: they may come back compressed."""
        taken = {(one.read, one.head) for one in after.values()}
        gone = [name for name, one in self._known.items() if name not in names and (one.read, one.head) not in taken]
        kept = sorted(gone)[-_REMEMBERED:]
        self._known = {name: self._known[name] for name in kept} | after

    def _in_order(self, logs: list[_Log]) -> list[_Log]:
        """Return new files in the order of their lines: that of their names, unless names were swapped.

        The name of a rotated file is a stamp that is not earlier than its last line's. Where names break that, and
        the order of the lines' own stamps does not, they were swapped.
        """
        spans = {log.name: span for log in logs if (span := self._span(log)) is not None}
        named = [at for at, log in enumerate(logs) if log.name in spans]
        by_stamp = sorted(named, key=lambda at: spans[logs[at].name])
        moved = [(at, other) for at, other in zip(named, by_stamp, strict=True) if at != other]
        if not moved:
            return logs
        names = [logs[at].name for at, _ in moved]
        sources = [logs[other].name for _, other in moved]
        broken = any(name[1:25] < spans[name][1] for name in names)
        mended = all(name[1:25] >= spans[source][1] for name, source in zip(names, sources, strict=True))
        apart = all(spans[one][1] <= spans[two][0] for one, two in itertools.pairwise(sources))
        if not (broken and mended and apart):
            return logs
        ordered = list(logs)
        for at, other in moved:
            ordered[at] = logs[other]
        self.warnings.append(
            f"{self._uri('')}: the stamps in {' and '.join(names[:4])} "
            "say that their names are swapped; they are read in the order of the stamps"
        )
        return ordered

    def _span(self, log: _Log) -> tuple[str, str] | None:
        """Return the stamps (24 digits) of the first and the last stamped line of a rotated file, if both are found."""
        if not _NAME.match(log.name) or log.packed:
            return None
        stamps = _STAMPS.findall(log.head) + _STAMPS.findall(log.tail)
        return (stamps[0].decode(), stamps[-1].decode()) if stamps else None

    def _refuse_unstamped(self, log: _Log) -> None:
        """Raise SourceError for a file that no logger of ours has written: syslog, or multilog without t."""
        lines = log.head.split(b"\n")
        if any(IS_STAMPED.match(line) for line in lines):
            return
        ours = log.name in _AT_WORK or _NAME.match(log.name) is not None
        # A file that begins inside a line may have no stamp, but not for many lines.
        if ours and len(lines) <= 8:
            return
        raise SourceError(
            f"{self._uri(log.name)}: its lines have no TAI64N stamps; expected is "
            "`@4000000067450a1b2c3d4e5f new msg 457`, as multilog with t, or svlogd with -t, writes it"
        )

    def _read(self, log: _Log) -> Iterator[Lines]:
        """Yield the lines of a file from where it was read to; what is open at its end is carried."""
        raw, file = self._open(log.name)
        known = self._known[log.name]
        known.size = -1  # Until all of it is read.
        try:
            begin = max(0, log.start - _LAST)
            _go_to(file, log, begin)
            yield from self._read_on(log, known, file, _read_up_to(file, log.start - begin))
            known.size = log.entry.size if log.packed else known.read
        finally:
            self._close(log.name, raw)

    def _read_on(self, log: _Log, known: Known, file: BinaryIO, last: bytes) -> Iterator[Lines]:
        """Yield the lines of a file from here on; last: bytes before that."""
        name = log.name
        goes_on = bool(log.start) and self._last == name
        head, rest, joined = log.head[: log.start][:HEAD], _Rest(self._carried), False
        while chunk := packed.read_some(file, BLOCK):
            if known.read == log.start:
                if self._carried and not goes_on and name in _AT_WORK and _MAY_BE_STAMP.fullmatch(chunk):
                    # Whether it begins with a stamp is to be seen.
                    return
                self.opened += 1
                if self._carried and not goes_on:
                    if IS_STAMPED.match(chunk):
                        yield self._torn()
                        rest = _Rest(b"")
                    joined = bool(rest.line)
            self.bytes += len(chunk)
            known.read += len(chunk)
            last = (last + chunk[-_LAST:])[-_LAST:]
            known.last = _hash(last)
            if len(head) < HEAD:
                head += chunk[: HEAD - len(head)]
                known.head = _hash(head)
            if joined or rest.is_long:
                end = chunk.find(b"\n")
                rest.add(chunk if end < 0 else chunk[:end])
                if end >= 0:
                    known.lines += 1
                    yield self._line(name, rest.line, None if joined else known.lines)
                    joined, rest, chunk = False, _Rest(b""), chunk[end + 1 :]
                else:
                    chunk = b""
            end = chunk.rfind(b"\n") + 1
            if end:
                for lines in self._blocks(name, rest.line + chunk[:end], known.lines + 1):
                    yield lines
                    known.lines += len(lines.starts)
                rest = _Rest(b"")
            rest.add(chunk[end:])
            self._carried, self._last = rest.line, name

    def _blocks(self, name: str, data: bytes, first: int) -> Iterator[Lines]:
        """Yield whole lines, not too many at once, each of which ends with a newline; one that is too long alone."""
        _, starts, ends, *_ = split_lines(data, "")
        cuts = {0, len(ends), *range(0, len(ends), _LINES_MAX)}
        long = np.flatnonzero(ends - starts > LINE_MAX).tolist()
        for place in long:
            cuts |= {place, place + 1}
        for at, until in itertools.pairwise(sorted(cuts)):
            begin, end = int(starts[at]), int(ends[until - 1])
            if until - at == 1 and end - begin > LINE_MAX:
                yield self._line(name, _Rest(data[begin:end]).line, first + at)
            else:
                part = data if until - at == len(ends) else data[begin : end + 1]
                here = slice(at, until)
                yield Lines(part, starts[here] - begin, ends[here] - begin, self._name(name), first + at)

    def _torn(self) -> Lines:
        """Return the line that is carried: it was cut short."""
        line, self._carried = self._carried, b""
        # A logger completes a file before it calls it .s: what ends there without a newline was written so.
        whole = packed.base_name(self._last).endswith(".s") and is_line(line)
        known = self._known.get(self._last)
        number = known.lines + 1 if known else 1
        return _one_line(line[:LINE_MAX], self._name(self._last), number, not whole)

    def _line(self, name: str, line: bytes, number: int | None) -> Lines:
        return _one_line(line[:LINE_MAX], self._name(name), number, len(line) > LINE_MAX)

    def _name(self, name: str) -> str:
        """Return a file's path below LOGS, for people."""
        path = posixpath.normpath(self._path(name)) if self._path(name) else posixpath.basename(self._files.root)
        # A name may have bytes that are no UTF-8, which no table can hold.
        return escape(path.encode("utf-8", "surrogateescape")).decode()


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


def _is_sure(known: Known, log: _Log) -> bool:
    """Return whether no other file begins with the same bytes: they are many, and a line begins among them."""
    return known.read >= HEAD and _STAMPS.search(log.head, 0, HEAD) is not None


def _may_be_called(old: str, new: str) -> bool:
    """Return whether a logger, its processor or an administrator gives a file of that name this one.

    A logger renames `current`, by way of `previous` or a name with .u; an administrator compresses, or unpacks.
    """
    renamed = old in _AT_WORK and (new == "previous" or _NAME.match(new) is not None)
    return renamed or _stem(old) == _stem(new)


def _stem(name: str) -> str:
    return packed.base_name(name).removesuffix(".s").removesuffix(".u")


def _skip(file: BinaryIO, size: int) -> None:
    while size > 0 and (chunk := packed.read_some(file, min(size, BLOCK))):
        size -= len(chunk)


def _read_up_to(file: BinaryIO, size: int) -> bytes:
    """Return so many bytes, or fewer at the end."""
    found = b""
    while len(found) < size and (more := packed.read_some(file, size - len(found))):
        found += more
    return found


def _go_to(file: BinaryIO, log: _Log, place: int) -> None:
    """Go to a place in the content of a file that was just opened."""
    if log.packed:
        _skip(file, place)
    else:
        file.seek(place)


def _one_line(line: bytes, file: str, number: int | None, torn: bool) -> Lines:
    return Lines(line, np.zeros(1, np.int64), np.array([len(line)], np.int64), file, number, torn)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def old_head(fingerprint: str) -> str:
    """Return the `head` of a file by the fingerprint of the last 64 kB that a lake of the form before has of it."""
    return _OLD + fingerprint
