"""A scheduler whose actions are carried out at once, by the methods of a listener: a caller for unit tests."""

from collections.abc import Sequence
from typing import Any, Protocol

from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.model import (
    Action,
    Alive,
    Attempt,
    Dead,
    Defer,
    Entry,
    Expire,
    Finish,
    Recipient,
    Settings,
    Withdrawn,
)
from queue_send.scheduler.model import Start as StartAction
from queue_send.scheduler.scheduler import Scheduler


class Listener(Protocol):
    """Carries out the actions."""

    def deferred(self, attempt: Attempt, now: float) -> None: ...

    def finished(self, attempt: Attempt, now: float) -> None: ...

    def withdrawn(self, attempt: Attempt) -> None: ...

    def expired(self, entry: Entry) -> None: ...

    def died(self, nexthop: bytes) -> None: ...

    def revived(self, nexthop: bytes) -> None: ...


class Driven:
    """A Scheduler: every method that returns actions also has the listener carry them out.

    It has a `scheduler` and does not inherit from it, because no class may inherit from one that is compiled.
    """

    def __init__(self, settings: Settings, listener: Listener, classes: MessageClasses | None = None) -> None:
        self.scheduler = Scheduler(settings, classes)
        self._listener = listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)

    def __len__(self) -> int:
        return len(self.scheduler)

    def _carry_out(self, actions: Sequence[Action], now: float) -> Sequence[Action]:
        for action in actions:
            if isinstance(action, Defer):
                self._listener.deferred(action.attempt, now)
            elif isinstance(action, Finish):
                self._listener.finished(action.attempt, now)
            elif isinstance(action, Withdrawn):
                self._listener.withdrawn(action.attempt)
            elif isinstance(action, Expire):
                self._listener.expired(action.entry)
            elif isinstance(action, Dead):
                self._listener.died(action.nexthop)
            elif isinstance(action, Alive):
                self._listener.revived(action.nexthop)
        return actions

    def next_load(self, now: float) -> tuple[int, int | None] | None:
        return self.scheduler.next_load(now)

    def load(
        self, attempt: Attempt, groups: list[tuple[bytes, list[Recipient]]], now: float
    ) -> Sequence[Action]:
        return self._carry_out(self.scheduler.load(attempt, groups, now), now)

    def add_entry(self, entry: Entry, whole: bool, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.add_entry(entry, whole, now), now)

    def end_load(self, attempt: Attempt, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.end_load(attempt, now), now)

    def start(self, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.start(now), now)

    def end_job(self, entry: Entry, deferred: int, host_failed: bool, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.end_job(entry, deferred, host_failed, now), now)

    def end_expired(self, entry: Entry, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.end_expired(entry, now), now)

    def withdraw(self, message: int, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.withdraw(message, now), now)

    def expire(self, now: float) -> Sequence[Action]:
        return self._carry_out(self.scheduler.expire(now), now)

    def next_job(self, now: float) -> Entry | None:
        """Returns the entry that starts now; None if none does."""
        actions = self.start(now)
        return actions[-1].entry if actions and isinstance(actions[-1], StartAction) else None

    def expire_all(self, now: float) -> None:
        """Searches all destinations for expired messages, whatever the time of the last search."""
        self.scheduler._next_search = now
        self.expire(now)
        while self.scheduler._search:
            self.scheduler._next_search = now
            self.expire(now)
