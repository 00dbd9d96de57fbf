"""The scheduler's random test with relays, limits that change at HUP, and messages that are loaded in slices."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from queue_base.limits import Limits, LimitTable
from queue_send.scheduler.model import Attempt, Recipient, Settings
from queue_send.scheduler.nexthop import NexthopChoices, group_recipients
from queue_wire.control.destinationlimits import LimitLines, join_lines, unpack_limits, unpack_rates
from queue_wire.control.smtproutes import Routes, unpack_routes
from support.plugins.amount import amount
from support.send.machine import LIFETIME, Machine

DOMAINS = [b"a", b"b", b"slow", b"r1", b"r2", b"r3", b"q1", b"q2"]
SLICE = 4
LIMITS = Limits(initial=2, most=4, cohorts=2, probe_first=60, probe_most=600, recipients=3)
ROUTES = b"r1:one\nr2:one\nr3:one\nq1:two:2525\nq2:two:2525\n"


Variant = tuple[Settings, Routes, LimitLines]


def variant(limits: bytes, rates: bytes, routes: bytes, concurrency: int, active: int) -> Variant:
    lines, ways = join_lines(unpack_limits(limits), unpack_rates(rates)), unpack_routes(routes)
    return Settings(concurrency, active, LIMITS, LimitTable(lines, ways)), ways, lines


VARIANTS = [
    variant(b"r1 concurrency=1\none concurrency=2\n", b"slow:2/100\n", ROUTES, 7, 10),
    variant(
        b"r1 recipients=1\nr2 rate=1/50\none rate=3/100\nq1 initial=1\ntwo:2525 concurrency=1\n", b"", ROUTES, 7, 3
    ),
    variant(b"r1 concurrency=3\nq1 rate=2/30\n", b"", b"r1:one\nr2:two:2525\nr3:one\nq1:one\n", 3, 10),
    variant(b"", b"", ROUTES, 1, 1),
    variant(b"a rate=1/1000\nb concurrency=1\n", b"", b"", 20, 20),
    variant(b"q1 concurrency=2\none rate=1/500\nr2 concurrency=1\n", b"", ROUTES, 8, 4),
]


class Relays(Machine):
    def __init__(self) -> None:
        self.settings, self.routes, self.lines = VARIANTS[0]
        super().__init__()
        self.slices: dict[int, tuple[int, bool]] = {}

    # Events, with the slices of queue_send.delivery.loading

    def _goes_on(self, attempt: Attempt) -> bool:
        before = self.slices.get(attempt.message)
        if attempt.rest is None:
            if attempt.overflow is None:
                self.slices.pop(attempt.message, None)
            return False
        self.slices[attempt.message] = attempt.rest, attempt.left > 0 or (before is not None and before[1])
        self.scheduler.make_due(attempt.message)
        return True

    def deferred(self, attempt: Attempt, now: float) -> None:
        if not self._goes_on(attempt):
            super().deferred(attempt, now)

    def finished(self, attempt: Attempt, now: float) -> None:
        before = self.slices.get(attempt.message)
        if self._goes_on(attempt):
            return
        if before is not None and before[1]:
            super().deferred(attempt, now)
        else:
            assert not self.disk.left[attempt.message]

    def withdrawn(self, attempt: Attempt) -> None:
        self.slices.pop(attempt.message, None)
        super().withdrawn(attempt)

    def read(self, message: int, stamp: int | None) -> tuple[Attempt, list[tuple[bytes, list[Recipient]]]]:
        """Read the next slice of the message."""
        if stamp is not None:
            self.slices.pop(message, None)
        at = self.slices[message][0] if message in self.slices else 0
        tried = self.scheduler.tried(message, stamp)
        birth = self.disk.birth[message]
        attempt = Attempt(message, b"", birth, birth + LIFETIME)
        left = sorted(self.disk.left[message].items())
        found = [(offset, b"x@" + domain) for offset, domain in left if at <= offset]
        rest = found[SLICE:]
        attempt.rest = rest[0][0] if rest else None
        recipients = []
        for offset, address in found[:SLICE]:
            if offset in tried:
                attempt.left += 1
            else:
                recipients.append((offset, address))
        return attempt, group_recipients("remote", b"", recipients, NexthopChoices(self.routes, self.lines))

    def start(self) -> bool:
        entry = self.scheduler.next_job(self.now)
        if entry is None:
            return False
        assert entry.attempt.message not in self.held
        mine = {(entry.attempt.message, offset) for offset, _ in entry.recipients}
        others = {(each.attempt.message, offset) for each in self.flying for offset, _ in each.recipients}
        assert not mine & others
        relay = self.scheduler.destinations[entry.nexthop].relay
        assert relay is None or relay.in_flight <= relay.limits.most
        self.flying.append(entry)
        return True

    @rule(recipients=st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=12))
    def arrive(self, recipients: list[bytes]) -> None:
        self.count += 1
        self.disk.left[self.count] = dict(enumerate(recipients))
        self.disk.birth[self.count] = int(self.now)
        self.disk.due[self.count] = int(self.now)
        self.scheduler.add_new(self.count)

    @rule(new=st.sampled_from(VARIANTS))
    def hup(self, new: Variant) -> None:
        self.settings, self.routes, self.lines = new
        self.scheduler.apply_settings(self.settings)

    @rule(name=st.sampled_from([*DOMAINS, b"one", b"two:2525"]))
    def probe(self, name: bytes) -> None:
        self.scheduler.probe(name, self.now)

    @rule()
    def watch(self) -> None:
        self.scheduler.expire_all(self.now)
        self.settle()

    @rule()
    def idle(self) -> None:
        """A loop that has done all that may be done now waits for something."""
        for _ in range(2000):
            while self.load_on() or self.load() or self.start():
                self.settle()
            self.settle()
            due = self.scheduler.next_time(self.now)
            if due is None or due > self.now:
                break
        else:
            raise AssertionError("the loop would turn and turn")

    @invariant()
    def limits_hold(self) -> None:
        assert self.scheduler.in_flight == sum(len(entry.recipients) for entry in self.flying)
        jobs: dict[bytes, int] = defaultdict(int)
        for entry in self.flying:
            jobs[entry.nexthop] += 1
        totals: dict[bytes, int] = defaultdict(int)
        for name, destination in self.scheduler.destinations.items():
            assert destination.in_flight == jobs.pop(name, 0), name
            if destination.relay is not None:
                totals[destination.relay.name] += destination.in_flight
        assert not jobs
        for name, relay in self.scheduler.relays.items():
            assert relay.in_flight == totals[name], name

    @invariant()
    def rates_hold(self) -> None:
        """They are another at each HUP; the test that this one is made from looks at a rate that stays."""


TestRelays = Relays.TestCase
TestRelays.settings = settings(max_examples=amount(30, 100), stateful_step_count=80, deadline=None)
