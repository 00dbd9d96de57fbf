"""The scheduler with a caller in memory: it loads what is let in, and deferred mail is due after RETRY seconds."""

from queue_base.limits import Limits
from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.model import Attempt, Entry, Settings
from support.send.driven import Driven

LIFETIME = 604800
RETRY = 1000
SETTINGS = Settings(concurrency=8, active=1000, limits=Limits(recipients=2))


class Recorder:
    """Events, and a caller that loads what is let in: messages are (nexthop, recipients) each.

    waiting: those that were deferred. loaded: those that were read, in their order.
    """

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.classes = MessageClasses(("normal", "bulk", "later"))
        self.scheduler = Driven(settings, self, self.classes)
        self.messages: dict[int, list[tuple[bytes, int]]] = {}
        self.waiting: list[int] = []
        self.loaded: list[int] = []
        self._submitters: dict[int, bytes | None] = {}
        self._due: dict[int, int] = {}

    def deferred(self, attempt: Attempt, now: float) -> None:
        self.waiting.append(attempt.message)
        self._due[attempt.message] = int(now) + RETRY
        self.scheduler.add_deferred(attempt.message, int(now) + RETRY)

    def finished(self, attempt: Attempt, now: float) -> None:
        pass

    def withdrawn(self, attempt: Attempt) -> None:
        pass

    def expired(self, entry: Entry) -> None:
        raise AssertionError("nothing expires here")

    def died(self, nexthop: bytes) -> None:
        pass

    def revived(self, nexthop: bytes) -> None:
        pass

    def send(
        self,
        *groups: tuple[bytes, int],
        known: bool = False,
        priority: str = "",
        submitter: bytes | None = None,
    ) -> int:
        """A new message; `known`: its one destination is known before it is loaded. `priority`: its class."""
        message = len(self.messages) + 1
        self._submitters[message] = submitter
        self.classes.put(message, priority)
        self.messages[message] = list(groups)
        if known:
            self.scheduler.add_new(message, groups[0][0], LIFETIME, submitter)
        else:
            self.scheduler.add_new(message, submitter=submitter)
        return message

    def start(self, now: float) -> list[Entry]:
        """Load and start whatever may."""
        started = []
        turns = 2  # Where there was nothing twice: what one turn wakes, the next one loads.
        while turns:
            found = self.scheduler.next_load(now)
            if found is not None:
                self.loaded.append(found[0])
                self.load(*found, now)
            entry = self.scheduler.next_job(now)
            if entry is not None:
                started.append(entry)
            turns = turns - 1 if found is None and entry is None else 2
        return started

    def load(self, message: int, stamp: int | None, now: float) -> None:
        """Read a message that may be loaded."""
        groups = [(name, [(place, b"x") for place in range(count)]) for name, count in self.messages[message]]
        if not groups or stamp not in (None, self._due.get(message)):
            self.scheduler.cancel_load(message)
        else:
            attempt = Attempt(message, b"", int(now), int(now) + LIFETIME)
            attempt.submitter = self._submitters[message]
            self.scheduler.load(attempt, groups, now)

    def end(self, entry: Entry, now: float, good: bool = True) -> None:
        """A job is over; all of it is done, or the host was not there."""
        if good:
            entry.attempt.left -= len(entry.recipients)
            name = entry.nexthop
            self.messages[entry.attempt.message] = [
                kept for kept in self.messages[entry.attempt.message] if kept[0] != name
            ]
        self.scheduler.end_job(entry, 0 if good else len(entry.recipients), not good, now)
