"""A round of the watchdog on one channel: looks for mail that has waited for too long, in small pieces. Pure.

It looks where mail can be stuck: in flight, queued or aside at a destination, with a verdict that the disk does not
take, new, and in the heap of deferred mail, whose first entry says at once whether anything there can be overdue.
What a message on the disk is about is asked of `look`, for a bounded number of messages a round. On its way
it has destinations give up mail that is past its lifetime.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator

from queue_send.alerts import Alerts
from queue_send.attempt import Attempt, Group
from queue_send.destination import Destination
from queue_send.explaining import Explaining
from queue_send.overdue import Dates, Rule
from queue_send.scheduler import Scheduler
from queue_wire.admin.cause import Cause

PIECE = 50  # Destinations that are looked at in one step,
QUEUE_PIECE = 500  # messages in memory,
HEAP_PIECE = 2000  # and entries of the heap.
LOOKS = 20  # Messages that are looked at on the disk in one place, and so the most in one step,
LOOKS_MOST = 1000  # and in the heap in a round, before those of its last piece.

# Of a message and the next attempt that its file should have; None for one that is gone, has another one, or is not
# to be tried.
Look = Callable[[int, int | None], Dates | None]


class Patrol:
    """`flight` is how long a job may take, in seconds; `alert` is given what is to be said; `rule` may change."""

    def __init__(
        self,
        kind: str,
        scheduler: Scheduler,
        rule: Rule,
        flight: float,
        look: Look,
        alerts: Alerts,
        alert: Callable[[int, Dates, Cause, bool], None],
    ) -> None:
        self.rule = rule
        self._kind = kind
        self._scheduler = scheduler
        self._explaining = Explaining(kind.encode("ascii"), scheduler)
        self._flight = flight
        self._look = look
        self._alerts = alerts
        self._alert = alert
        self._from = 0  # Where the next round begins in the heap.

    def round(self, flights: Collection[Group], stopped: bytes, now: float) -> Iterator[None]:
        """Look once at everything, and yield where another turn of the loop may come between."""
        yield from self._flights(list(flights), now)
        for destination in self._destinations():
            if destination is None:
                yield
                continue
            while self._scheduler.give_up(destination, now):
                yield
            yield from self._queued(destination, now)
            if destination.aside:
                yield
            for message in destination.aside.oldest(LOOKS):
                if not self._judge(message, now, self._explaining.aside(destination)):
                    break
        yield from self._new(stopped, now)
        yield from self._deferred(stopped, now)

    def quiet_round(self, now: float) -> Iterator[None]:
        """As `round`, but nothing is said: only what is past its lifetime is given up."""
        for destination in self._destinations():
            if destination is None:
                yield
                continue
            while self._scheduler.give_up(destination, now):
                yield

    def _say(self, message: int, dates: Dates, cause: Cause, now: float) -> None:
        if self._alerts.says((self._kind, message, dates.birth), now):
            self._alert(message, dates, cause, self.rule.is_past(dates, now))

    def _flights(self, flights: list[Group], now: float) -> Iterator[None]:
        """In flight, or landed and not written down, for longer than any timeout."""
        flying = set()
        for number, group in enumerate(flights, 1):
            if number % QUEUE_PIECE == 0:
                yield
            flying.add(group.attempt.message)
            if now - group.started > self._flight:
                flies = self._explaining.flies(len(group.recipients), group)
                self._say(group.attempt.message, _dates(group.attempt), flies, now)
        yield
        for number, attempt in enumerate(list(self._scheduler.attempts.values()), 1):
            landed = attempt is not None and attempt.flying and attempt.message not in flying
            if attempt is not None and landed and now - attempt.opened > self._flight:
                self._say(attempt.message, _dates(attempt), self._explaining.lands(attempt.flying), now)
            if number % QUEUE_PIECE == 0:
                yield

    def _destinations(self) -> Iterator[Destination | None]:
        """Yield each destination, and None after PIECE of them."""
        for number, name in enumerate(list(self._scheduler.destinations), 1):
            destination = self._scheduler.destinations.get(name)
            if destination is not None:
                yield destination
            if number % PIECE == 0:
                yield None

    def _queued(self, destination: Destination, now: float) -> Iterator[None]:
        for number, group in enumerate(list(destination.queue), 1):
            if number % QUEUE_PIECE == 0:
                yield
            dates = _dates(group.attempt)
            # One that is in flight to somewhere is being tried.
            if not (group.attempt.flying or group.attempt.withdrawn) and self.rule.is_overdue(dates, now):
                self._say(
                    group.attempt.message, dates, self._explaining.queued(len(group.recipients), destination, now), now
                )

    def _judge(self, message: int, now: float, cause: Cause) -> bool:
        """Look at a message on the disk; return False where the next one, which is younger, cannot be overdue.

        A cause without a time gets that since when it has been due.
        """
        if message in self._scheduler.attempts:
            return True
        dates = self._look(message, None)
        if dates is None:
            return True
        if not self.rule.is_overdue(dates, now):
            return False
        self._say(message, dates, cause if cause.time else cause._replace(time=dates.due), now)
        return True

    def _new(self, stopped: bytes, now: float) -> Iterator[None]:
        admission = self._scheduler.admission
        for message in admission.oldest(LOOKS):
            self._judge(message, now, self._explaining.due(0, stopped))
        yield
        if not self._alerts.lines and admission.fresh > LOOKS:
            # They are in the order in which they came, so some looks tell how many are overdue.
            overdue = bisect_left(range(admission.fresh), True, key=lambda at: not self._is_overdue(at, now))
            self._alerts.count(max(0, overdue - LOOKS))

    def _is_overdue(self, place: int, now: float) -> bool:
        dates = self._look(self._scheduler.admission.fresh_at(place), None)
        return dates is not None and self.rule.is_overdue(dates, now)

    def _deferred(self, stopped: bytes, now: float) -> Iterator[None]:
        admission = self._scheduler.admission
        limit = int(now) - self.rule.shortest
        first = admission.first_due()
        if first is None or first > limit:
            self._from = 0
            return
        looks, begin = 0, self._from
        for start in range(begin, admission.entries, HEAP_PIECE):
            self._from = start
            for message, stamp in admission.due_by(limit, start, HEAP_PIECE):
                if message in self._scheduler.attempts or (stamp is not None and stamp > limit):
                    continue  # Being tried; or made due before its time.
                if not self._alerts.lines:
                    self._alerts.count(1)
                    continue
                looks += 1
                dates = self._look(message, stamp)
                if dates is not None and self.rule.is_overdue(dates, now):
                    self._say(message, dates, self._explaining.due(dates.due, stopped), now)
                if looks % LOOKS == 0:
                    yield
            if looks > LOOKS_MOST and self._alerts.lines:
                return  # The next round goes on here.
            yield
        self._from = 0


def _dates(attempt: Attempt) -> Dates:
    return Dates(attempt.birth, attempt.due, attempt.expires)
