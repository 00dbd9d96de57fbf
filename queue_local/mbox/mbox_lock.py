"""Opens and locks the file of an mbox instruction, which may be any path: `open_box`.

A symbolic link is followed if this user or root owns it. Refused are hard links, FIFOs, devices, directories, and
files of other users in a directory where others may create files. /dev/null discards the message.

Locks are taken without blocking, all of them or none: flock, fcntl's lock, and FILE.lock for the name in the
instruction and for each name that links lead to, because some programs lock the one and some the other. If FILE.lock
cannot be created, it must not exist.
"""

import contextlib
import errno
import fcntl
import os
import random
import stat
import struct
import time

from queue_base.durable import sync_filesystem
from queue_base.errors import Temporary, reason
from queue_local.mbox.dotlock import DotLock, is_in_use, take_dotlock

# qmail-local's time to wait for a lock.
LOCK_SECONDS = 30.0
_PAUSE, _PAUSE_MAX = 0.005, 0.25
_LINKS = 40
_NEW = os.O_CREAT | os.O_EXCL
# The path was checked, but may have been replaced since: a FIFO must not block the delivery.
_FLAGS = os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# No lock file can be created here; the kernel's locks must suffice, as in Postfix.
_NO_DOTLOCK = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG))
_NO_KERNEL_LOCK = frozenset((errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
# struct flock: the whole file, however long it becomes. The lock belongs to the open file description: it conflicts
# with the classic fcntl locks of other programs, and closing another descriptor of the file does not release it.
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_NULL_DEVICE = os.makedev(1, 3)


class Box:
    """An open and locked mbox; `locks` are its lock files, that of the file itself first."""

    __slots__ = ("_directories", "handle", "keep_lock", "locks", "target")

    def __init__(self, target: str, handle: int, locks: list[DotLock], directories: dict[str, int]) -> None:
        """`directories` are the directories of its names, as `_open_directories` returns them."""
        self.target = target
        self.handle = handle
        self.locks = locks
        self._directories = directories
        # Set if the file could not be repaired: the next delivery finds the journal, and repairs it.
        self.keep_lock = False

    @property
    def journal(self) -> DotLock | None:
        """The lock file that contains the journal, None if no lock file could be created."""
        return self.locks[0] if self.locks else None

    def touch(self) -> None:
        """Touch the lock files; to be called now and then."""
        for lock in self.locks:
            lock.touch()

    def sync_names(self) -> None:
        """Make the names of the file and of its journal durable. Raises OSError."""
        paths = [self.target, *(lock.path for lock in self.locks[:1])]
        for directory in {os.path.dirname(path) or "." for path in paths}:
            if directory in self._directories:
                os.fsync(self._directories[directory])
            else:
                # The directory may be written but not read, so its whole file system is synced.
                sync_filesystem(self.handle)

    def close(self) -> None:
        """Unlock and close it."""
        for lock in self.locks:
            lock.close(remove=not self.keep_lock)
        os.close(self.handle)
        _close_all(self._directories)


def open_box(path: str) -> Box | None:
    """Return the locked mbox, created with mode 0600 if it is missing; None for /dev/null. Raises Temporary."""
    try:
        return _open_box(path)
    except OSError as error:
        raise Temporary(f"Unable to open {path}: {reason(error)}. (#4.2.1)") from error


def _open_box(path: str) -> Box | None:
    deadline, pause = time.monotonic() + LOCK_SECONDS, _PAUSE
    while True:
        names = _follow(path)
        if not names:
            return None
        directories = _open_directories(names)
        box = None
        try:
            box = _try_locks(path, names, _open(names[-1]), directories)
        finally:
            if box is None:
                _close_all(directories)
        if box:
            return box
        if time.monotonic() >= deadline:
            raise Temporary("File has been locked for 30 seconds straight. (#4.3.0)")
        # A random pause, so that waiting deliveries do not stay in step.
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.5, _PAUSE_MAX)


def _open_directories(names: list[str]) -> dict[str, int]:
    """Return descriptors of the directories of the names, as far as they may be read.

    They are opened before a name in them changes, because a write error is reported only to descriptors open then.
    """
    found: dict[str, int] = {}
    try:
        for directory in {os.path.dirname(name) or "." for name in names}:
            with contextlib.suppress(PermissionError):
                found[directory] = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except BaseException:
        _close_all(found)
        raise
    return found


def _close_all(directories: dict[str, int]) -> None:
    for handle in directories.values():
        os.close(handle)


def _follow(path: str) -> list[str]:
    """Return the names of the file: `path`, then the targets of links, the file itself last; empty for /dev/null.

    Raises Temporary for a path that is refused.
    """
    names = [path]
    for _ in range(_LINKS):
        try:
            found = os.lstat(names[-1])
        except FileNotFoundError:
            return names
        if not stat.S_ISLNK(found.st_mode):
            return names if _is_mailbox(path, found) else []
        if found.st_uid not in (0, os.geteuid()):
            raise _refused(path, "it is a link of another user")
        names.append(os.path.join(os.path.dirname(names[-1]), os.readlink(names[-1])))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_mailbox(path: str, found: os.stat_result) -> bool:
    """Return True for a file that may receive mail, False for /dev/null. Raises Temporary for all others."""
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL_DEVICE:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise _refused(path, reason(OSError(errno.EISDIR, "")))
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is not a regular file")
    if found.st_nlink > 1:
        # Another user may have created it, so that mail is appended to some other file of this user.
        raise _refused(path, "it is a hard link")
    return True


def _is_trap(target: str, found: os.stat_result) -> bool:
    """Return whether another user who may create files in the spool may have planted this file."""
    place = os.stat(os.path.dirname(target) or ".")
    open_to_others = place.st_mode & (stat.S_IWOTH | stat.S_ISVTX)
    return bool(open_to_others) and found.st_uid not in (0, place.st_uid, os.geteuid())


def _refused(path: str, why: str) -> Temporary:
    return Temporary(f"Unable to open {path}: {why}. (#4.2.1)")


def _open(target: str) -> int:
    """Return a descriptor for reading and appending; only for appending if the file may not be read."""
    try:
        return os.open(target, os.O_RDWR | _FLAGS)
    except FileNotFoundError:
        try:
            return os.open(target, os.O_RDWR | _FLAGS | _NEW, 0o600)
        except FileExistsError:
            return os.open(target, os.O_RDWR | _FLAGS)
    except PermissionError:
        return os.open(target, os.O_WRONLY | _FLAGS)


def _try_locks(path: str, names: list[str], handle: int, directories: dict[str, int]) -> Box | None:
    """Return the box with all locks; or None, with `handle` closed, if another process holds one of them."""
    box = None
    try:
        locked = _take_kernel_locks(handle)
        if locked is not False and _still_named(path, names[-1], handle):
            locks = _take_dotlocks(names, bool(locked))
            box = None if locks is None else Box(names[-1], handle, locks, directories)
        return box
    finally:
        if box is None:
            os.close(handle)


def _take_kernel_locks(handle: int) -> bool | None:
    """Return whether flock and fcntl's lock were taken, None if the file system supports neither."""
    # They are taken before FILE.lock: Debian's policy (section 11.6) requires fcntl's lock first.
    found = _flock(handle)
    if found is False:
        return False
    also = _record_lock(handle)
    return found if also is None else also


def _flock(handle: int) -> bool | None:
    """Return whether the lock was taken, None if the file system does not support it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_KERNEL_LOCK:
            raise
        return None
    return True


def _record_lock(handle: int) -> bool | None:
    """Do the same with fcntl(2)'s lock, which other programs take with fcntl or lockf."""
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except (BlockingIOError, PermissionError):
        return False  # POSIX allows either.
    except OSError as error:
        if error.errno not in _NO_KERNEL_LOCK:
            raise
        return None
    return True


def _still_named(path: str, target: str, handle: int) -> bool:
    """Return whether the name still refers to the locked file: mail readers replace the file."""
    held = os.fstat(handle)
    _is_mailbox(path, held)
    if _is_trap(target, held):
        raise _refused(path, "it is another user's, in a directory where others may make files")
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _take_dotlocks(names: list[str], alone: bool) -> list[DotLock] | None:
    """Return the lock files of all names, as far as they can be created; None if another process has one of them."""
    taken: list[DotLock] = []
    with contextlib.ExitStack() as undoing:
        for path in _lock_paths(names):
            lock, in_use = _take_dotlock(path, alone)
            if lock:
                taken.append(lock)
                undoing.callback(lock.close)
            elif in_use and not (alone and _is_held_by_a_stranger(path)):
                return None
        undoing.pop_all()
    return taken


def _take_dotlock(path: str, alone: bool) -> tuple[DotLock | None, bool]:
    """Return the lock file or None, and whether the lock is held, by this process or another one."""
    try:
        return take_dotlock(path, alone), True
    except OSError as error:
        if error.errno not in _NO_DOTLOCK or not alone:
            raise
        return None, is_in_use(path)


def _lock_paths(names: list[str]) -> list[str]:
    """Return the paths of the lock files, that of the file itself first; each name in a directory occurs once."""
    found: dict[tuple[int, int, str], str] = {}
    for name in reversed(names):
        directory, base = os.path.split(name)
        place = os.stat(directory or ".")
        found.setdefault((place.st_dev, place.st_ino, base), name + ".lock")
    return list(found.values())


def _is_held_by_a_stranger(lock: str) -> bool:
    try:
        # A user who may create files there could block all mail with it. A reader of this mbox locks as its owner.
        return _is_trap(lock, os.lstat(lock))
    except FileNotFoundError:
        return False
