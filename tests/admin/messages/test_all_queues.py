"""queuectl in a home with several queues: it acts on all, names the queue, and understands the names of messages."""

import json
import os
from pathlib import Path

import pytest

from queue_admin.main import main
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


def test_list_names_the_queue_of_each_message(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = site.inject("a"), site.inject("b")
    assert site.run("list") == 0
    assert [line.split()[0] for line in lines(capfd)] == [f"a/{a}", f"b/{b}"]
    assert site.run("--queue", "b", "list", "-0") == 0
    assert lines(capfd) == [f"b/{b}\0"]
    assert site.run("list", "--format", "json") == 0
    assert [(each["queue"], each["id"]) for each in map(json.loads, lines(capfd))] == [
        ("a", f"a/{a}"), ("b", f"b/{b}")
    ]  # fmt: skip
    assert site.run("list", "--sender", "nobody@example.org") == 1
    assert site.run("list", f"b/{b}", a) == 0
    assert [line.split()[0] for line in lines(capfd)] == [f"a/{a}", f"b/{b}"]


def test_an_id_is_found_with_the_name_of_its_queue_and_without(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    site.inject("a")
    b = site.inject("b")
    for name in (b, f"b/{b}"):
        assert site.run("show", name) == 0
        assert lines(capfd)[0] == f"message: b/{b}"
    assert site.run("--queue", "a", "show", f"b/{b}") == 100
    assert site.run("show", f"c/{b}") == 100
    assert site.run("show", f"a/{b}") == 100
    said = capfd.readouterr().err
    assert f"unable to find message c/{b}: there is no queue c in a, b" in said


def test_an_id_that_several_queues_have_is_an_error_with_both(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    a = site.inject("a")
    number, split = int(a.partition("-")[0]), 23
    for kind in ("mess", "todo"):
        there = f"{site.home.queues['b']}/{kind}/{number % split}/{number}"
        os.link(f"{site.home.queues['a']}/{kind}/{number % split}/{number}", there)
    assert site.run("hold", a) == 100
    assert f"unable to use {a}: there are a/{a} and b/{a}; name one of them" in capfd.readouterr().err
    assert site.run("hold", f"b/{a}") == 0
    assert lines(capfd) == ["queue b: held 1 message"]
    assert site.run("list", "--held") == 0
    (line,) = lines(capfd)
    assert line.startswith(f"b/{a} ")


def test_changes_are_made_in_all_queues_and_their_answers_name_them(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = site.inject("a"), site.inject("b", b"carl@example.org")
    assert site.run("hold", "--all", "--dry-run") == 0
    assert lines(capfd) == [f"a/{a}", f"b/{b}"]
    assert site.run("hold", "--sender", "carl@example.org") == 0
    assert lines(capfd) == ["queue a: held 0 messages", "queue b: held 1 message"]
    assert site.run("delete", a, f"b/{b}", "b/1-a") == 0
    shown = capfd.readouterr()
    assert shown.out.splitlines() == ["queue a: deleted 1 message", "queue b: deleted 1 message"]
    assert shown.err.splitlines() == ["b/1-a: no such message"]
    assert site.run("delete", a) == 1
    capfd.readouterr()
    assert site.run("list") == 0
    assert not lines(capfd)


def test_totals_are_shown_for_each_queue_below_its_name(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    site.inject("a")
    assert site.run("stat") == 111  # No queue-send runs.
    shown = lines(capfd)
    assert shown[:2] == ["queue a:", "messages in queue: 1"]
    assert shown[shown.index("queue b:") + 1] == "messages in queue: 0"
    assert site.run("shape", "--format", "json") == 0
    assert {json.loads(line)["queue"] for line in lines(capfd)} == {"a", "b"}
    assert site.run("mailq") == 0
    assert lines(capfd)[-1] == "-- 0 Kbytes in 1 Request."


def test_a_queue_whose_disk_is_not_there_does_not_keep_commands_from_the_others(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    b = site.inject("b")
    path = site.home.queues["a"]
    os.rename(path, path + ".out")
    assert site.run("list") == 111
    shown = capfd.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == [f"b/{b}"]
    assert shown.err.startswith(f"queuectl: queue a: unable to read {path}/mess: no such file or directory")
    assert site.run("show", b) == 0
    capfd.readouterr()
    assert site.run("mailq") == 111
    assert "in 1 Request" in capfd.readouterr().out


@pytest.mark.parametrize(
    "words", [["repair"], ["top"], ["metrics"], ["web"], ["adopt", "--as-me"], ["log", "--follow"], ["postman", "list"]]
)
def test_what_works_on_one_queue_asks_for_its_name(
    site: Site, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert site.run(*words) == 100
    said = capfd.readouterr().err
    assert "--queue" in said and "a, b" in said


def test_a_home_with_several_queues_is_not_copied(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    assert site.run("copy", site.home.path + ".copy") == 100
    assert "unable to copy a home with several queues" in capfd.readouterr().err


def test_the_name_of_the_only_queue_changes_nothing(
    tmp_path: Path, usual_umask: None, capfd: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path / "home")
    Path(site.home.control, "queues").write_text("b\n")
    site.home = Home(site.home.path)
    b = site.inject("b")
    for words in (["list"], ["--queue", "b", "list"]):
        assert site.run(*words) == 0
        assert lines(capfd)[0].split()[0] == b
    assert site.run("--queue", "a", "list") == 100


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
