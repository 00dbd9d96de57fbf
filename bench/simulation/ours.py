"""The scheduler of queue-send, driven by the virtual clock as the loop drives it, with the disk in two dicts."""

from collections.abc import Iterator, Sequence

from queue_send.scheduler.model import (
    Action,
    Alive,
    Attempt,
    Dead,
    Defer,
    Entry,
    Finish,
    Recipient,
    Settings,
    Start,
    Suspended,
)
from queue_send.scheduler.retry import SKIP_REMOTE, next_attempt
from queue_send.scheduler.scheduler import Scheduler
from queue_wire.control.schedule import QUADRATIC
from simulation.clock import Job
from simulation.traffic import Traffic
from simulation.watch import Watch
from simulation.world import Host

LIFETIME = 604800


class Ours:
    """Both the Events of the scheduler and the QueueSend of the clock."""

    def __init__(
        self, traffic: Traffic, world: list[Host], settings: Settings, watches: dict[int, Watch]
    ) -> None:
        self._traffic = traffic
        self._names = [host.name for host in world]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._watches = watches
        self._scheduler = Scheduler(settings)
        self._left: dict[int, list[int]] = {}  # Recipients that are not done, of messages that were tried.
        self._due: dict[int, int] = {}
        self._now = 0.0
        self.deaths = 0

    # The actions of the scheduler

    def _carry_out(self, actions: Sequence[Action], now: float) -> Entry | None:
        """Does what the scheduler returned; returns the entry that starts, if one does."""
        for action in actions:
            if isinstance(action, Start):
                return action.entry
            if isinstance(action, Defer):
                self._defer(action.attempt, now)
            elif isinstance(action, Finish):
                self._due.pop(action.attempt.message, None)
            elif isinstance(action, Dead):
                self._died(action.nexthop)
            elif isinstance(action, Alive):
                self._revived(action.nexthop)
            elif not isinstance(action, Suspended):  # That is for the last results.
                raise AssertionError(f"unexpected action: {action}")
        return None

    def _defer(self, attempt: Attempt, now: float) -> None:
        due = next_attempt(QUADRATIC, attempt.birth, int(now), SKIP_REMOTE, _never)
        self._due[attempt.message] = due
        self._scheduler.add_deferred(attempt.message, due)

    def _died(self, nexthop: bytes) -> None:
        self.deaths += 1
        if (watch := self._watches.get(self._places[nexthop])) is not None:
            watch.died(self._now)

    def _revived(self, nexthop: bytes) -> None:
        if (watch := self._watches.get(self._places[nexthop])) is not None:
            watch.revived()

    # What the clock asks

    def arrived(self, message: int, now: float) -> None:
        """A new message."""
        recipients = self._left[message] = list(self._traffic.recipients(message))
        if len(recipients) == 1:
            nexthop = self._names[self._traffic.hosts[recipients[0]]]
            self._scheduler.add_new(message, nexthop, int(now) + LIFETIME)
        else:
            self._scheduler.add_new(message)

    def jobs(self, now: float) -> Iterator[Job]:
        """Load and start in turn until there is neither, as queue-send's loop does."""
        self._now = now
        loading = True
        while True:
            loading = loading and self._load(now)
            entry = self._carry_out(self._scheduler.start(now), now)
            if entry is not None:
                recipients = [recipient for recipient, _ in entry.recipients]
                yield Job(entry.attempt.message, self._places[entry.nexthop], recipients, entry)
                loading = True
            elif not loading:
                return

    def _load(self, now: float) -> bool:
        found = self._scheduler.next_load(now)
        if found is None:
            return False
        message, stamp = found
        left = self._left.get(message)
        if not left or (stamp is not None and stamp != self._due.get(message)):
            self._scheduler.cancel_load(message)
            return True
        groups: dict[bytes, list[Recipient]] = {}
        for recipient in left:
            groups.setdefault(self._names[self._traffic.hosts[recipient]], []).append((recipient, b""))
        birth = int(self._traffic.times[message])
        attempt = Attempt(message, b"", birth, birth + LIFETIME)
        self._carry_out(self._scheduler.load(attempt, list(groups.items()), now), now)
        return True

    def ended(self, job: Job, good: bool, now: float) -> None:
        """Mark recipients done, then tell the scheduler, as the verdicts of a turn are applied."""
        self._now = now
        entry = job.tag
        assert isinstance(entry, Entry)
        if good:
            entry.attempt.left -= len(job.recipients)
            left = self._left[job.message]
            if len(left) == len(job.recipients):
                del self._left[job.message]
            else:
                done = set(job.recipients)
                self._left[job.message] = [recipient for recipient in left if recipient not in done]
        self._carry_out(self._scheduler.end_job(entry, 0 if good else len(job.recipients), not good, now), now)

    def next_time(self, now: float) -> float | None:
        """When the scheduler wants to be asked again."""
        return self._scheduler.next_time(now)


def _never() -> float:
    return 0.0
