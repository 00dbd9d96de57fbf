"""A scheduler of one channel, a dict for the disk, a clock that the test sets, and the watchdog's patrol."""

from collections.abc import Iterator

from queue_base.limits import Limits
from queue_send.admin.queries import Explainer
from queue_send.admin.watchdog import AlertLimit, Dates, OverdueRule, OverdueSearch
from queue_send.scheduler.model import Attempt, Entry, Settings
from queue_send.scheduler.retry import SKIP_REMOTE, next_attempt, within_lifetime
from queue_wire.admin.cause import Cause
from queue_wire.control.schedule import QUADRATIC
from support.send.driven import Driven
from support.send.limited import limited

START = 1_000_000_000
LIFETIME = 604800
FLIGHT = 21600.0
SETTINGS = Settings(
    concurrency=20, active=100,
    limits=Limits(initial=2, most=2, cohorts=1), table=limited(rates=b"rated:1/86400\n"),
)  # fmt: skip


class Watched:
    """Messages have one recipient for each nexthop that is named. `alerts` are (message, kind of cause, past)."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.now = float(START)
        self.scheduler = Driven(settings, self)
        self.explaining = Explainer(b"remote", self.scheduler.scheduler)
        self.disk: dict[int, tuple[Dates, list[bytes]]] = {}
        self.flying: list[Entry] = []
        self.failed: list[tuple[int, bytes]] = []
        self.told: list[tuple[int, bytes, bool]] = []
        self.looks = 0
        self.limiter = AlertLimit()
        rule = OverdueRule(QUADRATIC, SKIP_REMOTE, START)
        self.patrol = OverdueSearch(
            "remote", self.scheduler.scheduler, rule, FLIGHT, self.look, self.limiter, self.alert
        )

    # The scheduler's events.

    def deferred(self, attempt: Attempt, now: float) -> None:
        due = next_attempt(QUADRATIC, attempt.birth, int(now), SKIP_REMOTE, lambda: 0.0)
        due = within_lifetime(due, int(now), attempt.expires)
        dates, nexthops = self.disk[attempt.message]
        self.disk[attempt.message] = dates._replace(due=due), nexthops
        self.scheduler.add_deferred(attempt.message, due)

    def finished(self, attempt: Attempt, now: float) -> None:
        del self.disk[attempt.message]

    def withdrawn(self, attempt: Attempt) -> None:
        pass

    def expired(self, entry: Entry) -> None:
        self.failed.append((entry.attempt.message, entry.nexthop))
        entry.attempt.left -= len(entry.recipients)
        self.disk[entry.attempt.message][1].remove(entry.nexthop)
        self.scheduler.end_expired(entry, self.now)

    def died(self, nexthop: bytes) -> None:
        pass

    def revived(self, nexthop: bytes) -> None:
        pass

    # What the test does.

    def send(self, *nexthops: bytes, new: bool = True) -> int:
        """A message; one that is not new is found with the next attempt now."""
        message = len(self.disk) + 1
        self.disk[message] = Dates(int(self.now), int(self.now), int(self.now) + LIFETIME), list(nexthops)
        if new:
            self.scheduler.add_new(message)
        else:
            self.scheduler.add_deferred(message, int(self.now))
        return message

    def start(self) -> None:
        """Load and start whatever may be."""
        while True:
            loaded, entry = self._load(), self.scheduler.next_job(self.now)
            if entry is not None:
                self.flying.append(entry)
            elif not loaded:
                return

    def _load(self) -> bool:
        found = self.scheduler.next_load(self.now)
        if found is None:
            return False
        if found[0] not in self.disk or found[1] not in (None, self.disk[found[0]][0].due):
            self.scheduler.cancel_load(found[0])
            return True
        dates, nexthops = self.disk[found[0]]
        attempt = Attempt(found[0], b"", dates.birth, dates.expires, due=dates.due)
        self.scheduler.load(attempt, [(name, [(0, b"x@" + name)]) for name in nexthops], self.now)
        return True

    def end(self, entry: Entry, good: bool) -> None:
        """A report: delivered, or no host there."""
        self.flying.remove(entry)
        if good:
            entry.attempt.left -= len(entry.recipients)
            self.disk[entry.attempt.message][1].remove(entry.nexthop)
        self.scheduler.end_job(entry, 0 if good else len(entry.recipients), not good, self.now)

    def look(self, message: int, stamp: int | None) -> Dates | None:
        self.looks += 1
        dates = self.disk[message][0] if message in self.disk else None
        return dates if dates is not None and stamp in (None, dates.due) else None

    def alert(self, message: int, dates: Dates, cause: Cause, past: bool) -> None:
        self.told.append((message, cause.kind, past))

    def steps(self) -> Iterator[None]:
        """A round of the patrol, in its pieces."""
        self.scheduler.expire_all(self.now)
        if self.limiter.begin(self.now):
            yield from self.patrol.round(self.flying, b"", self.now)
            self.others = self.limiter.end(self.now)

    def patrols(self) -> list[tuple[int, bytes, bool]]:
        """Make a round; return what it told."""
        before = len(self.told)
        self.others = 0
        for _ in self.steps():
            pass
        return self.told[before:]
