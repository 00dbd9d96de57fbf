"""The lock file FILE.lock beside an mbox, which other mail programs know, and the journal in it.

It is there with its journal in one step, where the file system can do that. One that nobody has touched for
STALE seconds (procmail's LOCKTIMEOUT) is broken. One of ours is taken over at once where the caller has FILE's
kernel lock: whoever made it held that, and so has ended. Raises OSError as the system calls give it.
"""

import errno
import os
import re
import stat
import time

from queue_base.durable import write_all
from queue_local.mbox_journal import SIZE, Journal, pack_journal, unpack_journal
from queue_wire.format_error import FormatError

STALE = 1024.0
# Where a lock file can neither be made nor broken, this age ends it, as in liblockfile, which Debian's programs use.
UNTOUCHED = 300.0
# How often a lock that is held for long is touched, so that nobody takes it for stale.
TOUCH = 60.0
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NAMELESS = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
# No O_TMPFILE in this file system, or no /proc to name what it made.
_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT))
# Nine digits hold every process's number; 0 is a lock that is nobody's in particular.
_NUMBER = re.compile(rb"[1-9][0-9]{0,8}(?![0-9])")
# A FIFO or a link in the lock's place is no lock of ours, and must not hold us up.
_OURS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DotLock:
    """A lock file that is held; `left` is the journal of one that was taken over."""

    __slots__ = ("_handle", "_touched", "left", "path")

    def __init__(self, path: str, handle: int, left: Journal) -> None:
        self.path = path
        self.left = left
        self._handle = handle
        self._touched = time.monotonic()

    def fill(self, journal: Journal | None = None) -> None:
        """Put a journal into the file."""
        os.lseek(self._handle, 0, os.SEEK_SET)
        write_all(self._handle, pack_journal(journal or Journal()))

    def write(self, journal: Journal) -> None:
        """Put the journal into the file, safe on the disk but for the file's name."""
        self.fill(journal)
        os.fsync(self._handle)

    def touch(self) -> None:
        """Say that it is still held; call this every now and then."""
        if time.monotonic() - self._touched >= TOUCH:
            self._touched = time.monotonic()
            os.utime(self._handle)

    def close(self, remove: bool = True) -> None:
        """Give it up; `remove` is False to leave the journal to whoever comes next."""
        try:
            # Somebody may have broken it, as stale, and have another of this name now.
            if remove and _same(os.lstat(self.path), os.fstat(self._handle)):
                os.unlink(self.path)
        except OSError:
            pass  # What we cannot remove becomes stale.
        finally:
            os.close(self._handle)


def take_dotlock(path: str, alone: bool) -> DotLock | None:
    """Return the lock at `path`, None while somebody else has it; `alone`: the caller holds the mbox's kernel lock."""
    for _ in range(2):
        try:
            return _make(path)
        except FileExistsError:
            pass
        stale = _stale(path)
        if alone or stale:
            taken = _take_over(path)
            if taken is not None:
                return taken
        if stale is None:
            return None
        _break(path, stale)
    return None


def is_in_use(path: str) -> bool:
    """Return whether there is a lock file that somebody has, for a caller who cannot make one.

    It is in use until nobody has touched it for UNTOUCHED seconds, or STALE where it names a process that lives.
    """
    try:
        age = time.time() - os.lstat(path).st_mtime
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return False
        raise
    return age < UNTOUCHED or (age < STALE and _names_a_process(path))


def _names_a_process(path: str) -> bool:
    """Return whether a lock file holds the number of a process that lives."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # As liblockfile reads it: digits at its start; others write the name of the host behind them.
        number = _NUMBER.match(os.read(handle, 16))
        if number:
            os.kill(int(number[0]), 0)
            return True
    except PermissionError:
        return True  # It is another user's.
    except OSError:
        pass
    finally:
        os.close(handle)
    return False


def _make(path: str) -> DotLock:
    """Make the lock file. FileExistsError where there is one."""
    try:
        return _make_whole(path)
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
    lock = DotLock(path, os.open(path, _NEW, 0o600), Journal())
    try:
        lock.fill()
    except BaseException:
        lock.close()
        raise
    return lock


def _make_whole(path: str) -> DotLock:
    """Make it without a name first: a kill never leaves one of ours that is empty, and would look like another's."""
    handle = os.open(os.path.dirname(path) or ".", _NAMELESS, 0o600)
    try:
        lock = DotLock(path, handle, Journal())
        lock.fill()
        # With a directory, be it unused, os.link follows the link.
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
        return lock
    except BaseException:
        os.close(handle)
        raise


def _stale(path: str) -> os.stat_result | None:
    """Return the status of a lock that is too old, None where there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    old = time.time() - found.st_mtime > STALE and not stat.S_ISDIR(found.st_mode)
    return found if old else None


def _take_over(path: str) -> DotLock | None:
    """Return a lock of this program's and this user's whose maker has ended, with its journal."""
    try:
        handle = os.open(path, _OURS)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            left = unpack_journal(os.pread(handle, SIZE + 1, 0))
            # First of all it is not stale any more.
            os.utime(handle)
            if _same(os.lstat(path), found):
                return DotLock(path, handle, left)
    except (FormatError, OSError):
        pass
    os.close(handle)
    return None


def _break(path: str, stale: os.stat_result) -> None:
    try:
        if _same(os.lstat(path), stale):
            os.unlink(path)
    except FileNotFoundError:
        pass


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
