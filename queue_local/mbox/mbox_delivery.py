"""Appends one message to an mbox file (mbox(5), qmail-local(8)) so that its other contents stay intact.

The file is locked with flock, fcntl and FILE.lock. A message that is reported as delivered is durable. If a write
fails, the file is truncated to its old length. If a kill or power cut interrupts a write, the next delivery truncates
the file, to the length that the journal in the lock file gives; without a lock file, because the directory may not be
written, the partial message stays, as with qmail. Every failure is Temporary, with qmail-local's text.

A message in an mbox file (`mbox_text`) is:

    From sender date          with the other lines of the delivery: `head`
    the message               a line that matches `>*From ` gets one more `>`; the last line gets a newline
    an empty line
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator

from queue_base.durable import check_works, write_all
from queue_base.errors import Temporary, reason
from queue_local.mbox.dotlock import Journal, fold
from queue_local.mbox.mbox_lock import Box, open_box

_CHUNK = 1 << 18
_FROM = re.compile(rb"(\n>*)From ")
# A line at the end of a piece that the next piece may complete to `From `, without its `>`.
_BEGUN = (b"", b"F", b"Fr", b"Fro", b"From")
# Longer than any From_ line up to its date.
_WINDOW = 1200
_FROM_LINE = re.compile(rb"From [^\n]{0,1100}\d\d:\d\d")
_HEAD = (b"From ", b"Return-Path: <", b"Delivered-To: ")


def deliver_mbox(path: str, head: bytes, message: int) -> None:
    """Append `head` (the From_, Return-Path and Delivered-To lines) and the open file `message`, from its start."""
    box = open_box(path)
    if box is None:
        return
    try:
        _undo_cut(box)
        _append(box, head, message)
    except OSError as error:
        raise Temporary(f"Unable to write {path}: {reason(error)}. (#4.3.0)") from error
    finally:
        box.close()


def _undo_cut(box: Box) -> None:
    """Remove the partial message that a killed delivery has left at the end of the file."""
    for lock in box.locks:
        _undo(box, lock.left)


def _undo(box: Box, left: Journal) -> None:
    size, end = os.fstat(box.handle).st_size, left.length + left.added
    if not left.length < size <= end:
        return
    # In a power cut the new length can reach the disk before the data.
    whole = size == end and _check(_pieces(box.handle, left.length))[1] == left.check
    if not whole and is_cut_message(_pieces(box.handle, left.length), left.head):
        os.ftruncate(box.handle, left.length)
        os.fsync(box.handle)


def _append(box: Box, head: bytes, message: int) -> None:
    length = os.fstat(box.handle).st_size
    start = missing_end(_last_bytes(box.handle, length)) + head
    if box.journal:
        added, check = _check(mbox_text(start, _message(message)))
        box.journal.write(Journal(length, added, check, fold(head)))
    if box.journal or not length:
        box.sync_names()
    try:
        for piece in _gathered(mbox_text(start, _message(message))):
            write_all(box.handle, piece)
            box.touch()
        os.fsync(box.handle)
        check_works(box.handle)
    except BaseException:
        _cut_back(box, length)
        raise


def _cut_back(box: Box, length: int) -> None:
    try:
        os.ftruncate(box.handle, length)
        os.fsync(box.handle)
    except OSError:
        # The next delivery tries again.
        box.keep_lock = True


def _last_bytes(handle: int, length: int) -> bytes:
    """Return the last two bytes of the file; two newlines if the file may be written but not read."""
    try:
        return os.pread(handle, 2, max(0, length - 2))
    except OSError:
        return b"\n\n"


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in larger pieces, so that most messages are one write."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length >= _CHUNK:
            yield b"".join(held)
            held, length = [], 0
    yield b"".join(held)


def _check(pieces: Iterator[bytes]) -> tuple[int, int]:
    """Return the number of bytes in the pieces, and their checksum."""
    length = crc = 0
    for piece in pieces:
        length, crc = length + len(piece), zlib.crc32(piece, crc)
    return length, fold(b"", crc)


def _message(message: int) -> Iterator[bytes]:
    try:
        yield from _pieces(message, 0)
    except OSError as error:
        raise Temporary(f"Unable to read message: {reason(error)}. (#4.3.0)") from error


def _pieces(handle: int, offset: int) -> Iterator[bytes]:
    while data := os.pread(handle, _CHUNK, offset):
        yield data
        offset += len(data)


def mbox_text(head: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes to append for a message that comes in pieces of any size."""
    yield head
    at_start, kept, last = True, b"", b""
    for piece in pieces:
        # The byte in front tells whether a line begins here. What may become `From ` is kept for the next piece.
        data = _FROM.sub(rb"\1>From ", (b"\n" if at_start else b"x") + kept + piece)
        begun = data[data.rfind(b"\n") + 1 :].lstrip(b">") if b"\n" in data else None
        at_start, kept = (True, begun) if begun in _BEGUN and begun is not None else (False, b"")
        yield data[1 : len(data) - len(kept)]
        last = piece or last
    yield kept
    yield b"\n" if not last or last.endswith(b"\n") else b"\n\n"


def missing_end(last: bytes) -> bytes:
    """Return the newlines that a file needs to end with an empty line; `last` are its last two bytes, or fewer."""
    if not last or last == b"\n\n":
        return b""
    return b"\n" if last.endswith(b"\n") else b"\n\n"


def is_cut_message(pieces: Iterable[bytes], check: int) -> bool:
    """Return whether the end of an mbox, in pieces, is a partial message of a killed delivery and nothing else.

    `check` is the checksum of its head. Returns False if it may be another message, or another message follows: a
    From_ line that is not the first.
    """
    kept, first = b"", True
    for piece in pieces:
        data = kept + piece
        if first:
            data, first = data.removeprefix(b"\n").removeprefix(b"\n"), False
            if not _starts_as_ours(data.rstrip(b"\0"), check):
                return False
            # Without its first byte, the own From_ line does not match.
            data = data[1:]
        if _FROM_LINE.search(data):
            return False
        kept = data[-_WINDOW:]
    return True


def _starts_as_ours(data: bytes, check: int) -> bool:
    """Return whether the first three lines are those of the head, as far as they exist."""
    *lines, cut = data.split(b"\n", len(_HEAD))
    if len(lines) == len(_HEAD):
        return fold(b"\n".join(lines) + b"\n") == check
    start = _HEAD[len(lines)]
    return all(line.startswith(begin) for line, begin in zip(lines, _HEAD, strict=False)) and (
        cut.startswith(start) or start.startswith(cut)
    )
