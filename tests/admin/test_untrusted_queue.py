"""What root opens below queue/, whose owner may put a link, a FIFO or another's file in the place of anything there."""

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from queue_base.daemon.lock import take_sendmutex
from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_local.jobs import open_message
from support.inject.qmail_queue import snapshot
from support.processes.suite import program
from support.queues.home import make_home
from support.queues.others import ACCOUNT, STRANGER, give


@pytest.fixture
def foreign(place: Path) -> Home:
    """A home whose queue/ is another account's."""
    home = make_home(place / "home", split=3)
    give(home.queue)
    return home


def test_a_link_in_the_place_of_the_lock_makes_no_file_where_it_leads(home: Home, tmp_path: Path) -> None:
    lock, elsewhere = Path(home.queue, "lock/sendmutex"), tmp_path / "elsewhere"
    lock.unlink()
    lock.symlink_to(elsewhere)
    with pytest.raises(Permanent, match=r"lock/sendmutex: sendmutex is a symbolic link"):
        take_sendmutex(home)
    assert not elsewhere.exists()


def test_a_link_in_the_place_of_its_directory_makes_no_file_where_it_leads(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.rename(f"{home.queue}/lock", f"{home.queue}/lock.old")
    Path(home.queue, "lock").symlink_to(elsewhere)
    with pytest.raises(Permanent, match=r"lock/sendmutex: lock is a symbolic link"):
        take_sendmutex(home)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(("name", "words"), [("queue-start", []), ("queuectl", ["hold", "--all"])])
def test_a_fifo_in_the_place_of_the_lock_is_named_and_not_waited_for(home: Home, name: str, words: list[str]) -> None:
    put_message(home, os.geteuid())
    lock = Path(home.queue, "lock/sendmutex")
    lock.unlink()
    os.mkfifo(lock)
    done = subprocess.run(
        [*program(name), "--home", home.path, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 100
    assert "unable to open" in done.stderr and "lock/sendmutex" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_name_of_somebodys_file_is_not_locked(foreign: Home, place: Path) -> None:
    lock, theirs = Path(foreign.queue, "lock/sendmutex"), place / "theirs"
    theirs.touch()
    os.chown(theirs, STRANGER, STRANGER)
    lock.unlink()
    os.link(theirs, lock)
    with pytest.raises(Permanent, match=f"another name of a file of uid {STRANGER}"):
        take_sendmutex(foreign)


def test_a_lock_that_a_backup_has_a_second_name_of_is_taken(foreign: Home, place: Path) -> None:
    os.link(f"{foreign.queue}/lock/sendmutex", place / "backup")
    lock = take_sendmutex(foreign)
    assert os.fstat(lock).st_nlink == 2
    os.close(lock)


def test_the_lock_that_root_makes_is_the_owners(foreign: Home) -> None:
    os.unlink(f"{foreign.queue}/lock/sendmutex")
    os.close(take_sendmutex(foreign))
    made = os.stat(f"{foreign.queue}/lock/sendmutex")
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (ACCOUNT, ACCOUNT, 0o600)


QUEUECTL = {
    "list": ["list"],
    "stat": ["stat"],
    "show": ["show", "1"],
    "show --raw": ["show", "--raw", "1"],
    "destinations": ["destinations"],
    "hold": ["hold", "--all"],
}


@pytest.mark.parametrize("words", QUEUECTL.values(), ids=QUEUECTL)
def test_queuectl_of_root_goes_nowhere_that_the_queues_owner_may_not_go(
    foreign: Home, place: Path, words: list[str]
) -> None:
    # The account has put links to a directory of root's in the place of its own, and of its socket.
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    for kind in ("mess", "info"):
        (elsewhere / f"{kind}.1").write_bytes(b"Fsecret@example.org\0")
        os.symlink(elsewhere / f"{kind}.1", f"{foreign.queue}/{kind}/1/1")
    for kind in ("pid", "lock"):
        os.rename(f"{foreign.queue}/{kind}", f"{foreign.queue}/{kind}.old")
        os.symlink(elsewhere, f"{foreign.queue}/{kind}")
    (elsewhere / "sendmutex").touch()
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(elsewhere / "control"))
        other.listen()
        other.setblocking(False)
        before = snapshot(elsewhere)
        done = subprocess.run(
            [*program("queuectl"), "--home", foreign.path, *words], capture_output=True, check=False, timeout=60
        )
        try:
            heard.append(other.accept()[0].recv(100))
        except BlockingIOError:
            pass
    assert heard == []
    assert b"secret" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr
    assert snapshot(elsewhere) == before


def test_a_mark_that_root_makes_while_nothing_runs_is_the_owners(foreign: Home) -> None:
    number = put_message(foreign, ACCOUNT)
    done = subprocess.run(
        [*program("queuectl"), "--home", foreign.path, "hold", "--all"], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, b"held 1 message\n"), done.stderr
    mark = os.stat(f"{foreign.queue}/hold/{number % 3}/{number}")
    assert (mark.st_uid, stat.S_IMODE(mark.st_mode)) == (ACCOUNT, 0o600)


def put_message(home: Home, uid: int) -> int:
    """Put a classified message of an account into the queue; return its number."""
    number = put(Path(home.queue, "pid/new"), uid).stat().st_ino
    os.rename(f"{home.queue}/pid/new", f"{home.queue}/mess/{number % 3}/{number}")
    for kind in ("info", "local"):
        path = put(Path(home.queue, kind, str(number % 3), str(number)), uid)
        path.write_bytes(b"Fa@b\0" if kind == "info" else b"Tc@d\0")
    return number


def put(path: Path, uid: int) -> Path:
    path.write_bytes(b"Subject: secret\n\nbody\n")
    path.chmod(0o600)
    os.chown(path, uid, uid)
    return path


def test_a_message_behind_a_replaced_directory_is_not_opened_for_a_delivery(foreign: Home, place: Path) -> None:
    (place / "elsewhere").mkdir()
    put(place / "elsewhere/1", ACCOUNT)
    os.rename(f"{foreign.queue}/mess/1", f"{foreign.queue}/pid/away")
    Path(foreign.queue, "mess/1").symlink_to(place / "elsewhere")
    with pytest.raises(Temporary, match=r"mess/1/1: 1 is a symbolic link"):
        open_message(foreign, b"mess/1/1")


def test_another_users_mail_with_a_name_in_mess_is_not_opened_for_a_delivery(foreign: Home, place: Path) -> None:
    mail = put(place / "mail", STRANGER)
    os.link(mail, f"{foreign.queue}/mess/1/1")
    with pytest.raises(Temporary, match=rf"mess/1/1: it belongs to uid {STRANGER}"):
        open_message(foreign, b"mess/1/1")


def test_a_message_of_the_queues_owner_is_opened_at_its_start_and_blocks(foreign: Home) -> None:
    put(Path(foreign.queue, "mess/1/1"), ACCOUNT)
    handle = open_message(foreign, b"mess/1/1")
    try:
        assert os.get_blocking(handle)
        assert os.read(handle, 9) == b"Subject: "
    finally:
        os.close(handle)


@pytest.mark.parametrize("name", [b"mess/../../control/me", b"/etc/passwd", b"mess//1", b"."])
def test_a_path_that_leads_out_of_the_queue_is_not_opened(home: Home, name: bytes) -> None:
    with pytest.raises(Temporary, match="leads out of its directory"):
        open_message(home, name)
