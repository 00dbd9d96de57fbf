"""Two unprivileged accounts and root send at once to a queue that they may not write; none touches another's mail.

Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root.
"""

import os
import pwd
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.files.maildrop import pack_envelope, pack_header
from support.processes.suite import Suite, program, wait_until
from support.tools import need

# The program that everybody sends with.
SENDER = "sendmail"
SENDERS = ("root", "ann", "bob")
EACH = 8
ADDRESS = "postmaster@me.example"

# What an attacker tries, as a Python program: it prints what succeeded. Its arguments are maildrop/ and names in it.
ATTACK = r"""
import ctypes, os, sys
top, *names = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def attempt(what, call, *arguments):
    try:
        found = call(*arguments)
    except OSError:
        return
    if found != -1:
        print(what)

def write(path):
    os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"x")

attempt("list", os.listdir, top)
attempt("open the directory", os.open, top, os.O_RDONLY)
attempt("list the queue", os.listdir, os.path.dirname(top))
attempt("list what was set aside", os.listdir, os.path.dirname(top) + "/corrupt/maildrop")
watch = libc.inotify_init()
attempt("watch the directory", libc.inotify_add_watch, watch, top.encode(), 0x180)
attempt("rename the directory", os.rename, top, top + ".old")
attempt("change the directory", os.chmod, top, 0o777)
for guess in range(1000):
    attempt("guess a name", os.open, f"{top}/mail.{guess:032x}", os.O_RDONLY)
for name in names:  # Which nobody can guess; but if somebody could:
    path = f"{top}/{name}"
    attempt("read", os.open, path, os.O_RDONLY)
    attempt("write", write, path)
    attempt("cut", os.truncate, path, 0)
    attempt("watch a file", libc.inotify_add_watch, watch, path.encode(), 0x3)
    attempt("chmod", os.chmod, path, 0o666)
    attempt("chown", os.chown, path, os.getuid(), -1)
    attempt("set its time", os.utime, path, (1, 1))
    attempt("remove", os.unlink, path)
    attempt("move away", os.rename, path, os.environ["HOME"] + "/stolen")
    attempt("rename", os.rename, path, f"{top}/mail.{1:032x}")
    own = f"{top}/mail.{2:032x}"
    os.close(os.open(own, os.O_WRONLY | os.O_CREAT))
    attempt("replace", os.rename, own, path)
    attempt("give away", os.chown, own, os.stat(path).st_uid, -1)
    os.unlink(own)
    if open("/proc/sys/fs/protected_hardlinks").read() == "1\n":
        attempt("link", os.link, path, f"{top}/mail.{3:032x}")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.stat(f"/proc/{pid}").st_uid == os.getuid():
            continue
        for each in os.listdir(f"/proc/{pid}/fd"):
            print("list descriptors", pid)
    except OSError:
        continue
"""


@pytest.fixture
def place(place: Path) -> Iterator[Path]:
    """Have homes for ann and bob there."""
    for user in ("ann", "bob"):
        subprocess.run([need("useradd"), "-m", "-d", place / user, "-s", "/bin/sh", user], check=True)
    yield place
    for user in ("ann", "bob"):
        # By force: another run's user may have the same number, and processes.
        subprocess.run(["userdel", "--force", user], check=False, capture_output=True)


@pytest.fixture
def home(place: Path) -> Home:
    """A home that root made; postmaster's mail goes to a Maildir in alias/."""
    words = [*program("queuectl"), "init", str(place / "home"), "--me", "me.example", "--local", "me.example"]
    subprocess.run(words, check=True, capture_output=True)
    found = Home(str(place / "home"))
    boxes = [Path(found.alias, "Maildir", box) for box in ("new", "cur", "tmp")]
    for box in boxes:
        box.mkdir(parents=True)
    Path(found.alias, ".qmail-postmaster").write_text("./Maildir/\n")
    subprocess.run(["chown", "-R", f"--reference={found.alias}", f"{found.alias}/Maildir"], check=True)
    return found


