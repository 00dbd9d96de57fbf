"""The watchdog: overdue messages are alerts that name the cause, so that no message can be forgotten in silence.

Every ROUND seconds it searches both channels, a piece in a turn of the loop.
"""

import select
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from math import isqrt
from typing import NamedTuple

from queue_base.queue.hold_marks import birth_of
from queue_send.admin.queries import Explainer
from queue_send.config import ROUND, seconds_in_environment
from queue_send.delivery.channel import Channel
from queue_send.messages.life_cycle import Messages
from queue_send.scheduler.destination import Destination
from queue_send.scheduler.model import Attempt, Entry
from queue_send.scheduler.retry import SKIPS
from queue_send.scheduler.scheduler import Scheduler
from queue_send.shared_parts import SharedParts
from queue_wire.admin.cause import Cause, describe
from queue_wire.control.schedule import Schedule
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_long_id
from queue_wire.logline import moment

# Seconds for which a job may be in flight; QUEUE_WATCHDOG_FLIGHT sets another number. A peer that takes timeoutremote
# for each of its replies needs some hours for a job of 50 recipients.
LONGEST_JOB = 21600.0
PAUSE = 0.02  # Seconds between pieces of work, so that a round over a million messages takes a small part of the CPU.
WORK = 0.002  # Seconds of a turn of the loop for a piece of work: some steps of a fraction of a millisecond each.
_OVER = object()
TIMES = 10  # Waits of its schedule after which a message is overdue.
GRACE = 7200  # Seconds. Twice the time in which a message gets its last attempt (scheduler.LAST_WAIT).
LINES = 5  # Messages that one round names.
DAY = 86400.0
QUIET_FIRST = 60.0  # Seconds until the next round with alerts, at first and at most.
QUIET_MAX = 3600.0
PIECE = 50  # Destinations of one step,
QUEUE_PIECE = 500  # messages in memory of one step,
HEAP_PIECE = 2000  # entries of the heap of one step.
LOOKS = 20  # Messages of one step whose files are read,
LOOKS_MAX = 1000  # and of the heap in one round, before those of its last piece.


Key = tuple[str, int, int]  # Channel, message, birth in seconds.


class Dates(NamedTuple):
    """The dates of a message on one channel, in seconds since the epoch; `due` is its next attempt on the disk."""

    birth: int
    due: int
    expires: int


