"""queuectl list and stat: every state, escapes, garbage, vanishing files; and they change nothing."""

import json
import os
import re
from pathlib import Path

import pytest

from queue_admin.commands.messages import list as list_command
from queue_admin.commands.messages.list import message_line
from queue_admin.messages.choosing import pending, select
from queue_admin.messages.detail import read_detail
from queue_admin.messages.last_results import DeadNexthops
from queue_admin.messages.selectors import Selectors
from queue_admin.messages.survey import Snapshot, look
from queue_base.queue.layout import Layout
from queue_base.queue.marks_file import LeftMarks, MarksFile
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.ids import pack_long_id
from support.inject.qmail_queue import snapshot
from support.queues.listed_queue import BIRTH, SOON, Queue, lines

EVERYBODY = Selectors()


@pytest.fixture(params=[False, True], ids=["hashed", "flat"])
def queue(tmp_path: Path, request: pytest.FixtureRequest) -> Queue:
    return Queue(tmp_path / "home", request.param)


def test_each_state_has_its_line(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {}
    expected[queue.mess()] = "incoming 18 -"
    intd = queue.mess()
    queue.put(queue.layout.intd(intd), b"u1\0")
    expected[intd] = "incoming 18 -"
    expected[queue.queued(recipients=(b"c@d", b"e@f"))] = "queued 18 <a@b> to c@d and 1 more, all 2 left"
    expected[queue.classified(b"", b"Dx@y\0Tz@y\0", b"Tr@s\0")] = (
        "classified 18 <> to z@y and 1 more, local 1 done, 1 left, remote 1 left, next 2096-10-02T07:06:40Z"
    )
    expected[queue.classified(remote=b"Tr@s\0", due=5)] = "classified 18 <a@b> to r@s, remote 1 left, next now"
    expected[queue.classified(remote=b"Dr@s\0", due=5)] = "classified 18 <a@b> remote 1 done"
    assert queue.run("list") == 0
    found = {}
    for line in lines(capsys):
        name, state, _, rest = line.split(" ", 3)
        found[name] = f"{state} {rest}"
    assert found == {pack_long_id(message, BIRTH): text for message, text in expected.items()}


def test_filters_choose_by_state_and_by_mark(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queued, held, corrupt = queue.queued(), queue.classified(), queue.classified()
    queue.put(queue.layout.hashed("hold", held), b"wait for the auditor\nmore\n")
    queue.put(queue.layout.hashed("corrupt", corrupt), b"a\x1b[2Jb\n")
    for words, message in ((["--state", "queued"], queued), (["--held"], held), (["--corrupt"], corrupt)):
        assert queue.run("list", *words) == 0
        (line,) = lines(capsys)
        assert line.startswith(f"{message}-")
        ends = {held: " held: wait for the auditor", corrupt: " corrupt: a\\x1b[2Jb"}
        assert line.endswith(ends.get(message, "1 left"))
    assert queue.run("list", "--state", "incoming") == 1
    assert lines(capsys) == []


def test_a_message_whose_removal_begins_after_its_directory_was_read_is_none_that_is_coming(queue: Queue) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    seen = look(queue.layout, message)
    assert seen is not None and seen.state == "classified"
    for kind in ("remote", "info"):
        os.unlink(queue.layout.hashed(kind, message))
    assert read_detail(queue.layout, seen, None) is None


def test_a_message_that_queue_clean_is_removing_is_not_listed(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of it mess/ is left, as of a message that is coming; the list in pid/ tells them apart, and says which."""
    classified, announced, coming, reused = (queue.mess() for _ in range(4))
    found = os.stat(queue.layout.mess(classified))
    listed = [
        f"{classified} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_size}",
        f"{announced} {BIRTH}",
        f"{reused} {BIRTH - 1}",
        "garbage",
    ]
    Path(f"{queue.home.queue}/pid/removing.7").write_text("\n".join(listed) + "\n")
    os.mkfifo(f"{queue.home.queue}/pid/removing.8")
    assert queue.run("list") == 0
    assert sorted(int(line.split("-")[0]) for line in lines(capsys)) == sorted((coming, reused))
    assert queue.run("stat", "--format", "json") == 111
    assert json.loads(lines(capsys)[0])["incoming"] == 2


def test_an_address_never_breaks_a_line_or_a_column(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.queued(b"a\nb c\x1b[2J\xff@d")
    assert queue.run("list") == 0
    (line,) = lines(capsys)
    assert line.split(" ")[4] == "<a/b_c_[2J_@d>"
    assert queue.run("list", "--format", "json") == 0
    (line,) = lines(capsys)
    assert json.loads(line)["sender"] == "a\\nb c\\x1b[2J\\xff@d"


def test_json_is_one_object_a_line_with_the_same_facts(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.classified(b"a@b", b"Dx@y\0Tz@y\0", b"Tr@s\0")
    queue.put(queue.layout.hashed("hold", message), b"why\n")
    assert queue.run("list", "--format", "json") == 0
    (line,) = lines(capsys)
    facts = json.loads(line)
    assert facts.pop("age") > 0
    nothing = {"time": None, "nexthop": None, "reason": None}
    assert facts == {
        "id": pack_long_id(message, BIRTH),
        "message": message,
        "state": "classified",
        "birth": "2023-11-14T22:13:20.123456Z",
        "bytes": 18,
        "sender": "a@b",
        "priority": None,
        "local": {"done": 1, "left": 1},
        "remote": {"done": 0, "left": 1},
        "unsorted": {"done": 0, "left": 0},
        "next": "2096-10-02T07:06:40Z",
        "deleted": False,
        "held": "why",
        "corrupt": None,
        "trouble": None,
        "last": None,
        "stored": None,
        "recipients": [
            {"address": "x@y", "channel": "local", "done": True, **nothing},
            {"address": "z@y", "channel": "local", "done": False, **nothing},
            {"address": "r@s", "channel": "remote", "done": False, **nothing},
        ],
    }


def test_recipients_that_queue_send_has_marked_done_before_the_message_is_classified_are_shown_so(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    message, other = queue.queued(recipients=(b"c@d", b"e@f", b"g@h")), queue.queued()
    data = Path(queue.layout.todo(message)).read_bytes()
    marks = MarksFile(queue.layout)
    marks.write(3, DoneMarks(identify(message, BIRTH, data), 0b101))
    marks.write(5, DoneMarks(identify(other, BIRTH, data), 0b1))  # Of an earlier message of that number.
    marks.close()
    assert queue.run("list") == 0
    ends = sorted(line.split("<a@b> ")[1] for line in lines(capsys))
    assert ends == ["to c@d, all 1 left", "to e@f, all 2 done, 1 left"]
    assert queue.run("list", "--format", "json") == 0
    facts = [json.loads(line) for line in lines(capsys)]
    assert {"done": 2, "left": 1} in [each["unsorted"] for each in facts]
    assert queue.run("show", str(message)) == 0
    shown = lines(capsys)
    at = shown.index("recipients, not yet classified: 2 done, 1 left")
    assert shown[at + 1 : at + 4] == ["  done <c@d>", "  pending <e@f>", "  done <g@h>"]
    found = [pending(detail) for sight, detail in select(queue.layout, EVERYBODY, 2e9) if sight.message == message]
    assert found == [{b"e@f"}]


def test_garbage_is_shown_with_its_reason_and_the_others_go_on(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    good = queue.queued()
    bad = queue.queued()
    queue.put(queue.layout.todo(bad), b"garbage\n")
    torn = queue.classified(remote=b"Tr@s\0Tno end")
    no_info = queue.classified()
    queue.put(queue.layout.hashed("info", no_info), b"")
    fifo = queue.classified()
    os.mkfifo(queue.layout.hashed("local", fifo))
    assert queue.run("list") == 0
    found = {int(line.split("-")[0]): line for line in lines(capsys)}
    assert set(found) == {good, bad, torn, no_info, fifo}
    assert "unreadable" not in found[good]
    assert "envelope: last record is not ended by a NUL" in found[bad]
    assert "recipients: last record is not ended" in found[torn]
    assert "info: not one sender record" in found[no_info]
    assert found[fifo].endswith("not a regular file")


def test_names_that_are_no_messages_and_messages_without_files_are_shown(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    top = queue.home.queue
    queue.put(f"{top}/mess/3/notes\n", b"")
    queue.put(f"{top}/info/3/4", b"Fa@b\0")
    queue.put(f"{top}/remote/5/5", b"Tr@s\0", SOON)
    queue.put(f"{top}/bounce/5", b"x")
    queue.put(f"{top}/bounce/7", b"x")
    queue.put(f"{top}/hold/8/8", b"why\n")
    queue.put(f"{top}/mess/9/9", b"copied, so its inode number is another")
    assert queue.run("list") == 0
    found = sorted(lines(capsys))
    assert len(found) == 6
    assert found[:2] == [
        f"- stray {top}/info/3/4: in directory 3, belongs in 4",
        f"- stray {top}/mess/3/notes\\n: not a message's name",
    ]
    # What is left of a message that has lost its text has a long id, so that it can be deleted.
    assert re.match(r"5-\w+ unknown \S+ - - to \S+, remote 1 left, next ", found[2])
    assert found[2].endswith("unreadable: its text is gone; queuectl delete removes what is left")
    assert re.match(r"7-\w+ unknown \S+ - - unreadable: its text is gone; queuectl delete removes", found[3])
    assert re.match(r"8-\w+ unknown \S+ - - held: why, unreadable: held or corrupt, but there is no message", found[4])
    assert "unreadable: its inode number is " in found[5]


def test_a_message_that_ends_between_the_look_and_the_reading_is_left_out(queue: Queue) -> None:
    message = queue.classified(remote=b"Tr@s\0")
    sight = look(queue.layout, message)
    assert sight is not None
    for kind in ("mess", "info", "remote"):
        os.unlink(queue.layout.hashed(kind, message))
    assert message_line(queue.layout, sight, None, "text", 0) == ""


def test_a_message_classified_between_the_look_and_the_reading_is_shown_as_it_is_now(queue: Queue) -> None:
    message = queue.queued()
    sight = look(queue.layout, message)
    assert sight is not None
    os.unlink(queue.layout.todo(message))
    queue.put(queue.layout.hashed("info", message), b"Fa@b\0")
    assert " classified " in message_line(queue.layout, sight, None, "text", 0)


def test_messages_that_vanish_while_listing_are_no_trouble(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [queue.queued() for _ in range(20)]

    def vanish(
        layout: Layout, sight: Snapshot, marks: LeftMarks | None, form: str, now: float, dead: DeadNexthops, name: str
    ) -> str:
        for message in messages:
            for path in (layout.todo(message), layout.mess(message)):
                if os.path.exists(path):
                    os.unlink(path)
        return message_line(layout, sight, marks, form, now, dead)

    monkeypatch.setattr(list_command, "message_line", vanish)
    assert queue.run("list") == 0
    assert lines(capsys) == []


def test_list_stat_and_show_change_nothing(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.classified(remote=b"Tr@s\0")
    queue.queued()
    before = snapshot(Path(queue.home.path))
    shows = (["show", str(message)], ["show", "--raw", str(message)])
    for words in (["list"], ["list", "--format", "json"], ["stat"], *shows):
        assert queue.run(*words) == (111 if words == ["stat"] else 0)
    assert snapshot(Path(queue.home.path)) == before
    capsys.readouterr()


def test_stat_counts_as_qmail_qstat_does_and_more(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.mess()
    queue.queued()
    queue.queued()
    held = queue.classified()
    queue.put(queue.layout.hashed("hold", held), b"why\n")
    queue.put(queue.layout.hashed("corrupt", queue.classified()), b"why\n")
    queue.put(f"{queue.home.queue}/mess/3/notes", b"")
    queue.put(f"{queue.home.queue}/maildrop/mail.{'a' * 32}", b"")
    queue.put(f"{queue.home.queue}/maildrop/tmp.{'a' * 32}", b"")
    os.makedirs(f"{queue.home.queue}/corrupt/maildrop", exist_ok=True)
    queue.put(f"{queue.home.queue}/corrupt/maildrop/1000.1.2", b"")
    assert queue.run("stat") == 111
    found = lines(capsys)
    assert found[:2] == ["messages in queue: 5", "messages in queue but not yet preprocessed: 2"]
    kind = "flat" if queue.layout.flat_todo else "hashed"
    for line in ("incoming: 1", "queued: 2", "classified: 2", "unknown: 0", "held: 1", "corrupt: 1", "with trouble: 0"):
        assert line in found
    assert {"stray names: 1", "maildrop: 1", "set aside from maildrop: 1"} <= set(found)
    for line in ("bytes: 90", "split: 23", f"todo: {kind}", f"intd: {kind}"):
        assert line in found
    assert next(line for line in found if line.startswith("oldest: ")).endswith("h")
    assert queue.run("stat", "--format", "json") == 111
    (facts,) = map(json.loads, lines(capsys))
    assert facts.pop("disk").keys() == {"free", "total"}
    assert facts == {
        "messages": 5, "incoming": 1, "queued": 2, "classified": 2, "unknown": 0, "held": 1, "corrupt": 1, "trouble": 0,
        "strays": 1, "maildrop": 1, "set_aside": 1, "stored": 0, "bytes": 90, "oldest": "2023-11-14T22:13:20Z",
        "split": 23, "todo": kind, "intd": kind, "removing": None, "queue_send": "not running", "processes": [],
    }  # fmt: skip


def test_an_empty_queue_is_listed_and_counted(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert queue.run("list") == 0
    assert lines(capsys) == []
    assert queue.run("stat") == 111
    assert {"messages in queue: 0", "oldest: none", "maildrop: 0"} <= set(lines(capsys))
