"""Several queues without queue-intake: which queue takes a message, and what happens when one fails."""

import errno
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.accounts import queue_owner
from queue_base.errors import QueueTrouble
from queue_base.home import Home
from queue_base.queue.inflow import InflowControl, refuse_mark, slow_mark
from queue_base.queue.spreading import (
    KEPT_MAX,
    PLENTY,
    QueueFacts,
    SpreadDraft,
    SpreadWriter,
    open_spread,
    order_queues,
)
from queue_base.queue.trigger import Trigger, is_read
from support.queues.home import make_several

facts = st.builds(
    QueueFacts,
    closed=st.booleans(), failed=st.booleans(), stopped=st.booleans(), slow=st.booleans(),
    room=st.integers(0, 4 * PLENTY), waiting=st.integers(0, 1000),
)  # fmt: skip


@given(st.lists(facts, max_size=8), st.integers(0, 1000))
def test_every_open_queue_is_tried_once_slow_then_stopped_then_failed_ones_last(
    found: list[QueueFacts], turn: int
) -> None:
    order = order_queues(found, turn)
    assert sorted(order) == [place for place, each in enumerate(found) if not each.closed]
    last = [(found[place].failed, found[place].stopped, found[place].slow) for place in order]
    assert last == sorted(last)


@given(st.lists(facts, min_size=2, max_size=8), st.integers(0, 1000))
def test_a_queue_with_less_in_hand_and_no_less_room_comes_first(found: list[QueueFacts], turn: int) -> None:
    order = order_queues(found, turn)
    for before, after in pairwise(order):
        first, second = found[before], found[after]
        if (first.failed, first.stopped, first.slow) == (second.failed, second.stopped, second.slow):
            assert not (second.waiting < first.waiting and second.room >= first.room)
            assert not (second.waiting <= first.waiting and second.room > first.room and first.room < PLENTY)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_equal_queues_have_turns(count: int, turn: int) -> None:
    firsts = Counter(order_queues([QueueFacts()] * count, turn + step)[0] for step in range(count))
    assert firsts == dict.fromkeys(range(count), 1)


