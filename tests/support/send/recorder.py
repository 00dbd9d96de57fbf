"""The scheduler with a caller in memory: it loads what is let in, and deferred mail is due after RETRY seconds."""

from queue_send.attempt import Attempt, Group
from queue_send.destination import Destination, Limits
from queue_send.events import Settings
from queue_send.scheduler import Scheduler

LIFETIME = 604800
RETRY = 1000
SETTINGS = Settings(concurrency=8, active=1000, limits=Limits(recipients=2))


class Recorder:
    """Events, and a caller that loads what is let in: messages are (nexthop, recipients) each."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.scheduler = Scheduler(settings, self)
        self.messages: dict[int, list[tuple[bytes, int]]] = {}
        self.waiting: list[int] = []
        self._due: dict[int, int] = {}

    def deferred(self, attempt: Attempt, now: float) -> None:
        self.waiting.append(attempt.message)
        self._due[attempt.message] = int(now) + RETRY
        self.scheduler.found(attempt.message, int(now) + RETRY)

    def finished(self, attempt: Attempt, now: float) -> None:
        pass

    def withdrawn(self, attempt: Attempt) -> None:
        pass

    def expired(self, group: Group) -> None:
        raise AssertionError("nothing expires here")

    def died(self, destination: Destination) -> None:
        pass

    def revived(self, destination: Destination) -> None:
        pass

    def send(self, *groups: tuple[bytes, int]) -> int:
        """A new message."""
        message = len(self.messages) + 1
        self.messages[message] = list(groups)
        self.scheduler.arrived(message)
        return message

    def start(self, now: float) -> list[Group]:
        """Load and start whatever may."""
        started = []
        turns = 2  # Where there was nothing twice: what one turn wakes, the next one loads.
        while turns:
            found = self.scheduler.next_load(now)
            if found is not None:
                self._load(*found, now)
            group = self.scheduler.next_job(now)
            if group is not None:
                started.append(group)
            turns = turns - 1 if found is None and group is None else 2
        return started

    def _load(self, message: int, stamp: int | None, now: float) -> None:
        groups = [(name, [(place, b"x") for place in range(count)]) for name, count in self.messages[message]]
        if not groups or stamp not in (None, self._due.get(message)):
            self.scheduler.absent(message)
        else:
            self.scheduler.open(Attempt(message, b"", int(now), int(now) + LIFETIME), groups, now)

    def end(self, group: Group, now: float, good: bool = True) -> None:
        """A job is over; all of it is done, or the host was not there."""
        if good:
            group.attempt.left -= len(group.recipients)
            name = group.nexthop
            self.messages[group.attempt.message] = [
                kept for kept in self.messages[group.attempt.message] if kept[0] != name
            ]
        self.scheduler.ended(group, 0 if good else len(group.recipients), not good, now)
