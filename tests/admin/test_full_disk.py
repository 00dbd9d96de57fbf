"""A full disk, at whatever step: a command says so in a line, exits with 111, spoils nothing, and can be run again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_base.home import Home
from support.faults.full_disk import FullDisk
from support.queues.damage import KnownQueue
from support.queues.listed_queue import Queue

pytestmark = pytest.mark.usefixtures("usual_umask")


def each_step(
    make: Callable[[Path], Home], words: Callable[[Home], list[str]], judge: Callable[[Home, bool], None], top: Path,
    capfd: pytest.CaptureFixture[str], every: int = 1,
) -> int:  # fmt: skip
    """Run a command on a disk that is full after 0, 1, 2 … calls, then again with room; return how many calls it makes.

    `judge` is called after both runs, and told whether there was room.
    """
    calls = 0
    while True:
        home = make(top / str(calls))
        command = ["queuectl", "--home", home.path, *words(home)]
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            disk = FullDisk(patch, calls)
            code = main(command)
        error = capfd.readouterr().err
        judge(home, not disk.refused)
        if not disk.refused:
            assert (code, error) == (0, "")
            return calls
        assert code == 111 and "no space left" in error.lower(), f"after {calls}: exit {code}, {error}"
        assert "Traceback" not in error
        shutil.rmtree(f"{home.path}-copy.new", ignore_errors=True)
        assert main(command) == 0, f"after {calls}: {capfd.readouterr().err}"
        judge(home, True)
        calls += every


def test_a_control_file_is_the_old_one_or_the_new_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def make(path: Path) -> Home:
        home = Queue(path).home
        Path(home.control, "concurrencyremote").write_text("30\n")
        return home

    def judge(home: Home, finished: bool) -> None:
        assert Path(home.control, "concurrencyremote").read_text() in ("30\n", "40\n")

    assert each_step(make, lambda home: ["config", "set", "concurrencyremote", "40"], judge, tmp_path, capfd) > 2


def test_standing_holds_are_the_old_ones_or_the_new_ones(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def make(path: Path) -> Home:
        queue = Queue(path)
        queue.classified(sender=b"s@b", remote=b"Tc@d\0")
        assert queue.run("hold", "--standing", "--sender", "old@b") == 0
        return queue.home

    def judge(home: Home, finished: bool) -> None:
        assert Path(home.queue, "holds").read_text().count("old@b") == 1
        assert main(["queuectl", "--home", home.path, "list"]) == 0

    words = ["hold", "--standing", "--sender", "s@b"]
    assert each_step(make, lambda home: words, judge, tmp_path, capfd) > 4


def test_a_copy_is_whole_or_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def make(path: Path) -> Home:
        queue = Queue(path)
        queue.classified(remote=b"Tc@d\0")
        queue.queued()
        return queue.home

    def judge(home: Home, finished: bool) -> None:
        copy = Path(f"{home.path}-copy")
        if copy.exists():
            assert main(["queuectl", "--home", str(copy), "list", "-0"]) == 0
            assert capfd.readouterr().out.count("\0") == 2

    assert each_step(make, lambda home: ["copy", f"{home.path}-copy"], judge, tmp_path, capfd, every=17) > 20


def test_a_repair_loses_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queues: dict[str, tuple[KnownQueue, object]] = {}

    def make(path: Path) -> Home:
        queue = KnownQueue(path)
        kept = queue.deliverable()
        queue.cycle()
        queues[queue.home.path] = queue, kept
        return queue.home

    def judge(home: Home, finished: bool) -> None:
        queue, kept = queues[home.path]
        if finished:
            assert queue.deliverable() == kept and queue.codes() == []

    assert each_step(make, lambda home: ["repair"], judge, tmp_path, capfd, every=3) > 20


def test_a_repair_that_cannot_begin_leaves_the_queue_open_and_a_later_one_says_that_it_is_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    closed = []
    for calls in range(8):
        queue = KnownQueue(tmp_path / str(calls))
        queue.cycle()
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(patch, calls)
            assert main(["queuectl", "--home", queue.home.path, "repair"]) == 111
        closed.append(Path(queue.home.queue, "repair").exists())
        assert ("the queue stays closed until" in capfd.readouterr().err) == closed[-1]
    assert closed[:2] == [False, False] and closed == sorted(closed) and closed[-1]
