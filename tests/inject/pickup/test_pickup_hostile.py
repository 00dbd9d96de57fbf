"""Whatever users put in maildrop/, it neither blocks nor deceives queue-pickup, and good mail is queued."""

import os
import socket
import stat
from pathlib import Path

import pytest

from queue_base.daemon.log_limit import LimitedLog
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter
from queue_inject.pickup.collector import Collector
from queue_inject.pickup.copying import FileCopy
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.file_checks import NotMail, OriginRules
from queue_inject.pickup.untrusted_directory import Directory
from queue_wire.files.maildrop import ENVELOPE_MAX, pack_header
from support.inject.committing import committing
from support.inject.injectors import OWNER, ROOT, USER, PickupDaemon, only, queued, states
from support.inject.maildrop import ENVELOPE, leave, maildrop, put, set_aside, taken
from support.processes.suite import wait_until
from support.queues.home import make_home

pytestmark = pytest.mark.home("shared")

GOOD = pack_header(4) + b"mail" + ENVELOPE
OTHER = USER + 1
needs_root = pytest.mark.skipif(not ROOT, reason="needs files of other users")


def name(number: int) -> str:
    return f"mail.{number:032x}"


def gone(home: Home, *but: str) -> None:
    """Wait until only these names are in maildrop/."""
    wait_until(lambda: sorted(maildrop(home)) == sorted(but), why="an empty maildrop/")


def test_what_is_no_file_of_ours_is_set_aside_unopened_and_good_mail_goes_on(home: Home) -> None:
    directory = Path(home.queue, "maildrop")
    secret = Path(home.path, "secret")
    secret.write_bytes(GOOD)
    secret.chmod(0o600)
    (directory / name(1)).symlink_to(secret)
    os.link(secret, directory / name(2))
    os.mkfifo(directory / name(3))
    (directory / name(4)).mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / name(5)))
    os.mkfifo(directory / f"tmp.{6:032x}")
    (directory / "hello\n\udcff there").write_bytes(b"")
    (directory / "mail.short").write_bytes(GOOD)
    (directory / ("x" * 255)).write_bytes(b"")
    if ROOT:
        os.mknod(directory / name(7), 0o666 | stat.S_IFCHR, os.makedev(5, 0))
    before = secret.stat().st_mode, secret.read_bytes()
    with PickupDaemon(home) as pickup:
        gone(home)
        leave(home)
        taken(home, 1)
        assert pickup.end() == (0, b"") and b"\n" not in pickup.log
        for why in (b"it is a symbolic link", b"it is a FIFO", b"it is a socket", b"it has a second name"):
            assert pickup.said(why)
    # Root has one device more, and the directory belongs to another user: it is empty, so it is removed.
    assert len(set_aside(home)) == 9
    assert only(home).message == b"hello\n"
    assert (secret.stat().st_mode, secret.read_bytes()) == before


@needs_root
def test_what_others_own_and_cannot_be_moved_is_counted_once_and_passed_by(home: Home) -> None:
    directory = Path(home.queue, "maildrop")
    for each in ("a", "b", name(1)):
        (directory / each / "inside").mkdir(parents=True)
        os.chown(directory / each, USER, USER)
    with PickupDaemon(home, scan_every=0.3) as pickup:
        wait_until(lambda: pickup.said(b"\0"), why="the line")
        (directory / "junk\udcff").touch()  # What has such a name is found by a scan alone.
        os.rename(directory / "junk\udcff", directory / "other\udcff")
        leave(home)
        gone(home, "a", "b", name(1))
        assert pickup.said(b"unable to set aside 3 names in ") and b"they are passed by" in pickup.log
        assert pickup.log.count(b"unable to set aside") == 1 and states(home) == {4: 1}


@needs_root
def test_a_file_of_somebody_else_that_was_moved_in_or_linked_is_no_mail_of_theirs(home: Home, tmp_path: Path) -> None:
    """The victim has created a file in a directory of the attacker, with a message that the attacker wants to send."""
    directory = Path(home.queue, "maildrop")
    for number, link in ((1, False), (2, True)):
        moved = Path(home.path, f"made by the victim {number}")
        moved.write_bytes(GOOD)
        moved.chmod(0o1644)
        os.chown(moved, OTHER, OTHER)
        if link:
            os.link(moved, directory / name(number))
            moved.unlink()  # Between the two looks of queue-pickup, say: there is one name again.
        else:
            moved.rename(directory / name(number))
    with PickupDaemon(home) as pickup:
        gone(home)
        pickup.wait_for(b"it was not made there: its group is %d, and that of files made there %d" % (OTHER, OWNER))
    assert queued(home) == [] and len(set_aside(home)) == 2


@needs_root
def test_a_file_made_in_a_directory_that_was_made_in_maildrop_is_no_mail_of_its_owner_s(home: Home) -> None:
    """A directory that was created in maildrop/ and moved away gives its files the group of the queue too."""
    place = Path(home.queue, "maildrop", "a directory")
    place.mkdir()
    os.chown(place, USER, -1)
    place = place.rename(Path(home.path, "the attacker's"))
    for number, mode in enumerate((0o600, 0o640, 0o644, 0o666, 0o755)):
        path = place / name(number)
        path.write_bytes(GOOD)
        path.chmod(mode)
        os.chown(path, OTHER, -1)
        assert path.stat().st_gid == OWNER
        path.rename(Path(home.queue, "maildrop", path.name))
    with PickupDaemon(home) as pickup:
        gone(home)
        pickup.wait_for(b"of uid %d: it lacks the sticky bit" % OTHER)
    assert queued(home) == [] and len(set_aside(home)) == 5


