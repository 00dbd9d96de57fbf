"""A hypothesis state machine: the scheduler gets events in any order, and a model of the disk checks what it does."""

from collections import defaultdict

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from queue_base.limits import Limits
from queue_send.admin.queries import Explainer
from queue_send.scheduler.model import Attempt, Entry, Recipient, Settings
from queue_send.scheduler.nexthop import holder_of, submitter_of
from queue_send.scheduler.round_robin import STEADY
from support.send.driven import Driven
from support.send.limited import limited

LIFETIME = 5000
LIMITS = Limits(initial=2, most=4, cohorts=2, probe_first=60, probe_most=600, recipients=3)
SETTINGS = Settings(concurrency=7, active=10, limits=LIMITS, table=limited(rates=b"slow:2/100\n"))
DOMAINS = [b"a", b"b", b"c", b"slow", b"x.zone.example", b"y.zone.example"]
ADDRESSES = [b"192.0.2.1", b"192.0.2.2"]
SUBMITTERS = [None, submitter_of(b"", 1000), submitter_of(b"", 1001)]
# The uid and the submitter that are known of mail, and that nothing is: then each sender is a submitter.
INJECTORS = [(1000, b""), (None, b"0123456789abcdef"), (None, b"")]
FLOOD = 15  # Messages of one submitter, more than the active set has room for.


