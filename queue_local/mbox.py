"""Appends one message to an mbox file (mbox(5), qmail-local(8)), so that what is in it stays whole.

Locked with flock, fcntl and FILE.lock; what was reported as delivered is safe on the disk. A write that fails is
truncated back. One that was cut by a kill or a power cut is truncated back by the next delivery, which finds
the old length in the lock file; where the directory may not be written there is no lock file, and it stays,
as in qmail. Every failure is Temporary, with qmail-local's text.
"""

import os
import zlib
from collections.abc import Iterator

from queue_base.durable import write_all
from queue_base.errors import Temporary, reason
from queue_local.mbox_file import Box, open_box
from queue_local.mbox_journal import Journal, fold
from queue_local.mbox_text import is_cut_message, mbox_text, missing_end

_CHUNK = 1 << 18


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
