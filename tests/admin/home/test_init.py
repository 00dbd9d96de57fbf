"""queuectl init: what it makes, with which owners and modes, and what it leaves alone or refuses."""

import os
import stat
from pathlib import Path

import pytest

from queue_admin.home.create import create_home
from queue_admin.home.hostname import check_host_name
from queue_admin.main import main
from queue_admin.system_accounts import myself
from queue_base.errors import Usage
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.inject.qmail_queue import our_owner, snapshot
from support.queues.home import make_several

HASHED = {
    "intd": 0o2700,
    "todo": 0o2700,
    "info": 0o2700,
    "local": 0o2700,
    "remote": 0o2700,
    "hold": 0o2700,
    "corrupt": 0o2700,
    "last": 0o2700,
    "mess": 0o2750,
}
FLAT = {"pid": 0o2700, "bounce": 0o2700, "maildrop": 0o3733, "lock": 0o700, "intake": 0o711, "postman": 0o2700}
FLAT |= {"corrupt/maildrop": 0o2700, "corrupt/unplaced": 0o2700}


def init(path: Path, *options: str) -> int:
    return main(["queuectl", "init", str(path), "--as-me", "--me", "mail.example.org", *options])


def expected(split: int) -> dict[str, int]:
    queue = {"queue": 0o711, "queue/lock/sendmutex": 0o600, "queue/lock/trigger": 0o622}
    queue |= {f"queue/{kind}": mode for kind, mode in (HASHED | FLAT).items()}
    return queue | {f"queue/{kind}/{number}": mode for kind, mode in HASHED.items() for number in range(split)}


def test_every_path_has_its_documented_owner_and_mode(tmp_path: Path) -> None:
    home, owner = Home(str(tmp_path / "home")), our_owner()
    before = os.umask(0o077)
    create_home(home, owner, myself(), me="mail.example.org")
    os.umask(before)
    below = {**expected(23), "alias": 0o2755}
    above = {".": 0o755, "control": 0o755, "control/me": 0o644, "control/locals": 0o644, "users": 0o755}
    found = snapshot(Path(home.path))
    assert {name for name in found if not name.endswith("/.")} == {*below, *above}
    for modes, whose in ((below, owner), (above, myself())):
        for name, mode in modes.items():
            facts = os.stat(f"{home.path}/{name}")
            assert (name, oct(stat.S_IMODE(facts.st_mode))) == (name, oct(mode))
            assert (name, facts.st_uid, facts.st_gid) == (name, whose.uid, whose.gid)
    assert stat.S_ISFIFO(os.stat(f"{home.queue}/lock/trigger").st_mode)


def test_controls_hold_the_host_name_and_the_local_domains(tmp_path: Path) -> None:
    assert init(tmp_path / "one") == 0
    assert (tmp_path / "one/control/me").read_bytes() == b"mail.example.org\n"
    assert (tmp_path / "one/control/locals").read_bytes() == b"mail.example.org\nlocalhost\n"
    assert init(tmp_path / "two", "--local", "Example.ORG.", "--local", "localhost") == 0
    assert (tmp_path / "two/control/locals").read_bytes() == b"mail.example.org\nexample.org\nlocalhost\n"


def test_locals_written_later_hold_the_host_name_that_is_there(tmp_path: Path) -> None:
    assert init(tmp_path / "home") == 0
    (tmp_path / "home/control/locals").unlink()
    assert main(["queuectl", "init", str(tmp_path / "home"), "--as-me", "--local", "example.org"]) == 0
    assert (tmp_path / "home/control/locals").read_bytes() == b"mail.example.org\nexample.org\nlocalhost\n"


@pytest.mark.parametrize("said", [b"example.org\n", b"Example.org\nmail.example.org\n"])
def test_locals_that_say_the_same_with_or_without_the_host_name_stay(tmp_path: Path, said: bytes) -> None:
    assert init(tmp_path / "home") == 0
    locals_file = tmp_path / "home/control/locals"
    locals_file.write_bytes(said)
    assert init(tmp_path / "home", "--local", "example.org") == 0
    assert locals_file.read_bytes() == said


def test_a_second_init_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path / "home", "--split", "7") == 0
    message = tmp_path / "home/queue/mess/3/3"
    message.write_bytes(b"precious")
    os.chmod(tmp_path / "home/queue/bounce", 0o2770)
    before = snapshot(tmp_path)
    capfd.readouterr()
    assert init(tmp_path / "home") == 0
    assert snapshot(tmp_path) == before
    assert capfd.readouterr().out == ""


def test_a_second_init_makes_what_is_missing_and_only_that(tmp_path: Path) -> None:
    assert init(tmp_path / "home", "--split", "7") == 0
    whole = set(snapshot(tmp_path))
    queue = tmp_path / "home/queue"
    (queue / "maildrop").rmdir()
    (queue / "info/4").rmdir()
    (queue / "lock/trigger").unlink()
    (tmp_path / "home/control/locals").unlink()
    assert init(tmp_path / "home") == 0
    assert set(snapshot(tmp_path)) == whole
    assert stat.S_IMODE((queue / "info/4").stat().st_mode) == 0o2700


