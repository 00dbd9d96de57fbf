"""Mail readers at an mbox, which lock as Debian's policy says (11.6): none removes what was reported as delivered.

A spool of Debian is /var/mail, where only group mail may make files: a program for mail readers has that group, and a
delivery, which runs as the user alone, has not.
"""

import fcntl
import os
import pwd
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.accounts import Owner, become
from queue_base.errors import Temporary
from queue_local.local_delivery import take_account
from queue_local.mbox import mbox_lock as mbox_file
from queue_local.mbox.dotlock import STALE, UNTOUCHED
from queue_local.mbox.mbox_delivery import deliver_mbox
from queue_local.mbox.mbox_lock import open_box
from queue_wire.mailbox import Account
from support.local.deliveries import run
from support.local.mailboxes import UID, give, mail_home
from support.local.mbox import HEAD, deliver, payloads
from support.tools import need, need_root

LOCKED = (b"Z", b"File has been locked for 30 seconds straight. (#4.3.0)\n")
DONE = (b"K", b"done\n")


class Spool:
    """A directory with the user's mbox, and a way to deliver to it as the user."""

    def __init__(self, place: Path, message: Path) -> None:
        self.place = place
        self.box = place / "box"
        self.uid = UID
        self._message = message

    def deliver(self, data: bytes, name: str = "box") -> tuple[bytes, bytes]:
        """Deliver a message to a name in the directory; return the verdict."""
        self._message.write_bytes(data)
        path = str(self.place / name)

        def work(message: int) -> str:
            take_account(Account("joe", self.uid, self.uid, str(self.place)), b"joe")
            deliver_mbox(path, HEAD, message)
            return "done"

        return run(work, self._message)

    def make_lock(self, name: str, content: bytes = b"", age: float = 0.0) -> Path:
        """Make a lock file as a program does that may write in the directory, whoever the tests run as."""
        lock = self.place / name
        mode = self.place.stat().st_mode & 0o7777
        self.place.chmod(0o755)
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(handle, content)
        os.close(handle)
        os.utime(lock, (time.time() - age,) * 2)
        self.place.chmod(mode)
        return lock

    def remove_lock(self, name: str) -> None:
        """Remove it in the same way."""
        mode = self.place.stat().st_mode & 0o7777
        self.place.chmod(0o755)
        (self.place / name).unlink()
        self.place.chmod(mode)


class Reader:
    """A mail reader in this process, which has read an mbox and holds its locks: `kinds` of fcntl's and FILE.lock."""

    def __init__(self, spool: Spool, kinds: str, lock: str = "box.lock") -> None:
        self._spool = spool
        self._lock = lock if "FILE.lock" in kinds else ""
        self._handle = os.open(spool.box, os.O_RDWR)
        if "fcntl" in kinds:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._lock:
            spool.make_lock(self._lock)
        self.text = os.pread(self._handle, 1 << 20, 0)

    def write_back(self, text: bytes) -> None:
        """Make this the content of the mbox, and unlock it."""
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, text, 0)
        if self._lock:
            self._spool.remove_lock(self._lock)
        os.close(self._handle)


