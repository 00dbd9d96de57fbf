"""The half of the scheduler that knows which messages wait and which are loaded. Pure.

Only `activelimit` messages are loaded, and none while nothing of it could be started.
"""

from collections import deque
from collections.abc import Collection

from queue_send.admission import Admission
from queue_send.attempt import Attempt
from queue_send.away import Away
from queue_send.destination import Destination
from queue_send.events import Settings

TRIED_MOST = 200_000  # Recipients that are remembered as tried, some 70 bytes each; others may be tried too soon.
AHEAD = 1000  # Messages that are queued in one destination, at the most, beyond those that it has room for.


class Loading:
    """The messages of one channel; `running` counts the deliveries in flight.

    `attempts` are the messages that are loaded, None for one that is about to be; `admission` has those that are not.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.running = 0
        self.admission = Admission()
        self._away = Away()
        self._with_aside: dict[bytes, Destination] = {}
        self._wanting: deque[Destination] = deque()  # Those that have mail aside and room for it, or had.
        self.attempts: dict[int, Attempt | None] = {}
        # Of messages that wait aside for some of their recipients: offsets of those that were tried meanwhile.
        self._tried: dict[int, set[int]] = {}
        self._tried_count = 0

    def arrived(self, message: int) -> None:
        """A new message."""
        self.admission.arrived(message)

    def found(self, message: int, due: int, flushed: bool = False, last: int | None = None) -> None:
        """A deferred message, with the next attempt that its file has, in seconds since the epoch.

        `flushed` is for one that is found after everything was made due; `last` is when it is tried at the latest.
        """
        if last is not None and last < due and not flushed:
            self.admission.wake(message, last)
        else:
            self.admission.found(message, due, flushed)

    def wake(self, message: int) -> None:
        """Try a message now, whatever its file says."""
        self.admission.wake(message, 0)

    def later(self, message: int, due: int) -> None:
        """Try a message at `due`, whatever its file says; also one that `next_load` named and could not be read."""
        self.absent(message)
        self.admission.wake(message, due)

    def absent(self, message: int) -> None:
        """A message that `next_load` named is not there, or not to be tried."""
        if self.attempts.get(message, False) is None:
            del self.attempts[message]

    @property
    def _has_room(self) -> bool:
        """Whether another message may be loaded, and something of it started."""
        return len(self.attempts) < self.settings.active and self.running < self.settings.concurrency

    def next_load(self, now: float) -> tuple[int, int | None] | None:
        """Return the message to read now, as Admission.next does; then `open`, `absent` or `later` must follow.

        Mail whose destination has room again comes first: it was let in once already.
        """
        while self._has_room:
            found = self._next_aside() or self.admission.next(now)
            if found is None:
                return None
            if found[0] not in self.attempts:
                self.attempts[found[0]] = None
                return found
        return None

    def tried(self, message: int, stamp: int | None) -> Collection[int]:
        """Return the offsets of recipients that are not to be tried now: they wait for their next attempt.

        `stamp` is what `next_load` gave with the message; where there is one, the next attempt has come.
        """
        if stamp is not None:
            self.forget_tried(message)
        return self._tried.get(message, ())

    def forget_tried(self, message: int) -> None:
        """All recipients of a message that are left are to be tried, or none any more."""
        self._tried_count -= len(self._tried.pop(message, ()))

    def _keep_tried(self, attempt: Attempt) -> None:
        if attempt.placed and self._tried_count < TRIED_MOST:
            tried = self._tried.setdefault(attempt.message, set())
            self._tried_count -= len(tried)
            tried.update(attempt.placed)
            self._tried_count += len(tried)

    def holds(self, message: int) -> bool:
        """Return whether a message is loaded: something of it is queued or in flight."""
        return message in self.attempts

    @property
    def active(self) -> int:
        """Messages that are loaded."""
        return len(self.attempts)

    @property
    def aside(self) -> int:
        """Messages that wait for room in a destination, at the most: a key may be there twice."""
        # Destinations may be very many; those with mail aside are few.
        self._with_aside = {name: each for name, each in self._with_aside.items() if each.aside}
        return sum(len(each.aside) for each in self._with_aside.values())

    def __len__(self) -> int:
        """Messages that wait or are loaded, at the most: a key may be there twice."""
        return len(self.admission) + len(self.attempts)

    def _load_more(self, destination: Destination) -> None:
        """Have as many messages loaded as a destination has room for, in their order."""
        if destination.aside and not destination.wanting and destination.room > 0:
            destination.wanting = True
            self._wanting.append(destination)

    def _may_queue_ahead(self, destination: Destination) -> bool:
        """Whether a destination takes more than it has room for, because that spares a second load of the message.

        Not while others wait aside, which it would pass, nor where the active set is half full. And only for
        a message with no other destination, which would have to wait for this one with its next attempt.
        """
        queued, loaded = len(destination.queue), len(self.attempts)
        return not destination.aside and queued < AHEAD and loaded <= self.settings.active // 2

    def _next_aside(self) -> tuple[int, None] | None:
        while self._wanting:
            destination = self._wanting[0]
            # Asked each time: what was loaded last may have taken the room.
            message = destination.aside.take() if destination.room > 0 and not destination.dead else None
            if message is not None:
                return message, None
            self._wanting.popleft().wanting = False
        return None

    def _load_probe(self, destination: Destination, now: float) -> None:
        """Have a message loaded that can be the probe of a dead destination, if it is time for one."""
        if destination.dead and not destination.refuses(now):
            message = destination.aside.take()
            if message is None:
                message = self._away.take(destination)
            if message is not None:
                self.admission.refill(message)
