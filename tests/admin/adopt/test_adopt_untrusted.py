"""queuectl adopt and --undo as root, on a home whose accounts put links and others' files in the place of their own."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_admin.home.adoption import adopt, undo
from queue_admin.home.create import create_home
from queue_admin.home.service import DAEMONTOOLS, Service, write_service
from queue_base.accounts import Owner
from queue_base.errors import Failure, Permanent
from queue_base.home import Home
from support.inject.qmail_queue import QmailQueue, our_owner, qmail_accounts, snapshot
from support.tools import need_root

VICTIM = 60099
ROUNDS = 20

# An attacker as a program: `setup` once, then `swap` for ever. Its directory is held open, as its owner it may open the
# closed queue again, and it works in it by the descriptor.
ATTACKER = """
import ctypes, os, sys
libc, EXCHANGE = ctypes.CDLL(None), 2
top = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
victim, account = sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setgid(account); os.setuid(account)
def quietly(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError:
        pass
print("ready", flush=True)
while True:
    quietly(os.fchmod, top, 0o711)
    SWAP
"""
SWAP_DIRECTORY = """
    quietly(os.rename, "bounce", "aside", src_dir_fd=top, dst_dir_fd=top)
    quietly(os.symlink, victim, "bounce", dir_fd=top)
    quietly(os.unlink, "bounce", dir_fd=top)
    quietly(os.rename, "aside", "bounce", src_dir_fd=top, dst_dir_fd=top)
"""
# A name for anybody's file can only be given where the kernel lets everybody do so, or it is a file that one owns; so
# the link was made before, and is moved to and fro.
SWAP_FILE = """
    libc.renameat2(top, b"bounce/mine", top, b"bounce/.theirs", EXCHANGE)
"""
SWAP_IN_ALIAS = SWAP_FILE.replace("bounce/", "")


@pytest.fixture
def qmail(tmp_path: Path) -> QmailQueue:
    need_root()
    found = QmailQueue(tmp_path / "qmail")
    found.fill()
    return found


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of another user's with a file in it."""
    place = tmp_path / "victim"
    place.mkdir()
    (place / "secret").write_bytes(b"secret")
    (place / "5").write_bytes(b"secret")
    for path in (place, place / "secret", place / "5"):
        os.chown(path, VICTIM, VICTIM)
        path.chmod(0o700 if path == place else 0o600)
    return place


def run_adopt(home: Home) -> list[str]:
    return adopt(home, our_owner())


def run_undo(home: Home) -> list[str]:
    return undo(home, qmail_accounts(), todo="flat")


def replace(path: Path, target: Path) -> None:
    """Put a link in the place of a directory."""
    path.rename(path.with_name(path.name + ".away"))
    path.symlink_to(target)


@contextmanager
def attack(swap: str, top: Path, victim: Path, account: int) -> Iterator[None]:
    """Have an account swap names below `top` for as long as the block runs."""
    words = [sys.executable, "-c", ATTACKER.replace("SWAP", swap.strip()), str(top), str(victim), str(account)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None and attacker.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            attacker.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("run", [run_adopt, run_undo])
@pytest.mark.parametrize("kind", ["bounce", "lock", "mess", "todo", "hold", "maildrop"])
def test_a_link_in_the_place_of_a_directory_is_refused_before_anything_changes(
    qmail: QmailQueue, victim: Path, run: Callable[[Home], list[str]], kind: str
) -> None:
    run_adopt(qmail.home)
    if run is run_adopt:
        os.chown(qmail.home.queue, 60010, 60020)
    replace(qmail.queue / kind, victim)
    before = snapshot(qmail.queue.parent.parent)
    with pytest.raises(Permanent, match=rf"queue/{kind}[^ ]*: {kind} is a symbolic link|{kind} is not there"):
        run(qmail.home)
    assert snapshot(qmail.queue.parent.parent) == before


@pytest.mark.parametrize("run", [run_adopt, run_undo])
def test_a_link_in_the_place_of_queue_is_refused(
    qmail: QmailQueue, tmp_path: Path, run: Callable[[Home], list[str]]
) -> None:
    qmail.queue.rename(tmp_path / "elsewhere")
    qmail.queue.symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path)
    with pytest.raises(Permanent, match="queue: queue is a symbolic link"):
        run(qmail.home)
    assert snapshot(tmp_path) == before


def test_a_link_in_the_place_of_alias_is_refused_by_undo(qmail: QmailQueue, victim: Path) -> None:
    run_adopt(qmail.home)
    replace(qmail.queue.parent / "alias", victim)
    before = snapshot(qmail.queue.parent.parent)
    with pytest.raises(Permanent, match="alias is a symbolic link"):
        run_undo(qmail.home)
    assert snapshot(qmail.queue.parent.parent) == before


@pytest.mark.parametrize("run", [run_adopt, run_undo])
def test_a_numbered_directory_that_is_a_link_is_not_gone_through(
    qmail: QmailQueue, victim: Path, run: Callable[[Home], list[str]]
) -> None:
    run_adopt(qmail.home)
    if run is run_adopt:
        os.chown(qmail.home.queue, 60010, 60020)
    before = snapshot(victim)
    replace(qmail.queue / "remote/5", victim)
    with pytest.raises(Permanent, match="lacks"):
        run(qmail.home)
    assert snapshot(victim) == before


@pytest.mark.parametrize("run", [run_adopt, run_undo])
@pytest.mark.parametrize("place", ["bounce/5", "remote/5/5", "pid/5", "lock/trigger", "lock/sendmutex.new"])
def test_another_name_of_a_strangers_file_is_left_alone_and_told(
    qmail: QmailQueue, victim: Path, run: Callable[[Home], list[str]], place: str
) -> None:
    run_adopt(qmail.home)
    (qmail.queue / place).unlink(missing_ok=True)
    os.link(victim / "secret", qmail.queue / place)
    before = snapshot(victim)
    if place == "lock/trigger":
        with pytest.raises(Failure, match="FIFO"):
            run(qmail.home)
    else:
        done = run(qmail.home)
        if place != "lock/sendmutex.new":
            why = f"left alone '{qmail.queue / place}': it has 2 names, and belongs to uid {VICTIM}"
            assert why in done
    assert snapshot(victim) == before


def test_a_second_name_of_roots_file_is_left_alone_too(qmail: QmailQueue, tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_bytes(b"root:x")
    secret.chmod(0o600)
    os.link(secret, qmail.queue / "bounce/5")
    assert f"left alone '{qmail.queue}/bounce/5': it has 2 names, and belongs to uid 0" in run_adopt(qmail.home)
    assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o600)


def test_files_that_root_brought_back_from_a_backup_are_given_to_the_owner(qmail: QmailQueue) -> None:
    message = qmail.messages["S5"]
    path = qmail.queue / f"mess/{message % 23}/{message}"
    os.chown(path, 0, 0)
    run_adopt(qmail.home)
    assert path.stat().st_uid == our_owner().uid


@pytest.mark.parametrize("swap", [SWAP_DIRECTORY, SWAP_FILE], ids=["directory", "file"])
def test_an_account_that_swaps_names_all_the_time_is_given_nothing(
    qmail: QmailQueue, victim: Path, swap: str
) -> None:
    run_adopt(qmail.home)
    owner = our_owner()
    for number in range(300):
        (victim / f"{number}").touch()
        os.chown(victim / f"{number}", VICTIM, VICTIM)
    (qmail.queue / "bounce/mine").touch()
    os.link(victim / "secret", qmail.queue / "bounce/.theirs")
    os.chown(qmail.queue / "bounce/mine", owner.uid, owner.gid)
    before = snapshot(victim)
    with open(qmail.queue / "bounce/mine", "rb") as mine, attack(swap, qmail.queue, victim, owner.uid):
        for _ in range(ROUNDS):
            # So that there is something to change, whatever has the name now.
            os.fchmod(mine.fileno(), 0o666)
            try:
                run_adopt(qmail.home)
            except Failure:
                continue
            assert snapshot(victim) == before
    assert snapshot(victim) == before


def test_undo_gives_away_nothing_of_others_in_alias_while_its_owner_swaps_names(
    qmail: QmailQueue, victim: Path
) -> None:
    run_adopt(qmail.home)
    alias = Path(qmail.home.alias)
    account = our_owner().uid
    before = snapshot(victim)
    (alias / "mine").touch()
    os.link(victim / "secret", alias / ".theirs")
    with open(alias / "mine", "rb") as mine, attack(SWAP_IN_ALIAS, alias, victim, account):
        for _ in range(ROUNDS):
            os.chown(alias, account, account)
            os.fchown(mine.fileno(), account, account)
            try:
                run_undo(qmail.home)
            except Failure:
                pass
            assert snapshot(victim) == before
            run_adopt(qmail.home)


def test_undo_ends_where_the_owner_of_alias_has_made_directories_without_end(qmail: QmailQueue) -> None:
    run_adopt(qmail.home)
    alias, account = Path(qmail.home.alias), 60007
    os.chown(alias, account, account)
    (alias / "file").touch()
    os.chown(alias / "file", account, account)
    handle = os.open(alias, os.O_RDONLY)
    # More than a recursion of Python's may be deep, and more than a process may usually have files open.
    for _ in range(2000):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.fchown(below, account, account)
        os.close(handle)
        handle = below
    os.close(handle)
    try:
        done = run_undo(qmail.home)
        assert [line for line in done if line.endswith("d': it is more than 100 directories deep")]
        theirs = qmail_accounts().owner("alias").uid
        for path in (alias, alias / "file", alias / "d/d/d"):
            assert path.stat().st_uid == theirs
        assert stat.S_IMODE(os.stat(qmail.home.queue).st_mode) != 0
    finally:
        # pytest removes by recursion as well.
        subprocess.run(["rm", "-rf", alias / "d"], check=True)


@pytest.mark.parametrize("kind", ["hold", "lock/trigger"])
def test_init_gives_away_only_what_it_made(tmp_path: Path, victim: Path, kind: str) -> None:
    need_root()
    home = Home(str(tmp_path / "home"))
    create_home(home, our_owner(), Owner(0, 0), me="mail.example.org")
    path = Path(home.queue, kind)
    if kind == "hold":
        replace(path, victim)
    else:
        path.unlink()
        path.symlink_to(victim / "secret")
    before = snapshot(victim)
    with pytest.raises(Failure, match="symbolic link"):
        create_home(home, our_owner(), Owner(0, 0))
    assert snapshot(victim) == before


def test_init_writes_no_loggers_configuration_where_the_loggers_account_has_put_a_link(
    tmp_path: Path, victim: Path
) -> None:
    need_root()
    log, directory = tmp_path / "log", str(tmp_path / "sv")
    service = Service(Home(str(tmp_path / "home")), "/opt/queue-start", str(log), "daemon", our_owner())
    write_service(service, directory, DAEMONTOOLS, Owner(0, 0), False)
    (log / "config").unlink()
    replace(log, victim)
    before = snapshot(victim)
    with pytest.raises(Failure, match="log is a symbolic link"):
        write_service(service, directory, DAEMONTOOLS, Owner(0, 0), False)
    assert snapshot(victim) == before
