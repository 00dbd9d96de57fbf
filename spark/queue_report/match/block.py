"""Lines as the matcher is given them, and a block of them, taken apart as far as numpy can."""

from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from queue_report.match.stamps import BEHIND_NULS, STAMP, decode_stamps
from queue_report.match.text import escape, is_plain


class Lines(NamedTuple):
    """Lines of one file, in the order of the log.

    data: the bytes. starts, ends: where each line begins, and where it ends without its newline, as places in data.
    file: path below LOGS. first: the number of the first line in its file, from 1; None where it is not known.
    torn: each of these lines was cut short, and its rest is lost.
    """

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    file: str
    first: int | None = None
    torn: bool = False


def split_lines(data: bytes, file: str, first: int | None = None) -> Lines:
    """Return the lines of data. What follows the last newline, where there is anything, is a line too."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    ends = newlines if not data or data.endswith(b"\n") else np.append(newlines, len(data))
    starts = np.concatenate((np.zeros(min(1, len(ends)), np.int64), ends[:-1] + 1))
    return Lines(data, starts, ends, file, first)


class Block:
    """The lines of a block, with place, time and text of each.

    starts, ends: places in data. numbers: of the line, from 0. times: its stamp in Unix nanoseconds, where has_stamp.
    texts, prints (after read_texts): what follows the stamp, and a hash of that.
    """

    def __init__(self, lines: Lines) -> None:
        self.data, self.file, self._first = lines.data, lines.file, lines.first
        self.starts, self.ends = lines.starts, lines.ends
        self.numbers = np.arange(len(self.starts))
        if b"\0" in self.data and not lines.torn:
            self._split_at_nuls()
        self._bytes = np.frombuffer(self.data, np.uint8)
        if b"\r" in self.data:
            # A log that was copied by way of Windows. No program writes a CR into a line: it would be a `?`.
            self.ends = self.ends - ((self.ends > self.starts) & (self._bytes[self.ends - 1] == ord("\r")))
        self.times, self.has_stamp = decode_stamps(self._bytes, self.starts, self.ends)
        self.texts: list[bytes] = []
        self.prints = np.zeros(0, np.int32)

    def _split_at_nuls(self) -> None:
        """Split lines at stamps behind NULs. (Where a file has lost a block, it reads as NULs.)"""
        places = [found.start() for found in BEHIND_NULS.finditer(self.data)]
        inside = np.searchsorted(self.starts, places, "right") - 1
        cuts, into = np.array(places, np.int64), inside
        good = (into >= 0) & (cuts > self.starts[into]) & (cuts + STAMP <= self.ends[into])
        cuts, into = cuts[good], into[good]
        order = np.argsort(np.concatenate((self.starts, cuts)), kind="stable")
        self.numbers = np.concatenate((self.numbers, into))[order]
        self.starts = np.concatenate((self.starts, cuts))[order]
        ends = self.ends[self.numbers]
        # A part ends where the next part of its line begins.
        same = self.numbers[1:] == self.numbers[:-1]
        ends[:-1][same] = self.starts[1:][same]
        self.ends = ends

    def read_texts(self) -> None:
        data = self.data
        begins = self.starts + STAMP
        self.texts = [data[begin:end] for begin, end in zip(begins.tolist(), self.ends.tolist(), strict=True)]
        self.prints = np.fromiter(map(crc32, self.texts), np.uint32, len(self.texts)).view(np.int32)

    def keep(self, which: NDArray[np.bool_]) -> None:
        """Leave out the other lines."""
        for name in ("starts", "ends", "numbers", "times", "has_stamp"):
            setattr(self, name, getattr(self, name)[which])
        if self.texts:
            self.texts = [self.texts[place] for place in np.flatnonzero(which).tolist()]
            self.prints = self.prints[which]

    def line_number(self, place: int) -> int | None:
        """Return the number of a line in its file, None where it is not known."""
        return None if self._first is None else self._first + int(self.numbers[place])

    def line(self, place: int) -> bytes:
        return self.data[int(self.starts[place]) : int(self.ends[place])]

    def events(self) -> list[bytes]:
        """Return the texts as UTF-8."""
        if is_plain(self.data):
            return self.texts
        return [text if is_plain(text) else escape(text) for text in self.texts]

    def find_texts(self, head: bytes) -> NDArray[np.bool_]:
        """Return which texts begin with these 8 bytes."""
        places = (self.starts + STAMP)[:, None] + np.arange(8)
        heads = self._bytes[np.minimum(places, len(self._bytes) - 1)]
        found: NDArray[np.bool_] = heads.view(np.uint64)[:, 0] == np.frombuffer(head, np.uint64)[0]
        return found & (self.ends - self.starts >= STAMP + 8)
