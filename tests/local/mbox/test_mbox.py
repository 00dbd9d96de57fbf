"""Delivery into an mbox file: bytes, modes, and what is not a file for mail."""

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_local.local_delivery import take_account
from queue_local.mbox import mbox_delivery
from queue_wire.mailbox import Account
from support.local.deliveries import run
from support.local.mailboxes import UID, give, mail_home
from support.local.mbox import HEAD, deliver, payloads
from support.tools import need, need_root


def test_messages_follow_one_another_each_with_its_empty_line(tmp_path: Path) -> None:
    for data in (b"one\n", b"two", b"", b"From three\n"):
        deliver(tmp_path / "box", data, tmp_path)
    text = b"".join(HEAD + body for body in (b"one\n\n", b"two\n\n", b"\n", b">From three\n\n"))
    assert (tmp_path / "box").read_bytes() == text
    assert payloads(tmp_path / "box") == [b"one\n", b"two\n", b"", b">From three\n"]


def test_a_large_message_arrives_whole(tmp_path: Path) -> None:
    data = b"From x\n" * 300_000 + b">" * 600_000 + b"From y"
    deliver(tmp_path / "box", data, tmp_path)
    assert payloads(tmp_path / "box") == [b">From x\n" * 300_000 + b">" * 600_001 + b"From y\n"]


def test_a_new_file_is_its_owner_s_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    deliver(tmp_path / "box", b"secret", tmp_path)
    assert (tmp_path / "box").stat().st_mode & 0o7777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["box", "message"]


def test_a_file_keeps_its_mode_and_its_end_is_made_an_end(tmp_path: Path) -> None:
    box = tmp_path / "box"
    for before, between in ((b"From x\n\nlast line", b"\n\n"), (b"From x\n\nlast line\n", b"\n"), (b"From x\n\n", b"")):
        box.write_bytes(before)
        box.chmod(0o640)
        deliver(box, b"mine", tmp_path)
        assert box.read_bytes() == before + between + HEAD + b"mine\n\n"
    assert box.stat().st_mode & 0o7777 == 0o640


def test_a_path_is_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    deliver("./box", b"x", tmp_path)
    assert payloads(tmp_path / "box") == [b"x\n"]


def test_null_discards(tmp_path: Path) -> None:
    deliver("/dev/null", b"x", tmp_path)
    (tmp_path / "link").symlink_to("/dev/null")
    deliver(tmp_path / "link", b"x", tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["link", "message"] and not Path("/dev/null.lock").exists()


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "is a directory"),
        (os.mkfifo, "it is not a regular file"),
        (listen, "it is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is not a regular file"),
        (lambda path: path.symlink_to(path), "too many levels of symbolic links"),
        (lambda path: path.symlink_to(path.parent / "missing/box"), "no such file or directory"),
        (lambda path: os.link(path.parent / "message", path), "it is a hard link"),
    ],
    ids=["directory", "FIFO", "socket", "device", "circle", "into nowhere", "hard link"],
)
def test_what_is_not_a_file_for_mail_defers(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    (tmp_path / "message").touch()
    make(tmp_path / "box")
    with pytest.raises(Temporary) as raised:
        deliver(tmp_path / "box", b"x", tmp_path)
    assert str(raised.value) == f"Unable to open {tmp_path}/box: {why}. (#4.2.1)"
    assert not (tmp_path / "box.lock").exists()


def test_a_fifo_with_a_reader_gets_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "box")
    reader = os.open(tmp_path / "box", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Temporary, match="not a regular file"):
        deliver(tmp_path / "box", b"x", tmp_path)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_link_of_one_s_own_leads_to_the_mbox_even_if_it_is_new(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    (tmp_path / "link").symlink_to("mail/inbox")
    for data in (b"one", b"two"):
        deliver(tmp_path / "link", data, tmp_path)
    assert payloads(tmp_path / "mail/inbox") == [b"one\n", b"two\n"]
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "mail") == ["inbox"]


def test_another_user_s_link_defers(tmp_path: Path) -> None:
    need_root()
    (tmp_path / "link").symlink_to("box")
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    with pytest.raises(Temporary, match="it is a link of another user"):
        deliver(tmp_path / "link", b"x", tmp_path)
    assert not (tmp_path / "box").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o1775])
def test_another_user_s_file_in_a_spool_where_others_may_make_files_defers(tmp_path: Path, mode: int) -> None:
    """Who makes /var/mail/ann before ann's first mail would read it. In a closed directory a file may be shared."""
    need_root()
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "box").touch(0o666)
    os.chown(spool / "box", 12345, 12345)
    deliver(spool / "box", b"x", tmp_path)
    before = (spool / "box").read_bytes()
    spool.chmod(mode)
    with pytest.raises(Temporary, match="it is another user's, in a directory where others may make files"):
        deliver(spool / "box", b"x", tmp_path)
    assert (spool / "box").read_bytes() == before and not (spool / "box.lock").exists()


def test_a_missing_directory_defers_as_in_qmail(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"Unable to open .*/a/box: no such file or directory\. \(#4\.2\.1\)"):
        deliver(tmp_path / "a/box", b"x", tmp_path)


# One that may not be written, and one that may be written but not read, so that it cannot be opened to be synced.
@pytest.mark.parametrize("mode", [0o555, 0o333])
def test_a_directory_may_be_closed_to_its_user(mode: int) -> None:
    with mail_home() as mail:
        box = mail.alias / "box"
        box.touch()
        give(box)
        mail.alias.chmod(mode)
        os.chown(mail.alias, os.geteuid(), -1)
        path = mail.path / "queue" / mail.message(b"x").decode()
        account = Account("joe", UID, UID, str(mail.alias))

        def work(message: int) -> str:
            take_account(account, b"joe")
            os.chdir(mail.alias)
            mbox_delivery.deliver_mbox("./box", HEAD, message)
            return "done"

        assert run(work, path) == (b"K", b"done\n")
        mail.alias.chmod(0o755)
        assert payloads(box) == [b"x\n"] and os.listdir(mail.alias) == ["box"]


def test_a_mail_reader_finds_each_message(tmp_path: Path) -> None:
    for number in range(3):
        deliver(tmp_path / "box", b"From: a@b\nSubject: number %d\n\nFrom here\n" % number, tmp_path)
    words = [need("s-nail"), "-n", "-R", "-H", "-f", str(tmp_path / "box")]
    found = subprocess.run(
        words, capture_output=True, check=True, timeout=60, env={"HOME": str(tmp_path), "MAILRC": "/dev/null"}
    )
    assert [line.split()[-2:] for line in found.stdout.splitlines()] == [[b"number", b"%d" % n] for n in range(3)]


def test_a_file_that_may_be_written_but_not_read_is_appended_to() -> None:
    with mail_home() as mail:
        mail.qmail("box", b"From x\n", 0o200)
        path = mail.path / "queue" / mail.message(b"x").decode()

        def work(message: int) -> str:
            take_account(Account("joe", UID, UID, str(mail.alias)), b"joe")
            mbox_delivery.deliver_mbox(f"{mail.alias}/box", HEAD, message)
            return "done"

        assert run(work, path) == (b"K", b"done\n")
        assert (mail.alias / "box").read_bytes() == b"From x\n" + HEAD + b"x\n\n"
