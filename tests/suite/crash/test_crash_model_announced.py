"""Messages that are delivered while they are in todo/, under the crash model: their removal, and their classification.

Each test looks at what a power cut may leave, where no record in queue/marks counts, and at what a kill of all
processes leaves, where all of them count.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.queue.marks_file import MarksFile
from queue_wire.files.marks import DoneMarks, EnvelopeIdentity, identify
from queue_wire.pipes.cleaning import TODO, pack_clean
from queue_wire.pipes.notice import (
    ANNOUNCE,
    Arrived,
    Classified,
    ClassifyAnswer,
    ClassifyRequest,
    pack_request,
)
from support.faults.crash.crash_checks import (
    CLASSIFIED,
    QUEUED,
    Check,
    Message,
    broken,
    check_queue,
    records,
)
from support.faults.crash.crash_model import Crash
from support.faults.crash.crash_place import (
    GONE_OR_SWEPT,
    NAMED,
    RECIPIENTS,
    WRITER,
    Place,
    Sent,
    gone_when_answered,
    queue_notices,
)
from support.faults.traced import HEAD, run_traced
from support.plugins.amount import amount

IN_ORDER = sorted(RECIPIENTS)  # As they are in todo/.
ALL = (1 << len(IN_ORDER)) - 1
# The disks of a power cut that are looked at for each call, where a daemon classifies many messages.
MOST = amount(12, 256)
# The recipients that are done, by message: in no order, so that a bit that is taken for another one shows.
BITS = (0b101, 0b010, 0, ALL, 0b100, 0b011)


def envelopes_of(place: Place) -> list[EnvelopeIdentity]:
    """Return the envelopes in todo/."""
    found = []
    for number in sorted(place.numbers()):
        birth = os.stat(place.disk.mess(number)).st_mtime_ns // 1000
        found.append(identify(number, birth, Path(place.disk.todo(number)).read_bytes()))
    return found


def record(place: Place, bits: Callable[[int], int]) -> dict[EnvelopeIdentity, int]:
    """Write a record for each message, as queue-send does; return the bits, in the order of the slots."""
    marks = MarksFile(place.disk)
    done = {envelope: bits(at) for at, envelope in enumerate(envelopes_of(place))}
    for slot, (envelope, each) in enumerate(done.items()):
        assert marks.take() == slot
        marks.write(slot, DoneMarks(envelope, each))
    marks.close()
    place.model.restart()
    return done


def addresses(bits: int) -> set[bytes]:
    return {address for at, address in enumerate(IN_ORDER) if bits >> at & 1}


# Removal


def kept_until_it_is_gone(place: Place) -> Check:
    """After a kill a message in S4 has its record, whole, and a number that is free has none."""

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        left = records(crash, place.layout)
        wrong = [f"message {number} is gone and has a record" for number in left if number not in found]
        for number, message in found.items():
            if message.state == QUEUED and (number not in left or left[number].done != ALL):
                wrong.append(f"message {number} is in S4 and its recipients are not marked")
        return wrong

    return check


@pytest.mark.parametrize("writer", [WRITER, NAMED], ids=["nameless", "named"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_message_that_was_delivered_unclassified_is_removed_in_an_order_that_no_crash_turns_against_anybody(
    tmp_path: Path, count: int, writer: str
) -> None:
    place = Place(tmp_path)
    place.enqueue(count, writer)
    done = record(place, lambda at: ALL)
    numbers = [envelope.message for envelope in done]
    requests = [pack_clean(each.message, TODO, slot, each.birth) for slot, each in enumerate(done)]

    place.converse("queue-clean", b"".join(requests), lambda output: output == b"+" * count)

    assert place.numbers() == []
    assert check_queue(place.model, place.layout, gone_when_answered(numbers), most=512) > 5
    assert check_queue(place.model, place.layout, kept_until_it_is_gone(place), most=0) > 3 * count


REMOVE = (
    HEAD
    + """
