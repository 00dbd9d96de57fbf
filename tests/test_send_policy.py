"""The first policy: the limit, everybody's turn, the order of what is due. No clock, no disk."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from queue_send.policy import OPEN_MOST, Pass, Policy

HOSTS = [b"a.example", b"b.example", b"c.example"]


def one_pass(message: int, *sizes: int) -> Pass:
    """Return a pass with a group of each size."""
    attempt = Pass(message, b"a@b", 0, False)
    offset = 0
    for number, size in enumerate(sizes):
        attempt.add_group(b"host%d" % number, [(offset + place, b"r") for place in range(size)])
        offset += size
    return attempt


class PolicyMachine(RuleBasedStateMachine):
    """A policy under any order of events, beside what it must have done."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000
        self.limit = 4
        self.policy = Policy(self.limit)
        self.number = 0
        # What is known from outside: dues of waiting messages, owed recipients of open passes.
        self.waiting: dict[int, int] = {}
        self.owed: dict[Pass, set[int]] = {}
        self.flying = 0

    @rule(delay=st.integers(-50, 50))
    def new_message(self, delay: int) -> None:
        self.number += 1
        self.waiting[self.number] = self.now + delay
        self.policy.wait(self.number, self.now + delay)

    @rule(seconds=st.integers(0, 30))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(limit=st.integers(0, 8))
    def the_limit_changes(self, limit: int) -> None:
        self.limit = self.policy.limit = limit

    @rule(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3))
    def a_due_message_is_opened(self, sizes: list[int]) -> None:
        message = self.policy.next_message(self.now)
        due = {number: when for number, when in self.waiting.items() if when <= self.now}
        if message is None:
            # Nothing that is due waits while there is room.
            assert not due or not self.policy.has_room
            return
        assert message in due and due[message] == min(due.values())
        del self.waiting[message]
        attempt = one_pass(message, *sizes)
        self.owed[attempt] = {offset for _, group in attempt.groups for offset, _ in group}
        self.policy.open(attempt)

    @rule(target=jobs, most=st.integers(1, 4))
    def a_job_is_started(self, most: int) -> object:
        found = self.policy.next_job(most)
        if found is None:
            assert not any(self.owed.values()) or self.flying >= self.limit
            return multiple()
        attempt, _, recipients = found
        assert 0 < len(recipients) <= most
        offsets = {offset for offset, _ in recipients}
        assert len(offsets) == len(recipients) and offsets <= self.owed[attempt], "a recipient was started twice"
        self.owed[attempt] -= offsets
        self.flying += len(recipients)
        assert self.flying <= self.limit
        return attempt, len(recipients)

    @rule(job=consumes(jobs))
    def a_job_ends(self, job: tuple[Pass, int]) -> None:
        attempt, deliveries = job
        self.policy.ended(attempt, deliveries)
        self.flying -= deliveries
        assert attempt.over == (not self.owed[attempt] and not attempt.flying)

    @invariant()
    def every_delivery_in_flight_is_counted(self) -> None:
        assert self.policy.running == self.flying

    @invariant()
    def the_next_time_is_now_or_the_earliest_due(self) -> None:
        when = self.policy.next_time()
        if self.flying >= self.limit:
            assert when is None
        elif any(self.owed.values()):
            assert when == 0
        else:
            assert when == min(self.waiting.values(), default=None)


TestPolicy = PolicyMachine.TestCase
TestPolicy.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(dues=st.lists(st.integers(0, 2_000_000_000), max_size=30), flushes=st.integers(1, 3))
def test_a_flush_makes_everything_due_and_keeps_the_order(dues: list[int], flushes: int) -> None:
    policy = Policy(1)
    for message, due in enumerate(dues, 1):
        policy.wait(message, due)
    for _ in range(flushes):
        policy.flush()
    order = [policy.next_message(0) for _ in dues]
    expected = sorted(range(1, len(dues) + 1), key=lambda message: (dues[message - 1], message))
    assert order == expected


def test_what_waits_after_a_flush_is_due_when_it_says() -> None:
    policy = Policy(1)
    policy.wait(1, 500)
    policy.flush()
    policy.wait(2, 400)
    assert policy.next_message(100) == 1
    assert policy.next_message(100) is None
    assert policy.next_time() == 400


def test_open_messages_take_turns_by_their_groups() -> None:
    policy = Policy(100)
    big, small = one_pass(1, 50, 50, 50), one_pass(2, 1)
    policy.open(big)
    policy.open(small)
    started = [found[0].message for _ in range(4) if (found := policy.next_job(20))]
    assert started == [1, 2, 1, 1]


def test_a_group_that_is_larger_than_the_room_is_started_in_pieces_in_its_order() -> None:
    policy = Policy(3)
    attempt = one_pass(1, 5)
    policy.open(attempt)
    first = policy.next_job(50)
    assert first is not None and [offset for offset, _ in first[2]] == [0, 1, 2]
    assert policy.next_job(50) is None
    policy.ended(attempt, 3)
    assert not attempt.over
    rest = policy.next_job(50)
    assert rest is not None and [offset for offset, _ in rest[2]] == [3, 4]
    policy.ended(attempt, 2)
    assert attempt.over


def test_a_message_is_not_loaded_while_there_is_no_room_for_it() -> None:
    policy = Policy(1)
    policy.open(one_pass(1, 1))
    assert policy.next_job(1) is not None
    policy.wait(2, 0)
    assert policy.next_message(10) is None
    policy.limit = 1000
    for number in range(OPEN_MOST):
        policy.open(one_pass(100 + number, 1))
    assert policy.next_message(10) is None


def test_a_limit_of_zero_holds_everything() -> None:
    policy = Policy(0)
    policy.wait(1, 0)
    policy.open(one_pass(2, 1))
    assert (policy.next_message(10), policy.next_job(1), policy.next_time()) == (None, None, None)