@contextmanager
def spool(mode: int) -> Iterator[Spool]:
    """Give a spool whose directory has a mode, and is not the user's where root runs this."""
    with mail_home() as mail:
        made = Spool(mail.alias, mail.path / "message")
        made.box.touch()
        give(made.box)
        if mode & 0o222 == 0:
            os.chown(made.place, os.geteuid(), -1)
        made.place.chmod(mode)
        yield made
        made.place.chmod(0o755)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deliveries wait for locks for a moment only."""
    monkeypatch.setattr(mbox_file, "LOCK_SECONDS", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("mode", [0o555, 0o755], ids=["/var/mail", "a home"])
@pytest.mark.parametrize("kinds", ["fcntl and FILE.lock", "fcntl", "FILE.lock"])
def test_mail_that_comes_while_a_reader_writes_an_mbox_back_is_deferred_and_not_lost(mode: int, kinds: str) -> None:
    with spool(mode) as place:
        verdicts = [place.deliver(b"first")]
        reader = Reader(place, kinds)
        verdicts.append(place.deliver(b"second"))
        reader.write_back(b"")
        verdicts.append(place.deliver(b"third"))
        assert verdicts == [DONE, LOCKED, DONE]
        assert payloads(place.box) == [b"third\n"]
        assert os.listdir(place.place) == ["box"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("lock", ["box.lock", "link.lock", "second.lock"])
def test_a_reader_may_lock_any_of_the_names_that_lead_to_the_mbox(lock: str) -> None:
    with spool(0o755) as place:
        (place.place / "link").symlink_to("second")
        (place.place / "second").symlink_to(place.box)
        for name in ("link", "second"):
            os.chown(place.place / name, UID, -1, follow_symlinks=False)
        assert place.deliver(b"first", "link") == DONE
        reader = Reader(place, "FILE.lock", lock)
        verdict = place.deliver(b"second", "link")
        reader.write_back(reader.text)
        assert (verdict, payloads(place.box)) == (LOCKED, [b"first\n"])
        assert place.deliver(b"third", "link") == DONE
        assert payloads(place.box) == [b"first\n", b"third\n"]
        assert sorted(os.listdir(place.place)) == ["box", "link", "second"]


def test_while_a_message_is_written_readers_find_every_lock_taken(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    (tmp_path / "Mailbox").symlink_to("mail/inbox")
    (tmp_path / "mail/inbox").touch()
    box = open_box(str(tmp_path / "Mailbox"))
    assert box is not None
    with (tmp_path / "mail/inbox").open("rb+") as other:
        for lock in fcntl.lockf, fcntl.flock:
            with pytest.raises(BlockingIOError):
                lock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    # A classic fcntl lock would be lost with the descriptor that was just closed.
    with (tmp_path / "mail/inbox").open("rb+") as other:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert sorted(path.name for path in tmp_path.rglob("*.lock")) == ["Mailbox.lock", "inbox.lock"]
        box.close()
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not list(tmp_path.rglob("*.lock"))


def test_a_directory_that_is_a_link_makes_no_second_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "mail").symlink_to("real")
    (tmp_path / "Mailbox").symlink_to("mail/inbox")
    (tmp_path / "real/inbox").symlink_to(tmp_path / "real/box")
    (tmp_path / "real/box").symlink_to("../mail/box2")
    for data in (b"one", b"two"):
        deliver(tmp_path / "Mailbox", data, tmp_path)
    assert payloads(tmp_path / "real/box2") == [b"one\n", b"two\n"]
    assert not list(tmp_path.rglob("*.lock"))


def test_a_reader_that_takes_its_locks_in_the_other_order_gets_both_and_then_the_message_is_delivered() -> None:
    with spool(0o755) as place:
        assert place.deliver(b"first") == DONE
        place.make_lock("box.lock")
        verdicts: list[tuple[bytes, bytes]] = []
        delivery = threading.Thread(target=lambda: verdicts.append(place.deliver(b"second")))
        delivery.start()
        # It waits until the delivery, which holds this one for moments only, has let go of it.
        with place.box.open("rb+") as reader:
            for _ in range(20):
                fcntl.lockf(reader, fcntl.LOCK_EX)
                fcntl.lockf(reader, fcntl.LOCK_UN)
            fcntl.lockf(reader, fcntl.LOCK_EX)
            place.remove_lock("box.lock")
        delivery.join(60)
        assert (verdicts, payloads(place.box)) == ([DONE], [b"first\n", b"second\n"])


def dead_process() -> int:
    """Return the number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait(60)
    return process.pid


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("content", "age", "verdict"),
    [
        ("", 0, LOCKED),
        ("", UNTOUCHED - 60, LOCKED),
        ("", UNTOUCHED + 1, DONE),
        ("0\n", UNTOUCHED + 1, DONE),
        ("dead\n", UNTOUCHED + 1, DONE),
        ("alive\n", UNTOUCHED + 1, LOCKED),
        ("alive:mail.example.org", UNTOUCHED + 1, LOCKED),
        ("1\n", UNTOUCHED + 1, LOCKED),
        ("99999999999999999999", UNTOUCHED + 1, DONE),
        ("alive\n", STALE + 1, DONE),
    ],
)
def test_a_lock_file_that_cannot_be_made_counts_as_liblockfile_says_while_it_is_fresh(
    content: str, age: float, verdict: tuple[bytes, bytes]
) -> None:
    assert UNTOUCHED == 300
    with spool(0o555) as place:
        text = content.replace("alive", str(os.getpid())).replace("dead", str(dead_process()))
        place.make_lock("box.lock", text.encode(), age)
        assert place.deliver(b"first") == verdict
        assert (place.place / "box.lock").read_text() == text


