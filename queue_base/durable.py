"""Durable changes of files. Every step that must survive a power cut goes through a Commit; messages may share one.

The crash model is POSIX's weakest: the contents of a file are safe after fsync of the file, a name is safe after fsync
of its directory, and of changes that were not synced any subset may be on disk. A caller therefore makes steps
that may become durable in any order, calls `sync`, and then makes the steps that depend on them.

A file is synced by the descriptor that wrote it, and a directory by a descriptor that was opened before its names
changed: Linux reports a failed write to each descriptor that was open then, once, and never to a later one.
syncfs(2) is no substitute: it waits for the data of all users, and does not report to a new descriptor an error that
another process has already seen.

Nor is a success of fsync enough: that of ext4 returns 0 for a name that an aborted journal has just dropped, until the
file system is marked as failed a moment later. A change fails from the abort on, so after the syncs of a group each
file system is asked for one (`check_works`).

Writing of many files is started for all of them (sync_file_range(2)) before the first fsync, and several threads fsync
at once, unless fsync does not wait, as on a tmpfs.

Every method raises OSError as the system call raised it, with the path.
"""

import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from queue import SimpleQueue
    from typing import Any, TypeVar

    Item = TypeVar("Item")
    Jobs = SimpleQueue[tuple[Callable[[], None], SimpleQueue[None]]]

# From this number of files on, writing of all files is started before the first fsync. One message has two files.
START_EARLY = 3
# From this number of files and directories on, several threads fsync, THREADS at most. On a file system with a journal
# each fsync of a directory waits for a commit of what all processes have changed until then. Those that wait at the
# same time share one commit; one after the other, each would wait for a commit of its own.
PARALLEL = 6
THREADS = 16
SAMPLE = 4  # Of these, the first ones show whether fsync waits for a disk.
# The most descriptors that one Commit holds, and the fraction of the process's limit. Above it, files are synced
# early.
HELD_MAX = 512
HELD_PART = 4
KEPT_SECONDS = 1.0

_WAITS = False  # Whether an fsync of a group has waited.
# An attribute that no file has, and the errors of its removal on a file system that has failed. Any other one, most
# often ENODATA or EOPNOTSUPP, is that of a file system that works.
_NOT_THERE = "user.queue-suite.none"
_FAILED = frozenset((errno.EROFS, errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN))
# File systems that have no disk: fsync does nothing.
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_MOUNTS = "/proc/self/mountinfo"
_KNOWN: "dict[int, bool]" = {}  # By st_dev, whether the file system is one of these.
# What gives work to each thread that has none, and the process that has these threads.
_HELPERS: "list[Jobs]" = []
_HELPERS_OF = 0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Does not block if the path has been replaced by a FIFO.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SHORT = frozenset((errno.EMFILE, errno.ENFILE))
# sync_file_range is only a hint: without it, fsync does the whole work. Any other error is a failed write, which fsync
# may not report again.
_NO_RANGE = frozenset((errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.EPERM))
_SYNC_FILE_RANGE_WRITE = 2
_START: "Any" = None  # sync_file_range of the C library, once it was used.
# The file system has no unnamed files, or the kernel is older than 3.11 and takes the flag for O_DIRECTORY.
_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL))


