"""What destinationrate and its like allow runs of mail on demand, beside the attempts of jobs."""

from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import ALONE, TURN_SECONDS, QueueShare
from queue_ondemand.ondemand_files import OnDemandConfig
from queue_ondemand.run_limits import LOOK_AGAIN, SOON, RunLimits
from queue_wire.control.destinationlimits import join_lines, unpack_limits, unpack_rates

DOMAIN = b"customer.example"
OTHER = b"other.example"


class Machine:
    """Limits, and a clock that the test sets."""

    def __init__(self, rates: bytes = b"", limits: bytes = b"", concurrency: int = 20) -> None:
        self.now = 1_700_000_000.0
        self.limits = RunLimits(lambda: self.now)
        self.set(rates, limits, concurrency)

    def set(self, rates: bytes = b"", limits: bytes = b"", concurrency: int = 20, share: QueueShare = ALONE) -> None:
        lines = join_lines(unpack_limits(limits), unpack_rates(rates))
        config = OnDemandConfig(b"me", b"a@me", b"b@me", limits=lines, concurrency=concurrency)
        self.limits.apply(config, share)

    def deliver(self, domain: bytes = DOMAIN, is_run: bool = True) -> None:
        self.limits.begin(domain, is_run)
        self.limits.end(domain, is_run)

    def delivered_in(self, seconds: int) -> int:
        """Return how much a run delivers in some seconds, that looks again when it is told to."""
        count, until = 0, self.now + seconds
        while self.now < until:
            wait = self.limits.wait(DOMAIN)
            if wait:
                self.now += wait
            else:
                self.deliver()
                count += 1
        return count


def test_a_run_without_limits_waits_for_nothing() -> None:
    machine = Machine()
    for _ in range(100):
        assert machine.limits.wait(DOMAIN) == 0.0 and machine.limits.allows_job(DOMAIN)
        machine.deliver()


def test_a_run_keeps_to_the_rate_of_its_domain_and_of_no_other() -> None:
    machine = Machine(b"customer.example:2/60\n")
    machine.deliver()
    machine.deliver()
    assert machine.limits.wait(DOMAIN) == LOOK_AGAIN
    assert machine.limits.wait(OTHER) == 0.0
    machine.now += 58.0
    assert machine.limits.wait(DOMAIN) == 2.0
    machine.now += 2.0
    assert machine.limits.wait(DOMAIN) == 0.0
    assert machine.delivered_in(600) == 20


def test_attempts_of_jobs_count_and_come_first() -> None:
    machine = Machine(b".example:3/60\n")
    for _ in range(3):
        assert machine.limits.allows_job(DOMAIN)
        machine.deliver(is_run=False)
    # queue-send looks at the rate itself, with a clock of its own: what it has started is tried.
    assert machine.limits.allows_job(DOMAIN)
    assert machine.limits.wait(DOMAIN) > 0.0


def test_a_job_is_not_tried_while_a_run_has_used_up_the_rate() -> None:
    machine = Machine(b"customer.example:2/60\n")
    machine.deliver()
    assert machine.limits.allows_job(DOMAIN)
    machine.deliver(is_run=False)
    assert not machine.limits.allows_job(DOMAIN) and machine.limits.allows_job(OTHER)
    machine.now += 60.0
    assert machine.limits.allows_job(DOMAIN)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 30.0)), max_size=60), st.integers(1, 4))
def test_runs_and_jobs_together_never_exceed_the_rate(steps: list[tuple[bool, float]], messages: int) -> None:
    machine = Machine(b"customer.example:%d/60\n" % messages)
    jobs: list[float] = []
    begun: list[float] = []
    for is_run, wait in steps:
        machine.now += wait
        if is_run and machine.limits.wait(DOMAIN) == 0.0:
            begun.append(machine.now)
            machine.deliver()
        # queue-send gives no more jobs than the rate allows by itself.
        if not is_run and len([each for each in jobs if each > machine.now - 60.0]) < messages:
            jobs.append(machine.now)
            if machine.limits.allows_job(DOMAIN):
                begun.append(machine.now)
                machine.deliver(is_run=False)
    for first in begun:
        assert len([each for each in begun if first <= each < first + 60.0]) <= messages


def test_a_run_and_jobs_keep_to_the_concurrency_together() -> None:
    machine = Machine(limits=b"customer.example concurrency=2\n")
    machine.limits.begin(DOMAIN)
    assert machine.limits.wait(DOMAIN) == 0.0
    machine.limits.begin(DOMAIN, is_run=True)
    assert not machine.limits.allows_job(DOMAIN)
    machine.limits.end(DOMAIN, is_run=True)
    assert machine.limits.allows_job(DOMAIN)
    machine.limits.begin(DOMAIN)
    assert machine.limits.wait(DOMAIN) == SOON
    machine.limits.end(DOMAIN)
    assert machine.limits.wait(DOMAIN) == 0.0


def test_a_change_of_the_limits_counts_for_a_run_that_waits() -> None:
    machine = Machine(b"customer.example:1/3600\n")
    machine.deliver()
    assert machine.limits.wait(DOMAIN) == LOOK_AGAIN
    machine.set(b"customer.example:2/3600\n")
    assert machine.limits.wait(DOMAIN) == 0.0
    machine.deliver()
    assert machine.limits.wait(DOMAIN) == LOOK_AGAIN
    machine.set()
    assert machine.limits.wait(DOMAIN) == 0.0


def test_the_runs_of_several_queues_have_the_rate_together() -> None:
    parts = []
    for place in range(2):
        machine = Machine()
        machine.set(b"customer.example:4/60\n", share=QueueShare(place, 2))
        parts.append(machine.delivered_in(600))
    assert parts == [20, 20]


def test_runs_of_several_queues_have_turns_where_there_are_fewer_jobs_than_queues() -> None:
    found = []
    for place in range(2):
        machine = Machine()
        machine.now = TURN_SECONDS * 1000
        machine.set(concurrency=1, share=QueueShare(place, 2))
        found.append(machine.limits.wait(DOMAIN))
        machine.now += TURN_SECONDS
        found.append(machine.limits.wait(DOMAIN))
    assert found == [0.0, LOOK_AGAIN, LOOK_AGAIN, 0.0]


def test_domains_whose_rate_is_free_again_are_forgotten() -> None:
    machine = Machine(b".example:2/60\n")
    for number in range(100):
        machine.deliver(b"d%d.example" % number)
        machine.now += 20.0
    assert len(machine.limits._used) < 8


def test_nothing_is_kept_of_a_domain_without_a_rate_that_has_nothing_in_flight() -> None:
    machine = Machine()
    for number in range(100):
        machine.deliver(b"d%d.example" % number, is_run=bool(number % 2))
    assert not machine.limits._used
