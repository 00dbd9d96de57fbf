"""What root opens in homes and queues of other accounts: a link or another name of theirs leads nowhere."""

import os
from pathlib import Path

import pytest

from queue_admin.checks import home_copy
from queue_admin.checks.queue_stamp import write_stamp
from queue_admin.home.maker import Maker
from queue_admin.system_accounts import myself
from queue_base.accounts import Owner, make_greylist_directory
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from support.processes.forked import run_program
from support.queues.home import make_home
from support.queues.others import ACCOUNT, STRANGER, give

SECRET = b"joe-secret@example.org\n"


@pytest.fixture
def place(place: Path) -> Path:
    """Have a file there that only root may read."""
    (place / "secret").write_bytes(SECRET)
    (place / "secret").chmod(0o600)
    return place


def make_link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    os.chown(path, ACCOUNT, ACCOUNT, follow_symlinks=False)


def run(home: Home, *words: str, given: bytes = b"") -> tuple[int, str]:
    done = run_program("queuectl", "--home", home.path, *words, given=given)
    assert b"Traceback" not in done.stderr
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.fixture
def foreign(place: Path) -> Home:
    home = make_home(place / "home", split=3)
    give(home.path)
    return home


@pytest.mark.parametrize("words", [["config", "set", "concurrencyremote", "7"], ["config", "set", "smtproutes", ":x"]])
def test_config_set_in_a_home_of_another_account_overwrites_nothing_through_a_link(
    foreign: Home, place: Path, words: list[str]
) -> None:
    make_link(Path(foreign.control, words[2]), place / "secret")
    assert run(foreign, *words)[0] == 100
    assert (place / "secret").read_bytes() == SECRET
    os.unlink(f"{foreign.control}/{words[2]}")
    os.rename(foreign.control, f"{foreign.path}/old")
    (place / "elsewhere").mkdir()
    make_link(Path(foreign.control), place / "elsewhere")
    (place / "elsewhere/me").write_text("me.example.org\n")
    code, text = run(foreign, *words)
    assert (code, "control is a symbolic link" in text) == (100, True), text
    assert os.listdir(place / "elsewhere") == ["me"]


def test_config_unset_in_a_home_of_another_account_removes_nothing_elsewhere(foreign: Home, place: Path) -> None:
    (place / "elsewhere").mkdir()
    for name in ("me", "concurrencyremote"):
        (place / "elsewhere" / name).write_text("7\n")
    os.rename(foreign.control, f"{foreign.path}/old")
    make_link(Path(foreign.control), place / "elsewhere")
    assert run(foreign, "config", "set", "--unset", "concurrencyremote")[0] == 100
    assert (place / "elsewhere/concurrencyremote").exists()


def test_passwd_in_a_home_of_another_account_overwrites_nothing_through_a_link(foreign: Home, place: Path) -> None:
    (place / "secret").write_bytes(b"")
    make_link(Path(foreign.control, "smtpdusers"), place / "secret")
    assert run(foreign, "passwd", "joe", given=b"open sesame\n")[0] == 100
    assert (place / "secret").read_bytes() == b""


def test_a_link_of_roots_in_control_is_followed_by_config_set(place: Path) -> None:
    home = make_home(place / "home", split=3)
    (place / "shared").write_text("5\n")
    Path(home.control, "concurrencyremote").symlink_to(place / "shared")
    assert run(home, "config", "set", "concurrencyremote", "7")[0] == 0
    assert (place / "shared").read_text() == "7\n" and Path(home.control, "concurrencyremote").is_symlink()


@pytest.mark.parametrize("kind", ["link", "name", "directory"])
def test_import_aliases_publishes_nothing_that_a_users_include_leads_to(place: Path, kind: str) -> None:
    home = make_home(place / "home", split=3)
    joe = place / "joe"
    joe.mkdir()
    give(joe)
    named = joe / "list"
    if kind == "link":
        make_link(named, place / "secret")
    elif kind == "name":
        os.link(place / "secret", named)
    else:
        make_link(joe / "lists", place)
        named = joe / "lists/secret"
    (place / "aliases").write_text(f"list: :include:{named}\nother: ann@example.net\n")
    code, text = run(home, "import-aliases", str(place / "aliases"))
    assert (code, "list: " in text) == (1, True), text
    assert sorted(os.listdir(home.alias)) == [".qmail-other"]
    assert SECRET.strip().decode() not in text


