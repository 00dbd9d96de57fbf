"""Standing holds: queue-todo puts what fits one on hold as it classifies it, and never announces it."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.standing_holds import read_holds
from queue_base.queue.writer import QueueWriter
from queue_todo.classify import TodoGroup
from queue_wire.control.rewrite import Rules
from queue_wire.files.standing_hold import HoldTable, SeenRecipients, StandingHold, pack_holds, unpack_holds
from queue_wire.format_error import FormatError
from queue_wire.pipes.notice import ANNOUNCE, PASSED, REREAD, Ask, Held, Reread, unpack_notice
from queue_wire.pipes.qmtp import pack_facts
from support.intake.intake_daemon import ask, qmtp
from support.processes.refusals import value_or_refusal
from support.processes.suite import Suite, enqueue, wait_until
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import queue_message
from support.send.control import file, long_id, order, queuectl

FIELD = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").lower())
HOLDS = st.builds(
    StandingHold, FIELD, FIELD, st.none() | st.integers(0, 2**32 - 1), FIELD, FIELD,
    st.binary(max_size=20).map(lambda data: data.translate(None, b"\n\0")),
).filter(lambda hold: any(hold.key))  # fmt: skip


@given(st.lists(HOLDS, max_size=5))
def test_holds_are_read_as_they_were_written(holds: list[StandingHold]) -> None:
    assert unpack_holds(pack_holds(holds)) == holds


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    value_or_refusal(unpack_holds, data)


@pytest.mark.parametrize("line", [b"x", b"sender=a@b", b"lost=1 reason=x", b"uid=x reason=", b"sender=%zz reason="])
def test_a_line_that_is_no_hold_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_holds(line + b"\n")


def fits(hold: StandingHold, sender: bytes = b"a@b.example", uid: int = 7, to: tuple[bytes, ...] = (b"c@d",)) -> bool:
    table = HoldTable([hold])
    seen = SeenRecipients(table)
    seen.add(to)
    return table.find(sender, uid, seen) == hold


@pytest.mark.parametrize(
    ("hold", "fit"),
    [
        (StandingHold(sender=b"a@b.example"), True),
        (StandingHold(sender=b"x@b.example"), False),
        (StandingHold(sender_domain=b"b.example"), True),
        (StandingHold(uid=7), True),
        (StandingHold(uid=0), False),
        (StandingHold(recipient=b"c@d"), True),
        (StandingHold(domain=b"d"), True),
        (StandingHold(sender=b"a@b.example", uid=7, domain=b"d"), True),
        (StandingHold(sender=b"a@b.example", uid=8), False),
        (StandingHold(uid=7, domain=b"e"), False),
    ],
)
def test_a_hold_fits_what_all_its_words_fit(hold: StandingHold, fit: bool) -> None:
    assert fits(hold) is fit
    assert fits(hold, sender=b"A@B.Example", to=(b"x@y", b"C@D")) is fit


def tell(todo: TodoDaemon) -> None:
    todo.write(ANNOUNCE + PASSED)
    # What it says of its control files at its start may come first.
    while isinstance(found := unpack_notice(todo.record()), Reread):
        todo.rereads.append(found)
    assert found is Ask.PASSED


def test_the_domain_of_a_sender_that_differs_by_recipient_is_that_of_its_address() -> None:
    assert fits(StandingHold(sender_domain=b"b.example"), sender=b"list-@b.example-@[]")
    assert not fits(StandingHold(sender_domain=b"[]"), sender=b"list-@b.example-@[]")


def test_a_message_that_a_hold_fits_is_classified_and_marked_before_it_leaves_todo(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        tell(todo)
        assert queuectl(home, "hold", "--uid", "7", "--standing", "--reason", "spam").returncode == 0
        message = queue_message(home, [b"b@example.net"])
        assert todo.line() == f"new msg {message}"
        assert todo.line().startswith(f"info msg {message}: ")
        assert todo._sent() == Held(message)
        assert todo.line() == f"hold msg {message}: spam"
        found = todo.notice()
        assert (found.message, found.remote) == (message, True) and todo.arrived is None
        assert Path(todo.layout.hashed("hold", message)).read_bytes() == b"spam\n"
        assert queuectl(home, "release", "--uid", "7", "--standing").returncode == 0
        queue_message(home, [b"b@example.net"])
        assert todo.notice() and todo.arrived is not None and todo.arrived.announced


def test_a_message_that_was_queued_on_hold_is_never_announced(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    with TodoDaemon(home) as todo:
        tell(todo)
        writer = QueueWriter(home, layout, 7)
        draft = writer.begin()
        draft.write(b"Subject: x\n\n")
        draft.hold = b"the filter says so"
        draft.finish(b"a@b.example", [b"b@example.net"])
        writer.commit([draft])
        assert todo.line() == f"new msg {draft.message}"
        assert todo.line().startswith(f"info msg {draft.message}: ")
        assert todo._sent() == Held(draft.message)
        assert todo.line() == f"hold msg {draft.message}: the filter says so"
        found = todo.notice()
        assert (found.message, found.remote) == (draft.message, True) and todo.arrived is None


def unable_to_read(todo: TodoDaemon, place: Path) -> str:
    """Return the next alert about a file; there may be others, about the machine."""
    while not (line := todo.line()).startswith(f"alert: queue-todo: unable to read {place}: "):
        assert line.startswith(("alert: ", "warning: ")), line
    return line


def test_a_file_that_cannot_be_read_is_an_alert_and_mail_goes_on_with_the_holds_before(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    place = Path(home.queue, "holds")
    with TodoDaemon(home) as todo:
        place.write_bytes(pack_holds([StandingHold(uid=7, reason=b"spam")]))
        held = queue_message(home, [b"b@example.net"])
        for _ in range(2):
            todo.line()
        assert todo._sent() == Held(held)
        todo.notice()
        place.write_bytes(b"garbage\n")
        message = queue_message(home, [b"b@example.net"])
        assert unable_to_read(todo, place)
        for _ in range(2):
            todo.line()
        assert todo._sent() == Held(message)


@pytest.mark.parametrize("classifyafter", ["600", "0"])
def test_what_comes_is_held_also_after_a_restart_until_the_hold_is_removed(
    home: Home, classifyafter: str
) -> None:
    Path(home.control, "classifyafter").write_text(f"{classifyafter}\n")
    assert queuectl(home, "hold", "--standing", "--list").returncode == 1
    words = ["--sender", "Spam@me.example.org", "--standing"]
    done = queuectl(home, "hold", *words, "--reason", "complaints")
    assert done.stdout == "standing hold: sender=spam@me.example.org reason: complaints\nheld 0 messages\n"
    assert [hold.reason for hold in read_holds(home.queue)] == [b"complaints"]
    listed = queuectl(home, "hold", "--standing", "--list", "--format", "json").stdout
    facts = {"sender": "spam@me.example.org", "sender_domain": None, "uid": None, "recipient": None, "domain": None}
    assert json.loads(listed) == facts | {"reason": "complaints"}
    with Suite(home) as suite:
        suite.wait_for("status: local 0/")
        enqueue(home, b"spam@me.example.org", [b"b@nowhere.invalid"], b"Subject: x\n\ny\n")
        message = int(suite.wait_for("^hold msg [0-9]*: complaints$").split()[2][:-1])
        wait_until(lambda: file(home, "info", message).exists(), why="its classification")
        assert "on hold: nothing is tried" in order(home, "show", long_id(home, message))
        assert suite.stop() == 0
        assert not suite.count("starting delivery")
    with Suite(home) as suite:
        suite.wait_for("status: local 0/")
        enqueue(home, b"spam@me.example.org", [b"b@nowhere.invalid"], b"Subject: x\n\ny\n")
        suite.wait_for("^hold msg [0-9]*: complaints$")
        assert order(home, "release", *words) == "standing hold removed"
        enqueue(home, b"spam@me.example.org", [b"c@nowhere.invalid"], b"Subject: x\n\ny\n")
        suite.wait_for("^starting delivery 1: msg .* to remote c@nowhere.invalid$")
        assert queuectl(home, "release", *words).returncode == 1


@pytest.mark.parametrize("classifyafter", ["600", "0"])
def test_what_was_handed_in_on_hold_is_not_delivered_also_after_a_kill_until_it_is_released(
    home: Home, classifyafter: str
) -> None:
    Path(home.control, "classifyafter").write_text(f"{classifyafter}\n")
    package = pack_facts(hold=b"a filter") + qmtp(b"Subject: x\n\ny\n", b"a@b.example", [b"c@nowhere.invalid"])
    with Suite(home) as suite:
        suite.wait_for("status: local 0/")
        wait_until(lambda: Path(home.queue, "intake/socket").exists(), why="queue-intake to listen")
        messages = [int(ask(home, package)[0].split()[-1].split(b"-")[0])]
        suite.wait_for(f"^hold msg {messages[0]}: a filter$")
        # Whether it is classified by now or not.
        messages.append(int(ask(home, package)[0].split()[-1].split(b"-")[0]))
        suite.kill()
        assert not suite.count("starting delivery")
    with Suite(home) as suite:
        suite.wait_for("status: local 0/")
        for message in messages:
            wait_until(lambda: file(home, "info", message).exists(), why="its classification")  # noqa: B023
            assert "a filter" in order(home, "show", long_id(home, message))
        assert not suite.count("starting delivery")
        order(home, "release", long_id(home, messages[0]))
        suite.wait_for(f"^starting delivery 1: msg {messages[0]} to remote c@nowhere.invalid$")
        assert not suite.count(f"starting delivery [0-9]*: msg {messages[1]} ")


@pytest.mark.parametrize("words", [["--all"], ["1-1"], ["--subject", "x"], ["--sender", ""], ["--older-than", "1d"]])
def test_a_standing_hold_by_anything_else_is_a_usage_error(home: Home, words: list[str]) -> None:
    assert queuectl(home, "hold", "--standing", *words).returncode == 100


def test_a_file_that_cannot_be_read_at_the_start_lets_nothing_pass_until_it_can(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    place = Path(home.queue, "holds")
    place.write_bytes(b"garbage\n")
    message = queue_message(home, [b"b@example.net"])
    with TodoDaemon(home) as todo:
        todo.write(ANNOUNCE)
        alert = unable_to_read(todo, place)
        assert "nothing is classified, because it is not known what is to be held; mend or remove it" in alert
        todo.write(REREAD)
        assert unable_to_read(todo, place) == alert, "it says so again"
        place.write_bytes(pack_holds([StandingHold(uid=7, reason=b"spam")]))
        todo.write(REREAD)
        assert todo.line() == f"new msg {message}"
        todo.line()
        assert todo._sent() == Held(message)
        assert todo.line() == f"hold msg {message}: spam"
        todo.notice()


class Refused:
    """A group whose sync, or whose write of a mark, the disk refuses."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
        self.layout = open_layout(home.queue)
        self.message = queue_message(home, [b"b@example.net"])
        self.mark = Path(self.layout.hashed("hold", self.message))
        real = getattr(os, what)

        def refuse(handle: int, *data: bytes) -> object:
            if os.readlink(f"/proc/self/fd/{handle}") == str(self.mark):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(handle, *data)

        with monkeypatch.context() as patch:
            patch.setattr(os, what, refuse)
            group = self.group([StandingHold(uid=7, reason=b"spam")], {})
        assert [message for message, _ in group.deferred] == [self.message] and self.mark.exists()
        self.held = group.held

    def group(self, holds: list[StandingHold], held: dict[int, bytes]) -> TodoGroup:
        """Classify the message."""
        rules = Rules(b"me.example.org", frozenset(), frozenset(), {})
        group = TodoGroup(self.layout, rules, [self.message], holds=HoldTable(holds), held=held)
        assert group.prepare()
        return group


