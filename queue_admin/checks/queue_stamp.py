"""queue/stamp: how queue-start knows a queue that was copied, or restored from a backup.

A message is named by the inode number of its file. A copy has other inode numbers, so its messages have wrong names:
those in todo/ are parked, and a new message may get the number that an old one is named by. The stamp says its own
inode number, which the copy of a file never has:

    queue-suite stamp 1
    inode 1234
    split 23
    copy 2026-11-22T20:15:00Z /var/queue      only in what `queuectl copy` made: when, and of which home

Inode numbers stay the same over a reboot, a remount, a rename, and in an image of the file system. Device numbers do
not, so the stamp has none. A stamp with another number proves nothing by itself: on an overlay a file may get a new
number when it is first written. So a queue is refused only if a message in it has a wrong number, too, or if it has
envelopes but no message at all; otherwise it gets a new stamp. A queue without a stamp (an earlier release's, qmail's)
is refused if a message has a wrong number. In a queue with a right stamp only a sample of the messages is looked at,
and refused if most of it is wrong: somebody has restored messages into a new home. If less of it is, there is a
warning, because the other mail need not wait for it.
"""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from queue_base.accounts import Owner, queue_owner
from queue_base.durable import write_all
from queue_base.errors import Permanent, Temporary, complain, reason, why_refused
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, Layout, is_there
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below, open_file_below, open_given
from queue_wire.format_error import FormatError, quoted
from queue_wire.ids import unpack_id

NAME = "stamp"
REPAIR = "repair"  # The directory of a repair that is not finished.
SAMPLE = 1000  # Messages that are looked at in a queue with a right stamp.
_FIRST = b"queue-suite stamp 1"
_MAX = 8192  # Bytes.


class Stamp(NamedTuple):
    """What a stamp says: its inode number, the split, and what `queuectl copy` says of a copy, "" if it is none."""

    inode: int
    split: int
    copy: str = ""


def pack_stamp(stamp: Stamp) -> bytes:
    """Return the bytes of the file. A newline in `copy` becomes a question mark."""
    lines = [_FIRST, b"inode %d" % stamp.inode, b"split %d" % stamp.split]
    if stamp.copy:
        lines.append(b"copy " + os.fsencode(stamp.copy).replace(b"\n", b"?"))
    return b"\n".join(lines) + b"\n"


def unpack_stamp(data: bytes) -> Stamp:
    """Return what the bytes of the file say; unknown lines are ignored. Raises FormatError."""
    first, *lines = data.split(b"\n")
    known: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b" ")
        known[name] = value
    if first != _FIRST:
        raise FormatError("stamp: not a stamp of queue-suite")
    # Its own inode number may be one that no message may have.
    inode, split = known.get(b"inode", b""), unpack_id(known.get(b"split", b""))
    if not inode.isdigit() or len(inode) > 20:
        raise FormatError(f"stamp: not an inode number: {quoted(inode)}")
    return Stamp(int(inode), split, os.fsdecode(known.get(b"copy", b"")))


class FoundStamp(NamedTuple):
    """A stamp on the disk; `right` is whether it has the number that it says."""

    stamp: Stamp
    right: bool


def read_stamp(queue: str, owners: tuple[int, ...]) -> FoundStamp | None:
    """Return the stamp, None if there is none or it cannot be understood. Raises OSError, UnsafePath."""
    try:
        handle = open_file_below(queue, NAME, owners)
    except FileNotFoundError:
        return None
    try:
        data, number = os.read(handle, _MAX), os.fstat(handle).st_ino
    finally:
        os.close(handle)
    try:
        stamp = unpack_stamp(data)
    except FormatError:
        return None
    return FoundStamp(stamp, stamp.inode == number)