class Disk:
    """What the caller keeps: recipients that are left, with their domain; the next attempt; what became of each; the
    submitter of each message.
    """

    def __init__(self) -> None:
        self.submitter: dict[int, bytes | None] = {}
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
        self.scheduler = Driven(self.settings, self)
        self.flying: list[Entry] = []
        # Where the jobs in flight are that have been told of, and the last ones of each destination.
        self.addresses: dict[Entry, set[bytes]] = {}
        self.last_address: dict[bytes, bytes] = {}
        # Messages that are loaded in pieces: what is to be placed of each.
        self.loading: list[tuple[Attempt, list[Entry], bool]] = []
        self.expiring: list[Entry] = []
        self.count = 0
        self.held: set[int] = set()
        self.dead: set[bytes] = set()
        self.starts: dict[bytes, list[float]] = defaultdict(list)

    # Events

    def deferred(self, attempt: Attempt, now: float) -> None:
        due = int(now) + 400
        self.disk.due[attempt.message] = due
        self.scheduler.add_deferred(attempt.message, due)

    def finished(self, attempt: Attempt, now: float) -> None:
        assert not self.disk.left[attempt.message]

    def withdrawn(self, attempt: Attempt) -> None:
        if attempt.message not in self.held:
            self.scheduler.make_due(attempt.message)  # Released while its last deliveries were in flight.

    def expired(self, entry: Entry) -> None:
        assert self.now > entry.attempt.expires
        self.expiring.append(entry)

    def died(self, nexthop: bytes) -> None:
        assert nexthop not in self.dead
        self.dead.add(nexthop)

    def revived(self, nexthop: bytes) -> None:
        self.dead.remove(nexthop)

    # What the caller does

    def load(self, whole: bool = True) -> bool:
        found = self.scheduler.next_load(self.now)
        if found is None:
            return False
        message, stamp = found
        left = self.disk.left.get(message)
        if not left or message in self.held or (stamp is not None and stamp != self.disk.due[message]):
            self.scheduler.cancel_load(message)
            return True
        attempt, groups = self.read(message, stamp)
        if whole:
            self.scheduler.load(attempt, groups, self.now)
        else:
            self.scheduler.begin_load(attempt, self.now)
            entries = [Entry(attempt, name, recipients) for name, recipients in groups]
            self.loading.append((attempt, entries, len(entries) == 1))
        return True

    def read(self, message: int, stamp: int | None) -> tuple[Attempt, list[tuple[bytes, list[Recipient]]]]:
        """Return an attempt at a message, and its recipients that are to be tried by nexthop."""
        birth = self.disk.birth[message]
        groups: dict[bytes, list[Recipient]] = defaultdict(list)
        attempt = Attempt(message, b"", birth, birth + LIFETIME)
        attempt.submitter = self.disk.submitter[message]
        tried = self.scheduler.tried(message, stamp)
        for offset, domain in self.disk.left[message].items():
            if offset in tried:
                attempt.left += 1
            else:
                groups[domain].append((offset, b"x@" + domain))
        return attempt, list(groups.items())

    def load_on(self) -> bool:
        if not self.loading:
            return False
        attempt, groups, single = self.loading[0]
        if groups:
            self.scheduler.add_entry(groups.pop(0), single, self.now)
        else:
            self.loading.pop(0)
            self.scheduler.end_load(attempt, self.now)
        return True

    def start(self) -> bool:
        entry = self.scheduler.next_job(self.now)
        if entry is None:
            return False
        assert 0 < len(entry.recipients) <= LIMITS.recipients
        assert entry.attempt.message not in self.held
        self.check_share(entry)
        self.check_submitter(entry)
        self.check_address(entry)
        self.flying.append(entry)
        self.starts[entry.nexthop].append(self.now)
        return True

    def check_share(self, entry: Entry) -> None:
        """A zone of which several destinations have jobs has got a place only if it held less than twice the free ones.

        So it never has all of them.
        """
        zone = [each for each in self.flying if holder_of(each.nexthop) == holder_of(entry.nexthop)]
        if any(each.nexthop != entry.nexthop for each in zone):
            held = sum(len(each.recipients) for each in zone)
            free = self.settings.concurrency - sum(len(each.recipients) for each in self.flying)
            assert held < 2 * free

    def check_submitter(self, entry: Entry) -> None:
        """An unsure job has got a place only while those of its submitter were fewer than twice the free places."""
        submitter = entry.attempt.submitter
        if submitter is not None and entry.pace < STEADY:
            unsure = [each for each in self.flying if each.attempt.submitter == submitter and each.pace < STEADY]
            free = self.settings.concurrency - sum(len(each.recipients) for each in self.flying)
            assert sum(len(each.recipients) for each in unsure) < 2 * free

    def check_address(self, entry: Entry) -> None:
        """An unsure job of a destination that hung at an address has got a place only while the unsure jobs there were
        fewer than twice the free places; a job that is sure whatever hangs there.
        """
        address = self.last_address.get(entry.nexthop)
        if address is None or entry.pace >= STEADY:
            return
        there = [each for each in self.flying if address in self.addresses.get(each, ()) and each.pace < STEADY]
        free = self.settings.concurrency - sum(len(each.recipients) for each in self.flying)
        assert sum(len(each.recipients) for each in there) < 2 * free
        self.addresses[entry] = {address}

    def done(self, entry: Entry, offset: int, fate: str) -> None:
        message = entry.attempt.message
        assert (message, offset) not in self.disk.fate
        self.disk.fate[message, offset] = fate
        del self.disk.left[message][offset]
        entry.attempt.left -= 1

    def report(self, entry: Entry, letters: str, host_failed: bool) -> None:
        self.flying.remove(entry)
        self.addresses.pop(entry, None)
        deferred = 0
        for (offset, _), letter in zip(entry.recipients, letters, strict=True):
            if letter == "Z" and self.now > entry.attempt.expires:
                letter = "D"
            if letter == "Z":
                deferred += 1
            else:
                self.done(entry, offset, letter)
        self.scheduler.end_job(entry, deferred, host_failed, self.now)

    def settle(self) -> None:
        while self.expiring:
            entry = self.expiring.pop()
            for offset, _ in entry.recipients:
                self.done(entry, offset, "D")
            self.scheduler.end_expired(entry, self.now)

    # Rules

    def add(self, recipients: list[bytes], known: bool, submitter: bytes | None) -> int:
        self.count += 1
        self.disk.left[self.count] = dict(enumerate(recipients))
        self.disk.birth[self.count] = int(self.now)
        self.disk.due[self.count] = int(self.now)
        self.disk.submitter[self.count] = submitter
        if known and len(recipients) == 1:
            self.scheduler.add_new(self.count, recipients[0], int(self.now) + LIFETIME, submitter)
        else:
            self.scheduler.add_new(self.count, submitter=submitter)
        return self.count

    @rule(
        recipients=st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=9),
        known=st.booleans(),
        submitter=st.sampled_from(SUBMITTERS),
    )
    def arrive(self, recipients: list[bytes], known: bool, submitter: bytes | None) -> None:
        self.add(recipients, known, submitter)

    @rule(known=st.booleans(), one_zone=st.booleans(), injector=st.sampled_from(INJECTORS))
    def flood(self, known: bool, one_zone: bool, injector: tuple[int | None, bytes]) -> None:
        """Very many messages to as many hosts that nobody knows, or to those of one zone, each of another sender."""
        for number in range(FLOOD):
            submitter = submitter_of(b"s%d@hog.example" % self.count, *injector)
            self.add([b"h%d.flood.example" % number if one_zone else b"h%d.example" % self.count], known, submitter)

    @rule()
    def newcomer(self) -> None:
        """The first message of somebody is loaded at once if any may be, whatever waits."""
        scheduler = self.scheduler.scheduler
        message = self.add([b"new%d.example" % self.count], False, b"new %d" % self.count)
        if scheduler.in_flight < self.settings.concurrency and scheduler.active < self.settings.active:
            for _ in range(2 * self.settings.active):
                if message in scheduler.attempts or not self.load():
                    break
            others = scheduler.admission.classes[0]._new._few
            assert message in scheduler.attempts or others or scheduler.active == self.settings.active
        self.settle()

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
            entry = data.draw(st.sampled_from(self.flying))
            host_failed = data.draw(st.booleans())
            size = len(entry.recipients)
            letters = "Z" * size if host_failed else data.draw(st.text("KZD", min_size=size, max_size=size))
            self.report(entry, letters, host_failed)
            self.settle()

    @rule(data=st.data(), address=st.sampled_from(ADDRESSES))
    def hang(self, data: st.DataObject, address: bytes) -> None:
        """queue-remote tells where a job is that has been in flight for some seconds."""
        if self.flying:
            entry = data.draw(st.sampled_from(self.flying))
            self.scheduler.note_address(entry, address)
            self.addresses.setdefault(entry, set()).add(address)
            self.last_address[entry.nexthop] = address

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
            self.scheduler.make_due(message)

    @rule()
    def watch(self) -> None:
        """The watchdog's round: what is past its lifetime is given up, and nothing that is left has no cause."""
        self.scheduler.expire_all(self.now)
        self.settle()
        explaining = Explainer(b"remote", self.scheduler.scheduler)
        for message, left in self.disk.left.items():
            if left and message not in self.held:
                stamp = self.disk.due[message]
                assert list(explaining.message(message, [stamp], set(left.values()), self.flying, b"", self.now))

    # Invariants

    @invariant()
    def limits_hold(self) -> None:
        assert self.scheduler.in_flight == sum(len(entry.recipients) for entry in self.flying)
        assert self.scheduler.in_flight <= self.settings.concurrency
        assert self.scheduler.active <= self.settings.active
        jobs: dict[bytes, int] = defaultdict(int)
        for entry in self.flying:
            jobs[entry.nexthop] += 1
        assert all(count <= LIMITS.most for count in jobs.values())

    @invariant()
    def rates_hold(self) -> None:
        starts = self.starts[b"slow"]
        assert all(later - earlier >= 100 for earlier, later in zip(starts, starts[2:], strict=False))

    def teardown(self) -> None:
        """Whatever happened, everything ends once the hosts are well: nothing due waits for ever."""
        for message in sorted(self.held):
            self.held.discard(message)
            self.scheduler.make_due(message)
        for _ in range(3000):
            while self.load_on() or self.load() or self.start():
                self.settle()
            self.settle()
            for entry in list(self.flying):
                self.report(entry, "K" * len(entry.recipients), False)
            if not any(self.disk.left.values()):
                break
            due = self.scheduler.next_time(self.now)
            assert due is not None, "mail is left and the scheduler waits for nothing"
            self.now = max(self.now + 0.001, due)
        assert not any(self.disk.left.values())
        assert not any(each.held or each.unsure for each in self.scheduler.round_robin._shares._shares.values())
        assert len(self.disk.fate) == len(set(self.disk.fate))
