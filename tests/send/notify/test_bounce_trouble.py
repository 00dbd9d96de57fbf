"""queue-send with bounces that are hard to make: too many failures, files that cannot be read, no pidfd."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_send.messages import bounce_file
from queue_send.messages.bounce_file import (
    AND_OTHERS,
    BOUNCE_MAX,
    BOUNCE_PIECE,
    FailedRecipient,
    append_failures,
)
from queue_wire.failures import BRIEF_MAX, pack_failure, unpack_failures
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend

MANY = 20_000
OLD_FAILURE = b"<x@c>:\nnever\n\n"


def bounces(home: Home) -> list[bytes]:
    """Return the bytes of each message that waits in todo/."""
    layout = open_layout(home.queue)
    names = [name for directory in layout.directories("todo") for name in os.listdir(directory)]
    return [Path(layout.mess(int(name))).read_bytes() for name in names]


def many_failures() -> bytes:
    """Return bounce/I of MANY failures as older versions wrote it, with all that the host said."""
    text = b"Remote host said: 550-" + b"\n550-".join([b"x" * 900] * 3)
    return b"".join(b"<user%d@c>:\n%s\n\n" % (number, text) for number in range(MANY))


@pytest.mark.alone
def test_a_bounce_of_20000_long_failures_holds_up_no_turn_of_the_loop(home: Home) -> None:
    message = classified_message(home, bounce=many_failures())
    with ScriptedSend(home) as send:
        sender = psutil.Process(send.pid)
        worst, end = 0.0, time.monotonic() + 120
        while not send.found(rf"bounce msg {message} .*"):
            assert time.monotonic() < end
            start = sum(sender.cpu_times()[:2])
            send.turn()
            worst = max(worst, sum(sender.cpu_times()[:2]) - start)
        assert send.clean.removed() == message
    [text] = bounces(home)
    assert len(text) <= 4_000_000
    assert text.count(b"\n<user") == text.count(b"Final-Recipient: rfc822; user") == MANY
    # That is two turns or three, each with at most 20 ms and one step of work on a bounce; the clock goes by 10 ms.
    assert worst < 0.25


def test_term_during_a_long_bounce_ends_at_once_and_the_next_run_sends_it(home: Home) -> None:
    message = classified_message(home, bounce=many_failures())
    with ScriptedSend(home) as send:
        # One turn, which is far less than the bounce takes.
        send.todo.log(b"a turn")
        send.wait_for("a turn")
        send.signal(signal.SIGTERM)
        send.todo.die()
        assert send.wait() == 0
        assert not send.found("(bounce|end) msg .*") and bounces(home) == []
    with ScriptedSend(home) as send:
        send.wait_for(rf"bounce msg {message} qp \d+")
        assert send.clean.removed() == message
    assert len(bounces(home)) == 1


def a_directory(path: str) -> None:
    os.mkdir(path)


def a_loop(path: str) -> None:
    os.symlink(path, path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_directory, "is a directory"),
        (a_loop, "too many levels of symbolic links"),
    ],
)
def test_a_bounce_file_that_cannot_be_read_parks_its_message(
    home: Home, make: Callable[[str], None], why: str
) -> None:
    layout = open_layout(home.queue)
    message = classified_message(home)
    make(layout.bounce(message))
    with ScriptedSend(home) as send:
        assert why in send.wait_for(rf"corrupt msg {message}: .*")
        send.wait_for(rf"alert: msg {message} cannot be read and is parked in corrupt: .*")
        send.fence()
        assert not send.found(r".*will try later")
    assert why in Path(layout.hashed("corrupt", message)).read_text()
    assert os.path.lexists(layout.bounce(message)) and os.path.exists(layout.hashed("info", message))
    assert bounces(home) == []


def test_a_bounce_file_that_is_too_large_is_bounced_as_far_as_it_is_read(home: Home) -> None:
    # It was parked by an earlier version, and is released.
    message = classified_message(home, bounce=OLD_FAILURE)
    layout = open_layout(home.queue)
    os.truncate(layout.bounce(message), BOUNCE_MAX + 1)
    with ScriptedSend(home) as send:
        send.wait_for(rf"bounce msg {message} qp \d+")
        assert send.clean.removed() == message
    [text] = bounces(home)
    assert b"<x@c>:\nnever\n" in text and AND_OTHERS in text


def test_what_is_appended_to_a_large_bounce_file_is_brief_and_keeps_its_status(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = open_layout(home.queue)
    monkeypatch.setattr(bounce_file, "BRIEF_FROM", 1000)
    monkeypatch.setattr(bounce_file, "BOUNCE_MAX", 2000)
    text = b"192.0.2.1 does not like recipient.\nRemote host said: 550 5.1.1 " + b"x" * 5000 + b"\nGiving up.\n"
    for number in range(100):
        append_failures(layout, [FailedRecipient(7, b"user%d@c" % number, text)])
    data = Path(layout.bounce(7)).read_bytes()
    assert 2000 <= len(data) < 2300
    first, second, *_ = unpack_failures(data)
    assert len(first[1]) > 900 and len(second[1]) <= BRIEF_MAX
    assert b"550 5.1.1 x" in second[1] and second[1].endswith(b"[...]\nGiving up.")


def test_a_message_whose_header_cannot_be_read_is_bounced_without_it(home: Home) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    mess = Path(open_layout(home.queue).mess(message))
    # The file stays, so that no other message gets its number.
    mess.rename(Path(home.path, "moved"))
    mess.mkdir()
    with ScriptedSend(home) as send:
        send.wait_for(rf"bounce msg {message} qp \d+")
    assert b"<x@c>:\nnever\n" in bounces(home)[0]


def test_a_bounce_without_a_pidfd_is_sent_once_and_its_end_is_noticed(home: Home) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    fault = ("strace", "-o", os.devnull, "-e", "trace=pidfd_open", "-e", "inject=pidfd_open:error=EMFILE", "--")
    with ScriptedSend(home, wrapper=fault) as send:
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        assert len(send.found(rf"bounce msg {message} qp \d+")) == 1
        assert not send.found("warning: .*")
    assert len(bounces(home)) == 1


@pytest.mark.parametrize("length", [1, 2000, BOUNCE_PIECE - 1, BOUNCE_PIECE, BOUNCE_PIECE + 1, 3 * BOUNCE_PIECE])
def test_a_piece_of_any_length_is_cut_off_before_the_next_failure(home: Home, length: int) -> None:
    message = classified_message(home, bounce=OLD_FAILURE + b"x" * length)
    layout = open_layout(home.queue)
    append_failures(layout, [FailedRecipient(message, b"b@c", b"no")])
    assert Path(layout.bounce(message)).read_bytes() == OLD_FAILURE + pack_failure(b"b@c", b"no")


def test_a_large_bounce_file_loses_its_piece_too(home: Home) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    path = open_layout(home.queue).bounce(message)
    os.truncate(path, BOUNCE_MAX - 9)
    with open(path, "ab") as stream:
        stream.write(b"\n\n<half")
    append_failures(open_layout(home.queue), [FailedRecipient(message, b"b@c", b"no")])
    with open(path, "rb") as stream:
        stream.seek(-12, os.SEEK_END)
        assert stream.read() == b"\n\n<b@c>:\nno\n\n"[-12:]
