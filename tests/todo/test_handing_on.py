"""queue-todo's parent of workers, without processes: who is handed which messages, and what comes back from whom."""

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import Layout, open_layout
from queue_todo.notices import NoticePipe
from queue_todo.pending import Pending
from queue_todo.pipeline import GROUP, UNREAD_MAX
from queue_todo.todo_workers import AHEAD, WorkerPipes, Workers
from queue_todo.worker_records import (
    ClassOrder,
    Instruction,
    Named,
    Taken,
    pack_parked,
    pack_taken,
    share_of,
    unpack_instruction,
)
from queue_wire.control.rewrite import Rules
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.notice import (
    ANNOUNCE,
    EXIT,
    FIRST,
    LEAVE,
    PASSED,
    WRITTEN,
    Ask,
    Classified,
    ClassifyRequest,
    Gone,
    Resubmission,
    pack_ask,
    pack_classified,
    pack_log,
)
from support.processes.suite import wait_until
from support.queues.home import make_home

RULES = Rules(b"me", frozenset([b"me"]), frozenset(), {})
SPLIT = 5


class Parent:
    """Workers whose processes are this test: `got` reads what one was handed, `say` writes what it says."""

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout = layout
        self.count = count
        self.pending = Pending(layout, shares=count)
        self.pending.run(0.0)  # The scan of the start.
        self.reader, writer = os.pipe2(os.O_NONBLOCK)
        self.commands = [os.pipe2(os.O_NONBLOCK) for _ in range(count)]
        self.notices = [os.pipe2(os.O_NONBLOCK) for _ in range(count)]
        self.readers = [NetstringReader() for _ in range(count)]
        self.got_first = [0] * count
        self.got_lower = [0] * count
        its = [each[0] for each in self.commands] + [each[1] for each in self.notices]
        self.descriptors = [self.reader, writer, *its]
        pairs = zip(self.commands, self.notices, strict=True)
        pipes = [WorkerPipes(0, commands[1], notices[0]) for commands, notices in pairs]
        self.pipe = NoticePipe(writer)
        self.workers = Workers(layout, self.pending, self.pipe, pipes)
        self.now = 1.0

    def turn(self, rules: Rules | None = RULES) -> None:
        poll = select.poll()
        self.workers.prepare(poll, self.now, rules)
        self.workers.run(dict(poll.poll(0)), self.now, rules)
        self.pipe.flush()

    def got(self, worker: int) -> list[Instruction]:
        """Return what a worker was handed since the last call."""
        found = []
        try:
            self.readers[worker].feed(os.read(self.commands[worker][0], 1 << 20))
        except BlockingIOError:
            pass
        while (record := self.readers[worker].next()) is not None:
            found.append(unpack_instruction(record))
        for each in found:
            if isinstance(each, Named):
                counts = self.got_lower if each.priority else self.got_first
                counts[worker] += len(each.messages)
        return found

    def ids(self, worker: int) -> list[int]:
        return [message for each in self.got(worker) if isinstance(each, Named) for message in each.messages]

    def begin_all(self, worker: int) -> None:
        """The worker has begun everything that it was handed."""
        self.say(worker, pack_taken(Taken(self.got_first[worker], self.got_lower[worker])))

    def say(self, worker: int, data: bytes) -> None:
        os.write(self.notices[worker][1], data)

    def told(self) -> bytes:
        """Return what was passed on to queue-send."""
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        for link in self.workers._links:
            if not link.ended:
                link.close()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = open_layout(make_home(tmp_path / "home", split=SPLIT).queue)
    for name in ("bulk", "later"):
        make_class_tree(found, name)
    found.learn_classes()
    return found


@pytest.fixture(name="parent")
def fixture_parent(layout: Layout) -> Iterator[Parent]:
    parent = Parent(layout, 3)
    yield parent
    parent.close()


def test_each_message_is_handed_to_the_worker_of_its_bucket_once(parent: Parent) -> None:
    messages = list(range(100, 100 + 3 * GROUP))
    parent.pending.add(messages, 1.0)
    handed: list[int] = []
    for _ in range(20):
        parent.turn()
        for worker in range(3):
            ids = parent.ids(worker)
            assert all(share_of(message, SPLIT, 3) == worker for message in ids)
            handed += ids
            parent.begin_all(worker)
    assert sorted(handed) == messages


def test_rules_and_classes_come_before_the_first_messages_and_only_when_they_are_others(parent: Parent) -> None:
    parent.pending.set_classes(parent.layout, ("bulk", "later"))
    parent.pending.add([5], 1.0)
    parent.turn()
    assert parent.got(0) == [RULES, ClassOrder(("bulk", "later")), Named("", False, [5])]
    assert parent.got(1) == [RULES, ClassOrder(("bulk", "later"))]
    parent.pending.add([3], 1.0)
    parent.turn()
    assert parent.got(0) == [Named("", False, [3])]
    other = RULES._replace(envnoathost=b"you")
    parent.turn(other)
    assert parent.got(0) == [other] and parent.got(2)[-1] == other