@pytest.mark.parametrize("what", ["write", "fsync"])
@pytest.mark.parametrize("then", ["it is removed", "the hold is removed", "the hold stays", "the reason changes"])
def test_a_mark_whose_classification_the_disk_refused_holds_no_other_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, then: str
) -> None:
    home = todo_home(tmp_path / "home")
    refused = Refused(home, monkeypatch, what)
    assert refused.held == {refused.message: b"spam"}
    if then == "it is removed":
        os.unlink(refused.layout.todo(refused.message))
        os.unlink(refused.layout.mess(refused.message))
    reason = b"spam" if then == "the hold stays" else b"more spam"
    holds = [StandingHold(uid=7, reason=reason)] if "stays" in then or "changes" in then else []
    group = refused.group(holds, refused.held)
    assert not group.deferred
    assert [entry.held for entry in group.entries] == {
        "it is removed": [], "the hold is removed": [None], "the hold stays": [b"spam"],
        "the reason changes": [b"more spam"],
    }[then]  # fmt: skip
    assert refused.mark.exists() == bool(holds)


def test_a_hold_of_the_administrator_is_not_taken_back_with_that_of_a_standing_hold(
    tmp_path: Path,
) -> None:
    home = todo_home(tmp_path / "home")
    message = queue_message(home, [b"b@example.net"])
    layout = open_layout(home.queue)
    mark = Path(layout.hashed("hold", message))
    mark.write_bytes(b"ask Jo\n")
    rules = Rules(b"me.example.org", frozenset(), frozenset(), {})
    group = TodoGroup(layout, rules, [message], held={message: b"spam"})
    assert group.prepare() and mark.read_bytes() == b"ask Jo\n"


def test_a_mark_that_a_kill_left_without_a_message_is_gone_when_queue_todo_has_started(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    layout = open_layout(home.queue)
    held, gone = queue_message(home, [b"b@example.net"]), queue_message(home, [b"b@example.net"])
    for message in (held, gone):
        Path(layout.hashed("hold", message)).write_bytes(b"spam\n")
    os.unlink(layout.todo(gone))
    os.unlink(layout.mess(gone))
    with TodoDaemon(home) as todo:
        todo.notice()
        assert Path(layout.hashed("hold", held)).exists() and not Path(layout.hashed("hold", gone)).exists()
