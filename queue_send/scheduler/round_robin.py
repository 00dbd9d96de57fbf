"""The order in which destinations start jobs: round robin, with a limit for slow destinations. Pure.

A place is one of the channel's deliveries in flight. A destination is PROMPT, STEADY or SLOW by the time that its
recent jobs took, and UNTESTED if that is not known. A tarpit, or a thousand hosts whose connections time out, must not
keep places from mail that is delivered in a second, and a slow job cannot be interrupted when other mail comes.
Therefore a slow job starts only if two fifths of the places stay free, and slow jobs take at most half of the places;
but one eighth of the places is always available to them. Untested jobs leave a quarter of those places free that slow
ones do not hold, and an eighth of all. A job that has been in flight for longer than LONG counts as slow.

A destination that finds no place waits for one. Places are given in turn to those that wait and to those that are ready
since; if others wait, a slow or untested one must wait behind them, unless its shares hold few places (shares.py). So
whoever has very many destinations does not delay the first ones of others.

Hosts that take a second for each message would still hold all places most of the time, since a prompt host's jobs give
theirs back at once. So while jobs of other paces hold three quarters of the places, and steady ones a quarter, a prompt
destination that is ready comes before a steady one. No place stays empty for that.

A destination whose next job is of the first class comes before all those whose next job is of a lower class, except
that after FLOOR of them comes one of the others.
"""

from collections import OrderedDict, deque

from queue_send.scheduler.destination import Destination, WaitQueue
from queue_send.scheduler.model import Entry
from queue_send.scheduler.shares import EXAMINED_AT_ONCE, Share, Shares

SLOW, UNTESTED, STEADY, PROMPT, ENDED = range(5)
LONG = 15.0  # Seconds. A destination is slow if its jobs take longer.
BRIEF = 0.5  # Seconds. A destination is prompt if its jobs take less.
SPARE = 2 / 5  # The part of the places that a slow job must leave free.
LEAST = 1 / 8  # The part of the places that slow jobs may always take.
KNOWN_MAX = 20_000  # Destinations that are known to be slow, and as many others, about 200 bytes each.
FLOOR = 9  # After so many jobs of the first class comes one of a lower class.
SKIPPED_AT_ONCE = 500  # Destinations without a place that one call examines.


class ReadyList:
    """Destinations that can start a job of the first class, or of a lower one; and those that found no place."""

    def __init__(self, lower: bool) -> None:
        self.lower = lower
        self.ready: deque[Destination] = deque()
        # SLOW, UNTESTED, STEADY
        self.skipped: tuple[deque[Destination], ...] = (deque(), deque(), deque())

    def __bool__(self) -> bool:
        slow, untested, steady = self.skipped
        return bool(self.ready or slow or untested or steady)


