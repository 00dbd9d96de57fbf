"""When waiting messages are taken, and in which order: by turns of their domains."""

import os
import select
import warnings
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_todo.classify import first_domain
from queue_todo.notices import NoticePipe
from queue_todo.pending import SORT_FROM, Pending

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of what pyinotify imports.
    from queue_todo.main import GATHER, Classifier

BATCH = b"batch.example"


def waiting_pending(count: int) -> Pending:
    """Return ids 1 to `count` that inotify has named."""
    pending = Pending(Layout("/nowhere", 23))
    pending.add(range(1, count + 1), 1.0)
    return pending


def sort_all(pending: Pending, domains: dict[int, bytes]) -> None:
    while pending.may_sort:
        pending.sort([(message, domains.get(message, BATCH)) for message in pending.take_unsorted(250)])


def test_a_message_for_another_domain_does_not_wait_behind_a_batch() -> None:
    other = SORT_FROM + 5
    pending = waiting_pending(other)
    sort_all(pending, {other: b"other.example"})
    assert other in pending.take(2)


def test_mail_that_comes_while_others_are_sorted_takes_turns_with_them() -> None:
    pending = waiting_pending(SORT_FROM)
    sort_all(pending, {})
    pending.add([5000], 2.0)
    assert 5000 in pending.take(2)


def test_a_few_messages_are_taken_in_order_and_not_looked_at() -> None:
    pending = waiting_pending(SORT_FROM - 1)
    assert not pending.may_sort
    assert pending.take(250) == list(range(1, 251))


def test_what_a_scan_finds_is_not_looked_at_and_new_mail_does_not_wait_behind_it(home: Home) -> None:
    layout = open_layout(home.queue)
    for message in range(1, SORT_FROM + 1):
        Path(layout.todo(message)).touch()
    pending = Pending(layout)
    while pending.run(1.0) is None and len(pending) < SORT_FROM:
        pass
    assert not pending.may_sort
    pending.add([5000], 2.0)
    assert 5000 in pending.take(2)


def test_one_that_must_be_alone_is_never_sorted_and_comes_alone() -> None:
    pending = waiting_pending(SORT_FROM + 1)
    assert pending.take(1) == [1]
    pending.part([1])
    pending.give_back([1], 1.0)
    assert not pending.may_sort
    assert pending.take(250) == [1]


@pytest.mark.pure("replaces a method of a compiled class")
def test_names_that_come_soon_after_others_wake_nobody_until_all_are_taken_together(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, taken = open_layout(home.queue), list[int]()
    monkeypatch.setattr(Pending, "add", lambda self, found, now, priority: taken.extend(found))
    reader, writer = os.pipe2(os.O_NONBLOCK)
    monkeypatch.setattr("queue_todo.main.NoticePipe", lambda descriptor: NoticePipe(writer))
    classifier = Classifier(home, layout)

    def turn(now: float) -> float:
        """Make a turn at a time, if anything wakes it; return the seconds that it would wait."""
        poll = select.poll()
        wait = classifier.prepare(poll, now)
        poll.register(0, 0)  # It is the test's own.
        ready = {descriptor: events for descriptor, events in poll.poll(0) if descriptor not in (0, 1)}
        if ready or wait <= 0:
            classifier.run(ready, now)
        return wait

    for message, now, expected in [(1, 1000.0, [1]), (2, 1000.0 + GATHER / 2, [1]), (3, 1000.0 + GATHER * 0.9, [1])]:
        Path(layout.todo(message)).touch()
        wait = turn(now)
        assert taken == expected
    assert wait <= GATHER
    classifier.run({}, 1000.0 + GATHER)
    assert taken == [1, 2, 3]
    # After a pause one that comes alone does not wait.
    turn(1001.0)
    Path(layout.todo(4)).touch()
    turn(1002.0)
    assert taken == [1, 2, 3, 4]
    os.close(reader)
    os.close(writer)


@given(
    names=st.lists(st.integers(1, 99), max_size=70),
    steps=st.lists(st.tuples(st.sampled_from(("sort", "take", "return", "name")), st.integers(1, 30)), max_size=30),
)
@patch("queue_todo.pending.SORT_FROM", 10)
def test_every_message_is_taken_once_whatever_the_turns(names: list[int], steps: list[tuple[str, int]]) -> None:
    pending = Pending(Layout("/nowhere", 23))
    pending.add(names, 1.0)
    left, hand = set(names), list[int]()
    for step, number in steps:
        if step == "sort" and pending.may_sort:
            pending.sort([(message, b"%d" % (message % 7)) for message in pending.take_unsorted(number)])
        elif step == "take":
            taken = pending.take(number)
            assert len(taken) == min(number, len(left)) and left.issuperset(taken)
            left.difference_update(taken)
            hand += taken
        elif step == "return":
            back, hand = hand[:number], hand[number:]
            pending.give_back(back, 1.0)
            left.update(back)
        else:
            pending.done(hand, 1.0)
            hand = []
            pending.add([number], 2.0)
            left.add(number)
        assert len(pending) == len(left)
    assert sorted(pending.take(10_000)) == sorted(left)


def test_the_domain_is_that_of_the_first_recipient(tmp_path: Path) -> None:
    file = tmp_path / "1"
    file.write_bytes(b"u0\0p1\0Fa@from.example\0Tb@First.EXAMPLE\0Tc@second.example\0")
    assert first_domain(str(file)) == b"first.example"


def test_a_file_without_a_recipient_or_without_a_file_has_no_domain(tmp_path: Path) -> None:
    file = tmp_path / "1"
    assert first_domain(str(file)) == b""
    file.write_bytes(b"u0\0p1\0Fa@from.example\0")
    assert first_domain(str(file)) == b""
    file.write_bytes(b"\0T" + b"x" * 5000)
    assert first_domain(str(file)) == b""


def test_a_message_whose_name_inotify_has_lost_is_not_left_to_the_time_of_a_deferred_one(home: Home) -> None:
    classifier = Classifier(home, open_layout(home.queue))
    pending = classifier._pending
    pending.add([7], 0.0)
    assert pending.take(1) == [7]
    pending.defer(7, 0.0)
    classifier._watch.lost = True
    classifier._take_names("", classifier._watch, 1.0)
    pending.run(1.0)
    assert pending.take(1) == [7]
