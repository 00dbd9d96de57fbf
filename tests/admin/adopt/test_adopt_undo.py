"""queuectl adopt --undo: exactly qmail's owners, modes, states and bytes again, also after an interruption."""

import os
import stat
from pathlib import Path

import pytest

from queue_admin import system_accounts as accounts
from queue_admin.home.adoption import adopt, undo
from queue_admin.home.create import create_home
from queue_admin.system_accounts import find_qmail_accounts, myself
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_base.queue.marks_file import MarksFile
from queue_wire.files.marks import DoneMarks, identify
from support.inject.qmail_queue import (
    ROOT,
    SPLIT,
    QmailQueue,
    messages_only,
    our_owner,
    qmail_accounts,
    snapshot,
)


@pytest.fixture
def qmail(tmp_path: Path) -> QmailQueue:
    found = QmailQueue(tmp_path / "qmail")
    found.fill()
    return found


def hashed_home(path: Path) -> tuple[Home, dict[str, int]]:
    """Make a home of ours with hashed todo/ and intd/, and messages in S2 to S5 in it."""
    home = Home(str(path))
    create_home(home, our_owner(), myself(), me="mail.example.org")
    layout = open_layout(home.queue)
    messages = {}
    for state in ("S2", "S3", "S4", "S5"):
        started = Path(home.queue) / "pid" / "started"
        started.write_bytes(state.encode())
        message = started.stat().st_ino
        started.rename(layout.mess(message))
        for kind in {"S3": ["intd"], "S4": ["intd", "todo"], "S5": ["info"]}.get(state, []):
            Path(layout.hashed(kind, message)).write_bytes(b"u1\0p2\0Fa@b\0Tc@d\0" if kind != "info" else b"Fa@b\0")
        messages[state] = message
    return home, messages