def test_without_rules_and_while_mail_is_left_in_todo_nothing_is_handed_on(parent: Parent) -> None:
    parent.pending.add([1, 2], 1.0)
    parent.turn(None)
    parent.workers.set_mode(LEAVE)
    parent.turn()
    assert [parent.ids(worker) for worker in range(3)] == [[], [], []]
    assert parent.workers.arrival is None
    parent.workers.set_mode(ANNOUNCE)
    parent.turn()
    assert [parent.ids(worker) for worker in range(3)] == [[], [1], [2]]


def test_a_worker_that_does_not_begin_gets_no_more_than_it_may_have(parent: Parent) -> None:
    parent.pending.add([SPLIT * number for number in range(1, 10 * GROUP)], 1.0)
    first: list[int] = []
    while len(first) <= AHEAD:
        parent.turn()  # Meanwhile those that wait are sorted by domain.
        first += parent.ids(0)
    assert len(first) <= AHEAD + GROUP
    for _ in range(5):
        parent.turn()
        assert not parent.ids(0)
    parent.begin_all(0)

    def gets_more() -> bool:
        parent.turn()
        return parent.ids(0) != []

    wait_until(gets_more, why="more of them")


def test_a_lower_class_is_handed_on_when_no_worker_has_one_of_a_higher_class_to_come(parent: Parent) -> None:
    parent.pending.set_classes(parent.layout, ("bulk",))
    parent.pending.add(range(1000, 1000 + GROUP), 1.0, "bulk")
    # All of the first class is for one worker; the others are idle, and must not take bulk mail meanwhile.
    higher = [SPLIT * number for number in range(1, 4 * GROUP)]
    parent.pending.add(higher, 1.0)
    order: list[bool] = []
    for _ in range(30):
        parent.turn()
        for worker in range(3):
            for each in parent.got(worker):
                if isinstance(each, Named):
                    order += [bool(each.priority)] * len(each.messages)
            parent.begin_all(worker)
    assert len(order) == len(higher) + GROUP
    last_higher = len(order) - 1 - order[::-1].index(False)
    before = sum(order[:last_higher])
    assert last_higher // 11 <= before <= last_higher // 9, "one of ten"


def test_mail_of_a_lower_class_waits_until_all_of_the_first_class_are_begun(parent: Parent) -> None:
    parent.pending.set_classes(parent.layout, ("bulk",))
    parent.pending.add([5, 10], 1.0)
    parent.turn()
    parent.pending.add([6, 11], 1.0, "bulk")
    parent.turn()
    assert parent.ids(0) == [5, 10] and not parent.ids(1)
    parent.say(0, pack_taken(Taken(1, 0)))
    parent.turn()
    assert not parent.ids(1)
    parent.begin_all(0)
    parent.turn()
    assert parent.ids(1) == [6, 11]


def test_mail_of_a_lower_class_that_is_not_begun_takes_no_room_of_the_first_one(parent: Parent) -> None:
    parent.pending.set_classes(parent.layout, ("bulk",))
    parent.pending.add(range(1000, 1000 + 20 * GROUP), 1.0, "bulk")
    for _ in range(20):
        parent.turn()
    assert max(len(parent.ids(worker)) for worker in range(3)) <= AHEAD + GROUP
    parent.workers.set_mode(FIRST)
    parent.pending.add([1, 2, 3], 1.0)
    parent.turn()
    assert [parent.ids(worker) for worker in range(3)] == [[3], [1], [2]]


def test_what_a_scan_has_found_is_handed_on_as_such(layout: Layout) -> None:
    for message in (5, 10):
        Path(layout.todo(message)).touch()
    parent = Parent(layout, 3)
    parent.pending.add([15], 1.0)
    parent.turn()
    found = [each for each in parent.got(0) if isinstance(each, Named)]
    assert [(each.scanned, sorted(each.messages)) for each in sorted(found)] == [(False, [15]), (True, [5, 10])]
    parent.close()


def test_what_waits_in_the_directories_of_all_workers_is_found_in_turn(layout: Layout) -> None:
    for message in range(1, 61):
        Path(layout.todo(message)).touch()
    parent = Parent(layout, 3)
    taken = parent.pending.take(15)
    shares = [share_of(message, SPLIT, 3) for message in taken]
    assert shares == [0, 1, 2] * 5
    assert sorted(taken + parent.pending.take(100)) == list(range(1, 61))
    parent.close()