@needs_root
def test_root_s_name_is_on_no_mail_from_maildrop(home: Home) -> None:
    path = Path(home.queue, "maildrop", name(1))
    path.write_bytes(GOOD)
    with PickupDaemon(home) as pickup:
        gone(home)
        pickup.wait_for(b"of uid 0: root leaves no mail there")
    assert queued(home) == []


@needs_root
def test_a_maildrop_without_the_bit_gets_it(home: Home) -> None:
    directory = Path(home.queue, "maildrop")
    directory.chmod(0o1733)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: stat.S_IMODE(directory.stat().st_mode) == 0o3733, why="the set-group-id bit")
        leave(home)
        taken(home, 1)
        assert pickup.end() == (0, b"") and pickup.log == b""


def test_thousands_of_bad_files_make_a_few_lines_and_keep_their_names_apart(home: Home) -> None:
    for number in range(3000):
        put(home, b"%d" % number, name(number))
    with PickupDaemon(home) as pickup:
        gone(home)
        put(home, b"again", name(7))
        leave(home)
        taken(home, 1)
        assert pickup.end() == (0, b"")
        assert not pickup.said(b"\n") and pickup.log.count(b"\0") == 10
    assert len(set_aside(home)) == 3001


def test_lines_that_were_left_out_are_counted_when_the_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("queue_base.daemon.log_limit.time.monotonic", lambda: now[0])
    said: list[str] = []
    lines = LimitedLog(said.append, "more files were set aside")
    for number in range(2000):
        lines.add(f"line {number}", number % 3)
    assert said == [f"line {number}" for number in range(10)] and lines.due == 1060.0
    now[0] += 60
    lines.run()
    assert said[10:] == ["1990 more files were set aside in 60 s: 664 of uid 1, 663 of uid 2, 663 of uid 0"] or (
        said[10].startswith("1990 more files were set aside in 60 s: 664 of uid 1")
    )
    assert lines.due is None
    lines.add("next")
    assert said[11:] == ["next"]


@pytest.mark.parametrize("what", ["grows", "is written over", "is linked", "is cut"])
def test_a_file_that_changes_while_it_is_read_is_no_mail(tmp_path: Path, what: str) -> None:
    home = make_home(tmp_path / "home")
    path = Path(home.queue, "maildrop", name(1))
    path.write_bytes(pack_header(1_000_000) + bytes(1_000_000) + ENVELOPE)
    path.chmod(0o1644)
    writer = QueueWriter(home, open_layout(home.queue), 7)
    copy = FileCopy(*Directory(str(path.parent)).open(path.name, OriginRules(None, True).check), writer)
    assert not copy.run(1000)
    if what == "grows":
        with path.open("ab") as file:
            file.write(b"more")
    elif what == "is written over":
        with path.open("r+b") as file:
            os.utime(path, (1, 1))
            file.write(b"x")
    elif what == "is linked":
        os.link(path, path.with_name(name(2)))
    else:
        os.truncate(path, 500_000)
    with pytest.raises(NotMail):
        copy.run(2_000_000)
    copy.give_up()
    assert states(home) == {}


@pytest.mark.parametrize("what", ["directory", "message"])
def test_what_takes_the_name_of_a_file_that_is_queued_stays_and_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(
        "queue_inject.pickup.collector.GROUP_SECONDS", 3600.0
    )  # One group, however slow the machine is.
    home, said = make_home(tmp_path / "home"), list[str]()
    directory = Path(home.queue, "maildrop")

    def swap(drafts: object) -> None:
        """The owner replaces a file after it was copied."""
        (directory / "new").write_bytes(b"new")
        if what == "message":
            (directory / "new").rename(directory / name(1))
        else:
            (directory / "new").unlink()
            (directory / name(1)).unlink()
            (directory / name(1)).mkdir()

    lines = LimitedLog(said.append, "more")
    writer = committing(QueueWriter(home, open_layout(home.queue), 7), after=swap)
    drop = Collector(
        Directory(str(directory)),
        writer,
        OriginRules(None, True),
        CorruptMail(home.queue, str(directory), lines),
        lines,
    )
    for number in range(3):
        (directory / name(number)).write_bytes(GOOD)
        (directory / name(number)).chmod(0o1644)
        drop.add(name(number))
    assert drop.take() and said == []
    assert maildrop(home) == [name(1)] and not drop.waiting and not drop.failed and states(home) == {4: 3}


def test_an_envelope_over_its_limit_is_set_aside(home: Home) -> None:
    put(home, pack_header(4) + b"mailFa@b\0" + b"Tc@d\0" * (ENVELOPE_MAX // 5) + b"\0")
    with PickupDaemon(home) as pickup:
        gone(home)
        pickup.wait_for(b"and its message alone should have 4")
    assert queued(home) == []
