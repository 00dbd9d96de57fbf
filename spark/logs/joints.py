"""The joints of a log's files: lines that stand in two of them, in two batches, or that were cut short.

A part of a line at the end of a file is carried, and joined with what comes next: with the same file, where it has
grown, always; with the next file unless that begins with a whole stamp, which tells that the line was cut short.

The state of a stream: `files`, for each file that was read its size then, a fingerprint of the last bytes before that
(so that it goes on where it was, `current` also under its later name) and its whole lines so far; `last`, the name of
the file that was read last; `carried`, what is open at its end (base64).
"""

import base64
import posixpath
import re
from collections.abc import Sequence
from typing import Any

from spark.logs.files import Entry, Files
from spark.logs.plan import Piece, SourceError, State

_STAMP = re.compile(rb"@[0-9a-f]{24} ")
_PRINT = 1 << 16  # Bytes before the place up to which a file was read that make its fingerprint.
_LOOK = 1 << 14
_LINE_MAX = 1 << 20  # What is longer without a newline is garbage, and not carried.
_REMEMBERED = 1000  # Files of a stream that are gone and still known.


class Joiner:
    """Goes through the files of one stream."""

    def __init__(self, files: Files, place: str, below: str, copies: str, block: int) -> None:
        self._files, self._place, self._below, self._copies, self._block = files, place, below, copies, block
        self._pieces: list[Piece] = []
        self._base = 0

    def join(self, host: str, queue: str, logs: Sequence[Entry], state: State) -> tuple[list[Piece], State]:
        """Return what is new in the logs, in order, and the state after it."""
        self._host, self._queue = host, queue
        self._known: dict[str, Any] = dict(state.get("files", {}))
        self._last: str = state.get("last", "")
        self._carried: bytes = base64.b64decode(state.get("carried", ""))
        for log in logs:
            self._take(log, self._start(log, [one.name for one in logs]))
        self._forget([log.name for log in logs])
        known = {**state, "files": self._known, "last": self._last, "carried": base64.b64encode(self._carried).decode()}
        return self._pieces, known

    def _path(self, name: str) -> str:
        return posixpath.join(self._place, name) if name else self._place

    def _print(self, name: str, size: int) -> str:
        return self._files.digest(self._path(name), max(0, size - _PRINT), min(size, _PRINT))[:32]

    def _start(self, log: Entry, names: list[str]) -> int:
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

    def _take(self, log: Entry, start: int) -> None:
        if start == log.size:
            return
        path = self._path(log.name)
        head = self._files.read(path, start, min(_LOOK, log.size - start))
        if start == 0:
            self._refuse_unstamped(log.name, head)
        if self._carried and not (start and self._last == log.name) and _STAMP.match(head):
            self._tear()
        tail = self._tail(path, start, log.size)
        lines = self._known[log.name][2] if log.name in self._known else 0
        end = log.size - len(tail)
        if end > start:
            in_place = not (start or tail or self._carried or log.name == "current" or log.name.startswith("_"))
            self._add(log.name, lines, start, end, in_place)
            self._carried = b""
        self._carried += tail
        self._known[log.name] = [log.size, self._print(log.name, log.size), lines]
        self._last = log.name
        if len(self._carried) > _LINE_MAX:
            self._tear()

    def _tail(self, path: str, start: int, size: int) -> bytes:
        """Return what stands behind the last newline; nothing of a line that is too long to be one."""
        look = _LOOK
        while True:
            begin = max(start, size - look)
            data = self._files.read(path, begin, size - begin)
            if b"\n" in data or begin == start:
                return data[data.rfind(b"\n") + 1 :]
            if look > _LINE_MAX:
                return b""
            look *= 4

    def _add(self, name: str, lines: int, start: int, end: int, in_place: bool) -> None:
        path = self._path(name)
        size = end - start
        if not in_place:
            copy = f"{self._copies}.{len(self._pieces)}"
            size = self._files.stage(path, start, end, self._carried, copy)
            path = copy
        self._append(path, name, lines, size, carried=bool(self._carried))

    def _tear(self) -> None:
        """What is carried was cut short: a piece of its own."""
        copy = f"{self._copies}.{len(self._pieces)}"
        size = self._files.stage(self._path(self._any_name()), 0, 0, self._carried, copy)
        lines = self._known[self._last][2] if self._last in self._known else 0
        self._append(copy, self._last, lines, size, torn=True)
        self._carried = b""

    def _any_name(self) -> str:
        return next(one.name for one in self._files.list(self._place) if not one.is_directory)

    def _append(
        self, path: str, name: str, lines: int, size: int, carried: bool = False, torn: bool = False
    ) -> None:
        file = posixpath.normpath(posixpath.join(self._below, name)) if name else posixpath.basename(self._place)
        self._pieces.append(
            Piece(
                *(self._files.name(path), self._files.uri(path), self._host, self._queue, file, name),
                *(self._base, lines + 1, carried, torn, size),
            )
        )
        self._base += max(1, -(-size // self._block))

    def _refuse_unstamped(self, name: str, head: bytes) -> None:
        """Raise SourceError for a file that no logger of ours has written: syslog, or multilog without t."""
        lines = head.split(b"\n")
        if any(_STAMP.match(line) for line in lines):
            return
        ours = name == "current" or (name.startswith("@") and name[-2:] in (".s", ".u"))
        # A file that begins inside a line may have no stamp, but not for many lines.
        if ours and len(lines) <= 8:
            return
        raise SourceError(
            f"{self._path(name)}: its lines have no TAI64N stamps; expected is "
            "`@4000000067450a1b2c3d4e5f new msg 457`, as multilog with t, or svlogd with -t, writes it"
        )

    def _forget(self, names: list[str]) -> None:
        gone = [name for name in self._known if name not in names and name != self._last]
        for name in sorted(gone)[: max(0, len(gone) - _REMEMBERED)]:
            del self._known[name]
