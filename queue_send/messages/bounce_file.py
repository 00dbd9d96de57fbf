"""bounce/I: the permanent failures of a message, which its bounce tells of. Functions raise OSError.

A failure is a paragraph (queue_wire.failures). A crash may leave a part of one, which was never synced; the next
failure takes its place.
"""

import errno
import os
from collections.abc import Generator, Iterator
from typing import NamedTuple

from queue_base.durable import Commit, write_all
from queue_base.queue.layout import FILE_MODE, Layout
from queue_wire.failures import END, FailureReader, pack_failure, whole_length

BOUNCE_MAX = 128 * 1024 * 1024  # Bytes of bounce/I: over 60,000 failures of the longest addresses and texts.
BOUNCE_PIECE = 16 * 1024  # Bytes of it that are read at a time.


class FailedRecipient(NamedTuple):
    """A permanent failure to be recorded in bounce/I: the message, the recipient, and the reported text."""

    message: int
    recipient: bytes
    text: bytes


def append_failures(layout: Layout, failures: list[FailedRecipient]) -> None:
    """Append failures to bounce/ files and sync them; the caller marks their recipients done after that.

    On an error the files get back their old lengths, so that a recipient that is tried again is not bounced.
    """
    commit = Commit()
    ends: dict[str, int] = {}
    texts: dict[int, list[bytes]] = {}
    for failure in failures:
        texts.setdefault(failure.message, []).append(pack_failure(failure.recipient, failure.text))
    try:
        for message, paragraphs in texts.items():
            path = layout.bounce(message)
            commit.removed(path)  # Its name is synced, too, if it is new.
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                ends[path] = _cut(handle)
                os.lseek(handle, ends[path], os.SEEK_SET)
                write_all(handle, b"".join(paragraphs))
            except BaseException:
                os.close(handle)
                raise
            commit.contents(path, handle)
        commit.sync()
    except OSError:
        for path, end in ends.items():
            try:
                os.truncate(path, end)
            except OSError:
                continue
        raise


def read_failures(layout: Layout, message: int) -> Generator[None, None, Iterator[tuple[bytes, bytes]] | None]:
    """Return the (recipient, text) pairs of bounce/I, None if there are none; yield between its pieces.

    EFBIG for a file of more than BOUNCE_MAX bytes.
    """
    reader = FailureReader()
    path = layout.bounce(message)
    try:
        # O_NONBLOCK: if the path is a FIFO, this does not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(handle).st_size > BOUNCE_MAX:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        while data := os.read(handle, BOUNCE_PIECE):
            reader.feed(data)
            yield
    finally:
        os.close(handle)
    return reader.take() if len(reader) else None


def _cut(handle: int) -> int:
    """Truncate a bounce file after its last whole paragraph, as a crash may have left a part; return its length."""
    end = os.fstat(handle).st_size
    if end and os.pread(handle, len(END), max(0, end - len(END))) != END:
        end = _whole_end(handle, end)
        os.ftruncate(handle, end)
    return end


def _whole_end(handle: int, end: int) -> int:
    """Return where the last whole paragraph before `end` ends, searching backwards: the file may be large."""
    while end:
        start = max(0, end - BOUNCE_PIECE)
        whole = whole_length(os.pread(handle, end - start, start))
        if whole:
            return start + whole
        # One byte more than what was looked at, since an END may lie across.
        end = start + len(END) - 1 if start else 0
    return 0