class Commit:
    """The files and directories that changed since the last sync, of one or many messages.

    `syncs` counts the waits for the disk; one wait may serve many files. A Commit holds descriptors until the sync. If
    it holds too many, or the process can open no more, it syncs the contents of files early; `sync` then reports
    the failure, if any. One thread may make the steps and another one call `sync`, but not at the same time.

    Up to `kept_most` directories stay open between the syncs of a Commit that is used again and again: to open one
    costs more than a sync that need not wait. Its path may name another directory by then, of which its sync would say
    nothing, so all are opened again each KEPT_SECONDS.
    """

    __slots__ = (
        *("_contents", "_directories", "_failure", "_files", "_held_most", "_kept", "_kept_most", "_kept_until"),
        *("_lent", "_most", "syncs"),
    )

    def __init__(self, held_most: int = HELD_MAX, kept_most: int = 0) -> None:
        """`held_most`: so many descriptors may be held, as far as the process's limit allows."""
        self._held_most = held_most
        self._kept_most = kept_most
        self._kept: dict[str, int] = {}
        self._kept_until = 0.0
        # Files by the descriptor that wrote them.
        self._files: dict[int, str] = {}
        # Files that were changed before they were opened here.
        self._contents: dict[str, int] = {}
        # -1 is a directory that was closed for lack of descriptors, and is opened again for its sync.
        self._directories: dict[str, int] = {}
        self._lent: dict[int, str] = {}
        self._failure: OSError | None = None
        self._most = 0
        self.syncs = 0

    def __del__(self) -> None:
        self.forget()

    def create(self, path: str, data: bytes, mode: int, mtime_ns: int | None = None) -> None:
        """Create a file that contains `data`. Raises FileExistsError if it exists. mtime is in nanoseconds."""
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
        """Record a new file: its contents, as in `contents`, and its name."""
        self.contents(path, handle)
        self._name_changes(path)

    def contents(self, path: str, handle: int | None = None) -> None:
        """Record a file whose contents changed. The descriptor that wrote them passes to the Commit, which closes it.

        Without a descriptor the path is opened here. That is enough for directories and for data that is not mail: a
        write error that another descriptor has already seen is not reported.
        """
        if handle is not None:
            self._hold(handle, path)
        elif path not in self._contents and path not in self._directories:
            self._contents[path] = self._open(path, _READ)
            self._limit()

    def nameless(self, handle: int, directory: str) -> None:
        """Record an unnamed file that the caller wrote and keeps open until the sync."""
        self._lent[handle] = directory

    def name(self, handle: int, path: str) -> None:
        """Give an unnamed file its name. Raises FileExistsError if the name exists."""
        self._name_changes(path)
        name_file(handle, path)

    def removed(self, path: str) -> None:
        """Record a name that was, or is about to be, created or removed."""
        self._name_changes(path)

    def directory(self, path: str, mode: int) -> None:
        """Make a directory unless it is there, and record its name in either case.

        Another process may have made it and not synced its name yet, or may have been killed before, also before it
        had set the mode.
        """
        self._name_changes(path)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            # A directory may have inherited the bit of the group.
            if stat.S_IMODE(os.stat(path).st_mode) & ~stat.S_ISGID != 0o700:
                return
        if stat.S_IMODE(os.stat(path).st_mode) != mode:
            os.chmod(path, mode)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name. Raises FileExistsError if the name exists."""
        self._name_changes(new)
        os.link(old, new)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing `new`."""
        self._name_changes(old)
        self._name_changes(new)
        os.rename(old, new)

    def unlink(self, path: str) -> bool:
        """Remove a name; return False if it does not exist.

        Its directory is synced in either case: an earlier removal that nobody synced can still be undone by a crash.
        """
        try:
            self._name_changes(path)
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make all steps since the last sync durable.

        After an error every call raises that error until `forget`: a descriptor reports a failed write only once, so
        a second fsync would wrongly succeed. The caller has to repeat the steps in a new Commit.
        """
        if self._failure is None:
            try:
                self._sync(self._take_files(), self._directories)
            except OSError as error:
                self._failure = error
            except BaseException:
                # The result of an fsync may be lost with the exception.
                self._failure = OSError(errno.EINTR, os.strerror(errno.EINTR))
                self._close()
                raise
        self._close()
        if self._failure is not None:
            failure = self._failure
            raise OSError(failure.errno, failure.strerror, failure.filename) from failure

    @property
    def is_full(self) -> bool:
        """Whether it holds so many descriptors that its user should sync now. It holds one for each directory."""
        held = len(self._files) + len(self._contents) + len(self._directories)
        return held >= max(16, min(self._held_most, os.sysconf("SC_OPEN_MAX") // HELD_PART))

    def forget(self) -> None:
        """Forget all steps and an earlier failure: the caller has given up its steps."""
        self._close()
        self._drop_kept()
        self._failure = None

    def _open(self, path: str, flags: int, mode: int = 0) -> int:
        for make_room in (self._drop_kept, self._sync_early, self._close_directories):
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
            make_room()
        return os.open(path, flags, mode)

    def _name_changes(self, path: str) -> None:
        """Open the directory of a name that is about to change."""
        # Not os.path.dirname, which takes three times as long.
        head, slash, _ = path.rpartition("/")
        directory = head or slash or "."
        if directory in self._directories:
            return
        if directory in self._kept:
            if time.monotonic() < self._kept_until:
                self._directories[directory] = self._kept.pop(directory)
                return
            self._drop_kept()
        try:
            self._directories[directory] = self._open(directory, _DIRECTORY)
        except OSError as error:
            # The operation that fails is the change of that name.
            raise OSError(error.errno, error.strerror, path) from error

    def _hold(self, handle: int, path: str) -> None:
        self._files[handle] = path
        self._limit()

    def _limit(self) -> None:
        """Sync early if too many descriptors are held."""
        held = len(self._files) + len(self._contents)
        if held < 16:
            return
        self._most = self._most or max(16, min(self._held_most, os.sysconf("SC_OPEN_MAX") // HELD_PART))
        if held > self._most:
            self._sync_early()

    def _sync_early(self) -> None:
        """Sync the contents of the files so far, and close them."""
        files = self._take_files(lent=False)
        try:
            if self._failure is None:
                self._sync(files, {})
        except OSError as error:
            # The error may belong to an earlier file, so `sync` reports it.
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
        """Close the directories, but remember their paths."""
        handles = list(self._directories.values())
        self._directories.update(dict.fromkeys(self._directories, -1))
        _close_all(handles)

    def _drop_kept(self) -> None:
        kept = list(self._kept.values())
        self._kept.clear()
        _close_all(kept)

    def _close(self) -> None:
        self._close_files()
        if time.monotonic() >= self._kept_until:
            self._drop_kept()
            self._close_directories()
            self._kept_until = time.monotonic() + KEPT_SECONDS
        elif len(self._kept) + len(self._directories) <= self._kept_most and -1 not in self._directories.values():
            self._kept.update(self._directories)
        else:
            self._close_directories()
        self._directories.clear()
        self._lent.clear()


def _close_all(handles: list[int]) -> None:
    for handle in handles:
        if handle >= 0:
            try:
                os.close(handle)
            except OSError:
                pass  # fsync has reported it already.


def sync_handles(files: "Sequence[tuple[int, str]]", directories: "Sequence[tuple[int, str]]" = ()) -> None:
    """fsync open files and directories, several at once; the paths are for errors. Raises the first OSError.

    The caller must keep the descriptors open until this returns.
    """
    if len(files) >= START_EARLY and not is_in_memory(files[0][0]):
        _start_writing(files)
    work = [*files, *directories]
    if len(work) < PARALLEL or not _waits_for_disk(work):
        for handle, path in work:
            _sync_handle(handle, path)
    else:
        run_in_threads(work, lambda each: _sync_handle(*each), min(THREADS, len(work)))
    for handle, path in {os.fstat(handle).st_dev: (handle, path) for handle, path in directories or files}.values():
        check_works(handle, path)


def check_works(handle: int, path: str | None = None) -> None:
    """Raise OSError if the file system of an open file has failed, so that a sync before may not have done its work.

    Nothing is changed, but where there is a journal, a transaction of it is asked for, as for every change.
    """
    try:
        os.removexattr(handle, _NOT_THERE)
    except OSError as error:
        if error.errno in _FAILED:
            raise OSError(error.errno, error.strerror, path) from error


def _waits_for_disk(work: list[tuple[int, str]]) -> bool:
    """Sync some of `work`, and take it away, if it is not known yet whether fsync waits; return whether it does.

    Threads would only delay the syncs of a tmpfs. Once an fsync has waited, it counts as known.
    """
    global _WAITS
    # In a process with several threads the sample shows waits for the interpreter, too.
    if not _WAITS and is_in_memory(work[-1][0]):
        return False
    for _ in range(0 if _WAITS else SAMPLE):
        waits = count_waits()
        _sync_handle(*work.pop())
        if count_waits() > waits:
            _WAITS = True
            break
    return _WAITS


def is_in_memory(place: str | int) -> bool:
    """Return whether the file system of a path or descriptor has no disk, so that fsync never waits; if in doubt not.

    Raises OSError.
    """
    device = os.stat(place).st_dev
    found = _KNOWN.get(device)
    if found is None:
        found = _KNOWN[device] = _has_no_disk(b"%d:%d" % (os.major(device), os.minor(device)))
    return found


def _has_no_disk(number: bytes) -> bool:
    try:
        with open(_MOUNTS, "rb") as mounts:
            for line in mounts:
                # Optional fields come before the hyphen (proc(5)).
                before, _, after = line.partition(b" - ")
                if before.split()[2:3] == [number]:
                    return after.split(b" ")[0].decode("utf-8", "replace") in _IN_MEMORY
    except OSError:
        pass
    return False


def count_waits() -> int:
    """Return how often this thread has waited for something, such as the disk."""
    # Imported here because only groups need it.
    import resource

    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _sync_handle(handle: int, path: str) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _start_writing(files: "Sequence[tuple[int, str]]") -> None:
    """Start writing the contents of files to disk, without waiting. Raises OSError."""
    # Imported here because it costs 5 ms and only groups need it.
    global _START
    try:
        import ctypes

        if _START is None:
            _START = ctypes.CDLL(None, use_errno=True).sync_file_range
            _START.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    except (ImportError, OSError, AttributeError):
        return
    start = _START
    for handle, path in files:
        # A length of 0 means up to the end of the file.
        if start(handle, 0, 0, _SYNC_FILE_RANGE_WRITE) != 0:
            error = ctypes.get_errno()
            if error in _NO_RANGE:
                return
            raise OSError(error, os.strerror(error), path)


def run_in_threads(work: "Iterable[Item]", do: "Callable[[Item], None]", count: int) -> None:
    """Call `do` with each item, in this thread and in `count` - 1 others. Raises what the first failed call raised.

    After a failure no further calls begin. Returns when all threads have ended their part; they then wait for the next
    call, because to start one costs as much as some syncs. If no more can be started, the existing ones do the work.
    """
    # Imported here because only groups need them.
    from collections import deque
    from queue import SimpleQueue

    left = deque(work)
    failures: list[BaseException] = []

    def run() -> None:
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return
            try:
                do(item)
            except BaseException as error:
                failures.append(error)
                left.clear()

    ended: SimpleQueue[None] = SimpleQueue()
    helpers = 0
    try:
        for _ in range(count - 1):
            jobs = _take_helper()
            if jobs is None:
                break
            helpers += 1
            jobs.put((run, ended))
        run()
    finally:
        left.clear()
        for _ in range(helpers):
            ended.get()
    if failures:
        raise failures[0]


def _take_helper() -> "Jobs | None":
    """Return what gives work to a thread that has none, None if no thread can be started."""
    import threading
    from queue import SimpleQueue

    global _HELPERS_OF
    if os.getpid() != _HELPERS_OF:
        # After a fork the threads are gone.
        _HELPERS.clear()
        _HELPERS_OF = os.getpid()
    try:
        return _HELPERS.pop()
    except IndexError:
        pass
    jobs: Jobs = SimpleQueue()
    try:
        threading.Thread(target=_help, args=(jobs,), name="disk", daemon=True).start()
    except RuntimeError:
        return None
    return jobs


def _help(jobs: "Jobs") -> None:
    """Do what comes, in a thread."""
    while True:
        run, ended = jobs.get()
        run()
        _HELPERS.append(jobs)
        # What it refers to may be large, and the next work may come much later.
        del run
        ended.put(None)
        del ended


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data` to a blocking descriptor. Raises OSError."""
    done = os.write(handle, data)
    while done < len(data):
        done += os.write(handle, data[done:])


