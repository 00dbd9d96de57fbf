"""Opens files in a directory in which any user may create files. All facts come from descriptors, never from names.

What a file must be to count as mail is in file_checks.py.

`look` and `open` follow no symbolic link, never block, and cross no mount point (openat2(2), if the kernel has it): a
user may mount a FUSE file system over a name, and a process that looks at it would wait as long as the user likes. A
file is opened for reading only if it is a regular file, since opening a device may have effects.
"""

import ctypes
import errno
import os
from collections.abc import Callable

from queue_inject.pickup.file_checks import NotMail, check_kind

_OPENAT2 = 437  # On every architecture.
_RESOLVE_NO_XDEV = 1
_REACH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# How openat2 fails on an older kernel, or in a container that forbids unknown system calls.
_NO_OPENAT2 = frozenset((errno.ENOSYS, errno.EPERM, errno.EINVAL))


class _How(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(_REACH, 0, _RESOLVE_NO_XDEV)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long

# Errors that the owner of a file has not caused: too many open files, too little memory, a failing disk.
OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.EINTR))


class Directory:
    """A directory, which is opened when it is first needed and stays open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = -1
        self._has_proc = os.path.isdir("/proc/self/fd")

    def reopen(self) -> None:
        """Open the directory that has the path now. Raises OSError; the one before then stays open."""
        handle = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.close()
        self._handle = handle

    def close(self) -> None:
        """Close the directory. It is opened again if it is needed."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def look(self, name: str) -> os.stat_result:
        """Return the status of a file; that of the link if it is a symbolic link.

        Raises OSError: EXDEV for a mount point.
        """
        handle = self._reach(name)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def open(self, name: str, check: Callable[[os.stat_result], None]) -> tuple[int, os.stat_result]:
        """Open a regular file for reading; return its descriptor and status. Raises NotMail for other files, OSError.

        `check` is called before the file is opened, and may raise NotMail too.
        """
        place = self._reach(name)
        try:
            status = os.fstat(place)
            check_kind(status)
            check(status)
            if self._has_proc:
                return os.open(f"/proc/self/fd/{place}", _READ), status
            handle = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=self._handle)
            if not os.path.samestat(status, os.fstat(handle)):
                os.close(handle)
                raise NotMail("it was replaced while it was opened")
            return handle, status
        finally:
            os.close(place)

    def _reach(self, name: str) -> int:
        if self._handle < 0:
            self.reopen()
        handle = int(_syscall(_OPENAT2, self._handle, os.fsencode(name), ctypes.byref(_HOW), ctypes.sizeof(_HOW)))
        if handle >= 0:
            return handle
        error = ctypes.get_errno()
        if error in _NO_OPENAT2:
            return os.open(name, _REACH, dir_fd=self._handle)
        raise OSError(error, os.strerror(error), name)
