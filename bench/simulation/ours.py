"""The scheduler of queue-send, driven by the virtual clock as the loop drives it, with the disk in two dicts."""

from collections.abc import Iterator

from queue_send.attempt import Attempt, Group, Recipient
from queue_send.destination import Destination
from queue_send.events import Settings
from queue_send.retry import QUADRATIC, SKIP_REMOTE, next_attempt
from queue_send.scheduler import Scheduler
from simulation.clock import Job
from simulation.traffic import Traffic
from simulation.watch import Watch
from simulation.world import Host

LIFETIME = 604800


class Ours:
    """Both the Events of the scheduler and the Sender of the clock."""

    def __init__(
        self, traffic: Traffic, world: list[Host], settings: Settings, watches: dict[int, Watch]
    ) -> None:
        self._traffic = traffic
        self._names = [host.name for host in world]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._watches = watches
        self._scheduler = Scheduler(settings, self)
        self._left: dict[int, list[int]] = {}  # Recipients that are not done, of messages that were tried.
        self._due: dict[int, int] = {}
        self._now = 0.0
        self.deaths = 0

    # What the scheduler decides

    def deferred(self, attempt: Attempt, now: float) -> None:
        """Keep the next attempt."""
        due = next_attempt(QUADRATIC, attempt.birth, int(now), SKIP_REMOTE, _never)
        self._due[attempt.message] = due
        self._scheduler.found(attempt.message, due)

    def finished(self, attempt: Attempt, now: float) -> None:
        """Forget the message."""
        self._due.pop(attempt.message, None)

    def withdrawn(self, attempt: Attempt) -> None:
        """Nobody withdraws anything here."""
        raise AssertionError("a message was withdrawn")

    def expired(self, group: Group) -> None:
        """No mail is to stay that long."""
        raise AssertionError(f"a message expired: {group.attempt.message}")

    def died(self, destination: Destination) -> None:
        """Tell the host's watch."""
        self.deaths += 1
        if (watch := self._watches.get(self._places[destination.name])) is not None:
            watch.died(self._now)

    def revived(self, destination: Destination) -> None:
        """Tell the host's watch."""
        if (watch := self._watches.get(self._places[destination.name])) is not None:
            watch.revived()

    # What the clock asks

    def arrived(self, message: int, now: float) -> None:
        """A new message."""
        self._left[message] = list(self._traffic.recipients(message))
        self._scheduler.arrived(message)

    def jobs(self, now: float) -> Iterator[Job]:
        """Load and start in turn until there is neither, as queue-send's loop does."""
        self._now = now
        loading = True
        while True:
            loading = loading and self._load(now)
            group = self._scheduler.next_job(now)
            if group is not None:
                recipients = [recipient for recipient, _ in group.recipients]
                yield Job(group.attempt.message, self._places[group.nexthop], recipients, group)
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
            self._scheduler.absent(message)
            return True
        groups: dict[bytes, list[Recipient]] = {}
        for recipient in left:
            groups.setdefault(self._names[self._traffic.hosts[recipient]], []).append((recipient, b""))
        birth = int(self._traffic.times[message])
        self._scheduler.open(Attempt(message, b"", birth, birth + LIFETIME), list(groups.items()), now)
        return True

    def ended(self, job: Job, good: bool, now: float) -> None:
        """Mark recipients done, then tell the scheduler, as the verdicts of a turn are applied."""
        self._now = now
        group = job.tag
        assert isinstance(group, Group)
        if good:
            group.attempt.left -= len(job.recipients)
            left = self._left[job.message]
            if len(left) == len(job.recipients):
                del self._left[job.message]
            else:
                done = set(job.recipients)
                self._left[job.message] = [recipient for recipient in left if recipient not in done]
        self._scheduler.ended(group, 0 if good else len(job.recipients), not good, now)

    def next_time(self, now: float) -> float | None:
        """When the scheduler wants to be asked again."""
        return self._scheduler.next_time(now)


def _never() -> float:
    return 0.0
