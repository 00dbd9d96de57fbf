"""Commit, and reading and writing of whole files, on real directories."""

import os
from pathlib import Path

import pytest

from queue_base import durable
from queue_base.durable import GROUP, Commit, read_file, sync_path, write_all


class Synced:
    """What was synced, instead of how: paths of fsync, and how often syncfs was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.filesystems = 0
        self.fail = False
        monkeypatch.setattr(durable, "sync_path", self._path)
        monkeypatch.setattr(durable, "sync_filesystem", self._filesystem)

    def _path(self, path: str) -> None:
        if self.fail:
            raise OSError(5, "Input/output error", path)
        sync_path(path)
        self.paths.append(path)

    def _filesystem(self, handle: int) -> None:
        os.fstat(handle)
        self.filesystems += 1


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch)


def test_a_new_file_has_its_bytes_mode_and_time_and_is_synced_with_its_name(tmp_path: Path, synced: Synced) -> None:
    commit, path = Commit(), f"{tmp_path}/a"

    commit.create(path, b"data", 0o600, mtime_ns=1_700_000_000_123_456_000)
    commit.sync()

    assert Path(path).read_bytes() == b"data"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(path).st_mtime_ns == 1_700_000_000_123_456_000
    assert sorted(synced.paths) == [str(tmp_path), path]
    assert commit.syncs == 2


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


def test_a_group_of_files_costs_one_sync(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    for number in range(GROUP):
        commit.create(f"{tmp_path}/{number}", b"", 0o600)

    commit.sync()

    assert (synced.paths, synced.filesystems, commit.syncs) == ([], 1, 1)


def test_a_group_on_two_file_systems_syncs_both(tmp_path: Path, synced: Synced) -> None:
    other = Path("/dev/shm") / f"queue-suite-test-{os.getpid()}"
    assert os.stat("/dev/shm").st_dev != os.stat(tmp_path).st_dev or os.path.ismount("/dev/shm")
    other.mkdir()
    try:
        commit = Commit()
        for number in range(GROUP):
            commit.create(f"{tmp_path}/{number}", b"", 0o600)
        commit.create(f"{other}/1", b"", 0o600)
        (other / "2").touch()
        commit.sync()
    finally:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()

    assert synced.filesystems == len({os.stat(tmp_path).st_dev, os.stat("/dev/shm").st_dev})


def test_contents_are_synced_under_the_name_that_is_left(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"1", 0o600)
    commit.link(f"{tmp_path}/a", f"{tmp_path}/b")
    commit.unlink(f"{tmp_path}/a")
    commit.create(f"{tmp_path}/c", b"2", 0o600)
    commit.rename(f"{tmp_path}/c", f"{tmp_path}/d")

    commit.sync()

    assert sorted(synced.paths) == [str(tmp_path), f"{tmp_path}/b", f"{tmp_path}/d"]


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


def test_a_sync_that_failed_is_done_whole_by_the_next(tmp_path: Path, synced: Synced) -> None:
    commit = Commit()
    commit.create(f"{tmp_path}/a", b"", 0o600)
    synced.fail = True
    with pytest.raises(OSError, match="Input/output error"):
        commit.sync()
    synced.fail = False

    commit.sync()

    assert sorted(synced.paths) == [str(tmp_path), f"{tmp_path}/a"]


def test_a_path_without_a_directory_is_in_the_current_one(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commit = Commit()

    commit.create("a", b"", 0o600)
    commit.sync()

    assert sorted(synced.paths) == [".", "a"]


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