def write_stamp(queue: str, split: int, owner: Owner, copy: str = "") -> None:
    """Make the stamp, or replace it, durably. Root may do it in a queue of another account. Raises OSError."""
    top = open_given(queue, READ_DIRECTORY)
    try:
        new = f"{NAME}.new"
        try:
            os.unlink(new, dir_fd=top)
        except FileNotFoundError:
            pass
        handle = open_below(top, new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            found = os.fstat(handle)
            write_all(handle, pack_stamp(Stamp(found.st_ino, split, copy)))
            if (found.st_uid, found.st_gid) != (owner.uid, owner.gid):
                os.fchown(handle, owner.uid, owner.gid)
            os.fchmod(handle, FILE_MODE)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(new, NAME, src_dir_fd=top, dst_dir_fd=top)
        os.fsync(top)
    finally:
        os.close(top)


class WrongName(NamedTuple):
    """A file in mess/ whose name is not its inode number."""

    path: str
    inode: int


def names_in_mess(layout: Layout, most: int | None = None) -> Iterator[WrongName | None]:
    """Yield None for each message in mess/ with a right name, a WrongName for each other one. Raises OSError.

    Of each directory at most `most` names are read. Only names and their inode numbers are read, no file is looked at
    whose name is right.
    """
    for directory in layout.directories("mess"):
        with os.scandir(directory) as entries:
            for entry in islice(entries, most):
                try:
                    message = unpack_id(os.fsencode(entry.name))
                except FormatError:
                    continue
                if entry.inode() == message:
                    yield None
                    continue
                try:
                    # A directory's own numbers may differ from those of its files, as on an overlay.
                    number = entry.stat(follow_symlinks=False).st_ino
                except FileNotFoundError:
                    continue  # It has ended.
                yield None if number == message else WrongName(entry.path, number)


def has_envelopes(layout: Layout) -> bool:
    """Return whether todo/ or info/ has a file of a message. Raises OSError."""
    for directory in (*layout.directories("todo"), *layout.directories("info")):
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    unpack_id(os.fsencode(entry.name))
                except FormatError:
                    continue
                return True
    return False


def find_copied(layout: Layout, found: FoundStamp | None) -> str:
    """Return why a queue must be a copy, "" if it is not; warn of some wrong messages. Raises OSError."""
    if found is not None and found.right:
        sample = list(names_in_mess(layout, SAMPLE // layout.split + 1))
        # A message that is parked is known already, and must not keep the others from being delivered.
        wrong = [each for each in sample if each is not None and not _is_parked(layout, each)]
        if 2 * len(wrong) > len(sample):
            return _say(wrong[0])
        if wrong:
            complain(
                "queue-start",
                f"warning: of {len(sample)} messages looked at {len(wrong)} have a wrong number, as after a restore:"
                f" {_say(wrong[0])}; run queuectl check",
            )
        return ""
    found_any = False
    for each in names_in_mess(layout):
        found_any = True
        if each is not None:
            return _say(each)
    # Without a stamp, they may be what is left of a message whose text a failing disk has lost.
    copied = found is not None and not found_any and has_envelopes(layout)
    return "it has envelopes, but mess/ has no message" if copied else ""


def _is_parked(layout: Layout, wrong: WrongName) -> bool:
    return is_there(layout.hashed("corrupt", int(os.path.basename(wrong.path))))


def _say(wrong: WrongName) -> str:
    return f"{wrong.path} has inode number {wrong.inode}"


def check_stamp(home: Home, layout: Layout) -> None:
    """Refuse a copied queue, one that is being repaired, and a copy that `queuectl copy` made; renew a stamp.

    Called by queue-start, which holds sendmutex. Raises Permanent, Temporary.
    """
    owner = queue_owner(home)
    try:
        if is_under_repair(home.queue):
            raise Permanent(f"unable to use {home.queue}: a repair was not finished; run queuectl repair again")
        found = read_stamp(home.queue, (owner.uid, os.geteuid()))
        copied = find_copied(layout, found)
    except UnsafePath as error:
        raise Permanent(f"unable to use {home.queue}/{NAME}: {error}; remove it") from error
    except OSError as error:
        raise Temporary(f"unable to look at {error.filename or home.queue}: {why_refused(error)}") from error
    if copied:
        raise Permanent(f"unable to use {home.queue}: it was copied or restored: {copied}; run queuectl repair")
    if found is not None and found.stamp.copy:
        raise Permanent(
            f"unable to use {home.queue}: it is a copy ({found.stamp.copy!a}), and would deliver what the original"
            " delivers, too; queuectl repair --take-over lets it run instead of the original"
        )
    if found is not None and found.right and found.stamp.split == layout.split:
        return
    try:
        write_stamp(home.queue, layout.split, owner)
    except OSError as error:
        # Mail goes on; the next start tries again.
        complain("queue-start", f"warning: unable to write {home.queue}/{NAME}: {reason(error)}; goes on without it")


def is_under_repair(queue: str) -> bool:
    """Return whether a repair is going on, or was interrupted. Raises OSError."""
    try:
        return stat.S_ISDIR(os.lstat(f"{queue}/{REPAIR}").st_mode)
    except FileNotFoundError:
        return False
