"""Opens and locks the file of an mbox line, which may be anything at all: `open_box`.

A link is followed where its owner is this user or root. Refused is a hard link, a FIFO, a device, a directory, and
another user's file in a directory where others may make files; /dev/null discards. Two locks are taken, both or
neither while others wait for one: flock, and FILE.lock where its directory may be written.
"""

import errno
import fcntl
import os
import random
import stat
import time

from queue_base.durable import sync_filesystem, sync_path
from queue_base.errors import Temporary, reason
from queue_local.mbox_lock import DotLock, take_dotlock

# qmail-local's time to wait for a lock.
LOCK_SECONDS = 30.0
_PAUSE, _PAUSE_MOST = 0.005, 0.25
_LINKS = 40
_NEW = os.O_CREAT | os.O_EXCL
# What is opened has been looked at, but may be something else by now: a FIFO must not hold us up.
_FLAGS = os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# No lock file can be made here, ever; flock alone has to do, as in Postfix.
_NO_DOTLOCK = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG))
_NO_FLOCK = frozenset((errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
_NULL_DEVICE = os.makedev(1, 3)


class Box:
    """An mbox that is open and locked; `lock` is None where there is only the flock."""

    __slots__ = ("handle", "keep_lock", "lock", "path", "target")

    def __init__(self, path: str, target: str, handle: int, lock: DotLock | None) -> None:
        self.path = path
        self.target = target
        self.handle = handle
        self.lock = lock
        # Set where the file could not be repaired: the next delivery finds the journal, and does it.
        self.keep_lock = False

    def sync_names(self) -> None:
        """Make the names of the file and of its lock file safe. Raises OSError."""
        for directory in {os.path.dirname(path) or "." for path in (self.path, self.target)}:
            try:
                sync_path(directory)
            except PermissionError:
                # It may be written but not read; what is in it is synced with all of its file system.
                sync_filesystem(self.handle)

    def close(self) -> None:
        """Unlock and close it."""
        if self.lock:
            self.lock.close(remove=not self.keep_lock)
        os.close(self.handle)


def open_box(path: str) -> Box | None:
    """Return the locked mbox, made where it is missing (mode 0600), None for /dev/null. Raises Temporary."""
    try:
        return _open_box(path)
    except OSError as error:
        raise Temporary(f"Unable to open {path}: {reason(error)}. (#4.2.1)") from error


def _open_box(path: str) -> Box | None:
    deadline, pause = time.monotonic() + LOCK_SECONDS, _PAUSE
    while True:
        target = _find_target(path)
        if target is None:
            return None
        box = _try_locks(path, target, _open(target))
        if box:
            return box
        if time.monotonic() >= deadline:
            raise Temporary("File has been locked for 30 seconds straight. (#4.3.0)")
        # Not in step with the others who wait.
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.5, _PAUSE_MOST)


def _find_target(path: str) -> str | None:
    """Return the path that links lead to, None for /dev/null. Raises Temporary for what mail is not appended to."""
    name = path
    for _ in range(_LINKS):
        try:
            found = os.lstat(name)
        except FileNotFoundError:
            return name
        if not stat.S_ISLNK(found.st_mode):
            return name if _is_mailbox(path, found) else None
        if found.st_uid not in (0, os.geteuid()):
            raise _refused(path, "it is a link of another user")
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_mailbox(path: str, found: os.stat_result) -> bool:
    """Return whether it is a file for mail, False for /dev/null. Raises Temporary for everything else."""
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL_DEVICE:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise _refused(path, reason(OSError(errno.EISDIR, "")))
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is not a regular file")
    if found.st_nlink > 1:
        # In a directory that others may write, one of them may have made it, to have our mail in a file of ours.
        raise _refused(path, "it is a hard link")
    return True


def _is_trap(target: str, found: os.stat_result) -> bool:
    """Return whether a file may have been made to catch or stop our mail, by a user who may make files in the spool."""
    place = os.stat(os.path.dirname(target) or ".")
    open_to_others = place.st_mode & (stat.S_IWOTH | stat.S_ISVTX)
    return bool(open_to_others) and found.st_uid not in (0, place.st_uid, os.geteuid())


def _refused(path: str, why: str) -> Temporary:
    return Temporary(f"Unable to open {path}: {why}. (#4.2.1)")


def _open(target: str) -> int:
    """Return a descriptor to read and append; only to append where it may not be read."""
    try:
        return os.open(target, os.O_RDWR | _FLAGS)
    except FileNotFoundError:
        try:
            return os.open(target, os.O_RDWR | _FLAGS | _NEW, 0o600)
        except FileExistsError:
            return os.open(target, os.O_RDWR | _FLAGS)
    except PermissionError:
        return os.open(target, os.O_WRONLY | _FLAGS)


def _try_locks(path: str, target: str, handle: int) -> Box | None:
    """Return the box with both locks, or None, with `handle` closed, while somebody else has one of them."""
    box = None
    try:
        alone = _flock(handle)
        if alone is not False and _still_named(path, target, handle):
            box = _dotlocked(path, target, handle, bool(alone))
        return box
    finally:
        if box is None:
            os.close(handle)


def _flock(handle: int) -> bool | None:
    """Return whether we have the lock; None where the file system has no such locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
        return None
    return True


def _still_named(path: str, target: str, handle: int) -> bool:
    """Return whether the locked file is still the one of that name: mail readers put another in its place."""
    held = os.fstat(handle)
    _is_mailbox(path, held)
    if _is_trap(target, held):
        raise _refused(path, "it is another user's, in a directory where others may make files")
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _dotlocked(path: str, target: str, handle: int, alone: bool) -> Box | None:
    try:
        lock = take_dotlock(path + ".lock", alone)
    except OSError as error:
        if error.errno not in _NO_DOTLOCK or not alone:
            raise
        return Box(path, target, handle, None)
    if lock is None and not (alone and _is_held_by_a_stranger(path + ".lock")):
        return None
    return Box(path, target, handle, lock)


def _is_held_by_a_stranger(lock: str) -> bool:
    try:
        # Whoever may make files there could keep all mail out; who reads this mbox is its owner, and locks as that.
        return _is_trap(lock, os.lstat(lock))
    except FileNotFoundError:
        return False