def test_an_init_that_was_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    assert init(tmp_path / "home", "--split", "7") == 0
    queue = tmp_path / "home/queue"
    for kind in ("mess", "corrupt"):
        os.rename(queue / kind, queue / f"{kind}.new")
    (queue / "mess.new/6").rmdir()
    (queue / "lock/trigger").rename(queue / "lock/trigger.new")
    assert init(tmp_path / "home") == 0
    assert open_layout(str(queue)).split == 7
    assert not [name for name in snapshot(tmp_path) if name.endswith(".new")]


def test_a_flat_todo_stays_flat(tmp_path: Path) -> None:
    assert init(tmp_path / "home") == 0
    todo = tmp_path / "home/queue/todo"
    for number in range(23):
        (todo / str(number)).rmdir()
    assert init(tmp_path / "home") == 0
    assert list(todo.iterdir()) == []


@pytest.mark.parametrize(
    ("split", "nearest"), [("24", "23 and 29"), ("1", "nearest is 2"), ("4", "3 and 5"), ("100", "97 and 101")]
)
def test_a_split_that_is_not_prime_is_refused_with_the_nearest_primes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], split: str, nearest: str
) -> None:
    assert init(tmp_path / "home", "--split", split) == 100
    assert nearest in capfd.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_split_other_than_the_queues_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path / "home", "--split", "7") == 0
    before = snapshot(tmp_path)
    assert init(tmp_path / "home", "--split", "23") == 100
    assert "split 7" in capfd.readouterr().err
    assert snapshot(tmp_path) == before


def test_an_init_after_changes_of_locals_and_me_keeps_them_and_names_what_they_lack(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "home", "--local", "example.org") == 0
    control = tmp_path / "home/control"
    (control / "locals").write_text("example.org\nexample.com\n")
    before = snapshot(tmp_path)
    capfd.readouterr()
    assert init(tmp_path / "home", "--local", "example.org") == 0
    assert capfd.readouterr() == ("", "")
    words = ["--as-me", "--me", "other.example.org", "--local", "example.net", "--local", "example.com"]
    assert main(["queuectl", "init", str(tmp_path / "home"), *words]) == 0
    assert capfd.readouterr().err.splitlines() == [
        f"queuectl: warning: {control}/{name} stays as it is, without {lacks}; queuectl config set changes it"
        for name, lacks in (("me", "other.example.org"), ("locals", "example.net"))
    ]
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["localhost", "10.0.0.1", "a..b", "-a.example.org", "a b.org", "x" * 64 + ".org", ""])
def test_a_name_that_is_no_full_host_name_is_refused(name: str) -> None:
    with pytest.raises(Usage):
        check_host_name(name)


def test_the_default_host_name_must_do_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "shorty")
    assert main(["queuectl", "init", str(tmp_path / "home"), "--as-me"]) == 100
    assert "'shorty'" in capfd.readouterr().err
    monkeypatch.setattr("socket.getfqdn", lambda: "Shorty.Example.org")
    assert main(["queuectl", "init", str(tmp_path / "home"), "--as-me"]) == 0
    assert (tmp_path / "home/control/me").read_bytes() == b"shorty.example.org\n"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("queue", "directory"), ("queue/mess", "directory"), ("queue/lock/trigger", "FIFO"), ("control/me", "file")],
)
def test_something_else_in_the_place_of_a_path_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], path: str, kind: str
) -> None:
    wrong = tmp_path / "home" / path
    wrong.parent.mkdir(parents=True)
    if kind == "file":
        wrong.mkdir()
    else:
        wrong.write_bytes(b"")
    assert init(tmp_path / "home") == 100
    assert f"unable to make {kind} {wrong}" in capfd.readouterr().err


def test_a_queue_whose_disk_is_not_mounted_is_named_and_not_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    words = ["queuectl", "--home", home.path, "init", "--as-me"]
    Path(home.control, "queues").write_text(f"a\n{tmp_path}/disk/b\n")
    assert main(words) == 111
    assert f"unable to make {tmp_path}/disk/b: {tmp_path}/disk is not there; mount its disk" in capfd.readouterr().err
    (tmp_path / "disk").mkdir()
    Path(home.run, "lock/b.running").touch()
    assert main(words) == 111
    told = capfd.readouterr().err
    assert "b has run before, so its disk is not mounted; mount it, or --queue b makes an empty queue" in told
    assert not (tmp_path / "disk/b").exists()
    assert main(["queuectl", "--home", home.path, "--queue", "b", "init", "--as-me"]) == 0
    assert (tmp_path / "disk/b/mess/0").is_dir()
    assert main(words) == 0


def test_a_home_that_may_not_be_made_is_temporary_trouble(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert init(tmp_path / "missing" / "home") == 111
    assert capfd.readouterr().err == (
        f"queuectl: fatal: unable to make {tmp_path}/missing/home: no such file or directory\n"
    )
