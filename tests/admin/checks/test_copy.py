"""queuectl copy: the copy has every message, right numbers, and does not start by itself."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.checks import home_copy
from queue_admin.checks.home_copy import copy_home
from queue_admin.main import main
from queue_admin.messages.survey import Snapshot, Stray, survey
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.marks_file import MarksFile
from queue_wire.files.last_result import pack_header, pack_result
from queue_wire.files.marks import DoneMarks, identify
from support.queues.damage import BIRTH, KnownQueue, deliverables, rename_message
from support.queues.queued import put_mess

pytestmark = pytest.mark.usefixtures("usual_umask")


def numbers(home: Home) -> list[int]:
    return [int(path.name) for path in Path(home.queue, "mess").glob("*/*")]


def test_the_copy_has_every_message_and_nothing_is_wrong_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home")
    top = Path(queue.home.path)
    (top / "control" / "smtproutes").write_text(":relay.example.net\n")
    (top / "alias" / "Maildir" / "new").mkdir(parents=True)
    (top / "alias" / "Maildir" / "new" / "1").write_bytes(b"mail\n")
    (top / "alias" / ".qmail-default").symlink_to("elsewhere")
    (top / "alias" / ".qmail-root").write_bytes(b"&joe\n")
    (top / "alias" / ".qmail-root").chmod(0o640)
    dropped = top / "queue" / "maildrop" / ("mail." + "a" * 32)
    dropped.write_bytes(b"accepted")
    dropped.chmod(0o1640)
    (top / "queue" / "maildrop" / ("tmp." + "b" * 32)).write_bytes(b"not accepted")

    assert main(["queuectl", "--home", str(top), "copy", str(tmp_path / "copy")]) == 0

    other = KnownQueue.__new__(KnownQueue)
    other.home = Home(str(tmp_path / "copy"))
    assert other.deliverable() == queue.deliverable()
    assert len(numbers(other.home)) == 4 and not set(numbers(other.home)) & set(numbers(queue.home))
    assert other.codes() == ["copy"]
    for name in ("control/me", "control/smtproutes", "alias/.qmail-root", "alias/Maildir/new/1", "users", "alias"):
        one, two = os.stat(top / name), os.stat(tmp_path / "copy" / name)
        assert (one.st_mode, one.st_uid, one.st_gid, one.st_mtime_ns) == (
            two.st_mode, two.st_uid, two.st_gid, two.st_mtime_ns
        )  # fmt: skip
    assert os.readlink(tmp_path / "copy" / "alias" / ".qmail-default") == "elsewhere"
    drop = tmp_path / "copy" / "queue" / "maildrop"
    assert [path.name for path in drop.iterdir()] == [dropped.name]
    assert stat.S_IMODE((drop / dropped.name).stat().st_mode) == 0o1640
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o755
    assert "copied 4 messages and 1 files of maildrop" in capsys.readouterr().out
    assert main(["queuectl", "repair", str(tmp_path / "copy")]) == 0
    assert other.codes() == ["copy"], "it stays a copy"
    assert main(["queuectl", "repair", str(tmp_path / "copy"), "--take-over"]) == 0
    assert other.codes() == [] and other.deliverable() == queue.deliverable()


def test_the_copy_says_why_mail_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = KnownQueue(tmp_path / "home")
    records = pack_result("remote", 0, 1_700_000_400, b"example.net", b"450 4.2.0 try later\n")
    for name, birth in (("held", BIRTH // 1000), ("both", BIRTH // 1000 - 1)):
        queue.put("last", queue.messages[name], pack_header(birth) + records)
    Path(queue.layout.hashed("last", queue.messages["local"])).symlink_to("/etc/passwd")

    def reasons(home: str) -> dict[str, str | None]:
        capsys.readouterr()
        assert main(["queuectl", "--home", home, "list", "--format", "json"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {each["sender"].partition("@")[0]: each["last"] for each in found}

    expected = {"queued": None, "local": None, "both": None, "held": "450 4.2.0 try later"}
    assert reasons(queue.home.path) == expected
    copy = str(tmp_path / "copy")
    assert main(["queuectl", "--home", queue.home.path, "copy", copy]) == 0
    assert reasons(copy) == expected
    assert len(list(Path(copy, "queue", "last").glob("*/*"))) == 1, "that of an earlier message is not copied"
    assert main(["queuectl", "repair", copy, "--take-over"]) == 0
    assert reasons(copy) == expected
    # A restore, in which every number is another one.
    for number in numbers(Home(copy)):
        rename_message(open_layout(f"{copy}/queue"), number, number + 10**9)
    assert main(["queuectl", "repair", copy]) == 0
    assert reasons(copy) == expected


def test_what_is_there_is_never_overwritten(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queue = KnownQueue(tmp_path / "home")
    (tmp_path / "copy").mkdir()
    assert main(["queuectl", "--home", queue.home.path, "copy", str(tmp_path / "copy")]) == 100
    assert "it exists; name a directory that does not" in capfd.readouterr().err
    assert main(["queuectl", "--home", queue.home.path, "copy", f"{queue.home.path}/inside"]) == 100
    assert "into itself" in capfd.readouterr().err


def test_recipients_that_are_done_before_classification_are_not_in_the_copy(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    message = queue.queued("queued")
    marks = MarksFile(queue.layout)
    slot = marks.take()
    assert slot is not None
    data = Path(queue.layout.todo(message)).read_bytes()
    marks.write(slot, DoneMarks(identify(message, BIRTH // 1000, data), 1))
    marks.close()
    copy_home(queue.home, Home(str(tmp_path / "copy")))
    assert [each.recipients for each in deliverables(Home(str(tmp_path / "copy")))] == [
        (("todo", False, b"x@example.net"),)
    ]


@pytest.mark.parametrize("what", ["ends", "is classified", "is done"])
def test_a_message_that_changes_while_it_is_read_is_copied_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    queue = KnownQueue(tmp_path / "home")
    message = queue.messages["queued"]
    real = home_copy._MessageCopier._read_files
    expected = {each.sender: each.recipients for each in queue.deliverable()}

    def change(self: home_copy._MessageCopier, seen: Snapshot, birth: int) -> object:
        found = real(self, seen, birth)
        if seen.message == message and os.path.exists(queue.layout.todo(message)):
            if what != "ends":
                queue.put("info", message, b"Fqueued@example.org\0")
                mark = b"T" if what == "is classified" else b"D"
                queue.put("local", message, mark + b"ann@me.example.org\0")
            os.unlink(queue.layout.todo(message))
            if what == "ends":
                os.unlink(queue.layout.mess(message))
        return found

    monkeypatch.setattr(home_copy._MessageCopier, "_read_files", change)
    done = copy_home(queue.home, Home(str(tmp_path / "copy")))
    found = {each.sender: each.recipients for each in deliverables(Home(str(tmp_path / "copy")))}
    if what == "is classified":
        expected[b"queued@example.org"] = (("local", False, b"ann@me.example.org"),)
    else:
        del expected[b"queued@example.org"]
    assert found == expected
    assert done.ended == (what != "is classified") and not done.left
    assert not os.listdir(tmp_path / "copy" / "queue" / "pid")


def test_a_copy_that_is_not_complete_says_what_is_missing_and_exits_with_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home")
    message = queue.messages["queued"]
    os.unlink(queue.layout.todo(message))
    Path(queue.layout.hashed("info", message)).symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "home" / "control" / "pipe")
    assert main(["queuectl", "--home", queue.home.path, "copy", str(tmp_path / "copy")]) == 1
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 3, errors
    assert any(f"warning: not copied: message {message}: " in line for line in errors)
    assert any("warning: not copied: control/pipe: it is no file" in line for line in errors)
    assert errors[-1].endswith(f"warning: {tmp_path}/copy is not complete: 2 not copied, see above")
    assert len(numbers(Home(str(tmp_path / "copy")))) == 3


def test_a_message_that_seems_to_have_no_state_because_it_is_being_removed_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home")
    message = queue.messages["queued"]
    os.unlink(queue.layout.todo(message))
    queue.put("hold", message, b"x\n")
    os.unlink(queue.layout.mess(message))

    def end(seconds: float) -> None:
        Path(queue.layout.hashed("hold", message)).unlink(missing_ok=True)

    monkeypatch.setattr("queue_admin.checks.home_copy.time.sleep", end)
    assert main(["queuectl", "--home", queue.home.path, "copy", str(tmp_path / "copy")]) == 0
    assert "not copied" not in capfd.readouterr().err


def new_message(queue: KnownQueue, sender: bytes) -> int:
    """Queue a message; return its number."""
    number = put_mess(queue.layout, b"Subject: x\n\ny\n")
    queue.put("todo", number, b"u0\0p1\0F%s\0Tx@example.net\0" % sender)
    return number


def end(queue: KnownQueue, message: int) -> None:
    for kind in ("todo", "info", "local", "remote", "mess"):
        path = Path(queue.layout.todo(message) if kind == "todo" else queue.layout.hashed(kind, message))
        path.unlink(missing_ok=True)


def senders(copy: Path) -> set[bytes]:
    return {each.sender for each in deliverables(Home(str(copy)))}


def test_a_message_that_is_forwarded_while_the_copy_runs_is_in_the_copy_as_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, names = KnownQueue(tmp_path / "home"), [b"first", b"second", b"third"]
    last = [queue.messages["queued"]]

    def forwarding(layout: Layout) -> Iterator[Snapshot | Stray]:
        """In each of three looks the message ends when the names were taken, and another one has its content."""
        found = list(survey(layout))
        if names:
            end(queue, last[0])
            last[0] = new_message(queue, names.pop(0))
        yield from found

    monkeypatch.setattr(home_copy, "survey", forwarding)
    assert not copy_home(queue.home, Home(str(tmp_path / "copy"))).left
    assert b"third" in senders(tmp_path / "copy") and not names


def test_a_copy_of_a_queue_in_which_all_mail_moves_all_the_time_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = KnownQueue(tmp_path / "home")
    last = [queue.messages["queued"]]

    def forwarding(layout: Layout) -> Iterator[Snapshot | Stray]:
        found = list(survey(layout))
        end(queue, last[0])
        last[0] = new_message(queue, b"next")
        yield from found

    monkeypatch.setattr(home_copy, "survey", forwarding)
    [left] = copy_home(queue.home, Home(str(tmp_path / "copy"))).left
    assert "mail ended or moved before it was copied; try again" in left


def test_mail_that_a_reader_moves_from_new_to_cur_is_in_the_copy_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, real = KnownQueue(tmp_path / "home"), os.listdir
    maildir = tmp_path / "home" / "alias" / "Maildir"
    for name in ("cur", "new"):
        (maildir / name).mkdir(parents=True)
    for name in ("1", "2", "3"):
        (maildir / "new" / name).write_text(name)
    waiting = ["1", "2"]

    def reading(place: int | str) -> list[str]:
        """When cur/ was listed, a mail comes from new/."""
        found = real(place)
        if waiting and isinstance(place, int) and os.readlink(f"/proc/self/fd/{place}") == str(maildir / "cur"):
            name = waiting.pop(0)
            (maildir / "new" / name).rename(maildir / "cur" / f"{name}:2,S")
        return found

    monkeypatch.setattr(os, "listdir", reading)
    assert not copy_home(queue.home, Home(str(tmp_path / "copy"))).left
    copied = tmp_path / "copy" / "alias" / "Maildir"
    assert sorted(str(each.relative_to(copied)) for each in copied.rglob("*") if each.is_file()) == [
        "cur/1:2,S", "cur/2:2,S", "new/3"
    ]  # fmt: skip


def test_the_copies_for_the_postmaster_are_in_the_copy_under_their_new_numbers(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    number = queue.messages["queued"]
    postman = Path(queue.home.queue, "postman")
    os.link(queue.layout.mess(number), postman / f"{number}_no-date")
    (postman / "notes").write_text("x")
    [left] = copy_home(queue.home, Home(str(tmp_path / "copy"))).left
    assert left == "queue/postman/notes: it is no copy for the postmaster"
    [copied] = Path(tmp_path / "copy" / "queue" / "postman").iterdir()
    assert copied.name == f"{copied.stat().st_ino}_no-date"
    assert copied.read_bytes() == Path(queue.layout.mess(number)).read_bytes()
