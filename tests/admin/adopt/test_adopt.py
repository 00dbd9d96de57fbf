"""queuectl adopt on a stock qmail home: what changes, what must not, and what it refuses."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from queue_admin.commands.home import adopt as adopt_command
from queue_admin.home.adoption import adopt
from queue_admin.home.modes import OURS
from queue_admin.main import main
from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from support.inject.qmail_queue import ROOT, SPLIT, QmailQueue, messages_only, our_owner, snapshot


@pytest.fixture
def qmail(tmp_path: Path) -> QmailQueue:
    found = QmailQueue(tmp_path / "qmail")
    found.fill()
    return found


def facts(path: str) -> tuple[int, int, str]:
    found = os.lstat(path)
    return found.st_uid, found.st_gid, oct(stat.S_IMODE(found.st_mode))


def test_no_messages_bytes_names_inodes_or_mtimes_change(qmail: QmailQueue) -> None:
    before = messages_only(snapshot(Path(qmail.home.path)))
    adopt(qmail.home, our_owner())
    assert messages_only(snapshot(Path(qmail.home.path))) == before
    assert len(before) > 12


def test_every_directory_and_file_gets_our_owner_and_mode(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    us = our_owner().uid, our_owner().gid
    assert facts(qmail.home.queue) == (*us, "0o711")
    for kind, (directory_mode, file_mode) in OURS.items():
        for directory, _, files in os.walk(f"{qmail.home.queue}/{kind}"):
            assert (directory, facts(directory)) == (directory, (*us, oct(directory_mode)))
            if file_mode is None:
                continue
            for name in files:
                assert (name, facts(f"{directory}/{name}")) == (name, (*us, oct(file_mode)))
    assert facts(f"{qmail.home.queue}/lock/sendmutex") == (*us, "0o600")
    assert facts(f"{qmail.home.queue}/lock/trigger") == (*us, "0o622")


def test_what_is_stored_on_demand_and_the_standing_holds_of_another_host_become_ours(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    top = Path(qmail.home.queue)
    stored = top / "ondemand/customer.example"
    (stored / "mess").mkdir(parents=True)
    files = {stored / "1.cluster": "0o600", stored / "mess/1.5-abc": "0o640", top / "holds": "0o600"}
    directories = [stored.parent, stored, stored / "mess"]
    for path in files:
        path.write_bytes(b"x")
    for path in (*directories, *files):
        path.chmod(0o777)
        if ROOT:
            os.chown(path, 4711, 4711)
    adopt(qmail.home, our_owner())
    us = our_owner().uid, our_owner().gid
    assert {path: facts(str(path)) for path in files} == {path: (*us, mode) for path, mode in files.items()}
    assert [facts(str(path)) for path in directories] == [(*us, "0o2750")] * 3


def test_what_qmail_does_not_have_is_made_and_flat_directories_stay_flat(qmail: QmailQueue) -> None:
    done = adopt(qmail.home, our_owner())
    layout = open_layout(qmail.home.queue)
    assert (layout.split, layout.flat_todo, layout.flat_intd) == (SPLIT, True, True)
    for kind in ("hold", "corrupt", "last"):
        names = {str(number) for number in range(SPLIT)} | ({"maildrop", "unplaced"} if kind == "corrupt" else set())
        assert set(os.listdir(f"{qmail.home.queue}/{kind}")) == names
    assert [line for line in done if line.startswith("made ")] == [
        f"made {qmail.home.queue}/{kind}"
        for kind in ("hold", "corrupt", "last", "maildrop", "corrupt/maildrop", "postman", "corrupt/unplaced", "intake")
    ]


def test_messages_keep_their_states(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    layout = open_layout(qmail.home.queue)
    states = {name: Presence(layout, message).state() for name, message in qmail.messages.items()}
    assert states == {"S2": 2, "S3": 3, "S4": 4, "S5": 5}


def test_alias_and_control_stay_as_they_are(qmail: QmailQueue) -> None:
    def rest() -> dict[str, tuple[object, ...]]:
        found = snapshot(Path(qmail.home.path))
        return {name: known for name, known in found.items() if not name.startswith("queue")}

    before = rest()
    adopt(qmail.home, our_owner())
    assert rest() == before


def test_a_second_adoption_changes_nothing(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    before = snapshot(Path(qmail.home.path))
    assert adopt(qmail.home, our_owner()) == ["changed owner or mode of 0 files and directories"]
    assert snapshot(Path(qmail.home.path)) == before


def test_while_a_scheduler_holds_the_lock_nothing_is_changed(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    with open(f"{qmail.home.queue}/lock/sendmutex", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Temporary, match="already running"):
            adopt(qmail.home, our_owner())
    assert snapshot(Path(qmail.home.path)) == before


def test_the_lock_is_held_and_nobody_let_in_while_it_works(
    qmail: QmailQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def looking(handle: int, uid: int, gid: int) -> None:
        with open(f"{qmail.home.queue}/lock/sendmutex", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = True
            except BlockingIOError:
                free = False
        seen.append((free, stat.S_IMODE(os.stat(qmail.home.queue).st_mode)))
        fchown(handle, uid, gid)

    fchown = os.fchown
    monkeypatch.setattr(os, "fchown", looking)
    adopt(qmail.home, our_owner())
    assert set(seen) == {(False, 0 if ROOT else 0o750)}


def test_a_link_in_the_queue_is_left_alone_and_named(qmail: QmailQueue, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"")
    secret.chmod(0o604)
    (qmail.queue / "mess/5/5").symlink_to(secret)
    (qmail.queue / "bounce/directory").mkdir()
    done = adopt(qmail.home, our_owner())
    assert stat.S_IMODE(secret.stat().st_mode) == 0o604
    assert secret.stat().st_uid == os.geteuid()
    assert [line.split(":")[0] for line in done if line.startswith("left")] == [
        f"left alone '{qmail.home.queue}/bounce/directory'",
        f"left alone '{qmail.home.queue}/mess/5/5'",
    ]


@pytest.mark.parametrize("missing", ["control", "queue/mess", "queue/lock"])
def test_what_is_no_qmail_home_is_refused(qmail: QmailQueue, missing: str) -> None:
    os.rename(f"{qmail.home.path}/{missing}", f"{qmail.home.path}/away")
    with pytest.raises(Permanent, match=missing):
        adopt(qmail.home, our_owner())


def test_a_queue_with_a_gap_in_its_directories_is_refused_and_opened_again(qmail: QmailQueue) -> None:
    os.rename(qmail.queue / "info/22", qmail.queue / "info/99")
    mode = facts(qmail.home.queue)
    with pytest.raises(Permanent, match="lacks 22"):
        adopt(qmail.home, our_owner())
    assert facts(qmail.home.queue) == mode


def test_the_command_adopts_and_says_what_it_changed(qmail: QmailQueue, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl", "adopt", qmail.home.path, "--as-me"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == f"made {qmail.home.queue}/hold"
    assert lines[-1].startswith("changed owner or mode of ")
    assert os.stat(qmail.home.queue).st_uid == os.geteuid()


def test_a_users_command_on_the_queue_of_another_is_refused(
    qmail: QmailQueue, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    stranger = our_owner()
    stranger.uid = 54321
    monkeypatch.setattr(adopt_command, "myself", lambda: stranger)
    assert main(["queuectl", "adopt", qmail.home.path]) == 100
    assert "only root can change that" in capfd.readouterr().err


def test_options_of_undo_alone_are_a_usage_error(qmail: QmailQueue, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl", "adopt", qmail.home.path, "--force"]) == 100
    assert "go with --undo" in capfd.readouterr().err


def test_a_home_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="queuectl init"):
        adopt(Home(str(tmp_path / "nothing")), our_owner())
