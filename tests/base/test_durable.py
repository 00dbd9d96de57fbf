"""Commit, and reading and writing of whole files, on real directories."""

import errno
import itertools
import os
import resource
import tempfile
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest

from queue_base import durable
from queue_base.durable import (
    HELD_MAX,
    PARALLEL,
    SAMPLE,
    Commit,
    is_in_memory,
    read_file,
    run_in_threads,
    sync_path,
    write_all,
)


def open_files(top: Path) -> list[str]:
    """Return the paths below a directory, and itself, that this process has open, sorted."""
    found = []
    for handle in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{handle}"))
        except FileNotFoundError:
            continue
    return sorted(path for path in found if path.startswith(str(top)))


class Synced:
    """What was synced, instead of how: the paths, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.fail = ""
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}").removesuffix(" (deleted)")
        if self.fail and path.endswith(self.fail):
            # As Linux does it: a descriptor reports an error once.
            self.fail = ""
            raise OSError(5, "Input/output error")
        self._fsync(handle)
        self.paths.append(path)


@pytest.fixture(params=[False, True], ids=["", "waits"])
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether fsync seems to wait for a disk."""
    usage = itertools.count(0, 1 if request.param else 0)
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage([0] * 14 + [next(usage), 0]))
    monkeypatch.setattr(durable, "_WAITS", False)
    monkeypatch.setattr(durable, "_IN_MEMORY", frozenset())
    monkeypatch.setattr(durable, "_KNOWN", {})
    return bool(request.param)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, waits: bool) -> Synced:
    return Synced(monkeypatch)


def test_several_threads_sync_a_group_if_fsync_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    commit, fsync = Commit(), os.fsync
    syncing: list[int] = []
    another = threading.Event()

    def sync(handle: int) -> None:
        syncing.append(threading.get_ident())
        if threading.current_thread() is not threading.main_thread():
            another.set()
        elif waits and len(syncing) > SAMPLE:
            another.wait(60)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", sync)
    for number in range(PARALLEL * 2):
        commit.create(f"{tmp_path}/{number}", b"x", 0o600)

    commit.sync()

    assert (len(set(syncing)) > 1) == waits
    assert len(syncing) == PARALLEL * 2 + 1


def test_one_thread_syncs_a_group_in_memory_even_where_threads_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is no tmpfs")
    usage = itertools.count()
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage([0] * 14 + [next(usage), 0]))
    monkeypatch.setattr(durable, "_WAITS", False)
    syncing: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: syncing.add(threading.get_ident()))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        commit = Commit()
        for number in range(PARALLEL * 2):
            commit.create(f"{place}/{number}", b"x", 0o600)
        commit.sync()
    assert syncing == {threading.get_ident()}


def test_what_is_on_a_disk_or_unknown_is_not_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    number = b"%d:%d" % (os.major(device), os.minor(device))
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(durable, "_MOUNTS", str(mounts))
    other = b"22 1 9:99 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n"
    for line, found in [
        (b"36 35 " + number + b" /a\\040- /mnt rw master:1 shared:2 - ext4 /dev/root rw\n", False),
        (b"36 35 " + number + b" / /mnt rw - tmpfs none rw\n", True),
        (b"36 35 " + number + b" / /mnt rw shared:7 - ramfs none rw\n", True),
        (b"", False),
    ]:
        mounts.write_bytes(other + line)
        monkeypatch.setattr(durable, "_KNOWN", {})
        assert is_in_memory(str(tmp_path)) is found
    mounts.unlink()
    monkeypatch.setattr(durable, "_KNOWN", {})
    assert not is_in_memory(str(tmp_path))


def test_the_directories_of_a_small_group_are_synced_together_if_fsync_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, together = Commit(), threading.Barrier(PARALLEL)
    monkeypatch.setattr(durable, "_WAITS", True)
    monkeypatch.setattr(os, "fsync", lambda handle: together.wait(60))
    for number in range(PARALLEL):
        (tmp_path / f"{number}").mkdir()
        commit.removed(f"{tmp_path}/{number}/1")

    commit.sync()

    assert not together.broken


def test_a_new_file_has_its_bytes_mode_and_time_and_is_synced_with_its_name(tmp_path: Path, synced: Synced) -> None:
    commit, path = Commit(), f"{tmp_path}/a"

    commit.create(path, b"data", 0o600, mtime_ns=1_700_000_000_123_456_000)
    commit.sync()

    assert Path(path).read_bytes() == b"data"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(path).st_mtime_ns == 1_700_000_000_123_456_000
    assert sorted(synced.paths) == [str(tmp_path), path]
    assert commit.syncs == 1


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(FileExistsError):
        Commit().create(f"{tmp_path}/a", b"new", 0o600)
    (tmp_path / "b").touch()
    with pytest.raises(FileExistsError):
        Commit().link(f"{tmp_path}/a", f"{tmp_path}/b")

    assert (tmp_path / "a").read_bytes() == b"old"