def test_half_a_record_of_one_worker_does_not_get_between_the_records_of_another(parent: Parent) -> None:
    one, two = pack_log(b"new msg 7") + pack_classified(Classified(7, True, False)), pack_log(b"new msg 8")
    parent.say(0, one[:5])
    parent.say(1, two)
    parent.turn()
    parent.say(0, one[5:])
    parent.turn()
    assert parent.told() == two + one
    assert parent.workers.take_worked() and not parent.workers.take_worked()


def test_that_lines_are_in_the_log_is_told_to_those_who_asked_in_their_order(parent: Parent) -> None:
    for worker in (2, 0, 2):
        parent.say(worker, pack_log(b"x%d" % worker) + pack_ask(Ask.WRITTEN))
        parent.turn()
    expected = [pack_log(b"x%d" % worker) + pack_ask(Ask.WRITTEN) for worker in (2, 0, 2)]
    assert parent.told() == b"".join(expected)
    for worker in (2, 0, 2):
        assert not any(WRITTEN in parent.got(each) for each in range(3))
        parent.workers.written()
        parent.turn()
        assert parent.got(worker) == [WRITTEN]
    parent.workers.written()  # Nobody has asked.


def test_a_question_is_answered_when_all_have_answered_as_often_as_it_was_asked(parent: Parent) -> None:
    parent.turn()
    for _ in range(2):
        parent.workers.ask_passed()
    parent.turn()
    assert all(parent.got(worker).count(PASSED) == 2 for worker in range(3))
    for worker, told in ((0, b""), (0, b""), (1, b""), (2, b"P\0"), (1, b""), (2, b"P\0")):
        parent.say(worker, pack_ask(Ask.PASSED))
        parent.turn()
        assert parent.told() == told


def test_what_is_said_of_one_message_goes_to_its_worker_alone(parent: Parent) -> None:
    parent.turn()
    for worker in range(3):
        parent.got(worker)
    parent.workers.request(6, 0b11)
    parent.workers.gone(7)
    parent.workers.resubmit(0, 1.0)
    parent.turn()
    expected: list[list[Instruction]] = [[], [ClassifyRequest(6, 0b11)], [Gone(7)]]
    assert [parent.got(worker) for worker in range(3)] == [[*each, Resubmission(0)] for each in expected]
    parent.workers.resubmit(8, 1.0)
    parent.turn()
    assert parent.got(0) == [Named("", False, [8])], "as new, so that it is tried at once"


def test_a_message_that_a_worker_has_parked_is_found_by_no_scan(parent: Parent) -> None:
    Path(parent.layout.todo(5)).touch()
    parent.say(0, pack_parked(5))
    parent.turn()
    # The mark cannot be read.
    for directory in parent.layout.directories("corrupt"):
        Path(directory).rmdir()
        Path(directory).touch()
    parent.pending.scan_soon()
    parent.pending.run(2.0)
    parent.turn()
    assert not parent.ids(0) and not len(parent.pending)


def test_while_queue_send_does_not_read_nothing_is_read_of_the_workers(parent: Parent) -> None:
    parent.pipe.put(b"x" * (3 * UNREAD_MAX))
    parent.turn()
    before = parent.pipe.unwritten
    assert before > UNREAD_MAX
    parent.say(1, pack_log(b"waits"))
    parent.turn()
    assert parent.pipe.unwritten == before
    told = b""
    while not told.endswith(pack_log(b"waits")):
        told += (part := parent.told())
        assert part or parent.pipe.unwritten or len(told) == 3 * UNREAD_MAX
        parent.turn()
    assert len(told) == 3 * UNREAD_MAX + len(pack_log(b"waits"))


def test_a_worker_that_ends_before_it_is_told_to_ends_all(parent: Parent) -> None:
    parent.say(1, pack_log(b"whole") + b"Lhalf")
    os.close(parent.notices[1][1])
    parent.descriptors.remove(parent.notices[1][1])
    parent.turn()
    with pytest.raises(Temporary, match=r"^worker 2 of 3 has ended \("):
        parent.turn()
    told = parent.told()
    assert told.startswith(pack_log(b"whole") + b"Lalert: queue-todo: worker 2 of 3 has ended (")
    assert b"half" not in told


def test_workers_that_say_something_impossible_end_all(parent: Parent) -> None:
    parent.say(2, b"T\0")
    with pytest.raises(Temporary, match="worker 3 sent something impossible"):
        parent.turn()


def test_after_the_exit_it_waits_for_the_end_of_all_of_them(parent: Parent) -> None:
    parent.turn()
    parent.workers.begin_exit(parent.now)
    parent.turn(None)
    for worker in range(3):
        assert EXIT in parent.got(worker)
        assert parent.workers.has_unfinished
        parent.say(worker, pack_log(b"last"))
        os.close(parent.notices[worker][1])
        parent.descriptors.remove(parent.notices[worker][1])
        parent.turn(None)
        parent.turn(None)
    assert not parent.workers.has_unfinished
    assert parent.told() == pack_log(b"last") * 3
