"""The lock file FILE.lock beside an mbox, which other mail programs use too, and the journal in it.

The lock file appears together with its journal in one step, if the file system supports unnamed files. One that was not
touched for STALE seconds (procmail's LOCKTIMEOUT) is broken. One of queue-local is taken over at once if the caller has
FILE's kernel lock: its creator held that lock, so it has ended. Raises OSError as the system calls do.

The journal of a message that is being appended to FILE allows the next delivery to undo a partial write:

    Q, length of FILE before (5 bytes), bytes to be added (4), their checksum (3), checksum of their head (3)

Big-endian, 16 bytes: procmail waits for ever for a longer lock file, and liblockfile takes digits at the start for a
pid. Zeros after the Q mean that the lock is held, and nothing has been added.
"""

import errno
import os
import re
import stat
import time
import zlib
from typing import NamedTuple

from queue_base.durable import write_all
from queue_wire.format_error import FormatError, quoted

STALE = 1024.0
# A lock file that can be neither created nor broken expires at this age, as in liblockfile of Debian.
UNTOUCHED = 300.0
# Seconds after which a held lock is touched, so that no program takes it for stale.
TOUCH = 60.0
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NAMELESS = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
# The file system has no O_TMPFILE, or /proc is not mounted.
_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT))
# Nine digits hold every pid; 0 means no particular process.
_NUMBER = re.compile(rb"[1-9][0-9]{0,8}(?![0-9])")
# A FIFO or link in the place of the lock must not block the delivery.
_OURS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SIZE = 16
_MARK = b"Q"
_WIDTHS = (5, 4, 3, 3)


class Journal(NamedTuple):
    """An append that has begun: old length, bytes to be added, their checksum, and the checksum of their head."""

    length: int = 0
    added: int = 0
    check: int = 0
    head: int = 0


class DotLock:
    """A lock file that is held; `left` is the journal of a lock file that was taken over."""

    __slots__ = ("_handle", "_touched", "left", "path")

    def __init__(self, path: str, handle: int, left: Journal) -> None:
        self.path = path
        self.left = left
        self._handle = handle
        self._touched = time.monotonic()

    def fill(self, journal: Journal | None = None) -> None:
        """Write a journal to the file."""
        os.lseek(self._handle, 0, os.SEEK_SET)
        write_all(self._handle, pack_journal(journal or Journal()))

    def write(self, journal: Journal) -> None:
        """Write the journal and fsync the file; its name is not synced."""
        self.fill(journal)
        os.fsync(self._handle)

    def touch(self) -> None:
        """Update the mtime, once in TOUCH seconds; to be called now and then."""
        if time.monotonic() - self._touched >= TOUCH:
            self._touched = time.monotonic()
            os.utime(self._handle)

    def close(self, remove: bool = True) -> None:
        """Release the lock; with `remove` False the file stays, with its journal, for the next delivery."""
        try:
            # Another program may have broken it as stale, and have its own lock file here now.
            if remove and _same(os.lstat(self.path), os.fstat(self._handle)):
                os.unlink(self.path)
        except OSError:
            pass  # It becomes stale.
        finally:
            os.close(self._handle)


def take_dotlock(path: str, alone: bool) -> DotLock | None:
    """Return the lock, None if another process holds it; `alone`: the caller has the kernel lock of the mbox."""
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
    """Return whether another process holds the lock file, for a caller that cannot create one.

    It is held unless it was not touched for UNTOUCHED seconds, or STALE seconds if it names a running process.
    """
    try:
        age = time.time() - os.lstat(path).st_mtime
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return False
        raise
    return age < UNTOUCHED or (age < STALE and _names_a_process(path))


def _names_a_process(path: str) -> bool:
    """Return whether a lock file contains the pid of a running process."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # As liblockfile reads it: digits at the start; other programs add the host name.
        number = _NUMBER.match(os.read(handle, 16))
        if number:
            os.kill(int(number[0]), 0)
            return True
    except PermissionError:
        return True  # A process of another user.
    except OSError:
        pass
    finally:
        os.close(handle)
    return False


def _make(path: str) -> DotLock:
    """Create the lock file. Raises FileExistsError if it exists."""
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
    """Create it without a name first: a kill must not leave an empty one, which would look like another program's."""
    handle = os.open(os.path.dirname(path) or ".", _NAMELESS, 0o600)
    try:
        lock = DotLock(path, handle, Journal())
        lock.fill()
        # src_dir_fd, although unused, makes os.link follow the link.
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
        return lock
    except BaseException:
        os.close(handle)
        raise


def _stale(path: str) -> os.stat_result | None:
    """Return the status of a stale lock file, None if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    old = time.time() - found.st_mtime > STALE and not stat.S_ISDIR(found.st_mode)
    return found if old else None


def _take_over(path: str) -> DotLock | None:
    """Return a lock of queue-local and this user whose creator has ended, with its journal; None for any other."""
    try:
        handle = os.open(path, _OURS)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            left = unpack_journal(os.pread(handle, SIZE + 1, 0))
            # It must not be stale any more.
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


def fold(data: bytes, crc: int = 0) -> int:
    """Return the checksum of bytes, or of an earlier CRC-32 and bytes: 24 bits."""
    return zlib.crc32(data, crc) & 0xFFFFFF


def pack_journal(journal: Journal) -> bytes:
    """Return the 16 bytes. A file of 1 TB or a message of 4 GB does not fit, and gets an empty journal."""
    if any(value >> 8 * width for value, width in zip(journal, _WIDTHS, strict=True)):
        journal = Journal()
    return _MARK + b"".join(value.to_bytes(width, "big") for value, width in zip(journal, _WIDTHS, strict=True))


def unpack_journal(data: bytes) -> Journal:
    """Return the journal that `pack_journal` packed. Raises FormatError for other data."""
    if len(data) != SIZE or data[:1] != _MARK:
        raise FormatError(f"mbox journal: not ours: {quoted(data)}")
    return Journal(*(int.from_bytes(part, "big") for part in (data[1:6], data[6:10], data[10:13], data[13:])))
