"""Every step that must survive a power cut goes through a Commit, so that messages can share a sync.

The crash model is POSIX's weakest: a file's contents are safe after fsync of the file, a name is safe
after fsync of its directory, and what was not synced may be there or not, each piece by itself. So a
caller makes steps that may become true in any order, calls `sync`, and goes on to steps that
need the first ones. A commit of many files is one syncfs(2), which on Linux waits for the data
and reports its errors like fsync (since 5.8); one of few files is an fsync for each.

Every method raises OSError as the system call gave it, with the path in it.
"""

import errno
import os

# Above this many files and directories one syncfs costs less than the fsyncs.
GROUP = 12

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


# Where the file system has no nameless files, or a kernel before 3.11 takes the flag for O_DIRECTORY.
_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL))


class Commit:
    """The files and directories changed since the last sync; one or many messages' worth."""

    __slots__ = ("_directories", "_files", "_nameless", "syncs")

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._directories: set[str] = set()
        self._nameless: dict[int, str] = {}
        self.syncs = 0

    def create(self, path: str, data: bytes, mode: int, mtime_ns: int | None = None) -> None:
        """Make a new file of `data`; FileExistsError where it is there. mtime in nanoseconds."""
        handle = os.open(path, _NEW, mode)
        try:
            write_all(handle, data)
            if mtime_ns is not None:
                os.utime(handle, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(handle)
        self.written(path)

    def written(self, path: str) -> None:
        """Take note of a file that the caller made and wrote by itself."""
        self._files.add(path)
        self._name_changed(path)

    def contents(self, path: str) -> None:
        """Take note of a file whose contents alone changed."""
        self._files.add(path)

    def nameless(self, handle: int, directory: str) -> None:
        """Take note of a nameless file that the caller wrote; it must stay open until the sync."""
        self._nameless[handle] = directory

    def name(self, handle: int, path: str) -> None:
        """Give a nameless file its name; FileExistsError where it is there."""
        name_file(handle, path)
        self._name_changed(path)

    def removed(self, path: str) -> None:
        """Take note of a name that the caller, or somebody before it, removed."""
        self._name_changed(path)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; FileExistsError where it is there."""
        os.link(old, new)
        self._name_changed(new)
        if old in self._files:
            # The contents are still to be synced, should the old name go before that.
            self._files.add(new)

    def rename(self, old: str, new: str) -> None:
        """Move a name; what `new` named before is gone."""
        os.rename(old, new)
        self._name_changed(old)
        self._name_changed(new)
        if old in self._files:
            self._files.discard(old)
            self._files.add(new)

    def unlink(self, path: str) -> bool:
        """Remove a name; return False where it was not there.

        Its directory is synced in either case: a removal before a crash that nobody synced may
        have been seen by us and still be undone by a second crash.
        """
        self._name_changed(path)
        self._files.discard(path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make everything since the last sync safe. On an error nothing is forgotten; it may be called again."""
        if len(self._files) + len(self._directories) + len(self._nameless) > GROUP:
            for path in self._filesystems():
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    sync_filesystem(handle)
                finally:
                    os.close(handle)
                self.syncs += 1
        else:
            for path in [*self._files, *self._directories]:
                sync_path(path)
                self.syncs += 1
            for handle in self._nameless:
                os.fsync(handle)
                self.syncs += 1
        self._files.clear()
        self._directories.clear()
        self._nameless.clear()

    def _name_changed(self, path: str) -> None:
        self._directories.add(os.path.dirname(path) or ".")

    def _filesystems(self) -> list[str]:
        """Return one path on each file system that was changed; usually that is one."""
        apart = {path for path in self._files if os.path.dirname(path) not in self._directories}
        apart.update(self._nameless.values())
        return list({os.stat(path).st_dev: path for path in self._directories | apart}.values())


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data` to a blocking descriptor. Raises OSError."""
    done = os.write(handle, data)
    while done < len(data):
        done += os.write(handle, data[done:])


def open_nameless(directory: str, mode: int) -> int | None:
    """Return a new file that has no name yet (O_TMPFILE), to be written; None where that cannot be.

    It goes when it is closed, or its process dies. Raises OSError where `directory` cannot take a file.
    """
    try:
        return os.open(directory, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_NAMELESS:
            return None
        raise


def name_file(handle: int, path: str) -> None:
    """Give a nameless file its name (the way of open(2), for which /proc must be there). Raises OSError."""
    # With a directory descriptor it is linkat(2), which follows the link in /proc; the path being absolute, which
    # descriptor that is does not count.
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)


def sync_path(path: str) -> None:
    """fsync one file or directory. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_filesystem(handle: int) -> None:
    """Make everything safe that was done to the file system of an open file: syncfs(2). Raises OSError."""
    # Imported here because it costs 5 ms and only groups need it.
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def read_file(path: str, most: int = 128 * 1024 * 1024) -> bytes:
    """Return a file's bytes. Raises OSError, EFBIG for a file of more than `most` bytes."""
    return read_dated(path, most)[0]


def read_dated(path: str, most: int = 128 * 1024 * 1024) -> tuple[bytes, int]:
    """Return a file's bytes, and its mtime in nanoseconds since the epoch. Raises as read_file does."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mtime = os.fstat(handle).st_mtime_ns
        parts = [os.read(handle, 65536)]
        length = len(parts[0])
        # A first piece that is not full is the whole of a regular file; that spares most files a read.
        while length >= 65536 and parts[-1] and length <= most:
            parts.append(os.read(handle, 1 << 20))
            length += len(parts[-1])
        if length > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return b"".join(parts), mtime
    finally:
        os.close(handle)
