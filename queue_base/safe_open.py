"""Opens files below a directory that another account may write, without following links: for programs that run as root.

Account `queue` owns queue/ and everything in it. A program that still is root must assume that this account replaces
any path by a link, a FIFO, or a hard link to another user's file, at any moment. So every step of a path is opened as a
descriptor, no step follows a link or goes up, opening never blocks, and the result is checked through its descriptor.

The top directory itself is trusted, with the links on the way to it: only root or its owner may write its parent.

A path that a file or a home of another account names has no such top: `open_given` goes along it from the root
directory, and follows a link only where nobody but root, or the caller, could have put it.
"""

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLLOWED = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
LINKS_MAX = 40  # As the kernel's.
READ_MAX = 128 * 1024 * 1024  # Bytes of a file that `read_given` reads.


def open_below(top: int | str, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Return a descriptor of `path` below `top`, a directory's descriptor or path. Raises OSError, UnsafePath.

    The descriptor is non-blocking, and may be of any kind of file: the caller has to check.
    """
    *steps, name = path.split("/")
    held: list[int] = []
    here = top if isinstance(top, int) else -1
    try:
        if isinstance(top, str):
            here = os.open(top, _FOLLOWED)
            held.append(here)
        for step in steps:
            here = _open(here, step, _STEP, 0)
            held.append(here)
        return _open(here, name, flags, mode)
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


def open_given(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Return a descriptor of `path`, which may lead through directories of other accounts. Raises OSError, UnsafePath.

    A link is followed if root or the caller owns its directory, and the link, too, where others may write that. A file
    in a directory that others may write may be another name of somebody's. So if it belongs to neither the directory's
    owner nor the caller, it is opened for reading if everybody may read it, and for writing if it has one name. The
    descriptor is as that of `open_below`; O_TRUNC would come before these checks.
    """
    directory, name, _ = _walk(path)
    try:
        handle = os.open(".", flags | _SAFELY, dir_fd=directory) if not name else _open(directory, name, flags, mode)
        try:
            if name and not _is_ours(above := os.fstat(directory)):
                found = os.fstat(handle)
                # What root alone may read must not be read for another account.
                known = found.st_uid == above.st_uid or (found.st_uid == os.geteuid() != 0)
                reads = flags & os.O_ACCMODE == os.O_RDONLY
                harmless = found.st_mode & stat.S_IROTH if reads else found.st_nlink == 1
                if stat.S_ISREG(found.st_mode) and not (known or harmless):
                    raise UnsafePath(f"it belongs to uid {found.st_uid}, its directory to uid {above.st_uid}")
        except BaseException:
            os.close(handle)
            raise
        return handle
    finally:
        os.close(directory)


def read_given(path: str, most: int = READ_MAX) -> bytes:
    """Return the contents of a regular file that `open_given` opens. Raises OSError, with EFBIG if it is longer."""
    handle = open_given(path)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UnsafePath("not a regular file")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(handle)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def resolve_given(path: str) -> str:
    """Return `path` without links, as `open_given` follows them; its last part need not exist. Raises as that does."""
    directory, _, real = _walk(path)
    os.close(directory)
    return real


def _walk(path: str) -> tuple[int, str, str]:
    """Return the directory that has the last part of a path, that part, and the whole path without links.

    The part is empty if the path is that of the directory itself, as of `/`. Raises OSError, UnsafePath.
    """
    left, real, links = _parts(os.path.abspath(path)), [""], 0
    here = os.open("/", _FOLLOWED)
    try:
        while left:
            name = left.pop()
            if name == "..":
                here = _go(here, name, _FOLLOWED)
                real = real[:-1] or [""]
                continue
            if _is_link(here, name):
                links += 1
                if links > LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if not _may_follow(here, name):
                    raise UnsafePath(f"{name} is a symbolic link")
                if not _is_in_proc(here):
                    target = os.readlink(name, dir_fd=here)
                    left += _parts(target)
                    if target.startswith("/"):
                        here, real = _go(here, "/", _FOLLOWED), [""]
                    continue
                # The text of a link in /proc does not say where it leads.
                here = _go(here, name, _FOLLOWED)
            elif left:
                here = _go(here, name, _STEP)
            else:
                return here, name, "/".join([*real, name])
            real.append(name)
        return here, "", "/".join(real) or "/"
    except BaseException:
        os.close(here)
        raise


def _parts(path: str) -> list[str]:
    """Return the parts of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _go(here: int, name: str, flags: int) -> int:
    """Return a descriptor of a directory below, and close that of the one above."""
    found = os.open(name, flags, dir_fd=here)
    os.close(here)
    return found


def _is_ours(found: os.stat_result) -> bool:
    """Return whether only root and the caller may put something in a directory."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _may_follow(here: int, link: str) -> bool:
    above, found = os.fstat(here), os.stat(link, dir_fd=here, follow_symlinks=False)
    return _is_ours(above) or {above.st_uid, found.st_uid} <= {0, os.geteuid()}


def _is_in_proc(here: int) -> bool:
    try:
        return os.fstat(here).st_dev == os.stat("/proc").st_dev
    except OSError:
        return False


def _open(here: int, name: str, flags: int, mode: int) -> int:
    """Open a name in a directory; every flag of a safe opening is added."""
    if name in ("", ".", ".."):
        raise UnsafePath("it leads out of its directory")
    try:
        return os.open(name, flags | _SAFELY, mode, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(here, name):
            raise UnsafePath(f"{name} is a symbolic link") from error
        raise


def _is_link(here: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
    except OSError:
        return False
