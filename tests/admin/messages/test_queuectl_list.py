"""queuectl list and stat: messages that come and go, marks; they change nothing. transcripts/list.txt has the rest."""

import json
import os
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
from support.inject.qmail_queue import snapshot
from support.queues.listed_queue import BIRTH, Queue, lines

EVERYBODY = Selectors()


@pytest.fixture(params=[False, True], ids=["hashed", "flat"])
def queue(tmp_path: Path, request: pytest.FixtureRequest) -> Queue:
    return Queue(tmp_path / "home", request.param)


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