def open_nameless(directory: str, mode: int) -> int | None:
    """Return a descriptor of a new file without a name (O_TMPFILE), None if the file system does not support it.

    Unless it gets a name, the file vanishes when it is closed. Raises OSError if `directory` cannot take a file.
    """
    try:
        return os.open(directory, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_NAMELESS:
            return None
        raise


def name_file(handle: int, path: str) -> None:
    """Give an unnamed file a name, as open(2) describes; /proc must be mounted. Raises OSError."""
    # src_dir_fd makes os.link call linkat(2), which can follow the link in /proc. The path is absolute, so that the
    # value of the descriptor does not matter.
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)


def sync_path(path: str) -> None:
    """fsync one file or directory. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        check_works(handle, path)
    finally:
        os.close(handle)


def sync_filesystem(handle: int) -> None:
    """Sync the whole file system of an open file: syncfs(2). Raises OSError.

    It waits for the data of all users, and reports their failures since the file was opened. Use it only for
    directories and files that cannot be opened.
    """
    # Imported here because it takes 5 ms, and an injector that may write to the queue does not need it.
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    check_works(handle)


def read_file(path: str, most: int = 128 * 1024 * 1024) -> bytes:
    """Return the contents of a file. Raises OSError, with EFBIG if the file has more than `most` bytes."""
    return read_dated(path, most)[0]


def read_dated(path: str, most: int = 128 * 1024 * 1024) -> tuple[bytes, int]:
    """Return the contents of a file, and its mtime in nanoseconds since the epoch. Raises as read_file does."""
    # Without O_NONBLOCK a FIFO would block for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        mtime = found.st_mtime_ns
        if stat.S_ISFIFO(found.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        parts = [os.read(handle, 65536)]
        length = len(parts[0])
        # A short first read is the whole of a regular file; that saves most files a second read.
        while length >= 65536 and parts[-1] and length <= most:
            parts.append(os.read(handle, 1 << 20))
            length += len(parts[-1])
        if length > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return b"".join(parts), mtime
    finally:
        os.close(handle)
