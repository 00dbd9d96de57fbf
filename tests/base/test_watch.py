"""inotify's names, read a piece at a time: none is missed, and none is more than a turn can take."""

import gc
import os
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of what pyinotify imports.
    from queue_base.daemon.watch import READ, Watch

EVENT = 32  # Bytes: a head of 16, and a short name that is filled up to 16.


def test_many_names_come_a_bounded_piece_at_a_time_and_none_is_missed(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [str(number) for number in range(1_000_000, 1_000_000 + min(most, 5000))]
    watch = Watch([str(tmp_path)])
    for name in names:
        (tmp_path / name).touch()
    found = []
    while watch.more:
        piece = watch.take()
        assert len(piece) <= READ // EVENT
        found += piece
    assert found == names and not watch.lost
    assert watch.take() == []


def test_a_name_that_is_no_utf_8_is_a_name(tmp_path: Path) -> None:
    watch = Watch([str(tmp_path)])
    path = bytes(tmp_path) + b"/caf\xe9"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    assert [os.fsencode(name) for name in watch.take()] == [b"caf\xe9"]


def inotify_instances() -> int:
    """Return how many this process has."""
    links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
    return links.count("anon_inode:inotify")


def test_a_watch_that_is_no_longer_used_or_that_could_not_be_made_leaves_no_inotify_instance(tmp_path: Path) -> None:
    gc.collect()
    before = inotify_instances()
    watch = Watch([str(tmp_path)])
    assert watch.descriptor is not None and inotify_instances() == before + 1
    failed = Watch([str(tmp_path / "missing")])
    assert failed.problem and failed.descriptor is None
    assert inotify_instances() == before + 1
    del watch
    assert inotify_instances() == before
