"""The scheduler with limits of single destinations: whatever happens, they hold, and nothing waits for ever."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queue_base.limits import Limits
from queue_send.admin.queries import Explainer
from queue_send.scheduler.model import Entry, Settings
from queue_wire.admin.facts import RELAY
from support.plugins.amount import amount
from support.send.limited import limited
from support.send.machine import DOMAINS, LIMITS, SETTINGS, Machine
from support.send.recorder import Recorder

# All four domains go by one relay, whose limits are over those of each; then by another, by none, or without limits.
ROUTES = b":relay\n"
LINES = b"a concurrency=1\nslow rate=2/100 concurrency=3\nrelay concurrency=3 rate=5/100\n"
NAMED = [
    limited(LINES, routes=ROUTES),
    limited(LINES, routes=b":other\na:relay\nb:relay\n"),
    limited(LINES),
    limited(b"a concurrency=1\nrelay:25 concurrency=1\n", routes=ROUTES),
    limited(),
]


class LimitedMachine(Machine):
    """As Machine, and the control files change now and then."""

    settings = SETTINGS._replace(table=NAMED[0])

    def __init__(self) -> None:
        super().__init__()
        self.since: list[tuple[float, bytes]] = []  # Starts by the control files as they are now.

    @rule(table=st.sampled_from(NAMED))
    def reread(self, table: object) -> None:
        self.settings = self.settings._replace(table=table)  # type: ignore[arg-type]
        self.scheduler.apply_settings(self.settings)
        # Ten destinations at a time take them, and these may be more.
        while self.scheduler._unchanged:
            self.scheduler._renew_limits(self.now)
        self.starts.clear()
        self.since.clear()

    def start(self) -> bool:
        before = len(self.flying)
        found = super().start()
        if len(self.flying) > before:
            name = self.flying[-1].nexthop
            self.since.append((self.now, name))
            self.check_start(name)
        return found

    def check_start(self, name: bytes) -> None:
        """What was in flight before the control files changed may be over a limit; nothing starts as long as it is."""
        named = self.settings.table
        limits = named.limits(name, LIMITS)
        assert sum(entry.nexthop == name for entry in self.flying) <= limits.most
        relay = named.relay(name)
        if relay is not None:
            over = named.limits(relay, LIMITS)
            assert sum(named.relay(entry.nexthop) == relay for entry in self.flying) <= over.most
            self.check_rate([at for at, other in self.since if named.relay(other) == relay], over)
        self.check_rate([at for at, other in self.since if other == name], limits)

    def check_rate(self, starts: list[float], limits: Limits) -> None:
        if limits.rate is not None:
            count, seconds = limits.rate
            assert all(later - earlier >= seconds for earlier, later in zip(starts, starts[count:], strict=False))

    @invariant()
    def limits_hold(self) -> None:
        assert self.scheduler.in_flight == sum(len(entry.recipients) for entry in self.flying)
        counts = Counter(self.scheduler.destinations[entry.nexthop].relay for entry in self.flying)
        assert all(relay.in_flight == counts[relay] for relay in self.scheduler.relays.values())

    @invariant()
    def rates_hold(self) -> None:
        pass  # See check_start.


TestLimitedScheduler = LimitedMachine.TestCase
TestLimitedScheduler.settings = settings(max_examples=amount(50, 300), stateful_step_count=60, deadline=None)


def test_domains_that_wait_for_their_relay_take_turns() -> None:
    table = limited(b".example concurrency=5 initial=5\nrelay concurrency=2\n", routes=ROUTES)
    recorder = Recorder(Settings(concurrency=50, active=1000, limits=Limits(), table=table))
    names = [b"d%d.example" % number for number in range(7)]
    for name in names:
        for _ in range(30 if name == names[0] else 10):
            recorder.send((name, 1))
    order: list[bytes] = []
    flying = recorder.start(0.0)
    while flying:
        assert len(flying) <= 2
        order.append(flying[0].nexthop)
        recorder.end(flying.pop(0), 0.0)
        flying += recorder.start(0.0)
    assert len(order) == 90
    # The first came when there was no other; from then on none has a turn more than another.
    for end in range(4, 64):
        counts = Counter(order[3:end])
        assert max(counts.values()) - min(counts[name] for name in names) <= 1, (end, counts)


def test_all_destinations_and_all_relays_are_told_of_page_by_page_however_many_there_are() -> None:
    domains = [b"d%d.example" % number for number in range(50)]
    routes = b"".join(b"%s:relay%d\n" % (name, number) for number, name in enumerate(domains))
    table = limited(b".example rate=1/100\n", routes=routes)
    recorder = Recorder(Settings(concurrency=100, active=1000, limits=Limits(), table=table))
    explaining = Explainer(b"remote", recorder.scheduler.scheduler)
    assert explaining.page(None, 7, 0.0) == ([], 0)
    for name in domains:
        recorder.send((name, 1))
    recorder.start(0.0)
    found, further = explaining.page(None, 7, 0.0)
    while further:
        assert further < 10**18
        more, further = explaining.page(further, 7, 0.0)
        assert len(more) <= 7
        found += more
    relays = [fact.nexthop for fact in found if fact.state == RELAY]
    assert sorted(relays) == sorted(b"relay%d" % number for number in range(50))
    assert sorted(fact.nexthop for fact in found if fact.state != RELAY) == sorted(domains)


def test_a_slow_domain_that_waits_for_a_place_keeps_no_other_from_its_relay() -> None:
    table = limited(b".example initial=1\nrelay concurrency=1\n", routes=b".example:relay\n")
    recorder = Recorder(Settings(concurrency=8, active=1000, limits=Limits(), table=table))
    for name in (b"slow.example", b"one.example", b"two.example"):
        recorder.send((name, 1))
        [entry] = recorder.start(0.0)
        recorder.end(entry, 100.0 if name == b"slow.example" else 1.0)
    for number in range(8):
        recorder.send((b"hanging%d.far" % number, 1))
    assert len(recorder.start(200.0)) == 6  # Three quarters of the places, which are all that slow ones may have, too.
    recorder.send((b"one.example", 1))
    [entry] = recorder.start(201.0)
    for name in (b"slow.example", b"two.example"):
        recorder.send((name, 1))
    assert recorder.start(202.0) == []
    recorder.end(entry, 202.0)
    assert [entry.nexthop for entry in recorder.start(203.0)] == [b"two.example"]


def test_a_relay_that_was_over_its_rate_wakes_one_domain_after_the_other() -> None:
    table = limited(b".example initial=9\nrelay rate=1/100\n", routes=ROUTES)
    recorder = Recorder(Settings(concurrency=50, active=5000, limits=Limits(), table=table))
    names = [b"d%d.example" % number for number in range(500)]
    for name in names:
        recorder.send((name, 1))
    order, now = [], 0.0
    for _ in range(50):
        for entry in recorder.start(now):
            order.append(entry.nexthop)
            recorder.end(entry, now)
        due = recorder.scheduler.next_time(now)
        assert due is not None and now < due <= now + 100
        now = due
    assert order == names[:50]


def test_what_is_withdrawn_passes_its_turn_at_the_relay_on() -> None:
    recorder, flying = waiting_for_relay(b"relay concurrency=1\n", b"gone.example", b"next.example")
    recorder.scheduler.withdraw(2, 0.0)
    recorder.end(flying, 1.0)
    assert names_of(recorder.start(1.0)) == [b"next.example"]


def test_a_rate_of_a_relay_for_several_messages_starts_them_all_when_it_allows_them() -> None:
    others = [b"d%d.example" % number for number in range(6)]
    recorder, _ = waiting_for_relay(b"relay rate=3/100\n", *others, at_once=3)
    assert recorder.scheduler.next_time(1.0) == 100.0
    assert names_of(recorder.start(100.0)) == others[2:5]


def test_a_domain_that_leaves_its_relay_at_hup_leaves_it_to_others() -> None:
    recorder, first = waiting_for_relay(b"relay concurrency=1\n", b"leaves.example", b"first.example")
    recorder.end(first, 1.0)
    assert names_of(recorder.start(1.0)) == [b"leaves.example"]
    change(recorder, b"relay concurrency=1\n", b"leaves.example:elsewhere\n.example:relay\n")
    assert names_of(recorder.start(2.0)) == [b"first.example"]


def test_a_domain_that_waits_for_its_relay_and_leaves_it_at_hup_waits_no_more() -> None:
    recorder, _ = waiting_for_relay(b"relay rate=1/86400\n", b"leaves.example", b"stays.example")
    change(recorder, b"relay rate=1/86400\n", b"leaves.example:elsewhere\n.example:relay\n")
    assert names_of(recorder.start(2.0)) == [b"leaves.example"]


def test_a_relay_that_may_have_more_after_hup_has_it_at_once() -> None:
    recorder, _ = waiting_for_relay(b"relay concurrency=1\n", b"a.example", b"b.example", b"c.example")
    change(recorder, b"relay concurrency=3\n", b".example:relay\n")
    assert names_of(recorder.start(2.0)) == [b"a.example", b"b.example"]


def test_a_relay_counts_what_its_own_destination_had_when_its_first_domain_gets_a_line() -> None:
    line, routes = b"relay:26 rate=2/100\n", b".example:relay:26\n"
    recorder = Recorder(Settings(50, 1000, Limits(), limited(line, routes=routes)))
    recorder.send((b"relay:26", 1))
    assert len(recorder.start(0.0)) == 1
    change(recorder, line, routes)
    for name in (b"a.example", b"b.example"):
        recorder.send((name, 1))
    assert names_of(recorder.start(1.0)) == [b"a.example"]


def waiting_for_relay(line: bytes, *names: bytes, at_once: int = 1) -> tuple[Recorder, Entry]:
    """Return a scheduler in which first.example has a job in flight; all but `at_once` wait for the same relay."""
    table = limited(line + b".example initial=1\n", routes=b".example:relay\n")
    recorder = Recorder(Settings(concurrency=50, active=1000, limits=Limits(), table=table))
    recorder.send((b"first.example", 1))
    [flying] = recorder.start(0.0)
    for name in names:
        recorder.send((name, 1))
    assert len(recorder.start(0.0)) == at_once - 1
    return recorder, flying


def change(recorder: Recorder, line: bytes, routes: bytes) -> None:
    table = limited(line + b".example initial=1\n", routes=routes)
    recorder.scheduler.apply_settings(recorder.scheduler.settings._replace(table=table))


def names_of(groups: list[Entry]) -> list[bytes]:
    return [entry.nexthop for entry in groups]


def test_after_hup_what_an_earlier_limit_has_kept_waits_no_more_however_many_there_are() -> None:
    before = limited(b".example rate=1/86400\n")
    recorder = Recorder(Settings(concurrency=1000, active=5000, limits=Limits(), table=before))
    names = [b"d%d.example" % number for number in range(300)]
    for name in names * 2:
        recorder.send((name, 1))
    for entry in recorder.start(0.0):
        recorder.end(entry, 0.0)
    assert recorder.scheduler.next_time(0.0) == 86400.0
    recorder.scheduler.apply_settings(recorder.scheduler.settings._replace(table=limited()))
    assert recorder.scheduler.next_time(0.0) == 0.0
    assert sorted(entry.nexthop for entry in recorder.start(0.0)) == sorted(names)


def test_the_domains_of_the_machine_are_those_of_its_lines() -> None:
    assert {name for name in DOMAINS if named_of(name)} == {b"a", b"slow"}


def named_of(name: bytes) -> bytes:
    return NAMED[0].limits(name, LIMITS).line
