"""Reaches files in a directory where anybody may put anything. What it says is about a descriptor, never about a name.

`look` and `open` follow no link, wait for nobody and cross no mount point (openat2(2), where the kernel has it): a
user may mount a FUSE file system over a name there, and whoever looks at that would wait for as long as the user
likes. A file is reached first and opened only if it is a regular one, since opening a device may do something.
"""

import ctypes
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OPENAT2 = 437  # On every architecture.
_RESOLVE_NO_XDEV = 1
_REACH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# An older kernel, or a container that forbids what it does not know.
_NOT_THERE = frozenset((errno.ENOSYS, errno.EPERM, errno.EINVAL))
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Unfit(Exception):
    """A file that cannot be mail; the text says why."""


class _How(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(_REACH, 0, _RESOLVE_NO_XDEV)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long


# We have too many files open, or too little memory, or the disk fails: nothing that a file's owner has done.
OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.EINTR))


class Directory:
    """A directory that stays open; `status` is what it was when it was opened. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.status = os.fstat(self._handle)
        self._has_proc = os.path.isdir("/proc/self/fd")

    def close(self) -> None:
        """Let go of it."""
        os.close(self._handle)

    def look(self, name: str) -> os.stat_result:
        """Return what has this name; a link, where it is one. Raises OSError, EXDEV for a mount point."""
        handle = self._reach(name)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def open(self, name: str, check: "Callable[[os.stat_result], None]") -> tuple[int, os.stat_result]:
        """Return a descriptor to read a regular file, and what it is. Raises Unfit for anything else, OSError.

        `check` is asked before it is opened, and raises Unfit as well.
        """
        place = self._reach(name)
        try:
            status = os.fstat(place)
            if not stat.S_ISREG(status.st_mode):
                raise Unfit(f"it is {kind(status.st_mode)}")
            check(status)
            if self._has_proc:
                return os.open(f"/proc/self/fd/{place}", _READ), status
            handle = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=self._handle)
            if not os.path.samestat(status, os.fstat(handle)):
                os.close(handle)
                raise Unfit("it was replaced while it was opened")
            return handle, status
        finally:
            os.close(place)

    def _reach(self, name: str) -> int:
        handle = int(_syscall(_OPENAT2, self._handle, os.fsencode(name), ctypes.byref(_HOW), ctypes.sizeof(_HOW)))
        if handle >= 0:
            return handle
        error = ctypes.get_errno()
        if error in _NOT_THERE:
            return os.open(name, _REACH, dir_fd=self._handle)
        raise OSError(error, os.strerror(error), name)


def kind(mode: int) -> str:
    """Return what a file that is no regular one is, with its article."""
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")
