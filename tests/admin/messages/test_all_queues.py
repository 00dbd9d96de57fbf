"""queuectl init, repair, adopt and copy with several queues; transcripts/several_queues.txt has the other commands."""

import json
import os
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_base.daemon.lock import take_sendmutex
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter
from support.queues.home import make_several


class Site:
    """A home with queues a and b, and its messages."""

    def __init__(self, path: Path) -> None:
        self.home = make_several(path, "a", "b")

    def inject(self, queue: str, sender: bytes = b"ann@example.org") -> str:
        """Put a message into a queue; return its long id without the name of the queue."""
        one = self.home.choose(queue)
        writer = QueueWriter(one, open_layout(one.queue), os.getuid())
        draft = writer.begin()
        draft.write(b"Subject: hello\n\n")
        draft.finish(sender, [b"bob@example.net"])
        writer.commit([draft])
        return draft.long_id

    def run(self, *words: str) -> int:
        """Run queuectl; return its exit code."""
        return main(["queuectl", "--home", self.home.path, *words])


@pytest.fixture
def site(tmp_path: Path, usual_umask: None) -> Site:
    return Site(tmp_path / "home")


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return capfd.readouterr().out.splitlines()


@pytest.mark.parametrize("words", [["log", "--follow"], ["adopt", "--undo"]])
def test_what_works_on_one_queue_asks_for_its_name(
    site: Site, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    if words == ["adopt", "--undo"] and os.geteuid() != 0:
        pytest.skip("only root can undo")
    assert site.run(*words) == 100
    said = capfd.readouterr().err
    assert "--queue" in said and "a, b" in said


def test_repair_mends_each_queue_and_goes_on_if_one_is_in_use(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    for queue in ("a", "b"):
        site.inject(queue)
        os.rmdir(f"{site.home.queues[queue]}/hold/3")
    lock = take_sendmutex(site.home.choose("a"))
    assert site.run("repair") == 111
    shown = capfd.readouterr()
    assert "queue a: " in shown.err and "stop the suite first" in shown.err
    assert shown.out.splitlines()[:2] == ["queue a:", "queue b:"]
    assert "repaired: " in shown.out
    assert [Path(path, "hold/3").is_dir() for path in site.home.queues.values()] == [False, True]
    os.close(lock)
    assert site.run("repair", "--format", "json") == 0
    done = [json.loads(line) for line in lines(capfd)]
    assert {each["queue"] for each in done} == {"a"} and Path(site.home.queues["a"], "hold/3").is_dir()
    assert site.run("repair") == 0
    assert [line.partition(" is ")[2] for line in lines(capfd)[1::2]] == ["in order", "in order"]


def test_adopt_takes_each_queue_over_and_what_they_share(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    for queue in ("a", "b"):
        os.chmod(f"{site.home.queues[queue]}/mess/3", 0o777)
    os.chmod(f"{site.home.run}/lock", 0o777)
    assert site.run("adopt", "--as-me") == 0
    shown = lines(capfd)
    assert "queue a:" in shown and "queue b:" in shown
    for queue in ("a", "b"):
        assert os.stat(f"{site.home.queues[queue]}/mess/3").st_mode & 0o7777 == 0o2750
    assert os.stat(f"{site.home.run}/lock").st_mode & 0o7777 == 0o700
    os.rename(site.home.queues["a"], site.home.queues["a"] + ".out")
    assert site.run("adopt", "--as-me") == 100
    assert "queue a: " in capfd.readouterr().err


def test_a_copy_has_all_queues_or_the_one_that_is_named(
    site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    site.inject("a")
    site.inject("b")
    assert site.run("copy", f"{tmp_path}/all") == 0
    assert "copied 2 messages" in capfd.readouterr().out
    copy = Home(f"{tmp_path}/all")
    assert copy.queues == {name: f"{copy.path}/queues/{name}" for name in ("a", "b")}
    assert main(["queuectl", "--home", copy.path, "list"]) == 0
    assert [line[:2] for line in lines(capfd)] == ["a/", "b/"]
    assert main(["queuectl", "repair", copy.path, "--take-over"]) == 0
    assert main(["queuectl", "check", copy.path]) == 0
    capfd.readouterr()

    assert site.run("--queue", "b", "copy", f"{tmp_path}/one") == 0
    capfd.readouterr()
    copy = Home(f"{tmp_path}/one")
    assert copy.queues == {"queue": f"{copy.path}/queue"}
    assert main(["queuectl", "--home", copy.path, "list"]) == 0
    assert len(lines(capfd)) == 1

    os.rename(site.home.queues["a"], site.home.queues["a"] + ".out")
    assert site.run("copy", f"{tmp_path}/none") == 111
    assert not Path(f"{tmp_path}/none").exists() and not Path(f"{tmp_path}/none.new").exists()
    assert site.home.queues["a"] in capfd.readouterr().err


def test_init_makes_all_queues_and_a_service_for_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    (home / "control").mkdir(parents=True)
    (home / "control/queues").write_text(f"{tmp_path}/first\nsecond\n")
    words = ["init", str(home), "--as-me", "--me", "me.example.org", "--service", f"{tmp_path}/sv"]
    assert main(["queuectl", *words]) == 0
    for path in (tmp_path / "first", home / "second"):
        assert open_layout(str(path)).split == 23
    assert not (home / "queue").exists()
    assert (home / "run/lock").is_dir() and (home / "run/intake").is_dir()
    runs = {path.parent.name: path.read_text().splitlines()[-1] for path in tmp_path.glob("sv-*/run")}
    assert {name: line.partition("queue-start ")[2] for name, line in runs.items()} == {
        "sv-intake": "--intake", "sv-first": "--queue first", "sv-second": "--queue second"
    }  # fmt: skip
    assert {path.name for path in home.glob("log-*")} == {"log-intake", "log-first", "log-second"}
    capfd.readouterr()
    assert main(["queuectl", *words]) == 0
    assert not lines(capfd)
    assert main(["queuectl", "check", str(home)]) == 0