def test_mail_that_is_stored_for_on_demand_domains_is_not_given_to_qmail(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    stored = Path(qmail.home.queue, "ondemand", "example.net")
    stored.mkdir(parents=True)
    with pytest.raises(Permanent, match=r"unable to undo: .*/ondemand has example\.net; have that mail delivered"):
        undo(qmail.home, qmail_accounts())

    stored.rmdir()
    undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == before


def test_adopted_and_given_back_everything_is_as_it_was(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    if ROOT:
        assert snapshot(Path(qmail.home.path)) != before
    undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == before


def test_what_our_daemons_left_becomes_qmails(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    layout, owner, message = open_layout(qmail.home.queue), our_owner(), qmail.messages["S4"]
    for kind in ("info", "remote", "bounce"):
        path = layout.bounce(message) if kind == "bounce" else layout.hashed(kind, message)
        Path(path).write_bytes(b"x\0")
        os.chown(path, owner.uid, owner.gid)
        os.chmod(path, 0o600)
    os.unlink(layout.todo(message))
    os.unlink(layout.intd(message))
    with open(layout.hashed("remote", qmail.messages["S5"]), "r+b") as remote:
        remote.seek(19)
        remote.write(b"D")
    held = messages_only(snapshot(Path(qmail.home.path)))
    undo(qmail.home, qmail_accounts())
    assert messages_only(snapshot(Path(qmail.home.path))) == held
    qmails = qmail_accounts().owner("qmails")
    for kind in ("info", "remote"):
        found = os.stat(layout.hashed(kind, message))
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (qmails.uid, qmails.gid, 0o600)
    assert Presence(layout, message).state() == 5


def test_held_and_corrupt_messages_are_refused_by_name_unless_forced(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    layout = open_layout(qmail.home.queue)
    message = qmail.messages["S5"]
    for kind in ("hold", "corrupt"):
        Path(layout.hashed(kind, message)).write_bytes(b"why\n")
    adopted = snapshot(Path(qmail.home.path))
    bucket = message % SPLIT
    with pytest.raises(Permanent, match=f"hold/{bucket}/{message}, corrupt/{bucket}/{message}"):
        undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == adopted
    done = undo(qmail.home, qmail_accounts(), force=True)
    assert f"dropped the mark hold/{bucket}/{message}" in done
    assert snapshot(Path(qmail.home.path)) == before


def test_the_mark_of_a_message_that_is_gone_is_no_reason_to_refuse(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    (qmail.queue / "corrupt/5/5").write_bytes(b"why\n")
    assert "dropped the mark corrupt/5/5" in undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == before


def test_last_results_are_removed_without_asking(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    Path(open_layout(qmail.home.queue).hashed("last", qmail.messages["S5"])).write_bytes(b"why\n")
    (qmail.queue / "last" / "5" / "junk").write_bytes(b"")
    undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == before


def test_routes_that_qmail_cannot_read_are_refused_unless_forced(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    routes = Path(qmail.home.control, "smtproutes")
    routes.write_text("example.org:lmtp:/run/dovecot/lmtp\n")
    with pytest.raises(Permanent, match="names LMTP servers"):
        undo(qmail.home, qmail_accounts())
    undo(qmail.home, qmail_accounts(), force=True)
    assert routes.read_text() == "example.org:lmtp:/run/dovecot/lmtp\n"


def test_mail_in_maildrop_is_refused_even_when_forced(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    (qmail.queue / "maildrop" / f"mail.{'0' * 32}").write_bytes(b"accepted")
    adopted = snapshot(Path(qmail.home.path))
    with pytest.raises(Permanent, match=r"maildrop has mail\.000"):
        undo(qmail.home, qmail_accounts(), force=True)
    assert snapshot(Path(qmail.home.path)) == adopted


def test_mail_on_hold_that_is_not_queued_yet_is_left_alone_and_refused_even_when_forced(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    place = qmail.queue / "hold/maildrop"
    place.mkdir(0o700)
    mail = place / f"mail.{'0' * 32}"
    mail.write_bytes(b"accepted")
    mail.chmod(0o604)
    (qmail.queue / "holds").write_bytes(b"uid=7 reason=x\n")
    adopt(qmail.home, our_owner())
    assert stat.S_IMODE(mail.stat().st_mode) == 0o604
    with pytest.raises(Permanent, match=r"hold/maildrop has mail\.000"):
        undo(qmail.home, qmail_accounts(), force=True)
    mail.unlink()
    assert any("standing holds" in line for line in undo(qmail.home, qmail_accounts()))
    assert not (qmail.queue / "hold").exists() and not (qmail.queue / "holds").exists()


def test_files_set_aside_are_left_alone_and_refused_even_when_forced(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    secret = qmail.queue.parent / "somebody else's"
    secret.write_bytes(b"x")
    secret.chmod(0o644)
    aside = qmail.queue / "corrupt/maildrop/1000.1.2"
    os.link(secret, aside)
    adopt(qmail.home, our_owner())
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644
    adopted = snapshot(Path(qmail.home.path))
    with pytest.raises(Permanent, match=r"corrupt/maildrop has 1000\.1\.2; move or remove"):
        undo(qmail.home, qmail_accounts(), force=True)
    assert snapshot(Path(qmail.home.path)) == adopted
    aside.unlink()
    secret.unlink()
    undo(qmail.home, qmail_accounts())
    assert not os.path.lexists(qmail.queue / "corrupt")


def test_a_file_under_construction_in_maildrop_goes(qmail: QmailQueue) -> None:
    before = snapshot(Path(qmail.home.path))
    adopt(qmail.home, our_owner())
    (qmail.queue / "maildrop" / f"tmp.{'0' * 32}").write_bytes(b"half")
    undo(qmail.home, qmail_accounts())
    assert snapshot(Path(qmail.home.path)) == before


def test_our_stale_socket_and_marks_go_and_unknown_files_in_lock_stay(qmail: QmailQueue) -> None:
    adopt(qmail.home, our_owner())
    os.mknod(qmail.queue / "lock/control", stat.S_IFSOCK | 0o600)
    for name in ("other", "slow", "refuse"):
        (qmail.queue / "lock" / name).write_bytes(b"")
    undo(qmail.home, qmail_accounts())
    assert sorted(os.listdir(qmail.queue / "lock")) == ["other", "sendmutex", "tcpto", "trigger"]


def test_a_hashed_todo_is_refused_until_it_is_said_what_becomes_of_it(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    before = snapshot(tmp_path)
    with pytest.raises(Permanent, match=r"todo/ and intd/ is hashed.*--todo flat"):
        undo(home, qmail_accounts())
    assert snapshot(tmp_path) == before


def test_a_home_of_ours_becomes_a_stock_qmail_home(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    old = open_layout(home.queue)
    undo(home, qmail_accounts(), todo="flat")
    stock = snapshot(Path(QmailQueue(tmp_path / "stock").home.path))
    found = snapshot(tmp_path / "home")
    for name, known in stock.items():
        if name not in ("control/me", "alias/.qmail-postmaster"):
            assert (name, found[name][:3]) == (name, known[:3])
    extra = {name for name in found if name.startswith("queue/") and name not in stock}
    layout = open_layout(home.queue)
    assert {Presence(layout, message).state() for message in messages.values()} == {2, 3, 4, 5}
    assert len(extra) == 8, "S2 has 1 file, S3 has 2, S4 has 3, S5 has 2"
    assert not os.path.exists(old.todo(messages["S4"]))


def test_a_hashed_todo_stays_for_a_qmail_that_has_it_so(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    undo(home, qmail_accounts(), todo="hashed")
    layout = open_layout(home.queue)
    assert not layout.flat_todo and not layout.flat_intd
    assert Presence(layout, messages["S4"]).state() == 4


def test_a_stray_name_in_a_hashed_todo_stops_undo_before_anything_changes(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    Path(home.queue, "todo/4/notes").write_bytes(b"")
    before = snapshot(tmp_path)
    with pytest.raises(Permanent, match="4/notes is not a message's name"):
        undo(home, qmail_accounts(), todo="flat")
    assert snapshot(tmp_path) == before


def test_a_stray_file_beside_the_directories_of_a_hashed_todo_does_not_make_it_flat(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    for name in ("README", ".nfs0001", "0457"):
        Path(home.queue, "todo", name).write_bytes(b"")
    undo(home, qmail_accounts(), todo="hashed")
    layout = open_layout(home.queue)
    assert not layout.flat_todo and not layout.flat_intd
    assert Presence(layout, messages["S4"]).state() == 4
    assert Path(home.queue, "todo/README").exists()


def test_a_stray_file_beside_the_directories_is_no_answer_to_what_becomes_of_them(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    Path(home.queue, "todo/README").write_bytes(b"")
    with pytest.raises(Permanent, match=r"todo/ and intd/ is hashed.*--todo flat"):
        undo(home, qmail_accounts())


def test_a_stray_file_beside_the_directories_is_still_there_after_a_flattening(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    Path(home.queue, "todo/README").write_bytes(b"")
    undo(home, qmail_accounts(), todo="flat")
    assert sorted(os.listdir(f"{home.queue}/todo")) == sorted(["README", str(messages["S4"])])


def test_a_message_beside_the_directories_is_not_left_where_a_hashed_todo_is_asked_for(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    Path(home.queue, "todo/457").write_bytes(b"")
    before = snapshot(tmp_path)
    with pytest.raises(Permanent, match=r"unable to leave todo/ hashed: .*--todo flat"):
        undo(home, qmail_accounts(), todo="hashed")
    assert snapshot(tmp_path) == before


def test_a_file_in_hold_that_is_no_mark_is_not_thrown_away_unasked(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    Path(home.queue, "hold/README").write_bytes(b"why these are held")
    before = snapshot(tmp_path)
    with pytest.raises(Permanent, match="hold/README"):
        undo(home, qmail_accounts(), todo="hashed")
    assert snapshot(tmp_path) == before


def test_a_missing_qmail_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "account_uid", lambda name: None if name in ("qmails", "alias") else 7)
    monkeypatch.setattr(accounts, "group_gid", lambda name: None)
    with pytest.raises(Permanent, match="no account qmails, no account alias, no group qmail"):
        find_qmail_accounts()


def test_what_our_deliveries_left_in_alias_becomes_aliass(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    mailbox = Path(home.alias, "Maildir", "new")
    mailbox.mkdir(parents=True)
    (mailbox / "1.2.3").write_bytes(b"mail")
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (Path(home.alias) / "link").symlink_to(outside)
    owner = our_owner()
    for path in (mailbox.parent, mailbox, mailbox / "1.2.3"):
        os.chown(path, owner.uid, owner.gid)
    undo(home, qmail_accounts(), todo="flat")
    alias = qmail_accounts().uids["alias"]
    assert {path.stat().st_uid for path in (Path(home.alias), mailbox.parent, mailbox, mailbox / "1.2.3")} == {alias}
    assert outside.stat().st_uid == os.geteuid()


def put_marks(home: Home, message: int, done: int, data: bytes | None = None) -> None:
    """Leave a record as a killed queue-send does; of another envelope if `data` is given."""
    layout = open_layout(home.queue)
    data = Path(layout.todo(message)).read_bytes() if data is None else data
    path = Path(home.queue, "marks")
    path.touch()
    os.chown(path, os.stat(home.queue).st_uid, -1)
    marks = MarksFile(layout)
    slot = marks.take()
    assert slot is not None
    birth = os.stat(layout.mess(message)).st_mtime_ns // 1000
    marks.write(slot, DoneMarks(identify(message, birth, data), done))
    marks.close()


def test_recipients_that_are_done_are_not_left_to_qmail(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    layout = open_layout(home.queue)
    todo = Path(layout.todo(messages["S4"]))
    todo.write_bytes(b"u1\0p2\0Fa@b\0Tc@d\0Te@f\0Tg@h\0")
    put_marks(home, messages["S4"], 0b101)
    done = undo(home, qmail_accounts(), todo="hashed")
    assert "removed recipients that are done from 1 envelopes in todo/" in done
    assert todo.read_bytes() == b"u1\0p2\0Fa@b\0Te@f\0"
    assert (todo.stat().st_uid, stat.S_IMODE(todo.stat().st_mode)) == (qmail_accounts().owner("qmailq").uid, 0o644)
    assert not os.path.lexists(home.queue + "/marks")
    assert not os.listdir(home.queue + "/pid")


def test_they_are_not_in_a_todo_that_is_made_flat_either(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    Path(open_layout(home.queue).todo(messages["S4"])).write_bytes(b"u1\0p2\0Fa@b\0Tc@d\0Te@f\0")
    put_marks(home, messages["S4"], 0b10)
    undo(home, qmail_accounts(), todo="flat")
    assert Path(home.queue, "todo", str(messages["S4"])).read_bytes() == b"u1\0p2\0Fa@b\0Tc@d\0"


def test_the_record_of_another_envelope_changes_none(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    todo = Path(open_layout(home.queue).todo(messages["S4"]))
    before = todo.read_bytes()
    put_marks(home, messages["S4"], 1, b"u1\0p2\0Fa@b\0Tz@d\0")
    put_marks(home, messages["S5"], 1, b"u1\0p2\0Fa@b\0Tz@d\0")
    undo(home, qmail_accounts(), todo="hashed")
    assert todo.read_bytes() == before
    assert not os.path.lexists(home.queue + "/marks")


def test_a_file_of_marks_that_is_not_the_queues_is_refused_before_anything_changes(tmp_path: Path) -> None:
    home, _ = hashed_home(tmp_path / "home")
    os.mkfifo(home.queue + "/marks")
    before = snapshot(Path(home.path))
    with pytest.raises(Permanent, match=r"unable to use .*/marks: not a regular file"):
        undo(home, qmail_accounts(), todo="hashed")
    assert snapshot(Path(home.path)) == before


def test_adoption_gives_the_file_of_marks_to_the_queues_owner(tmp_path: Path) -> None:
    home, messages = hashed_home(tmp_path / "home")
    put_marks(home, messages["S4"], 1)
    os.chmod(home.queue + "/marks", 0o640)
    os.chown(home.queue + "/marks", os.geteuid(), -1)
    adopt(home, our_owner())
    found = os.stat(home.queue + "/marks")
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (our_owner().uid, 0o600)
