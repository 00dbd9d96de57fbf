"""A hypothesis state machine: the scheduler gets events in any order, and a model of the disk checks what it does."""

from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queue_send.attempt import Attempt, Group
from queue_send.destination import Destination, Limits
from queue_send.events import Settings
from queue_send.explaining import Explaining
from queue_send.scheduler import Scheduler
from support.send.limited import limited

LIFETIME = 5000
LIMITS = Limits(initial=2, most=4, cohorts=2, probe_first=60, probe_most=600, recipients=3)
SETTINGS = Settings(concurrency=7, active=10, limits=LIMITS, named=limited(rates=b"slow:2/100\n"))
DOMAINS = [b"a", b"b", b"c", b"slow"]


class Disk:
    """What the caller keeps: recipients that are left, with their domain; the next attempt; what became of each."""

    def __init__(self) -> None:
        self.left: dict[int, dict[int, bytes]] = {}
        self.birth: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.fate: dict[tuple[int, int], str] = {}


class Machine(RuleBasedStateMachine):
    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.disk = Disk()
        self.scheduler = Scheduler(self.settings, self)
        self.flying: list[Group] = []
        # Messages that are loaded in pieces: what is to be placed of each.
        self.loading: list[tuple[Attempt, list[Group], bool]] = []
        self.expiring: list[Group] = []
        self.count = 0
        self.held: set[int] = set()
        self.dead: set[bytes] = set()
        self.starts: dict[bytes, list[float]] = defaultdict(list)

    # Events

    def deferred(self, attempt: Attempt, now: float) -> None:
        due = int(now) + 400
        self.disk.due[attempt.message] = due
        self.scheduler.found(attempt.message, due)

    def finished(self, attempt: Attempt, now: float) -> None:
        assert not self.disk.left[attempt.message]

    def withdrawn(self, attempt: Attempt) -> None:
        if attempt.message not in self.held:
            self.scheduler.wake(attempt.message)  # Released while its last deliveries were in flight.

    def expired(self, group: Group) -> None:
        assert self.now > group.attempt.expires
        self.expiring.append(group)

    def died(self, destination: Destination) -> None:
        assert destination.name not in self.dead
        self.dead.add(destination.name)

    def revived(self, destination: Destination) -> None:
        self.dead.remove(destination.name)

    # What the caller does

    def load(self, whole: bool = True) -> bool:
        found = self.scheduler.next_load(self.now)
        if found is None:
            return False
        message, stamp = found
        left = self.disk.left.get(message)
        if not left or message in self.held or (stamp is not None and stamp != self.disk.due[message]):
            self.scheduler.absent(message)
            return True
        birth = self.disk.birth[message]
        groups: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        attempt = Attempt(message, b"", birth, birth + LIFETIME)
        tried = self.scheduler.tried(message, stamp)
        for offset, domain in left.items():
            if offset in tried:
                attempt.left += 1
            else:
                groups[domain].append((offset, b"x@" + domain))
        if whole:
            self.scheduler.open(attempt, list(groups.items()), self.now)
        else:
            self.scheduler.begin(attempt, self.now)
            named = [Group(attempt, name, recipients) for name, recipients in groups.items()]
            self.loading.append((attempt, named, len(named) == 1))
        return True

    def load_on(self) -> bool:
        if not self.loading:
            return False
        attempt, groups, single = self.loading[0]
        if groups:
            self.scheduler.place(groups.pop(0), single, self.now)
        else:
            self.loading.pop(0)
            self.scheduler.opened(attempt, self.now)
        return True

    def start(self) -> bool:
        group = self.scheduler.next_job(self.now)
        if group is None:
            return False
        assert len(group.recipients) <= LIMITS.recipients
        assert group.attempt.message not in self.held
        self.flying.append(group)
        self.starts[group.nexthop].append(self.now)
        return True

    def done(self, group: Group, offset: int, fate: str) -> None:
        message = group.attempt.message
        assert (message, offset) not in self.disk.fate
        self.disk.fate[message, offset] = fate
        del self.disk.left[message][offset]
        group.attempt.left -= 1

    def report(self, group: Group, letters: str, host_failed: bool) -> None:
        self.flying.remove(group)
        deferred = 0
        for (offset, _), letter in zip(group.recipients, letters, strict=True):
            if letter == "Z" and self.now > group.attempt.expires:
                letter = "D"
            if letter == "Z":
                deferred += 1
            else:
                self.done(group, offset, letter)
        self.scheduler.ended(group, deferred, host_failed, self.now)

    def settle(self) -> None:
        while self.expiring:
            group = self.expiring.pop()
            for offset, _ in group.recipients:
                self.done(group, offset, "D")
            self.scheduler.settled(group, self.now)

    # Rules

    @rule(recipients=st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=9))
    def arrive(self, recipients: list[bytes]) -> None:
        self.count += 1
        self.disk.left[self.count] = dict(enumerate(recipients))
        self.disk.birth[self.count] = int(self.now)
        self.disk.due[self.count] = int(self.now)
        self.scheduler.arrived(self.count)

    @rule(seconds=st.sampled_from([0.5, 30, 100, 500, 3000]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(loads=st.integers(0, 5), starts=st.integers(0, 5))
    def turn(self, loads: int, starts: int) -> None:
        for _ in range(loads):
            self.load()
        for _ in range(starts):
            self.start()
        self.settle()

    @rule(loads=st.integers(0, 3), pieces=st.integers(0, 6))
    def turn_of_pieces(self, loads: int, pieces: int) -> None:
        for _ in range(loads):
            self.load(whole=False)
        for _ in range(pieces):
            self.load_on()
        self.settle()

    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        if self.flying:
            group = data.draw(st.sampled_from(self.flying))
            host_failed = data.draw(st.booleans())
            size = len(group.recipients)
            letters = "Z" * size if host_failed else data.draw(st.text("KZD", min_size=size, max_size=size))
            self.report(group, letters, host_failed)
            self.settle()

    @rule()
    def flush(self) -> None:
        self.scheduler.flush(self.now)

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        if self.count:
            message = data.draw(st.integers(1, self.count))
            self.held.add(message)
            self.scheduler.withdraw(message, self.now)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.held:
            message = data.draw(st.sampled_from(sorted(self.held)))
            self.held.discard(message)
            self.scheduler.wake(message)

    @rule()
    def watch(self) -> None:
        """The watchdog's round: what is past its lifetime is given up, and nothing that is left has no cause."""
        for destination in list(self.scheduler.destinations.values()):
            self.scheduler.give_up(destination, self.now)
        self.settle()
        explaining = Explaining(b"remote", self.scheduler)
        for message, left in self.disk.left.items():
            if left and message not in self.held:
                stamp = self.disk.due[message]
                assert list(explaining.message(message, [stamp], DOMAINS, self.flying, b"", self.now))

    # Invariants

    @invariant()
    def limits_hold(self) -> None:
        assert self.scheduler.running == sum(len(group.recipients) for group in self.flying)
        assert self.scheduler.running <= self.settings.concurrency
        assert self.scheduler.active <= self.settings.active
        jobs: dict[bytes, int] = defaultdict(int)
        for group in self.flying:
            jobs[group.nexthop] += 1
        assert all(count <= LIMITS.most for count in jobs.values())

    @invariant()
    def rates_hold(self) -> None:
        starts = self.starts[b"slow"]
        assert all(later - earlier >= 100 for earlier, later in zip(starts, starts[2:], strict=False))

    def teardown(self) -> None:
        """Whatever happened, everything ends once the hosts are well: nothing due waits for ever."""
        for message in sorted(self.held):
            self.held.discard(message)
            self.scheduler.wake(message)
        for _ in range(3000):
            while self.load_on() or self.load() or self.start():
                self.settle()
            self.settle()
            for group in list(self.flying):
                self.report(group, "K" * len(group.recipients), False)
            if not any(self.disk.left.values()):
                break
            due = self.scheduler.next_time(self.now)
            assert due is not None, "mail is left and the scheduler waits for nothing"
            self.now = max(self.now + 0.001, due)
        assert not any(self.disk.left.values())
        assert len(self.disk.fate) == len(set(self.disk.fate))