def test_nothing_is_synced_twice(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"", 0o600)
    commit.create(f"{tmp_path}/b", b"", 0o600)
    commit.sync()
    assert len(synced.paths) == 3

    commit.sync()

    assert len(synced.paths) == 3


@pytest.mark.parametrize("count", [1, 2, 3, PARALLEL, 100, HELD_MAX + 100])
def test_each_file_of_a_group_is_synced_once_and_its_directory_too(tmp_path: Path, synced: Synced, count: int) -> None:
    commit = Commit()
    for number in range(count):
        commit.create(f"{tmp_path}/{number}", b"x" * number, 0o600)

    commit.sync()

    assert sorted(synced.paths) == sorted([str(tmp_path), *(f"{tmp_path}/{number}" for number in range(count))])
    assert commit.syncs == (2 if count > HELD_MAX else 1)
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("count", [1, PARALLEL, HELD_MAX + 100])
@pytest.mark.parametrize("which", ["first", "last", "directory"])
def test_an_error_of_one_file_fails_the_sync_for_good(tmp_path: Path, synced: Synced, count: int, which: str) -> None:
    commit = Commit()
    synced.fail = {"first": "/0", "last": f"/{count - 1}", "directory": f"/{tmp_path.name}"}[which]
    failed = f"{tmp_path}" if which == "directory" else f"{tmp_path}{synced.fail}"
    for number in range(count):
        commit.create(f"{tmp_path}/{number}", b"x", 0o600)

    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error") as failure:
            commit.sync()
        assert failure.value.filename == failed
        # Nor does a new step make the old ones safe.
        commit.contents(str(tmp_path))
    assert open_files(tmp_path) == [str(tmp_path)]

    commit.forget()
    assert open_files(tmp_path) == []
    commit.create(f"{tmp_path}/new", b"x", 0o600)
    commit.sync()
    assert f"{tmp_path}/new" in synced.paths


def test_descriptors_that_run_out_do_not_fail_a_commit(tmp_path: Path, synced: Synced) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(os.listdir("/proc/self/fd")) + 12
    directories = [f"{tmp_path}/{number}" for number in range(20)]
    for directory in directories:
        os.mkdir(directory)
    commit = Commit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        for directory in directories:
            commit.create(f"{directory}/a", b"x", 0o600)
        commit.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert sorted(synced.paths) == sorted([*directories, *(f"{directory}/a" for directory in directories)])


def test_another_thread_may_sync_what_one_has_done(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"", 0o600)
    thread = threading.Thread(target=commit.sync)
    thread.start()
    thread.join()

    assert sorted(synced.paths) == [str(tmp_path), f"{tmp_path}/a"]


