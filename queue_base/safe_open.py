"""Opens files below a directory that another account may write, without following links: for programs that run as root.

Account `queue` owns queue/ and everything in it. A program that still is root must assume that this account replaces
any path by a link, a FIFO, or a hard link to another user's file, at any moment. So every step of a path is opened as a
descriptor, no step follows a link or goes up, opening never blocks, and the result is checked through its descriptor.

The top directory itself is trusted, with the links on the way to it: only root or its owner may write its parent.
"""

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def open_below(top: int | str, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Return a descriptor of `path` below `top`, a directory's descriptor or path. Raises OSError, UnsafePath.

    The descriptor is non-blocking, and may be of any kind of file: the caller has to check.
    """
    *steps, name = path.split("/")
    held: list[int] = []
    here = top if isinstance(top, int) else -1
    try:
        if isinstance(top, str):
            here = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            held.append(here)
        for step in steps:
            here = _open(here, step, _STEP, 0)
            held.append(here)
        return _open(here, name, flags | _SAFELY, mode)
    finally:
        for handle in held:
            os.close(handle)


class UnsafePath(OSError):
    """The path must not be used; the text says why. errno is None, because no system call failed."""


def open_file_below(top: int | str, path: str, owners: "Container[int]", flags: int = os.O_RDONLY) -> int:
    """Return a blocking descriptor of a regular file that belongs to one of `owners`. Raises OSError, UnsafePath."""
    handle = open_below(top, path, flags)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafePath("not a regular file")
        # An account that may write the directory may have created a hard link to any file in it.
        if found.st_uid not in owners:
            raise UnsafePath(f"it belongs to uid {found.st_uid}, which is not the queue's owner")
        os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open(here: int, name: str, flags: int, mode: int) -> int:
    if name in ("", ".", ".."):
        raise UnsafePath("it leads out of its directory")
    try:
        return os.open(name, flags, mode, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(here, name):
            raise UnsafePath(f"{name} is a symbolic link") from error
        raise


def _is_link(here: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
    except OSError:
        return False
