"""Whose mail is whose, with real accounts. Run by tests/admin/test_accounts.py inside a mount namespace, as root."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.local.assigned import assign
from support.local.local_daemon import LocalDaemon
from support.processes.suite import Suite, program
from support.tools import need

USERS = ("ulla", "udo")
OK = (b"K", b"did 1+0+0\n")


@pytest.fixture
def place(place: Path) -> Iterator[Path]:
    """Have the homes of two users there, each with a maildir."""
    for user in USERS:
        subprocess.run([need("useradd"), "-m", "-d", place / user, user], check=True)
        maildir(place / user, user)
    yield place
    for user in USERS:
        # By force: another run's user may have the same number, and processes.
        subprocess.run(["userdel", "--force", user], check=False, capture_output=True)


def maildir(home: Path, user: str) -> Path:
    """Make a maildir of a user; return its path."""
    for box in ("new", "cur", "tmp"):
        (home / "Maildir" / box).mkdir(parents=True)
    subprocess.run(["chown", "-R", f"{user}:", home / "Maildir"], check=True)
    return home / "Maildir"


@pytest.fixture
def home(place: Path) -> Home:
    words = [*program("queuectl"), "init", str(place / "home"), "--me", "me.example", "--local", "me.example"]
    subprocess.run(words, check=True, capture_output=True)
    return Home(str(place / "home"))


def message(home: Home) -> bytes:
    """Make a message; return its path under queue/."""
    path, owner = Path(home.queue, "mess/1/1"), os.stat(home.queue)
    path.write_bytes(b"Subject: x\n\n")
    # Mail of the queue is its owner's; nothing else is opened for a delivery.
    os.chown(path, owner.st_uid, owner.st_gid)
    return b"mess/1/1"


def owners(maildir: Path) -> list[str]:
    return [pwd.getpwuid(path.stat().st_uid).pw_name for path in (maildir / "new").iterdir()]


def test_alias_belongs_to_an_account_that_can_do_nothing_to_the_queue(home: Home) -> None:
    entry = pwd.getpwnam("queuea")
    found = os.stat(home.alias)
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (entry.pw_uid, entry.pw_gid, 0o2755)
    # Made for the first home of this machine.
    assert entry.pw_dir.endswith("/home/alias")
    assert entry.pw_gid != pwd.getpwnam("queue").pw_gid and entry.pw_uid not in (0, pwd.getpwnam("queue").pw_uid)
    made = Path(message(home).decode())
    for path in (home.queue, f"{home.queue}/mess", f"{home.queue}/{made}", f"{home.queue}/todo"):
        words = ["ls" if os.path.isdir(path) else "cat", path]
        gid = entry.pw_gid
        done = subprocess.run(words, user="queuea", group=gid, extra_groups=[], capture_output=True, check=False)
        assert done.returncode != 0, path
    again = [*program("queuectl"), "init", home.path]
    assert subprocess.run(again, check=True, capture_output=True).stdout == b""


def test_mail_goes_by_users_cdb_then_passwd_then_alias_each_as_its_user(home: Home, place: Path) -> None:
    ulla, udo = (pwd.getpwnam(user).pw_uid for user in USERS)
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    alias = maildir(Path(home.alias), "queuea")
    assign(home, f"=sales:udo:{udo}:{udo}:{place}/udo:::\n=ulla:udo:{udo}:{udo}:{place}/udo:::\n")
    with Suite(home) as suite:
        recipients = ["sales@me.example", "ulla@me.example", "UDO@me.example", "info@me.example", "root@me.example"]
        subprocess.run([*program("queue-inject"), "--home", home.path, *recipients], input=b"\n", check=True)
        suite.wait_for("end msg")
    assert owners(place / "udo/Maildir") == ["udo"] * 3 and owners(place / "ulla/Maildir") == []
    assert owners(alias) == ["queuea"] * 2
    assign(home, f"=sales:ulla:{ulla}:{ulla}:{place}/ulla:::\n")
    with LocalDaemon(home) as daemon:
        daemon.ready()
        assert daemon.verdict(1, message(home), b"sales@me.example") == OK
    assert owners(place / "ulla/Maildir") == ["ulla"]


def test_no_file_is_written_as_the_queue_s_owner(home: Home) -> None:
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    box = maildir(Path(home.alias), "queue")
    os.chown(home.alias, pwd.getpwnam("queue").pw_uid, -1)
    with LocalDaemon(home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, message(home), b"info@me.example")
    assert letter == b"Z" and b"as queue (uid " in text and b"who owns the queue" in text
    assert owners(box) == []
    shown = subprocess.run([*program("queuectl"), "--home", home.path, "users", "find", "info"], capture_output=True)
    assert b"only forwards are carried out: this account owns the queue" in shown.stdout


def test_a_program_has_the_account_s_ids_no_other_group_and_the_limits(
    home: Home, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ulla = pwd.getpwnam("ulla")
    subprocess.run([need("usermod"), "-G", "mail", "ulla"], check=True)
    Path(home.control, "locallimits").write_text("files 77\n")
    script = 'id -u; id -G; ulimit -n; ulimit -c; echo "$USER $HOME $LOCAL $EXT"; pwd; env | grep -c "^SECRET="'
    (place / "ulla/.qmail-default").write_text(f"|{script}; exit 0\n")
    assign(home, f"+box-:ulla:{ulla.pw_uid}:{ulla.pw_gid}:{place}/ulla:-:Pre.:\n")
    monkeypatch.setenv("SECRET", "x")
    with LocalDaemon(home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, message(home), b"BOX-Me@me.example")
    assert letter == b"K", text
    lines = text.decode().splitlines()
    assert lines[:2] == [str(ulla.pw_uid), str(ulla.pw_gid)]
    assert lines[2:4] == ["77", "0"]
    assert lines[4:7] == [f"ulla {place}/ulla BOX-Me Pre.Me", f"{place}/ulla", "0"]


def test_unprivileged_it_delivers_to_its_own_homes_and_defers_all_others(place: Path) -> None:
    ulla, udo = (pwd.getpwnam(user).pw_uid for user in USERS)
    home = Home(str(place / "ulla/queue"))
    as_ulla = [need("setpriv"), f"--reuid={ulla}", f"--regid={ulla}", "--clear-groups"]
    subprocess.run([*as_ulla, *program("queuectl"), "init", home.path, "--me", "me.example"], check=True)
    assign(home, f"=ulla:ulla:{ulla}:{ulla}:{place}/ulla:::\n=udo:udo:{udo}:{udo}:{place}/udo:::\n")
    path = message(home)
    with LocalDaemon(home, wrapper=tuple(as_ulla)) as daemon:
        daemon.ready()
        assert daemon.verdict(1, path, b"ulla@me.example") == OK
        letter, text = daemon.verdict(2, path, b"udo@me.example")
        assert letter == b"Z" and text.startswith(b"Unable to deliver to udo as user udo"), text
        # What somebody else wrote says nothing here, be it udo's.
        os.chown(f"{home.users}/cdb", udo, udo)
        letter, text = daemon.verdict(3, path, b"ulla@me.example")
        assert letter == b"Z" and f"it must belong to uid {ulla}".encode() in text, text
    assert owners(place / "ulla/Maildir") == ["ulla"] and owners(place / "udo/Maildir") == []
