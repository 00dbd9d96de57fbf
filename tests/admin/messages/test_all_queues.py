"""queuectl in a home with several queues: it acts on all, names the queue, and understands the names of messages."""

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
    assert site.run("show", f"a/{b}") == 1
    said = capfd.readouterr().err
    assert f"unable to use c/{b}: there is no queue c in a, b" in said


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


@pytest.mark.parametrize("words", [["log", "--follow"], ["adopt", "--undo"]])
def test_what_works_on_one_queue_asks_for_its_name(
    site: Site, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    if words == ["adopt", "--undo"] and os.geteuid() != 0:
        pytest.skip("only root can undo")
    assert site.run(*words) == 100
    said = capfd.readouterr().err
    assert "--queue" in said and "a, b" in said


def test_top_ranks_each_queue(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    site.inject("b")
    assert site.run("top") == 0
    shown = lines(capfd)
    assert shown[0] == "queue a:" and shown[2].split() == ["0", "0", "0", "TOTAL"]
    assert shown[3] == "queue b:" and shown[6].split()[-1] == "example.net"
    assert site.run("top", "--format", "json") == 0
    assert [json.loads(line)["queue"] for line in lines(capfd)] == ["b"]


def test_copies_for_the_postmaster_are_listed_shown_and_removed_by_the_names_of_their_queues(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    assert site.run("postman", "list") == 1
    for queue, name in (("a", "1_no-date"), ("b", "1_no-date"), ("b", "2_no-date")):
        Path(site.home.queues[queue], "postman", name).write_bytes(queue.encode() + b" " + name.encode())
    assert site.run("postman", "list") == 0
    assert [line.split()[0] for line in lines(capfd)] == ["a/1_no-date", "b/1_no-date", "b/2_no-date"]
    assert site.run("postman", "list", "--format", "json") == 0
    first = json.loads(lines(capfd)[0])
    assert (first["queue"], first["copy"]) == ("a", "a/1_no-date")
    for name in ("b/2_no-date", "2_no-date"):
        assert site.run("postman", "show", name) == 0
        assert capfd.readouterr().out == "b 2_no-date"
    for name in ("c/2_no-date", "a/../mess"):
        assert site.run("postman", "show", name) == 100
    capfd.readouterr()
    assert site.run("postman", "show", "1_no-date") == 100
    assert "unable to use 1_no-date: there are a/1_no-date and b/1_no-date; name one" in capfd.readouterr().err
    assert site.run("postman", "remove", "a/1_no-date", "2_no-date", "--dry-run") == 0
    assert lines(capfd) == ["a/1_no-date", "b/2_no-date"]
    assert site.run("postman", "remove", "a/1_no-date", "b/7_no-date") == 1
    assert site.run("postman", "remove", "--all") == 0
    capfd.readouterr()
    assert site.run("postman", "list") == 1


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
