"""Carries out what the scheduler of one channel decides about messages and destinations."""

from typing import TYPE_CHECKING

from queue_base.errors import reason
from queue_send.attempt import Attempt, Group
from queue_send.destination import Destination
from queue_send.retry import SKIP_LOCAL, SKIP_REMOTE, next_attempt, within_lifetime
from queue_send.run import Run
from queue_send.slices import Slice
from queue_send.verdicts import Landed, Verdicts
from queue_wire import logline

if TYPE_CHECKING:
    from queue_send.messages import Messages

_SKIPS = {"local": SKIP_LOCAL, "remote": SKIP_REMOTE}


class Decisions:
    """The scheduler's Events for one channel, and the verdicts of its deliveries."""

    def __init__(self, run: Run, messages: "Messages", kind: str) -> None:
        self._run = run
        self._messages = messages
        self._kind = kind
        self.verdicts = Verdicts(run, messages.store, messages.delays, kind)

    def apply(self) -> None:
        """Write down the verdicts of this turn; the scheduler is told of each when that is done."""
        self.verdicts.apply(self._tell)

    def _tell(self, landed: Landed) -> None:
        scheduler, now = self._messages.schedulers[self._kind], self._run.clock.now()
        if landed.started:
            deferred = len(landed.group.recipients) - landed.done
            scheduler.ended(landed.group, deferred, landed.host_failed, now)
        else:
            scheduler.settled(landed.group, now)

    def deferred(self, attempt: Attempt, now: float) -> None:
        """Go on with the recipients that were not loaded yet, or keep the next attempt on disk and wait for it."""
        if not self._goes_on(attempt):
            self._wait(attempt, now)

    def finished(self, attempt: Attempt, now: float) -> None:
        """Every recipient that was loaded is done; go on with the rest, or finish the channel."""
        before = self._messages.slices.get((self._kind, attempt.message))
        if self._goes_on(attempt):
            return
        if before is not None and before.left:
            self._wait(attempt, now)
        else:
            self._messages.channel_finished(attempt.message, self._kind)

    def _wait(self, attempt: Attempt, now: float) -> None:
        message, scheduler = attempt.message, self._messages.schedulers[self._kind]
        schedule, random = self._run.controls.retry, self._run.random.random
        due = next_attempt(schedule, attempt.birth, int(now), _SKIPS[self._kind], random)
        due = within_lifetime(due, int(now), attempt.expires)
        try:
            self._messages.store.set_due(message, self._kind, self._run.clock.to_disk(due))
            scheduler.found(message, due)
        except OSError as error:
            self._run.log.warning(f"unable to change {error.filename or message}: {reason(error)}; mail goes on")
            scheduler.later(message, due)
        self._messages.delays.deferred(attempt, now)

    def _goes_on(self, attempt: Attempt) -> bool:
        """Have the next slice of a message with many recipients loaded; return False where this was the last."""
        key = self._kind, attempt.message
        before = self._messages.slices.get(key)
        if attempt.rest is None:
            if attempt.aside is None:
                self._messages.slices.pop(key, None)
            return False
        left = attempt.left > 0 or (before is not None and before.left)
        self._messages.slices[key] = Slice(attempt.rest, attempt.born, attempt.size, left)
        self._messages.schedulers[self._kind].wake(attempt.message)
        return True

    def withdrawn(self, attempt: Attempt) -> None:
        """A message that was to be withdrawn has nothing in flight any more."""
        self._messages.slices.pop((self._kind, attempt.message), None)
        self._messages.delays.forget(attempt.message)
        self._messages.withdrawn(attempt.message, self._kind)

    def expired(self, group: Group) -> None:
        """Fail recipients that cannot be tried before it is too late; applied with the verdicts of the turn."""
        self.verdicts.expire(group)

    def died(self, destination: Destination) -> None:
        """Say that a destination is dead."""
        line = logline.destination_dead(destination.name, destination.interval, destination.turned_away)
        self._run.log.put(line)

    def revived(self, destination: Destination) -> None:
        """Say that a dead destination is alive."""
        self._run.log.put(logline.destination_alive(destination.name, destination.turned_away))