@pytest.mark.parametrize("kind", ["cluster", "domain"])
def test_copy_writes_nothing_through_a_link_in_stored_mail(place: Path, kind: str) -> None:
    home = make_home(place / "home", split=3)
    Path(home.queue, "mess/0/7").write_bytes(b"Subject: x\n\nx\n")
    stored = StoredRecipient(8, 5, 20, b"a@b", b"r")
    DomainStore(home.queue).append([StoreRequest(b"example.net", "mess/0/7", [stored])])
    os.unlink(f"{home.queue}/mess/0/7")
    domain = Path(home.queue, "ondemand/example.net")
    [cluster] = domain.glob("*.cluster")
    cluster.rename(place / cluster.name)
    for message in (domain / "mess").iterdir():
        message.unlink()  # So the record counts as finished, and is marked done.
    before = (place / cluster.name).read_bytes()
    if kind == "cluster":
        make_link(cluster, place / cluster.name)
    else:
        (place / "mess").mkdir()
        make_link(domain.with_name("other.example"), place)
    give(home.queue)
    code, text = run(home, "copy", str(place / "copy"))
    assert (place / cluster.name).read_bytes() == before
    assert code == 1, text


def test_a_directory_that_is_put_in_the_place_of_the_greylists_stays_its_owners(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, real = make_home(place / "home", split=3), os.mkdir
    os.chown(home.path, ACCOUNT, ACCOUNT)

    def swap(name: str, mode: int, *, dir_fd: int) -> None:
        """Do what the account may do as soon as the directory is there."""
        real(name, mode, dir_fd=dir_fd)
        os.rmdir(home.greylist)
        os.rename(home.control, home.greylist)

    monkeypatch.setattr(os, "mkdir", swap)
    make_greylist_directory(home, Owner(STRANGER, STRANGER))
    assert os.stat(home.greylist).st_uid == 0
    monkeypatch.undo()
    os.rename(home.greylist, home.control)
    assert make_greylist_directory(home, Owner(STRANGER, STRANGER))
    assert os.stat(home.greylist).st_uid == STRANGER


def test_what_is_made_in_a_directory_of_another_account_is_synced_by_its_descriptor(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, real = place / "theirs", os.rename
    theirs.mkdir()
    give(theirs)

    def swap(old: str, new: str, **named: int) -> None:
        """Do what the account may do as soon as a name is there: who opens it by its path fails."""
        real(old, new, **named)
        real(theirs / new, theirs / f"{new}.taken")
        (theirs / new).symlink_to(new)

    monkeypatch.setattr(os, "rename", swap)
    maker = Maker(myself())
    maker.directory(f"{theirs}/log", 0o750, 3)
    maker.replace(f"{theirs}/run", b"text", 0o644)
    maker.fifo(f"{theirs}/fifo", 0o600)
    maker.commit.sync()
    assert maker.made == [f"{theirs}/{name}" for name in ("log", "run", "fifo")]


def test_copy_to_a_directory_of_another_account_writes_into_nothing_that_is_put_in_its_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, theirs = make_home(place / "home", split=3), place / "theirs"
    for directory in (theirs, place / "elsewhere"):
        directory.mkdir()
        os.chown(directory, ACCOUNT, ACCOUNT)

    def swap(*arguments: object) -> None:
        """Do what the account may do while root copies."""
        os.rename(theirs / "copy.new", theirs / "taken")
        os.symlink(place / "elsewhere", theirs / "copy.new")
        monkeypatch.undo()
        write_stamp(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(home_copy, "write_stamp", swap)
    with pytest.raises(Permanent, match=f"unable to make {theirs}/copy: something else was put in its place"):
        home_copy.copy_home(home, Home(str(theirs / "copy")))
    assert os.listdir(place / "elsewhere") == []
