"""queuectl passwd: users of queue-smtpd's AUTH are added, listed and removed; no password is shown or kept."""

import os
import pty
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from queue_base.home import Home
from queue_smtp.auth_server import digest_of, knows_password
from queue_smtpd.auth.password_file import PasswordFile
from queue_wire.control.smtpdusers import SharedSecret, UserPasswords, Verifier, unpack_users
from support.processes.forked import BIN

PASSWORD = "open sesame"


def run(home: Home, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BIN / "queuectl"), "--home", home.path, "passwd", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)


def users(home: Home) -> UserPasswords:
    return unpack_users(Path(home.control, "smtpdusers").read_bytes())


def right(home: Home, user: bytes, password: str) -> bool:
    found = users(home).users[user]
    assert isinstance(found, Verifier)
    return knows_password(found, password.encode())


def test_a_user_is_added_changed_listed_and_removed(home: Home) -> None:
    assert run(home, "--list").stdout == ""
    for user in ("joe@example.org", "ann"):
        made = run(home, user, given=f"{PASSWORD}\nrest\n")
        assert (made.returncode, made.stdout, made.stderr) == (0, f"{user} has a new password\n", "")
    path = Path(home.control, "smtpdusers")
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o640 and found.st_uid == os.stat(home.control).st_uid
    assert PASSWORD.encode() not in path.read_bytes()
    assert right(home, b"ann", PASSWORD) and not right(home, b"ann", "rest")
    secret = users(home).secret
    assert len(secret) == 32
    path.chmod(0o666)
    assert run(home, "ann", given="other").returncode == 0
    assert right(home, b"ann", "other") and users(home).secret == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert run(home, "--list").stdout == "ann\njoe@example.org\n"
    assert run(home, "--delete", "ann").stdout == "ann is removed\n"
    gone = run(home, "--delete", "ann")
    assert gone.stderr == "queuectl: fatal: unable to find user ann: queuectl passwd --list lists all\n"
    assert (gone.returncode, gone.stdout) == (1, "")
    assert list(users(home).users) == [b"joe@example.org"]


def test_a_password_for_cram_md5_is_kept_itself_and_shown_by_nothing(home: Home) -> None:
    made = run(home, "--cram-md5", "customer", given=PASSWORD)
    assert (made.returncode, made.stdout) == (0, "customer has a new password\n"), made.stderr
    found = users(home).users[b"customer"]
    assert found == SharedSecret(PASSWORD.encode()) and PASSWORD not in repr(found)
    assert run(home, "joe", given=PASSWORD).returncode == 0
    assert users(home).users[b"customer"] == found, "it stays when another user is made"

    file = PasswordFile(home)
    file.refresh()
    digest = digest_of(b"<x@y>", PASSWORD.encode())
    assert file.any_shared and file.all_scram
    assert file.has_answered(b"customer", b"<x@y>", digest)
    for user, challenge, response in (
        (b"customer", b"<z@y>", digest),
        (b"customer", b"<x@y>", b""),
        (b"joe", b"<x@y>", digest),
        (b"nobody", b"<x@y>", digest_of(b"<x@y>", file.secret)),
    ):
        assert not file.has_answered(user, challenge, response)
    assert file.is_right(b"customer", PASSWORD.encode()) and not file.is_right(b"customer", b"other")


def test_a_verifier_is_made_of_a_password_once_and_anew_for_another_one(home: Home) -> None:
    assert run(home, "--cram-md5", "customer", given=PASSWORD).returncode == 0
    file = PasswordFile(home)
    file.refresh()
    made = file.verifier(b"customer")
    assert made is not None
    assert run(home, "joe", given=PASSWORD).returncode == 0
    assert file.refresh() and file.verifier(b"customer") is made
    assert run(home, "--cram-md5", "customer", given=PASSWORD + "2").returncode == 0
    assert file.refresh() and file.verifier(b"customer") not in (None, made)


def test_what_cannot_be_used_is_refused_and_changes_nothing(home: Home) -> None:
    for words, given, why in (
        ([], "x", "no user; --list lists all"),
        (["a b"], "x", "not a user"),
        (["a:b"], "x", "not a user"),
        (["joe"], "", "it is empty"),
        (["joe"], "\n", "it is empty"),
        (["joe"], "x" * 1025, "more than 1024 bytes"),
        (["joe"], "bell\a", "SASLprep"),
        (["--list", "joe"], "", "--list stands alone"),
        (["--list", "--cram-md5"], "", "--list stands alone"),
        (["--delete", "--cram-md5", "joe"], "", "exclude each other"),
    ):
        ran = run(home, *words, given=given)
        assert ran.returncode == 100 and why in ran.stderr and ran.stderr.count("\n") == 1, ran
    assert not Path(home.control, "smtpdusers").exists()


def test_a_file_with_an_error_is_named_and_left_as_it_is(home: Home) -> None:
    path = Path(home.control, "smtpdusers")
    path.write_text("joe:hunter2\n")
    ran = run(home, "ann", given=PASSWORD)
    assert ran.returncode == 111 and "smtpdusers line 1: neither SCRAM" in ran.stderr
    assert "hunter2" not in ran.stderr and path.read_text() == "joe:hunter2\n"


def test_on_a_terminal_the_password_is_asked_for_twice_and_not_shown(home: Home) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, str(BIN / "queuectl"), "--home", home.path, "passwd", "joe"])
    said = b""
    for prompt in (b"Password for joe: ", b"The same again: "):
        while not said.endswith(prompt):
            said += os.read(terminal, 1000)
        os.write(terminal, PASSWORD.encode() + b"\n")
    # At the end of the last process on a terminal, reading fails with EIO.
    with suppress(OSError):
        while data := os.read(terminal, 1000):
            said += data
    os.close(terminal)
    assert b"joe has a new password" in said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert PASSWORD.encode() not in said and right(home, b"joe", PASSWORD)