def test_a_disk_that_fills_up_gets_less_than_an_empty_one() -> None:
    waiting, taken = [0, 0], [0, 0]
    for turn in range(110):
        nearly_full = QueueFacts(room=PLENTY // 10, waiting=waiting[0])
        place = order_queues([nearly_full, QueueFacts(waiting=waiting[1])], turn)[0]
        waiting[place] += 1
        taken[place] += 1
    assert 5 <= taken[0] <= 15


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_several(tmp_path / "home", "a", "b")


def queued(home: Home) -> dict[str, int]:
    """Return how many messages each queue has; what is in mess/ is in todo/, too."""
    found = {}
    for one in home.each():
        todo = [path.name for path in Path(one.queue, "todo").glob("*/*")]
        assert sorted(todo) == sorted(path.name for path in Path(one.queue, "mess").glob("*/*"))
        found[one.name] = len(todo)
    return found


def put(writer: SpreadWriter, data: bytes = b"hello\n") -> None:
    writer.put([data], lambda: (b"ann@example.org", [b"bob@example.net"]))


def test_messages_are_spread_evenly_over_queues_with_plenty_of_room(home: Home) -> None:
    writer = open_spread(home, queue_owner(home), os.getuid())
    for _ in range(10):
        put(writer)
    assert queued(home) == {"a": 5, "b": 5}


def test_a_group_is_committed_in_all_queues_and_its_ids_name_them(home: Home) -> None:
    writer = open_spread(home, queue_owner(home), os.getuid())
    drafts = [writer.begin() for _ in range(6)]
    for draft in drafts:
        draft.write(b"hello\n")
        draft.finish(b"ann@example.org", [b"bob@example.net"])
    writer.commit(drafts)
    assert all(draft.queued for draft in drafts)
    assert queued(home) == {"a": 3, "b": 3}
    for draft in drafts:
        name, _, rest = draft.long_id.partition("/")
        number = int(rest.partition("-")[0])
        assert Path(home.queues[name], "mess", str(number % 23), str(number)).exists()


def test_a_queue_whose_disk_is_not_there_gets_nothing(home: Home) -> None:
    os.rename(home.queues["a"], home.queues["a"] + ".out")
    writer = open_spread(home, queue_owner(home), os.getuid())
    for _ in range(4):
        put(writer)
    os.rename(home.queues["a"] + ".out", home.queues["a"])
    assert queued(home) == {"a": 0, "b": 4}


def test_what_queue_todo_asks_of_one_queue_sends_mail_to_the_other(home: Home) -> None:
    first = home.choose("a")
    slow_mark(first).set("slow")
    writer = open_spread(home, queue_owner(home), os.getuid())
    for _ in range(4):
        put(writer)
    assert queued(home) == {"a": 0, "b": 4}
    refuse_mark(first).set("refuse")
    os.rename(home.queues["b"], home.queues["b"] + ".out")
    with pytest.raises(QueueTrouble, match=r"queue a: its todo/ is behind; queue b: unable to use .*; try again later"):
        put(writer)


def test_only_queues_whose_todo_runs_get_mail_while_they_can_take_it(home: Home) -> None:
    writer = open_spread(home, queue_owner(home), os.getuid())
    trigger = Trigger(home.choose("b"))
    for _ in range(4):
        put(writer)
    assert queued(home) == {"a": 0, "b": 4}
    refuse_mark(home.choose("b")).set("refuse")
    slow_mark(home.choose("b")).set("slow")
    put(writer)
    assert queued(home) == {"a": 1, "b": 4}, "the one that is stopped takes it when no other can"
    refuse_mark(home.choose("b")).clear()
    slow_mark(home.choose("b")).clear()
    trigger.close()
    for _ in range(4):
        put(writer)
    assert queued(home) == {"a": 3, "b": 6}, "none runs, so all are equal"


def test_a_queue_that_is_stopped_takes_what_one_that_runs_has_failed_to_take(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ = Trigger(home.choose("a"))
    fail_in(monkeypatch, "write", home.queues["a"] + "/", errno.ENOSPC)
    writer = open_spread(home, queue_owner(home), os.getuid())
    for _ in range(3):
        put(writer)
    assert queued(home) == {"a": 0, "b": 3}


def test_injectors_wait_for_the_queues_that_run_though_one_is_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    writer = open_spread(home, queue_owner(home), os.getuid())
    slow_mark(home.choose("a")).set("slow")
    put(writer)
    assert queued(home) == {"a": 0, "b": 1} and not waits
    trigger = Trigger(home.choose("a"))
    put(writer)
    assert queued(home) == {"a": 1, "b": 1} and len(waits) == 1
    refuse_mark(home.choose("a")).set("refuse")
    put(writer)
    assert queued(home) == {"a": 1, "b": 2} and len(waits) == 1
    trigger.close()


def test_a_trigger_without_a_reader_or_without_a_fifo_is_that_of_a_queue_that_is_stopped(home: Home) -> None:
    one = home.choose("a")
    assert not is_read(one) and InflowControl(one, one.queue).stopped
    trigger = Trigger(one)
    assert is_read(one) and not InflowControl(one, one.queue).stopped
    # The look leaves nothing to read.
    assert trigger.clear() == 0
    trigger.close()
    os.unlink(f"{one.queue}/lock/trigger")
    assert not is_read(one)
    # What cannot be found out is no reason to avoid a queue.
    os.rename(f"{one.queue}/lock", f"{one.queue}/lock.out")
    Path(one.queue, "lock").touch()
    assert is_read(one)


def fail_in(monkeypatch: pytest.MonkeyPatch, name: str, part: str, code: int) -> None:
    """Have a system call on a descriptor fail for files whose paths have this part."""
    real = getattr(os, name)

    def call(handle: int, *rest: object) -> object:
        if part in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(code, os.strerror(code))
        return real(handle, *rest)

    monkeypatch.setattr(os, name, call)


def finished(writer: SpreadWriter, count: int) -> list[SpreadDraft]:
    drafts = [writer.begin() for _ in range(count)]
    for draft in drafts:
        draft.write(b"hello\n")
        draft.finish(b"ann@example.org", [b"bob@example.net"])
    return drafts


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_message_that_one_queue_cannot_take_is_queued_once_in_the_other(
    home: Home, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    fail_in(monkeypatch, call, home.queues["a"] + "/", code)
    writer = open_spread(home, queue_owner(home), os.getuid())
    drafts = finished(writer, 4)
    writer.commit(drafts)
    assert all(draft.queued for draft in drafts)
    assert queued(home) == {"a": 0, "b": 4}


def test_a_message_whose_name_in_todo_may_be_there_is_not_moved(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in(monkeypatch, "fsync", home.queues["a"] + "/todo", errno.EIO)
    writer = open_spread(home, queue_owner(home), os.getuid())
    drafts = finished(writer, 2)
    with pytest.raises(QueueTrouble, match="input/output error"):
        writer.commit(drafts)
    assert sorted(draft.queued for draft in drafts) == [False, True]
    # It stays where it is, and is not in the other queue as well.
    assert queued(home) == {"a": 1, "b": 1}


def test_a_large_message_is_refused_for_now_when_its_queue_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = open_spread(home, queue_owner(home), os.getuid())
    draft = writer.begin()
    for _ in range(KEPT_MAX // 65536 + 1):
        draft.write(b"x" * 65536)
    fail_in(monkeypatch, "write", home.path, errno.ENOSPC)
    with pytest.raises(QueueTrouble, match="no space left"):
        draft.write(b"x")
    draft.discard()
    assert queued(home) == {"a": 0, "b": 0}
