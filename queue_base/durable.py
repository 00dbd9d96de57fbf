"""Every step that must survive a power cut goes through a Commit, so that messages can share a sync.

The crash model is POSIX's weakest: a file's contents are safe after fsync of the file, a name is safe
after fsync of its directory, and what was not synced may be there or not, each piece by itself. So a
caller makes steps that may become true in any order, calls `sync`, and goes on to steps that
need the first ones.

A file is synced by the descriptor that wrote it, and a directory by one that was opened before its names changed:
Linux reports a failed write to each descriptor that was open then, once, and to nobody who comes later. syncfs(2) is
no substitute: it waits for everybody's data, and to a new descriptor it does not report what another process has
been told. The writing of many files is begun for all (sync_file_range(2)) before the first is waited for, and
threads wait for many at once.

Every method raises OSError as the system call gave it, with the path in it.
"""

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# With so many files it pays to begin the writing of all before waiting for the first. One message has two.
START_EARLY = 3
# With so many files and directories it pays to wait for several at once: one thread for each PER_THREAD.
PARALLEL = 12
PER_THREAD = 6
THREADS = 8
# Descriptors that one Commit holds at the most, and the part of what the process may have open. Over it, files
# are synced before their time.
HELD_MOST = 512
HELD_PART = 4

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Should somebody have put a FIFO there, this does not wait for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SHORT = frozenset((errno.EMFILE, errno.ENFILE))
# sync_file_range is only a hint here: where there is none, fsync does all of it. All else that it reports is a failure
# to write, which fsync may not report again.
_NO_RANGE = frozenset((errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.EPERM))
_SYNC_FILE_RANGE_WRITE = 2


# Where the file system has no nameless files, or a kernel before 3.11 takes the flag for O_DIRECTORY.
_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL))


