"""Appends one message to an mbox file (mbox(5), qmail-local(8)), so that what is in it stays whole.

Locked with flock, fcntl and FILE.lock; what was reported as delivered is safe on the disk. A write that fails is
truncated back. One that was cut by a kill or a power cut is truncated back by the next delivery, which finds
the old length in the lock file; where the directory may not be written there is no lock file, and it stays,
as in qmail. Every failure is Temporary, with qmail-local's text.
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator

from queue_base.durable import write_all
from queue_base.errors import Temporary, reason
from queue_local.dotlock import Journal, fold
from queue_local.mbox_file import Box, open_box

_CHUNK = 1 << 18
_FROM = re.compile(rb"(\n>*)From ")
# What a line may begin with, behind its `>`, at the end of a piece, when the next piece can make it `From `.
_BEGUN = (b"", b"F", b"Fr", b"Fro", b"From")
# Longer than any From_ line: the date is within it.
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
    """Remove the piece of a message that a delivery which was killed has left at the end of the file."""
    for lock in box.locks:
        _undo(box, lock.left)


def _undo(box: Box, left: Journal) -> None:
    size, end = os.fstat(box.handle).st_size, left.length + left.added
    if not left.length < size <= end:
        return
    # In a power cut the length can reach the disk before the bytes do.
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
    except BaseException:
        _cut_back(box, length)
        raise


def _cut_back(box: Box, length: int) -> None:
    try:
        os.ftruncate(box.handle, length)
        os.fsync(box.handle)
    except OSError:
        # The disk is in trouble; the next delivery tries it again.
        box.keep_lock = True


def _last_bytes(handle: int, length: int) -> bytes:
    """Return the last two bytes of the file; an empty line's where it may be written but not read."""
    try:
        return os.pread(handle, 2, max(0, length - 2))
    except OSError:
        return b"\n\n"


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in larger pieces: most messages are one write."""
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
    """Return the number of bytes in the pieces, and their check."""
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
        # One byte in front says whether a line begins here; what may become `From ` waits for the next piece.
        data = _FROM.sub(rb"\1>From ", (b"\n" if at_start else b"x") + kept + piece)
        begun = data[data.rfind(b"\n") + 1 :].lstrip(b">") if b"\n" in data else None
        at_start, kept = (True, begun) if begun in _BEGUN and begun is not None else (False, b"")
        yield data[1 : len(data) - len(kept)]
        last = piece or last
    yield kept
    yield b"\n" if not last or last.endswith(b"\n") else b"\n\n"


def missing_end(last: bytes) -> bytes:
    """Return what a file that ends in `last` (two bytes, fewer in a shorter file) lacks of an empty line at its end."""
    if not last or last == b"\n\n":
        return b""
    return b"\n" if last.endswith(b"\n") else b"\n\n"


def is_cut_message(pieces: Iterable[bytes], check: int) -> bool:
    """Return whether the end of an mbox, in pieces, is the beginning of a message that we were adding, and no more.

    `check` is its head's. False where it might be anybody else's, or has anybody else's behind it: a From_ line that
    is not the first.
    """
    kept, first = b"", True
    for piece in pieces:
        data = kept + piece
        if first:
            data, first = data.removeprefix(b"\n").removeprefix(b"\n"), False
            if not _starts_as_ours(data.rstrip(b"\0"), check):
                return False
            # Behind its first byte the own From_ line is no other one.
            data = data[1:]
        if _FROM_LINE.search(data):
            return False
        kept = data[-_WINDOW:]
    return True


def _starts_as_ours(data: bytes, check: int) -> bool:
    """Return whether the first three lines are those of the head, as far as they are there."""
    *lines, cut = data.split(b"\n", len(_HEAD))
    if len(lines) == len(_HEAD):
        return fold(b"\n".join(lines) + b"\n") == check
    start = _HEAD[len(lines)]
    return all(line.startswith(begin) for line, begin in zip(lines, _HEAD, strict=False)) and (
        cut.startswith(start) or start.startswith(cut)
    )
