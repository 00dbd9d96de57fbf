"""An mbox on a disk that is full or in trouble: the delivery is deferred, and the file stays as it was."""

import errno
import itertools
import os
import resource
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_local.mbox import mbox_delivery
from support.local.mbox import HEAD, deliver, payloads
from support.queues.inflow import small_disk
from support.tools import need_private_mounts


def test_a_write_that_fails_is_truncated_back(tmp_path: Path) -> None:
    deliver(tmp_path / "box", b"first", tmp_path)
    before = (tmp_path / "box").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "message").write_bytes(b"x" * 1_000_000)
    with (tmp_path / "message").open("rb") as message:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
        try:
            with pytest.raises(Temporary, match=r"Unable to write .*/box: file too large\. \(#4\.3\.0\)"):
                mbox_delivery.deliver_mbox(str(tmp_path / "box"), HEAD, message.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "box").read_bytes() == before
    assert not (tmp_path / "box.lock").exists()


def test_a_full_disk_defers_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    need_private_mounts()
    with small_disk(tmp_path / "disk", "size=400k") as home:
        disk = Path(home.alias)
        deliver(disk / "box", b"first", tmp_path)
        before = (disk / "box").read_bytes()
        with pytest.raises(Temporary, match=r"Unable to write .*/box: no space left on device\. \(#4\.3\.0\)"):
            deliver(disk / "box", b"x" * 500_000, tmp_path)
        assert (disk / "box").read_bytes() == before and os.listdir(disk) == ["box"]
        deliver(disk / "box", b"y" * 300_000, tmp_path)
        assert payloads(disk / "box") == [b"first\n", b"y" * 300_000 + b"\n"]
        with pytest.raises(Temporary, match="no space left on device"):
            deliver(disk / "other", b"x" * 100_000, tmp_path)
        assert (disk / "other").read_bytes() == b"" and sorted(os.listdir(disk)) == ["box", "other"]


def failing_fsync(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the fsync of that number fail, as a disk in trouble does."""
    real, count = os.fsync, itertools.count(1)

    def fsync(handle: int) -> None:
        if next(count) == number:
            raise OSError(errno.EIO, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_the_directory_is_synced_by_a_descriptor_that_was_open_before_its_names_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is opened later is not told of a failure that another process has heard of meanwhile.
    box, real_open, real_fsync = tmp_path / "spool" / "box", os.open, os.fsync
    box.parent.mkdir()
    in_time: set[int] = set()
    synced: list[bool] = []

    def opening(path: str, flags: int, *more: int) -> int:
        before = os.path.isdir(path) and not os.listdir(box.parent)
        handle = real_open(path, flags, *more)
        in_time.discard(handle)
        if before and os.path.samefile(path, box.parent):
            in_time.add(handle)
        return handle

    def fsync(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), os.stat(box.parent)):
            synced.append(handle in in_time)
        real_fsync(handle)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "fsync", fsync)
    deliver(box, b"first", tmp_path)
    assert synced == [True]


@pytest.mark.parametrize("failing", range(1, 4))
def test_a_sync_that_fails_defers_and_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    deliver(tmp_path / "box", b"first", tmp_path)
    before = (tmp_path / "box").read_bytes()
    failing_fsync(monkeypatch, failing)
    with pytest.raises(Temporary, match="input/output error"):
        deliver(tmp_path / "box", b"second", tmp_path)
    assert (tmp_path / "box").read_bytes() == before and not (tmp_path / "box.lock").exists()


def test_a_message_that_cannot_be_read_defers_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(Temporary, match=r"Unable to read message: bad file descriptor\. \(#4\.3\.0\)"):
        mbox_delivery.deliver_mbox(str(tmp_path / "box"), HEAD, handle)
    os.close(handle)
    assert (tmp_path / "box").read_bytes() == b"" and not (tmp_path / "box.lock").exists()


def test_what_cannot_be_truncated_back_now_is_by_the_next_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(tmp_path / "box", b"first", tmp_path)

    def ftruncate(handle: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        # The third is that of the mbox, after those of the lock file and the directory.
        failing_fsync(patched, 3)
        patched.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(Temporary, match="input/output error"):
            deliver(tmp_path / "box", b"second", tmp_path)
    # It is cut short, as by a disk that has not taken all of it.
    os.truncate(tmp_path / "box", (tmp_path / "box").stat().st_size - 3)
    assert payloads(tmp_path / "box") == [b"first\n", b"secon"]
    deliver(tmp_path / "box", b"third", tmp_path)
    assert payloads(tmp_path / "box") == [b"first\n", b"third\n"] and not (tmp_path / "box.lock").exists()