def last_wait(schedule: Schedule, birth: int, due: int, skip: int) -> int:
    """Return the wait that ended at `due`, in seconds; for mail that was never tried, the wait that would be next."""
    age = max(0, due - birth)
    if schedule.kind == "quadratic":
        root = max(isqrt(age), skip)
        return root * root - (root - skip) ** 2
    if schedule.kind == "exponential":
        least, most = schedule.steps
        return min(max(age // 2, least), most)
    wait = schedule.steps[0]
    total = 0
    for step in schedule.steps:
        total += step
        if age < total:
            break
        wait = step
    return wait


class OverdueRule:
    """Which messages of a channel are overdue. Pure.

    A message is overdue if it is due and was not tried for TIMES its last wait, or is past its lifetime for GRACE
    seconds. The wait is the schedule's, without jitter. Time before `begun`, the start of this run, does not count.
    `skip` is the channel's (scheduler.retry).
    """

    def __init__(self, schedule: Schedule, skip: int, begun: float) -> None:
        self.schedule = schedule
        self._skip = skip
        self._begun = begun

    @property
    def shortest(self) -> int:
        """The shortest time in seconds that any overdue message has been due."""
        if self.schedule.kind == "quadratic":
            return TIMES * self._skip**2
        return TIMES * min(self.schedule.steps)

    def is_past(self, dates: Dates, now: float) -> bool:
        """Return whether a message is past its lifetime and the time for its last attempt."""
        return now > max(dates.expires, self._begun) + GRACE

    def is_overdue(self, dates: Dates, now: float) -> bool:
        """Return whether a message is overdue."""
        due = max(dates.due, dates.birth)
        if now <= max(due, self._begun):
            return self.is_past(dates, now)
        wait = last_wait(self.schedule, dates.birth, due, self._skip)
        return self.is_past(dates, now) or now > max(due, self._begun) + TIMES * wait


class AlertLimit:
    """Limits alerts: a stall of 100,000 messages is a handful of lines. Pure.

    Each message is named once a day, LINES messages in a round, the others as a number. While there are more, the next
    round with alerts comes after twice the time each, up to an hour. `lines` are left in this round.
    """

    def __init__(self) -> None:
        self.lines = 0
        self._named: dict[Key, float] = {}
        self._others = 0
        self._quiet = QUIET_FIRST
        self._quiet_until = 0.0

    def begin(self, now: float) -> bool:
        """Begin a round; return whether it may have alerts."""
        self.lines = LINES if now >= self._quiet_until else 0
        self._others = 0
        # In the order of their times.
        for key, named_at in list(self._named.items()):
            if now - named_at < DAY:
                break
            del self._named[key]
        return self.lines > 0

    def says(self, key: Key, now: float) -> bool:
        """Return whether an overdue message is to be named now; if not, count it unless it was named today."""
        if key in self._named:
            return False
        if not self.lines:
            self._others += 1
            return False
        self.lines -= 1
        self._named[key] = now
        return True

    def count(self, others: int) -> None:
        """Count overdue messages that were not examined one by one."""
        self._others += others

    def end(self, now: float) -> int:
        """End a round; return how many more messages are overdue."""
        if self._others:
            self._quiet_until = now + self._quiet
            self._quiet = min(self._quiet * 2, QUIET_MAX)
        else:
            self._quiet = QUIET_FIRST
        return self._others


# Returns the dates of a message, given its number and the expected next attempt in the mtime of its file; None if the
# message is gone, has another next attempt, or is not to be tried.
Look = Callable[[int, int | None], Dates | None]


class OverdueSearch:
    """Searches one channel for overdue messages, in small steps. Pure.

    It searches where a message can be stuck: in flight, with verdicts that are not written down, in the queue or the
    overflow of a destination, among new mail, and in the heap of deferred mail, whose first entry shows at once whether
    any can be overdue. `look` reads the files of a bounded number of messages. `longest_job` is in seconds; `alert` is
    called with what is to be logged; `rule` may change.
    """

    def __init__(
        self,
        kind: str,
        scheduler: Scheduler,
        rule: OverdueRule,
        longest_job: float,
        look: Look,
        alerts: AlertLimit,
        alert: Callable[[int, Dates, Cause, bool], None],
    ) -> None:
        self.rule = rule
        self._kind = kind
        self._scheduler = scheduler
        self._explainer = Explainer(kind.encode("ascii"), scheduler)
        self._longest_job = longest_job
        self._look = look
        self._alerts = alerts
        self._alert = alert
        self._from = 0  # The index in the heap where the next round begins.

    def round(self, jobs: Collection[Entry], stopped: bytes, now: float) -> Iterator[None]:
        """Search everything once; yield between steps."""
        yield from self._search_in_flight(list(jobs), now)
        for destination in self._destinations():
            if destination is None:
                yield
                continue
            yield from self._search_queue(destination, now)
            if destination.overflow:
                yield
            for message in destination.overflow.oldest(LOOKS):
                if not self._judge(message, now, self._explainer.overflow(destination, 0, stopped)):
                    break
        yield from self._search_new(stopped, now)
        yield from self._search_deferred(stopped, now)

    def _report(self, message: int, dates: Dates, cause: Cause, now: float) -> None:
        if self._alerts.says((self._kind, message, dates.birth), now):
            self._alert(message, dates, cause, self.rule.is_past(dates, now))

    def _search_in_flight(self, jobs: list[Entry], now: float) -> Iterator[None]:
        """Search for jobs in flight, and verdicts that are not written down, for longer than any timeout."""
        messages = set()
        for number, entry in enumerate(jobs, 1):
            if number % QUEUE_PIECE == 0:
                yield
            messages.add(entry.attempt.message)
            if now - entry.started > self._longest_job:
                cause = self._explainer.in_flight(len(entry.recipients), entry)
                self._report(entry.attempt.message, _dates(entry.attempt), cause, now)
        yield
        for number, attempt in enumerate(list(self._scheduler.attempts.values()), 1):
            reported = attempt is not None and attempt.in_flight and attempt.message not in messages
            if attempt is not None and reported and now - attempt.loaded_at > self._longest_job:
                self._report(attempt.message, _dates(attempt), self._explainer.unwritten(attempt.in_flight), now)
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

    def _search_queue(self, destination: Destination, now: float) -> Iterator[None]:
        for number, entry in enumerate(list(destination.queue), 1):
            if number % QUEUE_PIECE == 0:
                yield
            attempt, dates = entry.attempt, _dates(entry.attempt)
            # A message of which something is in flight is being tried.
            if not (attempt.in_flight or attempt.withdrawn or attempt.rank) and self.rule.is_overdue(dates, now):
                cause = self._explainer.queued(len(entry.recipients), destination, now)
                self._report(attempt.message, dates, cause, now)

    def _judge(self, message: int, now: float, cause: Cause) -> bool:
        """Report a message on the disk if it is overdue; return False if no later one of the list can be overdue.

        A cause without a time gets the time since which the message has been due.
        """
        if message in self._scheduler.attempts:
            return True
        dates = self._look(message, None)
        if dates is None:
            return True
        if not self.rule.is_overdue(dates, now):
            return False
        self._report(message, dates, cause if cause.time else cause._replace(time=dates.due), now)
        return True

    def _search_new(self, stopped: bytes, now: float) -> Iterator[None]:
        # Mail of lower classes may wait for as long as there is other mail.
        admission = self._scheduler.admission.classes[0]
        for message in admission.oldest(LOOKS):
            self._judge(message, now, self._explainer.due(0, stopped))
        yield
        if not self._alerts.lines and admission.new > LOOKS:
            # Those of a submitter are in the order of their arrival, so a binary search tells how many are overdue.
            overdue = 0
            for queue in islice(admission.new_queues(), LOOKS):
                overdue += bisect_left(range(len(queue)), True, key=lambda at: not self._is_overdue(queue[at], now))
            self._alerts.count(max(0, overdue - LOOKS))

    def _is_overdue(self, message: int, now: float) -> bool:
        dates = self._look(message, None)
        return dates is not None and self.rule.is_overdue(dates, now)

    def _search_deferred(self, stopped: bytes, now: float) -> Iterator[None]:
        admission = self._scheduler.admission.classes[0]
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
                    continue  # It is being tried; or it was made due before its time.
                if not self._alerts.lines:
                    self._alerts.count(1)
                    continue
                looks += 1
                dates = self._look(message, stamp)
                if dates is not None and self.rule.is_overdue(dates, now):
                    self._report(message, dates, self._explainer.due(dates.due, stopped), now)
                if looks % LOOKS == 0:
                    yield
            if looks > LOOKS_MAX and self._alerts.lines:
                return  # The next round goes on here.
            yield
        self._from = 0


def _dates(attempt: Attempt) -> Dates:
    return Dates(attempt.birth, attempt.due, attempt.expires)


class Watchdog:
    """A part of the loop."""

    def __init__(self, messages: Messages, parts: SharedParts) -> None:
        self._messages = messages
        self._log, self._clock, self._config = parts.log, parts.clock, parts.config
        self._budget, self._shutdown = parts.budget, parts.shutdown
        self._round = seconds_in_environment("QUEUE_WATCHDOG_ROUND", ROUND)
        self._longest_job = seconds_in_environment("QUEUE_WATCHDOG_FLIGHT", LONGEST_JOB)
        self._begun = self._clock.now()
        self._alerts = AlertLimit()
        self._searches = {kind: self._search(channel) for kind, channel in messages.channels.items()}
        self._steps: Iterator[None] | None = None
        self._next = time.monotonic() + self._round

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for the next round, or the next piece of this one."""
        return 3600.0 if self._shutdown.begun else max(0.0, self._next - time.monotonic())

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do a piece of a round, if it is time."""
        if self._shutdown.begun or time.monotonic() < self._next:
            return
        if self._steps is None:
            self._steps = self._rounds(now)
        until = self._budget.until(WORK)
        while self._steps is not None:
            if next(self._steps, _OVER) is _OVER:
                self._steps = None
            elif time.monotonic() >= until:
                break
        self._next = time.monotonic() + (PAUSE if self._steps else self._round)

    def _rounds(self, now: float) -> Iterator[None]:
        if not self._alerts.begin(now):
            return
        for channel in self._messages.channels.values():
            search = self._searches[channel.kind]
            search.rule = self._rule(channel.kind)
            yield from search.round(channel.in_flight, channel.stopped, now)
        if others := self._alerts.end(now):
            self._log.alert(
                f"up to {others} more messages are overdue; queuectl destinations, and queuectl show ID, tell why"
            )

    def _search(self, channel: Channel) -> OverdueSearch:
        return OverdueSearch(
            channel.kind, channel.scheduler, self._rule(channel.kind), self._longest_job,
            partial(self._look, channel.kind), self._alerts, self._alert,
        )  # fmt: skip

    def _rule(self, kind: str) -> OverdueRule:
        return OverdueRule(self._config.current.retry, SKIPS[kind], self._begun)

    def _look(self, kind: str, message: int, stamp: int | None = None) -> Dates | None:
        """Return the dates of a message that is to be tried, from the disk; None for any other.

        `stamp` is the expected next attempt; if the file has another one, that has another entry in the backlog.
        """
        store, clock = self._messages.store, self._clock
        if store.is_marked(message):
            return None
        try:
            due = store.due(message, kind)
            if due is None or (stamp is not None and stamp not in clock.all_from_disk(due)):
                return None
            sender, birth = store.load(message)[:2]
        except (OSError, FormatError):
            return None  # It has ended meanwhile; or its next attempt logs what is wrong with it.
        birth = clock.birth_from_disk(birth)
        due = clock.from_disk(due) if stamp is None else stamp
        return Dates(birth, due, birth + self._config.current.lifetime(sender))

    def _alert(self, message: int, dates: Dates, cause: Cause, past: bool) -> None:
        try:
            birth = birth_of(self._messages.store.layout, message)
        except OSError:
            birth = None
        clock = self._clock
        name = pack_long_id(message, clock.to_disk(dates.birth) * 1_000_000 if birth is None else birth)
        when = moment(clock.to_disk(dates.expires if past else dates.due))
        since = f"past its lifetime since {when}" if past else f"due since {when}"
        cause = cause._replace(time=cause.time and clock.to_disk(cause.time))
        self._log.alert(f"msg {message} ({name}) has been {since}: {describe(cause)}")
