"""Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.suite import Suite, program, wait_until
from support.servers.ports import free_port
from support.servers.smtp.sink import Sink
from support.tools import need

NOBODY = 65534
DAEMONS = {
    "queue-todo": "queue",
    "queue-clean": "queue",
    "queue-pickup": "queue",
    "queue-intake": "queue",
    "queue-remote": "queuer",
    "queue-local": "root",
}


@pytest.fixture
def home(place: Path) -> Home:
    """A home that root made with `queuectl init`, accounts and all, and a user, alice."""
    subprocess.run([need("useradd"), "-m", "-d", place / "alice", "-s", "/bin/sh", "alice"], check=True)
    words = [*program("queuectl"), "init", str(place / "home"), "--me", "me.example", "--local", "me.example"]
    subprocess.run(words, check=True, capture_output=True)
    for box in ("new", "cur", "tmp"):
        (place / "alice/Maildir" / box).mkdir(parents=True)
    subprocess.run(["chown", "-R", "alice:", place / "alice/Maildir"], check=True)
    return Home(str(place / "home"))


@pytest.fixture(autouse=True)
def no_alice() -> Iterator[None]:
    """Each test makes its own alice."""
    yield
    # By force: another run's user may have the same number, and processes.
    subprocess.run(["userdel", "--force", "alice"], check=False, capture_output=True)


def status(pid: int) -> dict[str, list[str]]:
    """Return the fields of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: line.partition(":")[2].split() for line in lines}


