"""Marks on messages, hold/B/I and corrupt/B/I, and the other changes that an administrator makes to messages.

A mark contains a reason, one line. Two reasons in hold/ are orders, DELETED and RETURNED: queue-send carries them out
as soon as nothing of the message is in flight, also after a crash. The caller must be allowed to change classified
messages (lock/sendmutex). The functions raise OSError; nothing is durable before the sync of the Commit.
"""

import os

from queue_base.durable import Commit, read_file
from queue_base.layout import FILE_MODE, Layout, files_beside_mess, is_there

DELETED = b"deleted by the administrator; it ends when nothing of it is in flight"
RETURNED = b"returned by the administrator; it bounces when nothing of it is in flight"
ORDERS = (DELETED, RETURNED)
REASON_MOST = 500  # Bytes.
KINDS = ("hold", "corrupt")
_CONTROLS = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))


def clean_reason(reason: bytes) -> bytes:
    """Return a reason as a mark contains it: control characters become spaces, and it is cut at REASON_MOST bytes."""
    return reason.translate(_CONTROLS)[:REASON_MOST].strip()


def birth_of(layout: Layout, message: int) -> int | None:
    """Return a message's birth in microseconds, None if the message does not exist.

    A message whose mess/ file is lost has a birth too, so that its other files can be named and deleted.
    """
    classified = not is_there(layout.todo(message))
    for path in [layout.hashed("info", message)] if classified else [layout.mess(message)]:
        try:
            return os.lstat(path).st_mtime_ns // 1000
        except FileNotFoundError:
            continue
    return leftover_birth(layout, message)


def leftover_birth(layout: Layout, message: int) -> int | None:
    """Return the mtime of one of the files of a message that has lost mess/B/I, in microseconds.

    Returns None if no file is left, or mess/B/I exists. Raises OSError.
    """
    for path in (layout.mess(message), *files_beside_mess(layout, message)):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        return None if path == layout.mess(message) else found.st_mtime_ns // 1000
    return None


def is_marked(layout: Layout, kind: str, message: int) -> bool:
    """Return whether a message has a mark in hold/ or corrupt/."""
    return is_there(layout.hashed(kind, message))


def read_mark(layout: Layout, message: int) -> bytes | None:
    """Return the reason in hold/B/I, None if there is no mark."""
    try:
        return read_file(layout.hashed("hold", message), 65536).split(b"\n", 1)[0]
    except FileNotFoundError:
        return None


def mark(layout: Layout, message: int, reason: bytes, commit: Commit) -> None:
    """Put a mark in hold/, replacing an earlier one."""
    passing = f"{layout.queue}/pid/mark.{message}"
    commit.unlink(passing)
    commit.create(passing, clean_reason(reason) + b"\n", FILE_MODE)
    commit.rename(passing, layout.hashed("hold", message))


def unmark(layout: Layout, message: int, commit: Commit) -> None:
    """Remove a message's marks."""
    for kind in KINDS:
        if is_marked(layout, kind, message):
            commit.unlink(layout.hashed(kind, message))


def make_due(layout: Layout, message: int, now: int, commit: Commit) -> None:
    """Set the time of the next attempts to `now`, in whole seconds since the epoch."""
    for kind in ("local", "remote"):
        try:
            _set_time(layout.hashed(kind, message), now * 1_000_000_000, commit)
        except FileNotFoundError:
            continue


def set_birth(layout: Layout, message: int, birth: int, commit: Commit) -> None:
    """Set a classified message's birth, in microseconds since the epoch, and make it due."""
    _set_time(layout.hashed("info", message), birth * 1000, commit)
    make_due(layout, message, birth // 1_000_000, commit)


def _set_time(path: str, nanoseconds: int, commit: Commit) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.utime(handle, ns=(nanoseconds, nanoseconds))
    except BaseException:
        os.close(handle)
        raise
    commit.contents(path, handle)


def leave_todo(layout: Layout, message: int, commit: Commit) -> None:
    """Remove a message from todo/, so that it is never classified. It is in S2 or S3 then."""
    commit.unlink(layout.todo(message))