def test_no_thread_is_needed_for_a_group(tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(durable, "_HELPERS", [])
    commit = Commit()
    for number in range(100):
        commit.create(f"{tmp_path}/{number}", b"", 0o600)
    commit.sync()

    assert len(synced.paths) == 101


def run_together(count: int) -> set[int]:
    """Return the threads that work at the same time."""
    together, found = threading.Barrier(count), set[int]()

    def work(_: int) -> None:
        together.wait(30)
        found.add(threading.get_ident())

    run_in_threads(range(count), work, count)
    return found


def test_threads_are_used_again_and_a_failure_in_one_ends_the_work() -> None:
    found = run_together(4)
    assert len(found) == 4 and run_together(4) == found
    together = threading.Barrier(4)

    def fail(number: int) -> None:
        together.wait(60)
        raise OSError(number, "no disk")

    with pytest.raises(OSError, match="no disk"):
        run_in_threads(range(100), fail, 4)
    assert not together.broken and together.n_waiting == 0


def test_a_process_after_a_fork_has_threads_of_its_own() -> None:
    run_together(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # From 3.12 on, of a fork beside threads.
        pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if len(run_together(4)) == 4 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_commit_that_is_given_up_holds_no_descriptors(tmp_path: Path) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"", 0o600)
    assert len(open_files(tmp_path)) == 2

    del commit

    assert open_files(tmp_path) == []


def test_a_group_on_two_file_systems_syncs_both(tmp_path: Path, synced: Synced) -> None:
    other = Path("/dev/shm") / f"queue-suite-test-{os.getpid()}"
    other.mkdir()
    try:
        commit = Commit()
        for number in range(PARALLEL):
            commit.create(f"{tmp_path}/{number}", b"", 0o600)
        commit.create(f"{other}/1", b"", 0o600)
        commit.sync()
    finally:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()

    assert {str(tmp_path), f"{tmp_path}/0", str(other), f"{other}/1"} < set(synced.paths)


def test_contents_are_synced_whatever_name_is_left(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"1", 0o600)
    commit.link(f"{tmp_path}/a", f"{tmp_path}/b")
    commit.unlink(f"{tmp_path}/a")
    commit.create(f"{tmp_path}/c", b"2", 0o600)
    commit.rename(f"{tmp_path}/c", f"{tmp_path}/d")

    commit.sync()

    # By their descriptors, which were opened with other names.
    assert len(synced.paths) == 3 and str(tmp_path) in synced.paths


def test_a_rename_syncs_both_directories(tmp_path: Path, synced: Synced) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    (tmp_path / "x" / "a").touch()
    commit = Commit()

    commit.rename(f"{tmp_path}/x/a", f"{tmp_path}/y/a")
    commit.sync()

    assert sorted(synced.paths) == [f"{tmp_path}/x", f"{tmp_path}/y"]


def test_a_removal_syncs_the_directory_also_where_the_name_was_gone(tmp_path: Path, synced: Synced) -> None:
    (tmp_path / "a").touch()
    commit = Commit()

    assert commit.unlink(f"{tmp_path}/a") is True
    assert commit.unlink(f"{tmp_path}/a") is False
    commit.sync()

    assert synced.paths == [str(tmp_path)]


def test_a_path_without_a_directory_is_in_the_current_one(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commit = Commit()

    commit.create("a", b"", 0o600)
    commit.sync()

    assert sorted(synced.paths) == [str(tmp_path), f"{tmp_path}/a"]


def test_the_real_syncfs_is_called_and_reports_a_bad_descriptor(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    durable.sync_filesystem(handle)
    os.close(handle)

    with pytest.raises(OSError, match="Bad file descriptor"):
        durable.sync_filesystem(handle)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 131072, 3_000_000])
def test_a_file_is_read_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)

    assert read_file(f"{tmp_path}/a") == data
    assert read_file(f"{tmp_path}/a", most=size) == data


@pytest.mark.parametrize(("size", "most"), [(11, 10), (65536, 65535), (65537, 65536), (3_000_000, 1_500_000)])
def test_a_file_over_the_limit_is_refused_and_never_cut(tmp_path: Path, size: int, most: int) -> None:
    (tmp_path / "a").write_bytes(bytes(size))

    with pytest.raises(OSError, match="File too large"):
        read_file(f"{tmp_path}/a", most=most)


def test_a_failing_read_or_write_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(IsADirectoryError):
        read_file(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        read_file(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError):
        sync_path(f"{tmp_path}/none")

    assert len(os.listdir("/proc/self/fd")) == before


def test_everything_is_written_where_the_system_takes_only_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    def write(handle: int, data: bytes) -> int:
        taken.append(bytes(data[:3]))
        return min(3, len(data))

    monkeypatch.setattr("queue_base.durable.os.write", write)
    write_all(99, b"0123456789")

    assert b"".join(taken) == b"0123456789"


def test_a_directory_that_was_replaced_is_not_kept_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    place, aside = tmp_path / "mess", tmp_path / "aside"
    place.mkdir()
    commit = Commit(kept_most=8)

    def sync(name: str) -> None:
        commit.create(f"{place}/{name}", b"x", 0o600)
        commit.sync()

    for number in range(4):
        sync(f"{number}")
    assert open_files(place) == [str(place)]
    place.rename(aside)
    place.mkdir()
    # However often it is used.
    for number in range(9):
        clock[0] += durable.KEPT_SECONDS / 4
        sync(f"new {number}")
    assert open_files(aside) == [] and open_files(place) == [str(place)]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.ENODATA, errno.EOPNOTSUPP, errno.EPERM])
def test_a_success_of_fsync_does_not_count_on_a_file_system_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As that of ext4, whose fsync may return 0 for what an aborted journal has dropped."""
    asked: list[int] = []

    def refuse(handle: int, name: str) -> None:
        asked.append(os.fstat(handle).st_ino)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "removexattr", refuse)
    failed = number in (errno.EROFS, errno.EIO)
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"x", 0o600)
    with pytest.raises(OSError, match=str(tmp_path)) if failed else nullcontext():
        commit.sync()
    with pytest.raises(OSError, match=os.strerror(number)) if failed else nullcontext():
        sync_path(str(tmp_path))
    assert asked == [tmp_path.stat().st_ino] * 2


def test_what_is_asked_after_a_sync_changes_nothing(tmp_path: Path) -> None:
    before = tmp_path.stat()
    sync_path(str(tmp_path))
    after = tmp_path.stat()
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
    assert os.listxattr(tmp_path) == []
