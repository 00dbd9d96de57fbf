"""queue-intake killed at its system calls: what it answered K is in the queue, whole; nothing in it is half."""

import os
import socket
from pathlib import Path
from typing import NamedTuple

import pytest

from queue_base.home import Home
from queue_base.queue.hold_marks import marked_messages, read_mark, remove_lost_marks
from queue_base.queue.layout import is_there, open_layout
from queue_wire.files.hold_mark import HoldMark
from queue_wire.pipes.qmtp import pack_facts
from support.faults.kill.kill_calls import EVERY, at_each
from support.faults.kill.kill_calls import Point as CallPoint
from support.faults.kill.kill_world import odd_files, sweep_all, text_of
from support.inject.injectors import queued, shared_home, states
from support.intake.intake_daemon import Client, IntakeDaemon, qmtp
from support.plugins.saying import Say
from support.send.control import files
from support.tools import need

CONNECTIONS = 3
# The connection whose messages are to be on hold, and copied for the postmaster.
HELD = 1
# Messages of one connection, in lines: the last one is longer than what is read at once.
LINES = (3, 40, 3000)
# How often its threads make each call for these messages, at least.
CALLS = {"accept4": 4, "recvfrom": 9, "sendto": 3, "linkat": 2 * 9, "fsync": 9, "write": 9}


class Outcome(NamedTuple):
    """The messages that were sent, those that were answered K, and whether queue-intake was killed."""

    sent: set[bytes]
    taken: set[bytes]
    killed: bool


def hand_in(home: Home, wrapper: tuple[str, ...]) -> Outcome:
    """Run queue-intake under strace, hand in all messages over several connections, and take the answers."""
    messages = {number: [text_of(f"m{number}-{lines}", lines) for lines in LINES] for number in range(CONNECTIONS)}
    taken: set[bytes] = set()
    with IntakeDaemon(home, wrapper=wrapper) as intake:
        clients: dict[int, Client] = {}
        for number, texts in messages.items():
            try:
                clients[number] = Client(home)
                packages = [qmtp(text, b"ann", [b"bob", b"joe"]) for text in texts]
                if number == HELD:
                    packages = [pack_facts(hold=b"spam", copy=b"spam") + package for package in packages]
                clients[number].send(b"".join(packages))
                clients[number].socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # It was killed already.
        for number, client in clients.items():
            for text in messages[number]:
                answers = {client.answer()[:1], client.answer()[:1]}
                assert answers in ({b"K"}, {b""}, {b"K", b""}), answers
                if b"K" in answers:
                    taken.add(text)
            client.close()
        intake.close_input()
        code = intake.process.wait(60)
    return Outcome({text for texts in messages.values() for text in texts}, taken, code != 0)


def words(point: CallPoint) -> tuple[str, ...]:
    """Return strace's command line, which kills at the call of any thread that is its `number`-th of that name."""
    number = "USR1" if point.after else "KILL"
    options = ("-f", "-q", "-o", "/dev/null", "-e", f"trace={point.call}")
    return (need("strace"), *options, "-e", f"inject={point.call}:signal={number}:when={point.number}", "--")


@EVERY
def test_a_kill_of_queue_intake_loses_no_message_that_was_answered_and_queues_none_that_is_half(
    tmp_path: Path, every: bool, say: Say
) -> None:
    counts = {"taken": 0, "queued": 0}

    def kill(number: int, point: CallPoint) -> tuple[bool, list[str]]:
        with shared_home() as home:
            outcome = hand_in(home, words(point))
            found = [each.message for each in queued(home)]
            wrong = [] if set(states(home)) <= {2, 3, 4} else [f"states {states(home)}"]
            wrong += odd_files(home)
            wrong += [f"half a message, {len(text)} bytes" for text in found if text not in outcome.sent]
            wrong += ["a message twice"] if len(set(found)) < len(found) else []
            wrong += [f"lost, {len(text)} bytes" for text in outcome.taken if text not in found]
            layout = open_layout(home.queue)
            held = [each for each in queued(home) if b"m%d-" % HELD in each.message]
            copied = [name.partition("_")[0] for name in os.listdir(f"{home.queue}/postman")]
            wrong += ["not on hold" for each in held if read_mark(layout, each.number) != HoldMark(b"spam")]
            wrong += ["not copied" for each in held if str(each.number) not in copied]
            marked = marked_messages(layout, "hold")
            wrong += ["another one is on hold" for each in queued(home) if each not in held and each.number in marked]
            wrong += [] if outcome.killed or outcome.taken == outcome.sent else ["not all were taken"]
            sweep_all(home)
            remove_lost_marks(layout)
            left = [name for name in files(home) if not name.startswith(("mess/", "todo/", "hold/", "postman/"))]
            marked = marked_messages(layout, "hold")
            left += [f"the mark of {number}" for number in marked if not is_there(layout.todo(number))]
            counts["taken"] += len(outcome.taken)
            counts["queued"] += len(found)
            return outcome.killed, wrong + left

    points = [
        CallPoint(call, number + 1, after, "")
        for call, most in CALLS.items()
        for number in range(most if every else min(most, 9))
        for after in ((False, True) if every else (number % 2 == 1,))
    ]
    points = points if every else points[::3]
    wrong = at_each(points, kill)
    assert not wrong, "\n".join(wrong)
    assert counts["queued"] >= counts["taken"] > 0
    say(f"queue-intake: {len(points)} kills, {counts['taken']} messages answered, {counts['queued']} queued")


@pytest.mark.parametrize("call", ["linkat", "fsync"])
def test_a_disk_that_refuses_a_call_is_answered_z_and_leaves_nothing(call: str) -> None:
    options = ("-f", "-q", "-o", "/dev/null", "-e", f"trace={call}")
    wrapper = (need("strace"), *options, "-e", f"inject={call}:error=EIO:when=1..2", "--")
    with shared_home() as home, IntakeDaemon(home, wrapper=wrapper) as intake, Client(home) as client:
        answers = []
        for _ in range(4):
            client.send(qmtp(b"Subject: x\n\n", b"ann", [b"bob"]))
            answers.append(client.answer()[:1])
        assert answers[0] == b"Z" and answers[-1] == b"K"
        intake.wait_for(b"its clients were told to try again later")
        assert len(queued(home)) == answers.count(b"K")
