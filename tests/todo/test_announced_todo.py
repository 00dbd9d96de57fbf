"""queue-todo and announced messages: it writes nothing for them until queue-send asks, and looks at no number twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import BIRTH_MAX, Presence, open_layout
from queue_base.queue.marks_file import MarksFile
from queue_wire.files.envelope import Envelope, pack_info, pack_todo
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.ids import pack_long_id, unpack_long_id
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    EXIT,
    FIRST,
    LEAVE,
    PASSED,
    Arrived,
    Ask,
    Classified,
    ClassifyAnswer,
    ClassifyRequest,
    pack_gone,
    pack_request,
    unpack_notice,
)
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import put_mess, put_todo, queue_message

SUBMITTER = b"0123456789abcdef"
BOTH = [b"joe", b"b@example.net", b"c@example.net"]
OF_TWO = b"u1\0p2\0Fa@example.org\0Tb@example.net\0Tc@example.net\0"
LAYOUT_KINDS = ("info", "local", "remote")


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path) -> Home:
    return todo_home(tmp_path / "home")


@pytest.fixture(name="todo")
def fixture_todo(home: Home) -> Iterator[TodoDaemon]:
    """A queue-todo that announces new messages."""
    with TodoDaemon(home) as todo:
        todo.tell(ANNOUNCE)
        yield todo


def files(todo: TodoDaemon, message: int) -> list[bytes]:
    return [Path(todo.layout.hashed(kind, message)).read_bytes() for kind in LAYOUT_KINDS]


def test_an_announced_message_stays_in_todo_with_no_other_file(home: Home, todo: TodoDaemon) -> None:
    message = queue_message(home, BOTH)
    notice = todo.announced()
    data = Path(todo.layout.todo(message)).read_bytes()
    birth = os.stat(todo.layout.mess(message)).st_mtime_ns // 1000
    assert identify(message, birth, data) == (message, notice.birth, notice.todo_size, notice.check)
    assert notice.recipients == [(b"L", b"joe@me.example.org"), (b"R", BOTH[1]), (b"R", BOTH[2])]
    assert todo.lines == []  # queue-send logs it.
    assert data.startswith(b"u%d\0p%d\0" % (notice.uid, notice.pid))
    assert not any(os.path.lexists(todo.layout.hashed(kind, message)) for kind in LAYOUT_KINDS)


def test_it_is_classified_on_request_with_the_recipients_that_are_done(home: Home, todo: TodoDaemon) -> None:
    message = queue_message(home, BOTH)
    todo.announced()
    # The rules of the announcement count: queue-send knows the places of the recipients.
    Path(home.control, "locals").write_bytes(b"example.net\n")
    todo.reread()
    assert todo.line() == "config locals 1 line, changed"
    todo.write(pack_request(ClassifyRequest(message, 0b101)))
    assert todo._sent() == ClassifyAnswer(message, True)
    local, remote = b"Djoe@me.example.org\0", b"Tb@example.net\0Dc@example.net\0"
    assert files(todo, message) == [pack_info(b"a@example.org", "", 7), local, remote]
    assert Presence(todo.layout, message).state() == 5
    assert todo.exit() == 0


def test_uid_and_submitter_are_in_the_notice_and_in_info_also_of_mail_that_is_classified_at_once(home: Home) -> None:
    first, second = (queue_message(home, [b"b@example.net"], uid=1007, submitter=SUBMITTER) for _ in range(2))
    with TodoDaemon(home) as todo:
        found = []
        for _ in range(2):
            todo.notice()
            found.append(todo.arrived)
        todo.tell(ANNOUNCE)
        third = queue_message(home, [b"b@example.net"], uid=1007, submitter=SUBMITTER)
        found.append(todo.announced())
        todo.write(pack_request(ClassifyRequest(third, 0)))
        assert todo._sent() == ClassifyAnswer(third, True)
        assert {each.message for each in found if each is not None} == {first, second, third}
        for notice in found:
            assert notice is not None and (notice.uid, notice.submitter) == (1007, SUBMITTER)
            info = Path(todo.layout.hashed("info", notice.message)).read_bytes()
            assert info == pack_info(b"a@example.org", "", 1007, SUBMITTER)
        assert not any(SUBMITTER.decode() in line for line in todo.lines)


def replace_envelope(todo: TodoDaemon, message: int) -> None:
    """Give a number another envelope, for z@example.net, as the next message of the number has one."""
    os.unlink(todo.layout.todo(message))
    os.unlink(todo.layout.intd(message))
    put_todo(todo.layout, message, b"u1\0p2\0Fa@example.org\0Tz@example.net\0")


def test_a_number_that_is_named_again_is_looked_at_only_when_its_message_is_gone(home: Home, todo: TodoDaemon) -> None:
    message = queue_message(home, BOTH)
    todo.announced()
    # Another envelope of this number, as after a removal that queue-send has not heard of.
    replace_envelope(todo, message)
    other = queue_message(home, BOTH)
    assert todo.announced().message == other
    todo.write(pack_gone(message))
    found = todo.announced()
    assert (found.message, found.recipients) == (message, [(b"R", b"z@example.net")])


def test_a_message_that_was_replaced_is_not_classified_for_another_one(home: Home, todo: TodoDaemon) -> None:
    message = queue_message(home, BOTH)
    todo.announced()
    replace_envelope(todo, message)
    todo.write(pack_request(ClassifyRequest(message, 0b1)))
    assert todo._sent() == ClassifyAnswer(message, False)
    # It is a new message.
    assert todo.announced().recipients == [(b"R", b"z@example.net")]


def test_what_is_left_in_todo_is_taken_when_that_is_over(home: Home) -> None:
    with TodoDaemon(home) as todo:
        todo.tell(LEAVE)
        message = queue_message(home, BOTH)
        todo.tell(LEAVE)
        assert Presence(todo.layout, message).state() == 4
        todo.write(CLASSIFY)
        assert todo.notice().message == message
        assert Presence(todo.layout, message).state() == 5


def test_those_of_lower_classes_are_left_while_only_the_first_class_is_wanted(home: Home) -> None:
    layout = open_layout(home.queue)
    make_class_tree(layout, "bulk")
    with TodoDaemon(home) as todo:
        todo.tell(FIRST)
        message = put_mess(layout)
        Path(layout.todo_in("bulk", message)).write_bytes(OF_TWO)
        normal = queue_message(home, BOTH)
        assert todo.announced().message == normal
        todo.tell(FIRST)
        todo.write(ANNOUNCE)
        found = todo.announced()
        assert (found.message, found.priority) == (message, "bulk")


@pytest.mark.parametrize("kind", ["info", "local"])
def test_with_a_file_of_an_interrupted_classification_it_is_classified(home: Home, kind: str) -> None:
    with TodoDaemon(home) as todo:
        pass  # Makes the layout.
    message = queue_message(home, BOTH)
    Path(todo.layout.hashed(kind, message)).write_bytes(b"Tx@example.net\0")
    with TodoDaemon(home) as todo:
        todo.write(ANNOUNCE)
        assert todo.notice().message == message
        assert todo.arrived is not None and not todo.arrived.announced
        assert Presence(todo.layout, message).state() == 5


def test_with_a_mark_in_corrupt_it_is_classified(todo: TodoDaemon) -> None:
    message = put_mess(todo.layout)
    Path(todo.layout.hashed("corrupt", message)).write_bytes(b"why\n")
    put_todo(todo.layout, message, b"u1\0p2\0Fa@example.org\0Tz@example.net\0")
    assert todo.notice().message == message
    assert Presence(todo.layout, message).state() == 5


@pytest.mark.parametrize(("when", "birth"), [(-5, 0), (2**50, BIRTH_MAX)])
@pytest.mark.parametrize("mode", [ANNOUNCE, CLASSIFY])
def test_a_birth_that_is_out_of_range_is_the_nearest_one_in_its_notice(
    home: Home, mode: bytes, when: int, birth: int
) -> None:
    with TodoDaemon(home) as todo:
        todo.tell(mode)
        layout = open_layout(home.queue)
        message = put_mess(layout)
        os.utime(layout.mess(message), (when, when))
        put_todo(layout, message, pack_todo(Envelope(7, 8, b"a@example.org", BOTH)))
        assert todo.notice() == Classified(message, local=True, remote=True)
        assert todo.arrived is not None and todo.arrived.birth == birth
        assert unpack_long_id(pack_long_id(message, birth)) == (message, birth)


@pytest.mark.parametrize("recipients", [[], [b"r%d@example.net" % number for number in range(101)]])
def test_with_no_or_very_many_recipients_it_is_classified(
    home: Home, todo: TodoDaemon, recipients: list[bytes]
) -> None:
    message = queue_message(home, recipients)
    assert todo.notice().message == message
    assert Presence(todo.layout, message).state() == 5


def test_the_notice_of_one_with_very_many_recipients_says_whose_it_is(todo: TodoDaemon) -> None:
    many = [b"r%d@example.net" % number for number in range(101)]
    for submitter in (b"", b"0123456789abcdef"):
        message = put_mess(todo.layout)
        put_todo(todo.layout, message, pack_todo(Envelope(1000, 8, b"a@example.org", many, submitter)))
        assert todo.notice() == Classified(message, local=False, remote=True)
        assert todo.submitted == (1000, submitter)


def test_what_an_earlier_run_has_marked_is_done_in_the_files_of_a_message_that_it_classifies(home: Home) -> None:
    message = marked_by_a_killed_run(home, 0b01)
    with TodoDaemon(home) as todo:
        put_todo(todo.layout, message, OF_TWO)
        assert todo.notice().message == message
        assert todo.lines[0] == f"new msg {message}"
        assert files_of_remote(todo, message) == b"Db@example.net\0Tc@example.net\0"


@pytest.mark.parametrize("mode", [ANNOUNCE, CLASSIFY])
def test_a_message_whose_recipients_an_earlier_run_has_all_marked_is_not_logged_again(home: Home, mode: bytes) -> None:
    message = marked_by_a_killed_run(home, 0b11)
    with TodoDaemon(home) as todo:
        todo.tell(mode)
        put_todo(todo.layout, message, OF_TWO)
        assert todo.notice() == Classified(message, local=False, remote=True)
        assert todo.lines == [] and todo.arrived is None
        assert files_of_remote(todo, message) == b"Db@example.net\0Dc@example.net\0"
        assert Presence(todo.layout, message).state() == 5


def test_it_is_announced_if_the_log_was_blocked_when_its_marks_were_written(home: Home) -> None:
    message = marked_by_a_killed_run(home, 0b11, logged=False)
    with TodoDaemon(home) as todo:
        todo.tell(ANNOUNCE)
        put_todo(todo.layout, message, OF_TWO)
        assert todo.announced().message == message


def marked_by_a_killed_run(home: Home, done: int, logged: bool = True) -> int:
    """Return the number of a message whose envelope is OF_TWO, with a record of which of its recipients are done."""
    layout = open_layout(home.queue)
    message = put_mess(layout)
    marks = MarksFile(layout)
    slot = marks.take()
    assert slot is not None
    birth = os.stat(layout.mess(message)).st_mtime_ns // 1000
    marks.write(slot, DoneMarks(identify(message, birth, OF_TWO), done, logged))
    marks.close()
    return message


def files_of_remote(todo: TodoDaemon, message: int) -> bytes:
    return Path(todo.layout.hashed("remote", message)).read_bytes()


@pytest.mark.parametrize("limit", ["ANNOUNCED_MAX = 2", "BYTES_MAX = 100"])
def test_above_a_number_or_size_of_announced_messages_it_classifies(home: Home, tmp_path: Path, limit: str) -> None:
    lines = "import sys", "from queue_todo import announcements, main", f"announcements.{limit}"
    Path(tmp_path, "queue-todo").write_text("\n".join([*lines, "sys.exit(main.main(sys.argv))"]))
    with TodoDaemon(home, programs=tmp_path) as todo:
        todo.tell(ANNOUNCE)
        first, second = queue_message(home, BOTH), queue_message(home, BOTH)
        assert {todo.announced().message, todo.announced().message} == {first, second}
        third = queue_message(home, BOTH)
        assert todo.notice().message == third and Presence(todo.layout, third).state() == 5
        todo.write(pack_gone(first))
        todo.tell(ANNOUNCE)
        queue_message(home, BOTH)
        todo.announced()


def test_many_requests_do_not_delay_a_new_message(home: Home, tmp_path: Path) -> None:
    # It takes names at once.
    lines = "import sys", "from queue_todo import main, pipeline", "pipeline.GROUP = 1", "main.GATHER = 0.0"
    Path(tmp_path, "queue-todo").write_text("\n".join([*lines, "sys.exit(main.main(sys.argv))"]))
    with TodoDaemon(home, programs=tmp_path) as todo:
        todo.tell(ANNOUNCE)
        for _ in range(8):
            queue_message(home, BOTH)
        asked = [todo.announced().message for _ in range(8)]
        todo.tell(LEAVE)
        new = queue_message(home, BOTH)
        todo.tell(LEAVE)  # inotify has named it.
        todo.write(ANNOUNCE + b"".join(pack_request(ClassifyRequest(message, 0)) for message in asked))
        answers = 0
        while isinstance(sent := todo._sent(), ClassifyAnswer):
            answers += 1
        assert isinstance(sent, Arrived) and sent.message == new
        assert answers <= 2


def test_after_x_it_ends_when_nothing_is_announced_any_more(home: Home, todo: TodoDaemon) -> None:
    first, second = queue_message(home, BOTH), queue_message(home, BOTH)
    assert {todo.announced().message, todo.announced().message} == {first, second}
    todo.write(EXIT + pack_gone(first) + PASSED)
    assert unpack_notice(todo.record()) is Ask.PASSED
    assert todo.process.poll() is None
    todo.write(pack_request(ClassifyRequest(second, 0)))
    assert todo._sent() == ClassifyAnswer(second, True)
    assert todo.process.wait(30) == 0


def test_after_x_what_the_disk_has_refused_is_tried_again_at_once_and_each_second(home: Home, todo: TodoDaemon) -> None:
    message = queue_message(home, BOTH)
    todo.announced()
    in_the_way = Path(todo.layout.hashed("info", message))
    in_the_way.mkdir()
    todo.write(pack_request(ClassifyRequest(message, 0b101)))
    assert todo.line().startswith(f"warning: queue-todo: unable to classify msg {message}: ")
    todo.write(EXIT)
    assert todo.line().startswith(f"warning: queue-todo: unable to classify msg {message}: ")
    in_the_way.rmdir()
    # It may have been tried once more before that.
    while isinstance(sent := todo._sent(), bytes):
        continue
    assert sent == ClassifyAnswer(message, True)
    assert files(todo, message)[2] == b"Tb@example.net\0Dc@example.net\0"
    assert todo.process.wait(30) == 0