class RoundRobin:
    """The destinations that can start a job, and the number of places in use by jobs of each pace."""

    def __init__(self) -> None:
        # Those whose next job is of the first class, and the others. A destination that gets mail of the first class
        # is added to the first list, and what is left of it in the other one is passed over.
        self._first = ReadyList(False)
        self._lower = ReadyList(True)
        self._credit = 0  # How many of the first class have started while one of a lower class was ready.
        # Average seconds of a job; the latest at the end. Those of slow destinations are apart, so that very many of
        # them do not make the others forgotten.
        self._seconds: OrderedDict[bytes, float] = OrderedDict()
        self._slow_seconds: OrderedDict[bytes, float] = OrderedDict()
        self._running = [0, 0, 0, 0]
        self._total = 0
        self._shares = Shares()
        self._skipped_are_next = True
        self._now = 0.0  # The time of the last call of `next`.
        self._young: deque[Entry] = deque()  # Jobs in flight that are not slow, and some that ended.

    def add(self, destination: Destination) -> None:
        """Add a destination at the end of the list; it must not be in the list of the class of its next entry."""
        destination.listed = True
        destination.lower = destination.next_is_lower
        (self._lower if destination.lower else self._first).ready.append(destination)

    @property
    def has_first(self) -> bool:
        """Whether a destination may have a job of the first class ready."""
        return bool(self._first)

    def next(self, concurrency: int, now: float, lower: bool = True) -> Destination | None:
        """Remove and return the next destination for which there is a place; None if none was found.

        Without `lower` none whose next job is of a lower class.
        """
        self._now = now
        if self._young:
            self._age(now)
        found = self._next_ready(concurrency, lower)
        while found is None and self._list_waiting(concurrency):
            found = self._next_ready(concurrency, lower)
        return found

    def _next_ready(self, concurrency: int, lower: bool) -> Destination | None:
        if not self._lower:
            return self._next_of(self._first, concurrency)
        floor = lower and self._credit >= FLOOR
        found = self._next_of(self._lower if floor else self._first, concurrency)
        if found is None and lower:
            found = self._next_of(self._first if floor else self._lower, concurrency)
        if found is not None:
            self._credit = 0 if found.lower else min(FLOOR, self._credit + lower)
        return found

    def _next_of(self, ready: ReadyList, concurrency: int) -> Destination | None:
        for _ in range(SKIPPED_AT_ONCE):
            queue = self._next_queue(ready, concurrency)
            if queue is None:
                return None
            self._skipped_are_next = queue is ready.ready
            destination = queue.popleft()
            if ready.lower and (destination.waits_for is not None or not (destination.listed and destination.lower)):
                continue  # It has got mail of the first class since.
            pace = self._pace(destination)
            yields = pace == STEADY and queue is ready.ready and not self._has_share(concurrency)
            if pace < STEADY and queue is ready.ready and self._must_wait(ready, destination, pace, concurrency):
                ready.skipped[pace].append(destination)  # It gets its turn: its relay's next one need not be listed.
                continue
            places = self._places(pace, concurrency)
            if yields or places <= 0:
                ready.skipped[pace].append(destination)
            else:
                full = self._full_share(destination, pace, concurrency, places)
                if full is not None and destination.pass_by(full.name):
                    full = self._full_share(destination, pace, concurrency, places)
                if full is None:
                    destination.listed = False
                    return destination
                self._shares.enqueue(full, destination)
            if destination.relay is not None:
                self.add_next_of(destination.relay.waiting)
        return None

    def _must_wait(self, ready: ReadyList, destination: Destination, pace: int, concurrency: int) -> bool:
        """Return whether a slow or untested destination that is ready must wait behind those that wait for a place."""
        return bool(ready.skipped[pace]) and not self._shares.are_small(destination, concurrency - self._total)

    def _list_waiting(self, concurrency: int) -> bool:
        """List a destination that has waited for a share and can start a job now; return whether there is one."""
        share = self._next_share(concurrency)
        if share is None:
            return False
        self._shares.end_turn(share)
        return self.add_next_of(share)

    def _next_share(self, concurrency: int) -> Share | None:
        for _ in range(min(EXAMINED_AT_ONCE, self._shares.waiting) if self._total < concurrency else 0):
            share = self._shares.first_waiting()
            destination = None if share is None else share.head
            if share is None or destination is None:
                break
            pace = self._pace(destination)
            places = self._places(pace, concurrency)
            if places > 0 and self._full_share(destination, pace, concurrency, places) is None:
                return share
            self._shares.end_turn(share)
        return None

    def _full_share(self, destination: Destination, pace: int, concurrency: int, places: int) -> Share | None:
        free = concurrency - self._total
        return self._shares.full_for(destination, pace < STEADY, self._answers(destination), free, places)

    def let_pass(self, destination: Destination) -> None:
        """Let a new entry of a destination that waits for the share of another submitter go before his."""
        share = destination.waits_for
        if isinstance(share, Share) and destination.pass_by(share.name):
            destination.waits_for, destination.listed = None, False

    def _answers(self, destination: Destination) -> bool:
        """Return whether a destination has answered just now."""
        return destination.answered_at + LONG >= self._now

    def add_next_of(self, queue: WaitQueue) -> bool:
        """Add the destination at the head of the queue of a relay or a share; return whether there is one."""
        destination = queue.dequeue()
        if destination is not None:
            self.add(destination)
        return destination is not None

    def any(self, concurrency: int, lower: bool = True) -> bool:
        """Return whether `next` may return a destination."""
        if self._next_queue(self._first, concurrency) is not None:
            return True
        if lower and self._next_queue(self._lower, concurrency) is not None:
            return True
        return self._shares.waiting > 0 and self._next_share(concurrency) is not None

    def _next_queue(self, ready: ReadyList, concurrency: int) -> deque[Destination] | None:
        slow, untested, steady = ready.skipped
        found = None
        if slow and self._places(SLOW, concurrency) > 0:
            found = slow
        elif untested and self._places(UNTESTED, concurrency) > 0:
            found = untested
        if found is not None and (self._skipped_are_next or not ready.ready):
            return found
        if not (steady or ready.ready) or self._total >= concurrency:
            return found
        if steady and (not ready.ready or self._has_share(concurrency)):
            return steady
        return ready.ready

    def _has_share(self, concurrency: int) -> bool:
        """Return whether a steady destination may start a job before a prompt one."""
        slow, untested, steady, _ = self._running
        return steady < concurrency // 4 or slow + untested + steady < concurrency - concurrency // 4

    def places_for(self, destination: Destination, submitter: bytes | None, concurrency: int) -> int:
        """Return how many recipients of a destination, in a message of a submitter, may start."""
        pace, free = self._pace(destination), concurrency - self._total
        places = self._places(pace, concurrency)
        answers = self._answers(destination)
        return min(places, self._shares.room_for(destination, submitter, pace < STEADY, answers, free, places))

    def has_place(self, destination: Destination, concurrency: int) -> bool:
        """Return whether a destination's pace and its shares leave it a place."""
        return self.places_for(destination, destination.next_submitter, concurrency) > 0

    def _places(self, pace: int, concurrency: int) -> int:
        slow, untested = self._running[SLOW], self._running[UNTESTED]
        places = concurrency - self._total
        if pace == SLOW:
            spared = min(places - int(concurrency * SPARE), (concurrency + 1) // 2 - slow)
            places = min(places, max(spared, int(concurrency * LEAST) - slow))
        if pace < STEADY:
            spare = max((concurrency - slow) // 4, int(concurrency * LEAST))
            places = min(places, concurrency - spare - slow - untested)
        return places

    def _pace(self, destination: Destination) -> int:
        seconds = self._seconds.get(destination.name)
        if seconds is None:
            return SLOW if destination.name in self._slow_seconds else UNTESTED
        return STEADY if seconds > BRIEF else PROMPT

    def is_brisk(self, nexthop: bytes) -> bool:
        """Return whether a destination is known to be prompt or steady."""
        return nexthop in self._seconds

    def count_start(self, entry: Entry, destination: Destination, now: float) -> None:
        """Count the start of a job."""
        entry.pace, entry.started = self._pace(destination), now
        places = len(entry.recipients)
        self._running[entry.pace] += places
        self._total += places
        self._shares.count_start(entry, destination, entry.pace < STEADY)
        if entry.pace != SLOW:
            self._young.append(entry)

    def note_address(self, entry: Entry, holder: bytes) -> None:
        """Note that the job of an entry is at an address, by the name of its share."""
        self._shares.note_address(entry, holder, entry.pace < STEADY)

    def ages_at(self) -> float | None:
        """Return when the next job counts as slow, which may leave a place; None if nobody waits for one."""
        young = self._young
        while young and young[0].pace == ENDED:
            young.popleft()
        waits = self._first or self._lower or self._shares.waiting
        return young[0].started + LONG if young and waits else None

    def _age(self, now: float) -> None:
        """Count jobs that have been in flight for LONG as slow."""
        while self._young and (self._young[0].pace == ENDED or self._young[0].started + LONG <= now):
            entry = self._young.popleft()
            if entry.pace != ENDED:
                if entry.pace >= STEADY:
                    self._shares.count_unsure(entry)
                self._running[entry.pace] -= len(entry.recipients)
                self._running[SLOW] += len(entry.recipients)
                entry.pace = SLOW

    def count_end(self, entry: Entry, host_failed: bool, now: float) -> None:
        """Count the end of a job. Its time makes up a quarter of the new average, unless the host failed.

        One that was never reached is slow if that took long, and not known otherwise.
        """
        places = len(entry.recipients)
        self._running[entry.pace] -= places
        self._total -= places
        self._shares.count_end(entry, entry.pace < STEADY)
        if self._shares.waiting:
            for share in self._shares.waiting_for(entry):
                self.add_next_of(share)
        entry.pace = ENDED
        name = entry.nexthop
        seconds = max(0.0, now - entry.started)
        if host_failed and (name in self._seconds or name in self._slow_seconds or seconds <= LONG):
            return
        before = self._seconds.pop(name, seconds) if name in self._seconds else self._slow_seconds.pop(name, seconds)
        average = (3.0 * before + seconds) / 4.0
        known = self._slow_seconds if average > LONG else self._seconds
        known[name] = average
        if len(known) > KNOWN_MAX:
            known.popitem(last=False)

    def forget(self, nexthop: bytes) -> None:
        """Remove the average of a destination whose host failed."""
        self._seconds.pop(nexthop, None)
        self._slow_seconds.pop(nexthop, None)