class Commit:
    """The files and directories changed since the last sync; one or many messages' worth.

    `syncs` counts how often it has waited for the disk, for however many files at once.
    It holds their descriptors until the sync. So that it never has too many, or where the process may open no more, it
    syncs the contents of files early; what fails then is reported by `sync`. One thread may make the steps
    and another one call `sync`, but not both at a time.
    """

    __slots__ = ("_contents", "_directories", "_failure", "_files", "_lent", "_most", "syncs")

    def __init__(self) -> None:
        # Descriptors of files that were written through them.
        self._files: dict[int, str] = {}
        # Paths that changed before they were opened here.
        self._contents: dict[str, int] = {}
        # -1 is a directory that is to be opened again for its sync: descriptors were short.
        self._directories: dict[str, int] = {}
        self._lent: dict[int, str] = {}
        self._failure: OSError | None = None
        self._most = 0
        self.syncs = 0

    def __del__(self) -> None:
        self.forget()

    def create(self, path: str, data: bytes, mode: int, mtime_ns: int | None = None) -> None:
        """Make a new file of `data`; FileExistsError where it is there. mtime in nanoseconds."""
        self._name_changes(path)
        handle = self._open(path, _NEW, mode)
        try:
            write_all(handle, data)
            if mtime_ns is not None:
                os.utime(handle, ns=(mtime_ns, mtime_ns))
        except BaseException:
            os.close(handle)
            raise
        self._hold(handle, path)

    def written(self, path: str, handle: int | None = None) -> None:
        """Take note of a new file and its name; otherwise as `contents`."""
        self.contents(path, handle)
        self._name_changes(path)

    def contents(self, path: str, handle: int | None = None) -> None:
        """Take note of a file whose contents changed, and take over the descriptor that wrote them: it is closed here.

        Without one the path is opened here, which is good for directories and for what is not mail: an error of
        writing that was reported to somebody before is not reported again.
        """
        if handle is not None:
            self._hold(handle, path)
        elif path not in self._contents and path not in self._directories:
            self._contents[path] = self._open(path, _READ)
            self._limit()

    def nameless(self, handle: int, directory: str) -> None:
        """Take note of a nameless file that the caller wrote; it must stay open until the sync."""
        self._lent[handle] = directory

    def name(self, handle: int, path: str) -> None:
        """Give a nameless file its name; FileExistsError where it is there."""
        self._name_changes(path)
        name_file(handle, path)

    def removed(self, path: str) -> None:
        """Take note of a name that the caller, or somebody before it, made or removed, or is about to."""
        self._name_changes(path)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; FileExistsError where it is there."""
        self._name_changes(new)
        os.link(old, new)

    def rename(self, old: str, new: str) -> None:
        """Move a name; what `new` named before is gone."""
        self._name_changes(old)
        self._name_changes(new)
        os.rename(old, new)

    def unlink(self, path: str) -> bool:
        """Remove a name; return False where it was not there.

        Its directory is synced in either case: a removal before a crash that nobody synced may
        have been seen by us and still be undone by a second crash.
        """
        try:
            self._name_changes(path)
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make everything since the last sync safe.

        After an error it raises that error for good, until `forget`: what a descriptor has reported once it does not
        report again, so a second try would find nothing wrong. The steps have to be made anew, in a new Commit.
        """
        if self._failure is None:
            try:
                self._sync(self._take_files(), self._directories)
            except OSError as error:
                self._failure = error
            except BaseException:
                # What an fsync had to report may be lost with it.
                self._failure = OSError(errno.EINTR, os.strerror(errno.EINTR))
                self._close()
                raise
        self._close()
        if self._failure is not None:
            failure = self._failure
            raise OSError(failure.errno, failure.strerror, failure.filename) from failure

    def forget(self) -> None:
        """Forget all steps, and an earlier failure: the caller has given up what it did."""
        self._close()
        self._failure = None

    def _open(self, path: str, flags: int, mode: int = 0) -> int:
        for make_room in (self._sync_early, self._close_directories):
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
            make_room()
        return os.open(path, flags, mode)

    def _name_changes(self, path: str) -> None:
        """Open the directory of a name that is about to change."""
        directory = os.path.dirname(path) or "."
        if directory in self._directories:
            return
        try:
            self._directories[directory] = self._open(directory, _DIRECTORY)
        except OSError as error:
            # What cannot be done is to change that name.
            raise OSError(error.errno, error.strerror, path) from error

    def _hold(self, handle: int, path: str) -> None:
        self._files[handle] = path
        self._limit()

    def _limit(self) -> None:
        """Sync early where there are too many descriptors."""
        held = len(self._files) + len(self._contents)
        if held < 16:
            return
        self._most = self._most or max(16, min(HELD_MOST, os.sysconf("SC_OPEN_MAX") // HELD_PART))
        if held > self._most:
            self._sync_early()

    def _sync_early(self) -> None:
        """Sync the contents of the files so far, and close them."""
        files = self._take_files(lent=False)
        try:
            if self._failure is None:
                self._sync(files, {})
        except OSError as error:
            # It is not about the file that is being made now: `sync` says it.
            self._failure = error
        except BaseException:
            self._failure = OSError(errno.EINTR, os.strerror(errno.EINTR))
            raise
        finally:
            self._close_files()

    def _take_files(self, lent: bool = True) -> list[tuple[int, str]]:
        files = [*self._files.items(), *((handle, path) for path, handle in self._contents.items())]
        return [*files, *self._lent.items()] if lent else files

    def _sync(self, files: list[tuple[int, str]], directories: dict[str, int]) -> None:
        opened = [(handle, path) for path, handle in directories.items() if handle >= 0]
        closed = [path for path, handle in directories.items() if handle < 0]
        sync_handles(files, opened)
        if files or directories:
            self.syncs += 1
        if closed:
            self._close_files()
            self._close_directories()
            for path in closed:
                sync_path(path)

    def _close_files(self) -> None:
        files = [*self._files, *self._contents.values()]
        self._files.clear()
        self._contents.clear()
        _close_all(files)

    def _close_directories(self) -> None:
        """Close them; which they are is still known."""
        handles = list(self._directories.values())
        self._directories.update(dict.fromkeys(self._directories, -1))
        _close_all(handles)

    def _close(self) -> None:
        self._close_files()
        self._close_directories()
        self._directories.clear()
        self._lent.clear()


def _close_all(handles: list[int]) -> None:
    for handle in handles:
        if handle >= 0:
            try:
                os.close(handle)
            except OSError:
                pass  # What close reports fsync has reported before.


def sync_handles(files: "Sequence[tuple[int, str]]", directories: "Sequence[tuple[int, str]]" = ()) -> None:
    """fsync open files and directories, many at once; the paths are for the error. Raises OSError, the first there is.

    Whoever calls it closes nothing before it has returned.
    """
    if len(files) >= START_EARLY:
        _start_writing(files)
    work = [*files, *directories]
    if len(work) < PARALLEL:
        for handle, path in work:
            _sync_handle(handle, path)
    else:
        _sync_parallel(work)


def _sync_handle(handle: int, path: str) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _start_writing(files: "Sequence[tuple[int, str]]") -> None:
    """Have the system begin to write the contents of files. Raises OSError."""
    # Imported here because it costs 5 ms and only groups need it.
    try:
        import ctypes

        start = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (ImportError, OSError, AttributeError):
        return
    start.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    for handle, path in files:
        # From the start to the end, whatever that is.
        if start(handle, 0, 0, _SYNC_FILE_RANGE_WRITE) != 0:
            error = ctypes.get_errno()
            if error in _NO_RANGE:
                return
            raise OSError(error, os.strerror(error), path)


def _sync_parallel(work: list[tuple[int, str]]) -> None:
    # Imported here because only groups need them.
    import threading
    from collections import deque

    left = deque(work)
    failures: list[BaseException] = []

    def sync_some() -> None:
        while True:
            try:
                handle, path = left.popleft()
            except IndexError:
                return
            try:
                _sync_handle(handle, path)
            except BaseException as error:
                failures.append(error)
                left.clear()

    threads: list[threading.Thread] = []
    try:
        for _ in range(min(THREADS, len(work) // PER_THREAD) - 1):
            thread = threading.Thread(target=sync_some, name="fsync", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break  # No more threads, or no memory for one: those that there are do it.
            threads.append(thread)
        sync_some()
    finally:
        left.clear()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


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
    """Make everything safe that was done to the file system of an open file: syncfs(2). Raises OSError.

    It waits for everybody's data, and reports everybody's failures since that file was opened. It is for what no
    descriptor can be had of.
    """
    # Imported here because it costs 5 ms and an injector that may write to the queue itself does not need it.
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
