"""Marks on messages, hold/B/I and corrupt/B/I, and the other changes that an administrator makes to messages.

A mark contains a reason, one line. In hold/ an order may follow: to delete the message, or to bounce it or some of its
recipients (queue_wire.files.hold_mark). queue-send carries it out as soon as nothing of the message is in flight, also
after a crash. The caller must be allowed to change classified messages (lock/sendmutex). The functions raise OSError;
nothing is durable before the sync of the Commit.
"""

import errno
import os
from collections.abc import Iterable
from contextlib import suppress

from queue_base.durable import Commit, read_file
from queue_base.errors import Permanent, Temporary, reason
from queue_base.queue.layout import FILE_MODE, Layout, birth_by, files_beside_mess, is_there
from queue_base.queue.results_file import change_results_birth
from queue_wire.admin.returning import RecipientSelector
from queue_wire.files.cluster import link_name
from queue_wire.files.hold_mark import HoldMark, HoldOrder, order_mark, pack_mark, unpack_mark
from queue_wire.files.stored_order import HOLD_DIRECTORY
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

REASON_MAX = 500  # Bytes.
# What is said of a message on hold that is to be tried, or held once more.
STAYS_HELD = "it is on hold, and is not tried; queuectl release releases it"
KEEPS_REASON = "it was on hold already, and keeps its reason"
_MARK_MAX = 65536  # Bytes of a file in hold/.
KINDS = ("hold", "corrupt")
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_CONTROLS = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))


def clean_reason(reason: bytes) -> bytes:
    """Return a reason as a mark contains it: control characters become spaces, and it is cut at REASON_MAX bytes."""
    return reason.translate(_CONTROLS)[:REASON_MAX].strip()


def birth_of(layout: Layout, message: int) -> int | None:
    """Return a message's birth in microseconds, None if the message does not exist.

    A message whose mess/ file is lost has a birth too, so that its other files can be named and deleted.
    """
    info = layout.hashed("info", message)
    classified = not is_there(layout.todo(message))
    if classified and not is_there(info) and layout.has_changed:
        # Its envelope may be the first one of a class, in a tree that was made just now.
        with suppress(Temporary, Permanent):
            layout.learn_classes()
        classified = not is_there(layout.todo(message))
    try:
        return birth_by(os.lstat(info if classified else layout.mess(message)))
    except FileNotFoundError:
        return leftover_birth(layout, message)


def remove_stored_mark(place: str, clusters: Iterable[int], ended: int, long_id: str) -> bool:
    """Remove the mark in hold/ of a message that cluster `ended` has no recipients of any more; return whether that was
    its last one.

    `place` is the directory of the domain, with its `clusters`. Each one with recipients of the message has a link.
    """
    if any(each != ended and is_there(f"{place}/mess/{link_name(each, long_id)}") for each in clusters):
        return False
    with suppress(FileNotFoundError):
        os.unlink(f"{place}/{HOLD_DIRECTORY}/{long_id}")
    return True


def leftover_birth(layout: Layout, message: int) -> int | None:
    """Return the mtime of one of the files of a message that has lost mess/B/I, in microseconds.

    Returns None if no file is left, or mess/B/I exists. Raises OSError.
    """
    for path in (layout.mess(message), *files_beside_mess(layout, message)):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        return None if path == layout.mess(message) else birth_by(found)
    return None


def is_marked(layout: Layout, kind: str, message: int) -> bool:
    """Return whether a message has a mark in hold/ or corrupt/."""
    return is_there(layout.hashed(kind, message))


def marked_messages(layout: Layout, kind: str) -> set[int]:
    """Return the messages with a mark in hold/ or corrupt/."""
    found = set()
    for directory in layout.directories(kind):
        try:
            names = os.listdir(directory)
        except FileNotFoundError:
            continue  # A queue of qmail has no hold/ and corrupt/.
        for name in names:
            try:
                found.add(unpack_id(os.fsencode(name)))
            except FormatError:
                continue  # Not a message: a person's file.
    return found