@pytest.mark.usefixtures("impatient")
def test_another_user_s_lock_file_in_a_spool_of_all_counts_for_nothing_where_ours_cannot_be_made(
    tmp_path: Path,
) -> None:
    """In a sticky directory that its group may write, only one of the group could have made it."""
    need_root()
    with spool(0o1555) as place:
        os.chown(place.make_lock("box.lock"), 54321, 54321)
        assert place.deliver(b"first") == DONE
        os.chown(place.place / "box.lock", UID, UID)
        assert place.deliver(b"second") == LOCKED


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("take", "give_up"),
    [
        ("dotlockfile -l -r 0 link.lock", "dotlockfile -u link.lock"),
        ("dotlockfile -l -r 0 box.lock", "dotlockfile -u box.lock"),
        ("lockfile -r 0 link.lock", "rm -f link.lock"),
        ("mutt_dotlock -p -r 0 link", "mutt_dotlock -u -p link"),
    ],
)
def test_programs_that_lock_for_others_and_a_delivery_keep_each_other_out(
    tmp_path: Path, take: str, give_up: str
) -> None:
    (tmp_path / "link").symlink_to("box")
    deliver(tmp_path / "link", b"first", tmp_path)

    def call(command: str) -> int:
        program, *words = command.split()
        return subprocess.run([need(program), *words], cwd=tmp_path, capture_output=True, timeout=60).returncode

    assert call(take) == 0
    with pytest.raises(Temporary, match="File has been locked for 30 seconds straight"):
        deliver(tmp_path / "link", b"second", tmp_path)
    assert call(give_up) == 0
    box = open_box(str(tmp_path / "link"))
    assert box is not None and call(take) != 0
    box.close()
    assert call(take) == 0 and call(give_up) == 0
    deliver(tmp_path / "link", b"third", tmp_path)
    assert payloads(tmp_path / "box") == [b"first\n", b"third\n"]


def test_mutt_deletes_messages_of_an_mbox_in_var_mail_and_loses_none_that_comes_meanwhile() -> None:
    """As in Debian: mutt runs as the user, and has a program of group mail for its lock file."""
    need_root()
    with spool(0o755) as place:
        # mutt wants its user to have a name.
        place.uid = pwd.getpwnam("nobody").pw_uid
        os.chown(place.box, place.uid, -1)
        # So large that mutt takes its time to write it back.
        for number in range(3):
            assert place.deliver(b"Subject: old %d\n\n" % number + (b"x" * 99 + b"\n") * 100_000) == DONE
        group = os.stat(need("mutt_dotlock")).st_gid
        os.chown(place.box, place.uid, group)
        place.box.chmod(0o660)
        os.chown(place.place, 0, group)
        place.place.chmod(0o2775)
        home = place.place.parent / "mutt"
        (home / "Mail").mkdir(parents=True)
        for path in (home, home / "Mail"):
            os.chown(path, place.uid, place.uid)
        settings = "set delete=yes; set move=no; set tmpdir=."
        # It does not write back, nor quit, where new mail has come since it looked; then it tries again.
        keys = "push <delete-message>" + "<sync-mailbox>" * 5 + "<quit>" * 50
        mutt = shlex.join([need("mutt"), "-n", "-F", "/dev/null", "-e", settings, "-e", keys, "-f", str(place.box)])
        process = subprocess.Popen(
            [need("script"), "-qec", mutt, "/dev/null"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=home,
            env={"HOME": str(home), "TERM": "xterm", "PATH": os.environ["PATH"]},
            preexec_fn=lambda: become(Owner(place.uid, place.uid)),
        )
        delivered = 0
        while process.poll() is None and delivered < 300:
            assert place.deliver(b"Subject: new %d\n\n" % delivered) == DONE
            delivered += 1
        process.wait(60)
        kept = place.box.read_bytes()
        assert (process.returncode, kept.count(b"Subject: old 0\n")) == (0, 0)
        lost = [number for number in range(delivered) if kept.count(b"Subject: new %d\n" % number) != 1]
        assert (delivered > 0, lost) == (True, [])