from queue_base.queue.marks_file import clear_slots, open_marks
queue, number = sys.argv[1], int(sys.argv[2])
commit = Commit()
mess, todo = (f"{queue}/{kind}/{number % 3}/{number}" for kind in ("mess", "todo"))
def clear(): clear_slots(open_marks(queue), [0])
"""
)
# A wrong order, what is wrong with it, and whether a kill shows it.
WRONG = {
    "mess goes before the removal of todo is synced": (
        "commit.unlink(todo); clear(); os.unlink(mess)", "is in no state: it has todo", False
    ),
    "mess goes first": ("os.unlink(mess); commit.unlink(todo); commit.sync(); clear()", "is in no state", True),
    "the record is cleared before todo goes": (
        "clear(); commit.unlink(todo); commit.sync(); os.unlink(mess)", "is in S4 and its recipients are not", True
    ),
    "mess goes before the record is cleared": (
        "commit.unlink(todo); commit.sync(); os.unlink(mess); clear()", "is gone and has a record", True
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", WRONG)
def test_a_wrong_order_of_a_removal_is_caught_where(tmp_path: Path, order: str) -> None:
    steps, wrong, kill = WRONG[order]
    place = Place(tmp_path)
    place.enqueue(1)
    (envelope,) = record(place, lambda at: ALL)
    command = [sys.executable, "-c", REMOVE + steps, place.home.queue, str(envelope.message)]
    assert run_traced(place.model, place.trace, command) == 0

    checks = [kept_until_it_is_gone(place)] if kill else []
    lines = broken(place.model, place.layout, *checks, most=0 if kill else 2048)[1]

    assert any(wrong in line for line in lines), lines


# Classification


def classified_as_said(place: Place, done: dict[int, int], kill: bool) -> Check:
    """A message is in S4 and owes everybody, or in S5 and owes those who are not done; after the answer it is in S5.

    After a kill it still has its record in S4.
    """

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        answered = told(crash.said)
        left = records(crash, place.layout) if kill else {}
        wrong = []
        for number, bits in done.items():
            message = found.get(number)
            if message is None or message.state not in (QUEUED, CLASSIFIED):
                wrong.append(f"message {number} is lost")
            elif message.state == QUEUED:
                if number in answered:
                    wrong.append(f"queue-send was told of {number}, and it is in S4")
                if message.owed() != RECIPIENTS:
                    wrong.append(f"message {number} is in S4 and owes {message.owed()!r}")
                if kill and bits and (number not in left or left[number].done != bits):
                    wrong.append(f"message {number} is in S4 and its record is lost")
            elif (message.owed(), message.done()) != (addresses(ALL & ~bits), addresses(bits)):
                wrong.append(f"message {number} owes {message.owed()!r}, and {message.done()!r} are marked")
        return wrong

    return check


def told(said: bytes) -> set[int]:
    """Return the messages that queue-todo has told queue-send to be classified."""
    found = set()
    for notice in queue_notices(said):
        if isinstance(notice, ClassifyAnswer):
            assert notice.classified
            found.add(notice.message)
        elif isinstance(notice, Classified) or (isinstance(notice, Arrived) and not notice.announced):
            found.add(notice.message)
    return found


@pytest.mark.parametrize("count, at_once", [(1, True), (6, True), (6, False)])
def test_what_is_classified_on_request_is_queued_or_has_the_marks_of_those_who_are_done(
    tmp_path: Path, count: int, at_once: bool
) -> None:
    place = Place(tmp_path)
    place.enqueue(count)
    done = {each.message: bits for each, bits in record(place, lambda at: BITS[at]).items()}

    waiting: list[int] = []
    arrived = 0

    def requests(notice: Sent) -> bytes:
        nonlocal arrived
        if isinstance(notice, Arrived):
            arrived += 1
            waiting.append(notice.message)
        if at_once and arrived < count:
            return b""
        asked = b"".join(pack_request(ClassifyRequest(number, done[number])) for number in waiting)
        waiting.clear()
        return asked

    def enough(output: bytes) -> bool:
        return len(told(output)) == count

    said = place.converse("queue-todo", ANNOUNCE, enough, answer=requests)

    assert all(notice.announced for notice in queue_notices(said) if isinstance(notice, Arrived))
    assert check_queue(place.model, place.layout, classified_as_said(place, done, False), most=MOST) > 20
    assert check_queue(place.model, place.layout, classified_as_said(place, done, True), most=0) > 5


@pytest.mark.parametrize("count", [1, 6])
def test_what_a_killed_run_has_marked_is_classified_with_its_marks_by_the_next_one(tmp_path: Path, count: int) -> None:
    place = Place(tmp_path)
    place.enqueue(count)
    done = {each.message: bits for each, bits in record(place, lambda at: BITS[at]).items()}

    place.converse("queue-todo", b"", lambda output: len(told(output)) == count)

    assert check_queue(place.model, place.layout, classified_as_said(place, done, False), most=MOST) > 20
    assert check_queue(place.model, place.layout, classified_as_said(place, done, True), most=0) > 5


def test_a_message_that_is_announced_and_ends_is_never_in_two_states_nor_comes_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.enqueue(3)
    place.model.restart()
    envelopes = envelopes_of(place)
    numbers = [each.message for each in envelopes]

    def is_announced(said: bytes) -> bool:
        return sum(isinstance(notice, Arrived) for notice in queue_notices(said)) == len(numbers)

    place.converse("queue-todo", ANNOUNCE, is_announced)
    requests = b"".join(pack_clean(each.message, TODO, None, each.birth) for each in envelopes)
    place.converse("queue-clean", requests, lambda output: output == b"+" * len(numbers))

    def stays_gone(crash: Crash, found: dict[int, Message]) -> list[str]:
        done = crash.said.endswith(b",+++")
        return [f"message {number} came back" for number in found if done and found[number].state not in GONE_OR_SWEPT]

    assert check_queue(place.model, place.layout, stays_gone, most=512) > 20