def remove_lost_marks(layout: Layout) -> None:
    """Remove the marks in hold/ of numbers that have no message, durably.

    A mark is made for a message that exists, and removed before it, so such a mark is never of one that comes.
    """
    commit = Commit()
    for message in marked_messages(layout, "hold"):
        others = (layout.mess(message), layout.todo(message), layout.hashed("info", message))
        if not any(is_there(path) for path in others):
            commit.unlink(layout.hashed("hold", message))
    commit.sync()


def read_mark(layout: Layout, message: int) -> HoldMark | None:
    """Return the mark in hold/B/I, None if there is none."""
    try:
        return unpack_mark(read_file(layout.hashed("hold", message), _MARK_MAX))
    except FileNotFoundError:
        return None


def mark(layout: Layout, message: int, new: HoldMark, commit: Commit) -> None:
    """Put a mark in hold/, replacing an earlier one."""
    passing = f"{layout.queue}/pid/mark.{message}"
    commit.unlink(passing)
    try:
        commit.create(passing, pack_mark(new._replace(reason=clean_reason(new.reason))), FILE_MODE)
        commit.rename(passing, layout.hashed("hold", message))
    except OSError:
        _discard(passing)  # A full disk takes the name and not the reason.
        raise


def mark_deleted(layout: Layout, message: int, commit: Commit) -> bool:
    """Put the order to delete in hold/; return False, and put nothing there, if the disk has no room for it.

    What frees the disk must not need room on it: the caller deletes the message then without the order, and a crash
    before its removal may leave it, or some of its recipients, in the queue.
    """
    try:
        mark(layout, message, order_mark(HoldOrder.DELETE), commit)
    except OSError as error:
        if not lacks_room(error):
            raise
        return False
    return True


def lacks_room(error: OSError) -> bool:
    """Return whether a disk is full, of blocks or of inodes, or a quota of it is used up."""
    return error.errno in _NO_ROOM


def describe_refusal(error: OSError) -> str:
    """Return what is said where the disk has refused a change of a message."""
    text = f"unable to change {error.filename2 or error.filename or 'the disk'}: {reason(error)}"
    return f"{text}; it is as before; delete, requeue, release and flush need no room" if lacks_room(error) else text


def _discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # The next mark of the message replaces it, or the sweep removes it.


def mark_return(layout: Layout, message: int, selector: RecipientSelector, commit: Commit) -> None:
    """Put the order to bounce some recipients in hold/. It keeps the reason for which the message is on hold."""
    before = read_mark(layout, message)
    held = None if before is None or before.order is not None else clean_reason(before.reason)
    mark(layout, message, order_mark(HoldOrder.BOUNCE_SOME, selector, held), commit)


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
    path = layout.hashed("info", message)
    before = birth_by(os.stat(path))
    _set_time(path, birth * 1000, commit)
    make_due(layout, message, birth // 1_000_000, commit)
    change_results_birth(layout, message, before, birth)


def _set_time(path: str, nanoseconds: int, commit: Commit) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.utime(handle, ns=(nanoseconds, nanoseconds))
    except BaseException:
        os.close(handle)
        raise
    commit.contents(path, handle)


def leave_todo(layout: Layout, message: int, commit: Commit) -> None:
    """Remove a message from todo/, so that it is never classified. It is in S2 or S3 then.

    What an attempt to classify it has left goes first: without todo/, info/ would make it classified, and nobody would
    ever remove what is in local/ and remote/.
    """
    if left := _left_by_attempt(layout, message):
        for path in left:
            commit.unlink(path)
        commit.sync()
    # From each place that it may have: what another process has removed may not be synced yet.
    for path in layout.todo_paths(message):
        commit.unlink(path)
    # An attempt that was under way may have written them again: info/ goes last, since with it this is a message.
    for path in _left_by_attempt(layout, message):
        commit.unlink(path)
        commit.sync()


def _left_by_attempt(layout: Layout, message: int) -> list[str]:
    return [path for kind in ("local", "remote", "info") if is_there(path := layout.hashed(kind, message))]
