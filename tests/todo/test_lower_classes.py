"""The lower classes in queue-todo: taken behind the first class, the oldest first, one of ten in any case."""

import os
from pathlib import Path

import pytest

import queue_todo.pending
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import Layout, open_layout
from queue_todo.pending import FLOOR, LowerClass, Pending
from support.queues.home import make_home

SPLIT = 3


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    home = make_home(tmp_path / "home", split=SPLIT)
    found = open_layout(home.queue)
    for name in ("bulk", "later"):
        make_class_tree(found, name)
    found.learn_classes()
    return found


def pending_of(layout: Layout) -> Pending:
    pending = Pending(layout)
    pending.set_classes(layout, ("bulk", "later"))
    return pending


def put(layout: Layout, priority: str, message: int, age: int = 0) -> None:
    path = Path(layout.todo_in(priority, message))
    path.write_bytes(b"u1\0p2\0Fa@b\0Tc@d\0")
    os.utime(path, (1_000_000 - age, 1_000_000 - age))


def read_all(pending: Pending) -> None:
    """Have the trees read, as the disk thread does."""
    pending.run(1.0)
    while (lower := pending.next_to_read(1.0)) is not None:
        lower.read()
        assert pending.take_read(lower, 1.0, None) is None
        pending.run(1.0)


def test_a_lower_class_is_taken_when_no_message_of_a_higher_one_waits(layout: Layout) -> None:
    pending = pending_of(layout)
    pending.add([1, 2], 1.0, "later")
    pending.add([3, 4], 1.0, "bulk")
    pending.add([5, 6], 1.0)
    assert pending.take(10) == [5, 6]
    assert pending.take(10) == [3, 4]
    assert pending.classes_of([3, 4, 5]) == {3: "bulk", 4: "bulk"}
    assert pending.take(10) == [1, 2]
    assert not pending.may_take()


def test_without_the_lower_classes_only_the_first_one_is_taken(layout: Layout) -> None:
    pending = pending_of(layout)
    pending.add([3], 1.0, "bulk")
    assert pending.may_take() and not pending.may_take(first_only=True)
    assert pending.take(10, first_only=True) == []
    pending.add([4], 1.0)
    assert pending.take(10, first_only=True) == [4]


def test_one_of_ten_is_of_a_lower_class_while_the_first_one_never_ends(layout: Layout) -> None:
    pending = pending_of(layout)
    pending.add(range(1, 101), 1.0, "bulk")
    pending.add(range(1001, 2001), 1.0)
    taken: list[int] = []
    while len(taken) < 500:
        group = pending.take(20)
        assert 0 < len(group) <= 20
        taken += group
        pending.done(group, 1.0)
    lower = [message for message in taken if message <= 100]
    assert lower == list(range(1, len(lower) + 1)), "in order of arrival"
    assert len(taken) // (2 * (FLOOR + 1)) <= len(lower) <= len(taken) // FLOOR


def test_what_is_in_the_tree_at_start_is_taken_in_order_of_age(layout: Layout) -> None:
    for message, age in ((1, 5), (2, 9), (3, 7), (4, 1)):
        put(layout, "bulk", message, age)
    pending = pending_of(layout)
    read_all(pending)
    pending.add([5], 1.0, "bulk")
    assert pending.take(10) == [2, 3, 1, 4, 5]
    assert pending.scanned == {1, 2, 3, 4}


def test_a_tree_with_very_many_files_is_known_a_part_at_a_time(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_todo.pending, "LOWER_MAX", 20)
    monkeypatch.setattr(queue_todo.pending, "LOWER_SLICE", 7)
    for message in range(1, 101):
        put(layout, "bulk", message, message)
    pending = pending_of(layout)
    (bulk, _) = pending._lower
    taken: list[int] = []
    while len(taken) < 100:
        read_all(pending)
        assert len(bulk) <= 27
        # Meanwhile more come in than are known.
        pending.add(range(101, 201), 1.0, "bulk")
        assert len(bulk.named) <= 20
        group = [message for message in pending.take(1000) if message <= 100]
        taken += group
        for message in group:
            os.unlink(layout.todo_in("bulk", message))
        pending.done(group, 1.0)
        pending.done(range(101, 201), 1.0)
    assert sorted(taken) == list(range(1, 101))
    assert bulk.unread, "what was dropped is found by the next reading"


def test_a_number_that_is_named_again_while_it_is_in_hand_is_looked_for_in_all_trees(layout: Layout) -> None:
    pending = pending_of(layout)
    pending.add([3], 1.0, "bulk")
    assert pending.take(10) == [3]
    put(layout, "later", 3)
    pending.add([3], 1.0)
    pending.done([3], 1.0)
    assert pending.take(10) == [3] and pending.classes_of([3]) == {3: "later"}


def test_a_number_that_only_a_scan_finds_while_it_is_in_hand_is_taken_after_that(layout: Layout) -> None:
    pending = Pending(layout)
    pending.set_classes(layout, ("bulk", "later"))
    pending.add([3], 1.0, "bulk")
    assert pending.take(10) == [3]
    put(layout, "bulk", 3)
    pending.read_lower_soon()
    read_all(pending)
    assert not pending.may_take()
    pending.done([3], 1.0)
    assert pending.take(10) == [3] and pending.classes_of([3]) == {3: "bulk"}


def test_a_deferred_message_keeps_its_class_and_what_is_given_back_is_first(layout: Layout) -> None:
    pending = pending_of(layout)
    pending.add([3, 4, 5], 1.0, "bulk")
    assert pending.take(2) == [3, 4]
    pending.give_back([3, 4], 1.0)
    assert pending.take(2) == [3, 4]
    pending.defer(3, 1.0)
    pending.done([4], 1.0)
    pending.run(1000.0)
    assert pending.take(10) == [5, 3] and pending.classes_of([3]) == {3: "bulk"}


def test_a_tree_that_cannot_be_read_is_warned_of_and_read_again(layout: Layout) -> None:
    put(layout, "bulk", 1)
    put(layout, "bulk", 2)
    directory = Path(layout.todo_directories("bulk")[1])
    aside = directory.rename(directory.with_name("aside"))
    pending = pending_of(layout)
    pending.run(1.0)
    bulk = pending.next_to_read(1.0)
    assert isinstance(bulk, LowerClass)
    bulk.read()
    warning = pending.take_read(bulk, 1.0, None)
    assert warning is not None and f"unable to read {directory}" in warning
    pending.run(1.0)
    assert pending.take(10) == [2]
    aside.rename(directory)
    read_again = pending.next_to_read(1.0)
    assert read_again is not bulk, "not at once"
    assert pending.next_to_read(100.0) is bulk
    bulk.read()
    assert pending.take_read(bulk, 100.0, None) is None
    pending.run(100.0)
    assert pending.take(10) == [1]