def inject_as(uid: int, home: Home, *recipients: str) -> None:
    done = subprocess.run(
        [*program("queue-inject"), "--home", home.path, "-f", "sender@far.example", *recipients],
        input=b"Subject: hello\n\nbody\n",
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_each_daemon_runs_as_its_account(home: Home) -> None:
    with Suite(home) as suite:
        uids = {name: pwd.getpwnam(name).pw_uid for name in ("queue", "queuer", "root")}
        gid = str(pwd.getpwnam("queue").pw_gid)
        assert status(suite.process.pid)["Uid"] == [str(uids["queue"])] * 4
        for daemon, account in DAEMONS.items():
            pid = suite.daemon(daemon)
            wait_until(lambda pid=pid, account=account: status(pid)["Uid"] == [str(uids[account])] * 4, why=daemon)  # type: ignore[misc]
            if account != "root":
                assert status(pid)["Gid"] == [gid] * 4
                assert status(pid)["Groups"] in ([], [gid])
        assert suite.stop() == 0


def test_mail_of_a_user_who_may_not_write_to_the_queue_reaches_a_user_s_maildir(home: Home, place: Path) -> None:
    with Suite(home) as suite:
        inject_as(NOBODY, home, "alice@me.example")
        suite.wait_for("end msg")
        assert "uid 65534" in suite.wait_for("info msg")
        (mail,) = (place / "alice/Maildir/new").iterdir()
        found = mail.stat()
        assert (found.st_uid, found.st_mode & 0o777) == (pwd.getpwnam("alice").pw_uid, 0o600)
        assert mail.read_bytes().endswith(b"\n\nbody\n")


def test_mail_that_was_left_while_the_daemons_were_down_is_taken_when_they_come(home: Home, place: Path) -> None:
    inject_as(NOBODY, home, "alice@me.example")
    with Suite(home) as suite:
        suite.wait_for("end msg")
    assert len(list((place / "alice/Maildir/new").iterdir())) == 1


def readable_by(account: str, path: str) -> bool:
    """Return whether an account can read a path."""
    entry = pwd.getpwnam(account)
    words = ["cat" if os.path.isfile(path) else "ls", path]
    uid, gid = entry.pw_uid, entry.pw_gid
    done = subprocess.run(words, user=uid, group=gid, extra_groups=[], capture_output=True, check=False)
    return done.returncode == 0


def test_the_remote_account_reads_mess_and_nothing_else(home: Home) -> None:
    Path(home.control, "smtproutes").write_text(":127.0.0.1:1\n")  # Nothing listens there, so the message stays.
    with Suite(home) as suite:
        inject_as(0, home, "someone@far.example")
        suite.wait_for("deferral")

        # The deferral comes first; then the message is classified, which removes the file in todo/.
        def is_classified() -> bool:
            kinds = {path.relative_to(home.queue).parts[0] for path in Path(home.queue).rglob("*") if path.is_file()}
            return kinds >= {"info", "remote"} and "todo" not in kinds

        wait_until(is_classified, why="classification")
        files = [path for path in Path(home.queue).rglob("*") if path.is_file()]
        seen = {path.relative_to(home.queue).parts[0] for path in files if readable_by("queuer", str(path))}
        assert {path.relative_to(home.queue).parts[0] for path in files} >= {"mess", "info", "remote"}
        assert seen == {"mess"}
        lists = {kind.name for kind in Path(home.queue).iterdir() if readable_by("queuer", str(kind))}
        assert "maildrop" not in lists and not lists & {"info", "local", "remote", "todo", "intd", "bounce", "lock"}
        assert not readable_by("nobody", home.queue + "/maildrop")


def test_stored_mail_is_kept_by_the_queue_s_account_and_read_by_the_remote_account(home: Home) -> None:
    port = free_port()
    Path(home.control, "ondemand").write_text("far.example:etrn probe never\n")
    Path(home.control, "smtproutes").write_text(f":127.0.0.1:{port}\n")
    uids = {name: str(pwd.getpwnam(name).pw_uid) for name in ("queue", "queuer")}
    with Suite(home) as suite:
        assert status(suite.daemon("queue-ondemand"))["Uid"] == [uids["queue"]] * 4
        for pid in suite.daemons("queue-remote", 2):
            assert status(pid)["Uid"] == [uids["queuer"]] * 4
        inject_as(0, home, "someone@far.example")
        suite.wait_for(r"success: stored_for_far\.example")
        files = [path for path in Path(home.queue, "ondemand").rglob("*") if path.is_file()]
        assert {path.parent.name for path in files if readable_by("queuer", str(path))} == {"mess"}
        assert not [path for path in files if readable_by("nobody", str(path))]
        with Sink(port) as sink:
            words = [*program("queuectl"), "--home", home.path, "flush", "--domain", "far.example"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            suite.wait_for(r"^ondemand far\.example ended: delivered 1 ")
            assert len(sink.taken) == 1


def test_code_that_an_account_may_not_read_is_named(home: Home, place: Path) -> None:
    hidden = place / "hidden"
    hidden.mkdir(0o700)
    code = Path(program("queue-start")[1]).parent
    subprocess.run(["cp", "-r", code, hidden / "bin"], check=True)
    words = [program("queue-start")[0], str(hidden / "bin/queue-start"), "--home", home.path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 100
    assert f"unable to read {hidden} as account queue" in done.stderr


def test_a_queue_of_another_owner_is_refused_by_name(home: Home) -> None:
    os.chown(home.queue, 4242, 4242)
    done = subprocess.run([*program("queue-start"), "--home", home.path], capture_output=True, text=True, check=False)
    assert done.returncode == 100
    assert home.queue in done.stderr and "uid 4242" in done.stderr


def test_queue_intake_in_front_of_several_queues_runs_as_account_queue_and_takes_mail_of_users(place: Path) -> None:
    (place / "home/control").mkdir(parents=True)
    (place / "home/control/queues").write_text(f"{place}/first\nsecond\n")
    subprocess.run([need("useradd"), "-m", "-d", place / "alice", "-s", "/bin/sh", "alice"], check=True)
    for box in ("new", "cur", "tmp"):
        (place / "alice/Maildir" / box).mkdir(parents=True)
    subprocess.run(["chown", "-R", "alice:", place / "alice/Maildir"], check=True)
    words = [*program("queuectl"), "init", str(place / "home"), "--me", "me.example", "--local", "me.example"]
    subprocess.run(words, check=True, capture_output=True)
    home = Home(str(place / "home"))
    words = [*program("queue-start"), "--home", home.path, "--intake"]
    intake = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        with Suite(home, options=("--queue", "first")), Suite(home, options=("--queue", "second")):
            wait_until(lambda: Path(home.run, "intake/socket").exists(), why="queue-intake to listen")
            assert status(intake.pid)["Uid"] == [str(pwd.getpwnam("queue").pw_uid)] * 4
            for _ in range(4):
                inject_as(NOBODY, home, "alice@me.example")
            inbox = place / "alice/Maildir/new"
            wait_until(lambda: len(list(inbox.iterdir())) == 4, why="the mail")
    finally:
        intake.terminate()
        assert intake.wait(60) == 0