def as_account(account: str, words: list[str], data: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program as an account, with that account's environment."""
    entry = pwd.getpwnam(account)
    environment = {**os.environ, "USER": account, "LOGNAME": account, "HOME": entry.pw_dir, **more}
    return subprocess.run(
        words,
        input=data,
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        env=environment,
        cwd="/",
        capture_output=True,
        check=False,
        timeout=120,
    )


def send_at_once(home: Home, during: Callable[[], None] = lambda: None) -> None:
    """Have everybody send EACH messages, all at the same time, and call `during` meanwhile."""
    codes: list[tuple[int, bytes]] = []

    def send(account: str) -> None:
        for number in range(EACH):
            text = b"Subject: %d of %s\n\nbody\n" % (number, account.encode())
            words = [*program(SENDER), "-f", f"{account}@me.example", ADDRESS]
            done = as_account(account, words, text, QUEUE_HOME=home.path)
            codes.append((done.returncode, done.stderr))

    threads = [threading.Thread(target=send, args=(account,)) for account in SENDERS]
    for thread in threads:
        thread.start()
    during()
    for thread in threads:
        thread.join()
    assert codes == [(0, b"")] * len(SENDERS) * EACH


def attack(home: Home, account: str, *names: str) -> str:
    """Return what an account's attack achieved."""
    done = as_account(account, [sys.executable, "-c", ATTACK, f"{home.queue}/maildrop", *names])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def dropped(home: Home, account: str) -> list[str]:
    """Return the names that an account has in maildrop/."""
    uid = pwd.getpwnam(account).pw_uid
    with os.scandir(f"{home.queue}/maildrop") as entries:
        return [entry.name for entry in entries if entry.stat(follow_symlinks=False).st_uid == uid]


def check_all_arrived(home: Home, suite: Suite) -> None:
    """Every message of everybody arrives once, whole, with its sender's own uid on record."""
    suite.wait_for("^end msg", len(SENDERS) * EACH)
    uids = {account: pwd.getpwnam(account).pw_uid for account in SENDERS}
    found = [re.search(r"from <(\w+)@me\.example> qp \d+ uid (\d+)$", line) for line in suite.lines]
    assert sorted((each[1], int(each[2])) for each in found if each) == sorted(
        (account, uid) for account, uid in uids.items() for _ in range(EACH)
    )
    mails = [path.read_text() for path in Path(home.alias, "Maildir/new").iterdir()]
    subjects = [re.findall(r"^Subject: (.*)$", mail, re.MULTILINE) for mail in mails]
    assert sorted(subjects) == sorted([f"{number} of {account}"] for account in SENDERS for number in range(EACH))
    for mail in mails:
        account = re.findall(r"^Return-Path: <(\w+)@", mail, re.MULTILINE)[0]
        assert f"invoked by uid {uids[account]});" in mail and mail.endswith("\n\nbody\n")
    assert os.listdir(f"{home.queue}/maildrop") == []


def test_all_send_at_once_while_the_daemons_are_down_and_none_reaches_another_s_mail(home: Home) -> None:
    send_at_once(home)
    assert [len(dropped(home, account)) for account in SENDERS] == [0, EACH, EACH]
    assert attack(home, "bob", *dropped(home, "ann")) == ""
    assert attack(home, "ann", *dropped(home, "bob")) == ""
    with Suite(home) as suite:
        check_all_arrived(home, suite)


def test_all_send_at_once_while_the_daemons_run_and_attackers_do_what_they_can(home: Home) -> None:
    def during() -> None:
        for _ in range(3):
            assert attack(home, "bob") == ""

    with Suite(home) as suite:
        send_at_once(home, during)
        check_all_arrived(home, suite)


def test_nobody_gets_another_s_uid_onto_mail(home: Home, place: Path) -> None:
    """Bob has a file of ann's with what he wants to send, and brings it into maildrop/ by every way there is."""
    message = b"Subject: forged\n\n"
    forged = pack_header(len(message)) + message + pack_envelope(b"ann@me.example", [ADDRESS.encode()])
    (place / "bob/upload").mkdir(mode=0o777)
    (place / "bob/upload").chmod(0o777)
    os.chown(place / "bob/upload", pwd.getpwnam("bob").pw_uid, -1)
    make = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"
    maildrop = f"{home.queue}/maildrop"
    # A directory from there gives its files the queue's group.
    drop = f"import os; os.umask(0); os.mkdir('{maildrop}/x'); os.rename('{maildrop}/x', '{place}/bob/own')"
    assert as_account("bob", [sys.executable, "-c", drop]).returncode == 0
    for name in ("upload/0", "upload/1", "upload/2", "own/7"):
        assert as_account("ann", [sys.executable, "-c", make, f"{place}/bob/{name}"], forged).returncode == 0
    bring = f"""
import os
os.rename("{place}/bob/upload/0", "{maildrop}/mail.{0:032x}")
os.rename("{place}/bob/own/7", "{maildrop}/mail.{7:032x}")
os.symlink("{place}/bob/upload/1", "{maildrop}/mail.{1:032x}")
os.symlink("{place}/bob/upload", "{maildrop}/mail.{3:032x}")
"""
    done = as_account("bob", [sys.executable, "-c", bring])
    assert done.returncode == 0, done.stderr
    # Bob could do this himself where fs.protected_hardlinks is 0.
    os.link(f"{place}/bob/upload/1", f"{maildrop}/mail.{4:032x}")
    os.link(f"{place}/bob/upload/2", f"{maildrop}/tmp.{5:032x}")
    os.unlink(f"{place}/bob/upload/2")
    os.rename(f"{maildrop}/tmp.{5:032x}", f"{maildrop}/mail.{5:032x}")
    # What he may do: a message of his own that names ann as its sender.
    assert as_account("bob", [sys.executable, "-c", make, f"{maildrop}/tmp.{6:032x}"], forged).returncode == 0
    os.chmod(f"{maildrop}/tmp.{6:032x}", 0o1644)
    os.rename(f"{maildrop}/tmp.{6:032x}", f"{maildrop}/mail.{6:032x}")
    with Suite(home) as suite:
        suite.wait_for("^end msg")
        wait_until(lambda: not os.listdir(maildrop), why="an empty maildrop/")
        aside = "alert: queue-pickup: unable to take .* it is set aside as corrupt/maildrop/"
        # The files are moved before the alerts come by queue-pickup's pipe.
        wait_until(lambda: suite.count(aside) >= 6, why="six alerts")
        assert suite.count(aside) == 6
        uids = re.findall(r"<ann@me\.example> qp \d+ uid (\d+)$", "\n".join(suite.lines), re.MULTILINE)
        assert uids == [str(pwd.getpwnam("bob").pw_uid)]
