"""bounce/I: the permanent failures of a message, which its bounce tells of. Functions raise OSError.

A failure is a paragraph (queue_wire.failures). A crash may leave a part of one, which was never synced; the next
failure takes its place. In a file of BRIEF_FROM bytes the texts of further failures are brief, and one of BOUNCE_MAX
bytes gets no more; the bounce says so.
"""

import os
from collections.abc import Generator, Iterator
from itertools import chain
from typing import NamedTuple

from queue_base.durable import Commit, write_all
from queue_base.queue.layout import FILE_MODE, Layout
from queue_wire.failures import END, FailureReader, pack_failure, whole_length

BOUNCE_MAX = 128 << 20  # Bytes of bounce/I that are read; those of over 60,000 failures of the longest addresses.
BRIEF_FROM = 16 << 20  # A report has much less room for reasons.
AND_OTHERS = b"There were further failures than this report can list."
BOUNCE_PIECE = 16 * 1024  # Bytes of it that are read at a time.


class FailedRecipient(NamedTuple):
    """A permanent failure to be recorded in bounce/I: the message, the recipient, and the reported text."""

    message: int
    recipient: bytes
    text: bytes


def append_failures(layout: Layout, failures: list[FailedRecipient]) -> dict[int, OSError]:
    """Append failures to bounce/ files and sync them; the caller marks their recipients done after that.

    Return the messages to whose files nothing could be appended, with the errors. If the sync fails, that is raised for
    all. Such files get back their old lengths, so that a recipient that is tried again is not bounced.
    """
    commit = Commit()
    ends: dict[str, int] = {}
    troubles: dict[int, OSError] = {}
    of: dict[int, list[FailedRecipient]] = {}
    for failure in failures:
        of.setdefault(failure.message, []).append(failure)
    for message, found in of.items():
        path = layout.bounce(message)
        try:
            commit.removed(path)  # Its name is synced, too, if it is new.
            _append(commit, path, found, ends)
        except OSError as error:
            error.filename = error.filename or path
            troubles[message] = error
            _restore(path, ends)
    try:
        commit.sync()
    except OSError:
        for path in list(ends):
            _restore(path, ends)
        raise
    return troubles


def _append(commit: Commit, path: str, failures: list[FailedRecipient], ends: dict[str, int]) -> None:
    """Append the failures of a message, and note where its file ended before."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        end = ends[path] = _cut(handle)
        os.lseek(handle, end, os.SEEK_SET)
        brief = end >= BRIEF_FROM
        if end < BOUNCE_MAX:
            write_all(handle, b"".join([pack_failure(each.recipient, each.text, brief) for each in failures]))
    except BaseException:
        os.close(handle)
        raise
    commit.contents(path, handle)


def _restore(path: str, ends: dict[str, int]) -> None:
    """Give a file its old length."""
    try:
        if path in ends:
            os.truncate(path, ends.pop(path))
    except OSError:
        pass  # The bounce tells of a recipient that is tried again.


def read_failures(layout: Layout, message: int) -> Generator[None, None, Iterator[tuple[bytes, bytes]] | None]:
    """Return the (recipient, text) pairs of bounce/I, None if there are none; yield between its pieces."""
    reader = FailureReader()
    path = layout.bounce(message)
    try:
        # O_NONBLOCK: if the path is a FIFO, this does not wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        left = BOUNCE_MAX
        while left and (data := os.read(handle, min(left, BOUNCE_PIECE))):
            left -= len(data)
            reader.feed(data)
            yield
    finally:
        os.close(handle)
    if not len(reader):
        return None
    return reader.take() if left else chain(reader.take(), [(b"", AND_OTHERS)])


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
