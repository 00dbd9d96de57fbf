"""Who is next on one channel: destinations in turn, new and deferred mail one and one. Pure.

No I/O and no clock: events come in with the time, work goes out. The caller asks `next_load` which message to
read, gives it back with `open`, `absent` or `later`, asks `next_job` what to start, and tells the outcome
with `ended`. A message with many recipients is given back in small pieces: `begin`, `place` for each group, `opened`.
What is decided about a message comes back as the calls of `Events`. The time is one that nobody sets (clock.py).

- Only `activelimit` messages are loaded. New mail and due deferred mail enter one and one.
- Destinations take turns (turns.py); each has its window, and no more groups loaded than that window can use,
  but more where the active set has places to spare (loading.py). What has no room waits on disk, as a key aside in
  its destination, and is loaded again when there is.
- A relay's limits hold over the domains whose mail it takes, also those that are destinations of their own: one that
  these keep from a start waits its turn at the relay.
- Mail for a dead destination is deferred without an attempt; one group is the probe. What was turned away is loaded
  as soon as there is room once the destination is alive again, and one of it as the probe, if no other comes in time.
- A message that has expired gets a last attempt where that is possible soon, and fails where it is not.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import islice

from queue_send.attempt import Attempt, Group, Recipient
from queue_send.destination import Destination, Rated, RelayTotal
from queue_send.destinations import Destinations
from queue_send.events import Events, Settings

CHANGES = 10  # Destinations that take new limits with each job, after HUP.
LAST_WAIT = 3600.0  # Seconds in which a message past its lifetime gets its last attempt, or fails without it.
# What one call deals with of a long queue that goes; the next calls go on with it.
TURNED_AWAY_AT_ONCE = 20  # Groups that wait when their destination dies; each costs a change of a file.
LATE_AT_ONCE = 200  # Messages that are past their lifetime.


class Scheduler(Destinations):
    """The waiting, active and flying messages of one channel."""

    def __init__(self, settings: Settings, events: Events) -> None:
        super().__init__(settings)
        self._events = events
        self._later: list[tuple[float, bytes]] = []  # When a rate allows a start or a probe is due.
        self._leaving: deque[Group] = deque()  # What was queued in destinations that have died.

    def open(self, attempt: Attempt, groups: list[tuple[bytes, list[Recipient]]], now: float) -> None:
        """A message that `next_load` named was loaded: its groups go to their destinations."""
        self.begin(attempt, now)
        for nexthop, recipients in groups:
            self.place(Group(attempt, nexthop, recipients), len(groups) == 1, now)
        self.opened(attempt, now)

    def begin(self, attempt: Attempt, now: float) -> None:
        """A message that `next_load` named is being loaded; `place` and `opened` follow."""
        self.attempts[attempt.message] = attempt
        attempt.opened = now
        attempt.loading = True

    def opened(self, attempt: Attempt, now: float) -> None:
        """A message has been loaded: there are no more groups of it."""
        if attempt.loading:
            attempt.loading = False
            self._close_if_over(attempt, now)

    def unread(self, attempt: Attempt, due: int) -> None:
        """A message for which `begin` was called, and `place` never, cannot be read: try it at `due`. Then `opened`."""
        if not attempt.withdrawn:
            attempt.loading = False
            del self.attempts[attempt.message]
            self.admission.wake(attempt.message, due)

    def place(self, group: Group, whole: bool, now: float) -> None:
        """Queue a group, put it aside or turn it away; `whole`: the message has no other."""
        attempt, count = group.attempt, len(group.recipients)
        if attempt.withdrawn:
            return
        destination = self._destination(group.nexthop)
        expired = now > attempt.expires
        attempt.left += count
        if destination.refuses(now) or (expired and destination.next_start(now) > now):
            self._turn_away(group, destination, now)
        elif destination.dead or expired or destination.room > 0 or (whole and self._may_queue_ahead(destination)):
            destination.probing = destination.dead
            destination.queue.append(group)
            attempt.queued += count
            self._list(destination, now)
        elif attempt.aside is None or destination.waiting < self._destination(attempt.aside).waiting:
            attempt.aside = group.nexthop  # The one that will have room first, as far as anybody knows.
            return
        else:
            return
        if not whole:
            attempt.placed += [offset for offset, _ in group.recipients]

    # Starting

    def next_job(self, now: float) -> Group | None:
        """Return the group to start now, already cut to what may start, or None where nothing may."""
        if self._leaving:
            self._turn_some_away(now)
        if self._later and self._later[0][0] <= now:
            self._look_again(now)
        if self._unchanged:
            self._renew(now)
        while (destination := self.turns.next(self.settings.concurrency, now)) is not None:
            group = self._take(destination, now)
            if group is not None:
                return group
        return None

    def _look_again(self, now: float) -> None:
        """Look at what a rate allows to start by now, and at the dead destinations whose probe is due."""
        for _ in range(LATE_AT_ONCE):
            if not self._later or self._later[0][0] > now:
                break
            name = heappop(self._later)[1]
            waiting = self.destinations.get(name)
            if waiting is not None:
                self._load_probe(waiting, now)
                self._list(waiting, now)
            relay = self.relays.get(name)
            if relay is not None:
                self._call(relay, now)

    def _take(self, destination: Destination, now: float) -> Group | None:
        """Return the next group of a destination whose turn it is; None where it has none that may start."""
        while destination.queue and destination.queue[0].attempt.withdrawn:
            destination.queue.popleft()
            if destination.dead and not destination.queue and not destination.flying:
                destination.probing = False  # The probe was withdrawn; the next message is one.
        relay = destination.relay
        if not destination.queue or not self._may_start(destination, now):
            destination.called = False
            self._list(destination, now)  # What was withdrawn has left room.
            if relay is not None:
                self._call(relay, now)
            return None
        if relay is not None and not self._may_start_at(relay, now):
            relay.hold(destination)
            return None
        group = destination.queue.popleft()
        most = min(destination.limits.recipients, self.turns.room(destination, self.settings.concurrency))
        if relay is not None:
            most = min(most, relay.limits.recipients)
        if len(group.recipients) > most:
            rest = Group(group.attempt, group.nexthop, group.recipients[most:])
            destination.queue.appendleft(rest)
            group = Group(group.attempt, group.nexthop, group.recipients[:most])
        count = len(group.recipients)
        group.attempt.queued -= count
        group.attempt.flying += count
        self.running += count
        destination.started(now)
        self.turns.started(group, destination, now)
        if relay is not None:
            destination.called = False
            relay.started(now)
            self._call(relay, now)
        self._list(destination, now)
        return group

    def _may_start(self, destination: Destination, now: float) -> bool:
        """Whether the window and the rate allow a start; a rate that does not is looked at again in time."""
        if destination.flying >= (1 if destination.dead else int(destination.window)):
            return False
        return destination.limits.rate is None or self._rate_allows(destination, now)

    def _may_start_at(self, relay: RelayTotal, now: float) -> bool:
        """Whether a relay's limits allow a start; a rate that does not is looked at again in time."""
        limits = relay.limits
        return relay.flying < limits.most and (limits.rate is None or self._rate_allows(relay, now))

    def _rate_allows(self, rated: Rated, now: float) -> bool:
        start = rated.own_start(now)
        if start > now:
            if rated.looked_at < start:
                rated.looked_at = start
                heappush(self._later, (start, rated.name))
            return False
        return True

    def _list(self, destination: Destination, now: float) -> None:
        """Give a destination a turn, if it has something to start; have more loaded if it has room."""
        if destination.queue and not destination.listed and self._may_start(destination, now):
            relay = destination.relay
            if relay is None or self._may_start_at(relay, now):
                self.turns.add(destination)
            else:
                relay.hold(destination)
        if destination.aside and not destination.dead:
            self._load_more(destination)

    def _call(self, relay: RelayTotal, now: float) -> None:
        """Give a turn to one of those that wait for a relay, if it takes more. What lets a turn pass calls the next."""
        if relay.waits and self._may_start_at(relay, now):
            self.turns.call(relay)

    def _renew(self, now: float) -> None:
        """Have some destinations take the settings of the last `change`; what these allow need not wait any more."""
        for _ in range(min(CHANGES, len(self._unchanged))):
            destination = self.destinations.get(self._unchanged.popleft())
            if destination is not None:
                before = destination.relay
                destination.take_limits(self.settings.named.limits(destination.name, self.settings.limits))
                destination.attach(self._relay(destination.name))
                self._list(destination, now)
                if before is not None:
                    self._call(before, now)

    # Ending

    def ended(self, group: Group, deferred: int, host_failed: bool, now: float) -> None:
        """A job has its verdicts: `deferred` recipients are to be tried again; `host_failed`: no host there."""
        attempt, count = group.attempt, len(group.recipients)
        self.running -= count
        self.turns.ended(group, host_failed, now)
        attempt.flying -= count
        attempt.deferred += deferred
        destination = self._destination(group.nexthop)
        destination.flying -= 1
        relay = destination.relay
        if relay is not None:
            relay.flying -= 1
            self._call(relay, now)
        if not host_failed:
            if destination.succeeded():
                self._events.revived(destination)
                destination.turned_away = 0
                self._away.bring_back(destination)
                self._with_aside[destination.name] = destination
        else:
            last = destination.probe_at
            died = destination.failed(now)
            if destination.dead:
                if destination.probe_at > last:
                    heappush(self._later, (destination.probe_at, destination.name))
                self.turns.forget(destination.name)
                self._leaving += destination.queue  # Also what a probe in vain has left of its message.
                destination.queue.clear()
                self._turn_some_away(now)
            if died:
                self._events.died(destination)
                self._defer_aside(destination, now)
        self._list(destination, now)
        self._close_if_over(attempt, now)
        if destination.idle:
            self._forget(destination)

    def settled(self, group: Group, now: float) -> None:
        """What `expired` named has been dealt with."""
        group.attempt.flying -= len(group.recipients)
        self._close_if_over(group.attempt, now)

    def withdraw(self, message: int, now: float) -> bool:
        """Start no more of a message; return False where it is not active. `withdrawn` follows, perhaps at once."""
        attempt = self.attempts.get(message)
        if attempt is None:
            return False
        attempt.withdrawn = True
        attempt.queued = 0  # Its groups are passed over when their turn comes.
        self._close_if_over(attempt, now)
        return True

    def _turn_some_away(self, now: float) -> None:
        """Turn away what was queued in destinations that have died, a part of it at a time."""
        for _ in range(min(TURNED_AWAY_AT_ONCE, len(self._leaving))):
            group = self._leaving.popleft()
            attempt, count = group.attempt, len(group.recipients)
            if attempt.withdrawn:
                continue
            attempt.queued -= count
            destination = self._destination(group.nexthop)
            if destination.dead:
                self._turn_away(group, destination, now)
            else:
                destination.queue.append(group)  # It was dead for a moment only.
                attempt.queued += count
                self._list(destination, now)
            self._close_if_over(attempt, now)

    def give_up(self, destination: Destination, now: float) -> bool:
        """Fail what has waited here for its last attempt for LAST_WAIT seconds, or that the rate keeps from it.

        Return whether there was something of it, and there may be more.
        """
        if self.destinations.get(destination.name) is not destination:
            return False
        self._defer_aside(destination, now)
        woken = destination.aside.take_late(now, LATE_AT_ONCE)
        for message in woken:
            self.admission.wake(message, int(now))
        over_rate = destination.next_start(now) > now
        expired = (group for group in destination.queue if now > group.attempt.expires)
        late = list(islice((group for group in expired if _is_late(group.attempt, over_rate, now)), LATE_AT_ONCE))
        if not late:
            self._forget_unused(destination, now)
            return bool(woken)
        gone = set(map(id, late))
        destination.queue = deque(group for group in destination.queue if id(group) not in gone)
        for group in late:
            group.attempt.queued -= len(group.recipients)
            self._turn_away(group, destination, now)
        if destination.dead and not destination.queue and not destination.flying:
            destination.probing = False  # The probe was among them; the next message is one.
        self._list(destination, now)
        return True

    def _turn_away(self, group: Group, destination: Destination, now: float) -> None:
        """A group is not tried this time: it waits for its next attempt, or fails if it has expired."""
        attempt, count = group.attempt, len(group.recipients)
        self._defer_aside(destination, now)
        if now > attempt.expires:
            attempt.flying += count
            self._events.expired(group)
        else:
            destination.turned_away += count
            attempt.deferred += count
            self._away.note(destination, attempt.message)

    def _defer_aside(self, destination: Destination, now: float) -> None:
        """Mail that waits for room in a dead destination is deferred, too: one draws the next, between other mail."""
        message = destination.aside.take() if destination.dead else None
        if message is not None:
            self.admission.wake(message, int(now))

    def _close_if_over(self, attempt: Attempt, now: float) -> None:
        message = attempt.message
        if not attempt.over or self.attempts.get(message) is not attempt:
            return
        del self.attempts[message]
        if attempt.aside is None or attempt.withdrawn or not attempt.left:
            self.forget_tried(message)
        if attempt.withdrawn:
            self._events.withdrawn(attempt)
        elif not attempt.left:
            self._events.finished(attempt, now)
        elif attempt.aside is not None:
            # Loaded again when there is room, for those that were not tried; or when those that were deferred are due,
            # for all: neither waits for the other.
            self._keep_tried(attempt)
            destination = self._destination(attempt.aside)
            destination.aside.put(message, attempt.expires)
            self._with_aside[destination.name] = destination
            if attempt.deferred and attempt.rest is None:
                self._events.deferred(attempt, now)
            self._load_more(destination)
        else:
            self._events.deferred(attempt, now)

    # Waiting

    def next_time(self, now: float) -> float | None:
        """Return when there will be something to load or to start, None where only a report can bring it."""
        if self._leaving or self._unchanged or self.turns.any(self.settings.concurrency):
            return now
        first = self._later[0][0] if self._later else None
        if self._has_room:
            if self._wanting:
                return now
            load = self.admission.next_time(now)
            if load is not None and (first is None or load < first):
                first = load
        return first if first is None or first > now else now


def _is_late(attempt: Attempt, over_rate: bool, now: float) -> bool:
    """Whether a message that waits in a destination is past its lifetime, and gets no last attempt in time."""
    if attempt.withdrawn:
        return False
    return over_rate or now > max(attempt.expires, attempt.opened) + LAST_WAIT
