"""The scheduler of one channel: which message is loaded next, and which delivery starts next. Pure.

It does no I/O and has no clock. Events are method calls with the time; what is to be done is returned as actions
(model.py). The time never goes backwards (queue_base.daemon.clock); it is in seconds since the epoch.

Loading: `next_load` returns the message to read. The caller then calls `load`, `cancel_load` or `retry_at`. For a
message with many recipients it calls `begin_load`, `add_entry` for each entry, and `end_load`, or `fail_load` if the
message cannot be read.
Starting: `start` returns at most one Start. The caller reports the end of the job with `end_job`.
Expiry: `expire` is to be called at `next_expiry`. The caller reports the end of each Expire with `end_expired`.

- At most `active` messages are loaded. New mail and due deferred mail are loaded alternately (admission.py). An eighth
  of the active set is kept for destinations that are known to take mail promptly or steadily, and half of that eighth
  also for new mail of submitters of whom few messages are loaded.
- Destinations start jobs in round-robin order (round_robin.py). Each destination has a concurrency window. Its queue
  has no more entries than the window can use; further messages overflow: they stay on the disk, and are loaded again
  when there is room (overflow.py). A new message whose destination is known overflows at once, so mail for a
  destination that takes none now is not loaded before mail for others.
- A relay's limits apply to all domains whose mail it takes, including those that are destinations of their own. If only
  the relay's limits prevent a destination from starting a job, the destination waits in the relay's queue.
- Mail for a dead destination is deferred without an attempt, except for one entry, the probe. What is in its overflow
  is deferred at a bounded rate, so that mail that can be delivered is not delayed by it. When the destination is alive
  again, the suspended messages are loaded again as there is room. If no other mail comes, one of them is the probe.
- An expired message gets one last attempt if that is possible soon; otherwise it fails without one.
- Mail of the first class is loaded and started before that of lower classes (message_classes.py), except for one of
  ten. While some of it waits that could be loaded or started now, the others hold at most `bulkshare` of the places and
  of the active set; when none waits they may have all. What is in flight then is not interrupted, and the active set
  may be larger by what is kept for the first class.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from queue_base.limits import RateLimited
from queue_send.scheduler.admission import ALL, BRISK, FEW, Admission, ClassAdmission
from queue_send.scheduler.destination import Destination, SharedRelay
from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.message_set import MessageSet
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
    Start,
    Suspended,
    Withdrawn,
)
from queue_send.scheduler.nexthop import address_holder
from queue_send.scheduler.round_robin import RoundRobin

TRIED_MAX = 200_000  # Recipients remembered as tried, about 70 bytes each. The others may be tried too soon.
SUSPENDED_MAX = 100_000  # Suspended messages remembered, 8 bytes each. The others wait for their next attempt.
QUEUED_AHEAD_MAX = 1000  # Entries in the queue of a destination that has no room, to save their second load.
KEPT_PART = 8  # One of so many places in the active set is kept for brisk destinations, and for who has few there.
FAILED_MAX = 10_000  # Destinations without mail whose failures are remembered, about 1,000 bytes each.
FAILED_AT_ONCE = 3  # Destinations that are examined when there are more.
LAST_WAIT = 3600.0  # Seconds after its lifetime in which a queued message gets its last attempt; else it fails.
# With more, new mail for further destinations waits for its load by submitter, unless they are brisk.
DESTINATIONS_MAX = 5000
# Messages of the overflows of dead destinations that are loaded, to be deferred, each SUSPEND_PAUSE seconds. One takes
# some 20 microseconds, so this takes at most two percent of a processor.
OVERFLOW_SUSPENDED = 20
SUSPEND_PAUSE = 0.02
# How much of a long list one call processes; the next calls continue.
CHANGES_AT_ONCE = 10  # Destinations that take new limits, after HUP.
SUSPENDED_AT_ONCE = 20  # Entries that leave the queue of a dead destination. Each costs a change of a file.
EXPIRED_AT_ONCE = 200  # Messages that are past their lifetime.
SEARCHED_AT_ONCE = 50  # Destinations that one call searches for expired messages, or for some that have ended.
OVERFLOWS_EXAMINED = 500  # Destinations that one query about a message examines, some 10 microseconds each.
SEARCH_PAUSE = 0.02  # Seconds between two such calls of a round.
SWEPT_AT_ONCE = 4  # Blocks of an overflow from which messages that have ended are removed in one call,
SWEEP_STEP = 0.005  # the seconds between two such calls,
SWEEP_PAUSE = 1.0  # and between two rounds.

_NONE: Sequence[Action] = ()
_EMPTY: deque[Destination] = deque()


class Scheduler:
    """The waiting, loaded and in-flight messages of one channel.

    in_flight: recipients of jobs in flight. attempts: loaded messages by number; None for one that is being read.
    destinations: those with mail or statistics, by name. dead: those that are dead.
    relays: at most as many as smtproutes has had.
    waiting: messages that are not loaded and are to be tried, each once, wherever and how often they are queued.
    lower_in_flight: the part of `in_flight` that is of lower classes.
    """

    def __init__(self, settings: Settings, classes: MessageClasses | None = None) -> None:
        """`classes` says of which class a message is; it knows that before the message is added here."""
        self.settings = settings
        self._kept_active = settings.active // KEPT_PART
        self.in_flight = self.lower_in_flight = 0
        self._classes = classes or MessageClasses()
        self._lower_attempts: set[int] = set()  # The messages of lower classes among `attempts`.
        self.attempts: dict[int, Attempt | None] = {}
        self.waiting = MessageSet()
        self.admission = Admission(self._classes)
        self.destinations: dict[bytes, Destination] = {}
        self.dead: dict[bytes, Destination] = {}
        self._failed: OrderedDict[bytes, None] = OrderedDict()  # Those whose host has failed, the latest at the end.
        self.relays: dict[bytes, SharedRelay] = {}
        self.round_robin = RoundRobin()
        self._actions: list[Action] = []
        self._suspended_count = 0
        self._with_overflow: dict[bytes, Destination] = {}
        self._with_room: deque[Destination] = deque()  # Destinations with overflow and room for it,
        self._brisk_with_room: deque[Destination] = deque()  # those of them that are known to be brisk.
        self._brisk_is_next = True
        self._lower_with_room: deque[Destination] = deque()  # The same for overflow of lower classes.
        self._overflow_is_next = True
        self._in_turn: set[int] = set()  # Messages of an overflow that are being read.
        self._to_suspend: deque[Destination] = deque()  # Dead destinations whose overflow is to be deferred.
        self._suspend_at = 0.0  # When more of it may be loaded,
        self._may_suspend = 0  # and how many messages may be loaded until then.
        # Offsets of recipients that were tried, of messages whose other recipients are in an overflow.
        self._tried: dict[int, set[int]] = {}
        self._tried_count = 0
        self._timers: list[tuple[float, bytes]] = []  # When a rate allows a start, or a probe is due.
        self._leaving: deque[Entry] = deque()  # Entries of destinations that died, to be deferred.
        self._unchanged: deque[bytes] = deque()  # Destinations that have the limits of earlier settings.
        self._search: deque[bytes] = deque()  # Destinations to be searched for expired messages in this round.
        self._next_search: float | None = None
        self._sweep: deque[bytes] = deque()  # Destinations in whose overflow messages may be that have ended.
        self._sweep_again = False  # Whether messages have ended since this round began.
        self._sweep_at = 0.0

    def _take_actions(self) -> Sequence[Action]:
        if not self._actions:
            return _NONE
        actions, self._actions = self._actions, []
        return actions

    # Settings and orders

    def apply_settings(self, settings: Settings) -> None:
        """Set new limits. Existing destinations get them in the next calls of `start`, a few at a time."""
        self.settings = settings
        self._kept_active = settings.active // KEPT_PART
        for relay in self.relays.values():
            relay.take_limits(settings.table.limits(relay.name, settings.limits))
        self._unchanged = deque(self.destinations)

    def flush(self, now: float) -> None:
        """Make everything due, in its order. Each dead destination is probed once."""
        self.admission.flush()
        for destination in self.dead.values():
            destination.probe_at = now

    def probe(self, nexthop: bytes, now: float) -> None:
        """Make the next message for a destination its probe, if it is dead."""
        destination = self.destinations.get(nexthop)
        if destination is not None and destination.dead:
            destination.probe_at = now

    # Waiting messages

    def add_new(
        self, message: int, nexthop: bytes | None = None, expires: int = 0, submitter: bytes | None = None
    ) -> None:
        """Add a new message, and its submitter if he is known.

        If all its recipients have the same nexthop, and it is known, the message waits in this destination's overflow.
        `expires` is then the end of its lifetime.
        """
        self.waiting.add(message)
        if nexthop is None or not self._may_overflow(nexthop):
            self.admission.add_new(message, submitter)
            return
        destination = self._destination(nexthop)
        destination.overflow_of(self._classes.rank(message)).put(message, expires)
        self._with_overflow[nexthop] = destination
        self._load_overflow(destination)

    def _may_overflow(self, nexthop: bytes) -> bool:
        """Return whether a new message may wait in the overflow of a destination before it is loaded."""
        known = self.destinations
        return nexthop in known or len(known) < DESTINATIONS_MAX or self.round_robin.is_brisk(nexthop)

    def add_deferred(self, message: int, due: int, flushed: bool = False, latest: int | None = None) -> None:
        """Add a deferred message; `due` is the next attempt that the mtime of its file has.

        `flushed`: it is due now in any case. `latest`: it is tried by that time, if that is sooner than `due`.
        """
        self.waiting.add(message)
        if latest is not None and latest < due and not flushed:
            self.admission.add_due(message, latest)
        else:
            self.admission.add_deferred(message, due, flushed)

    def make_due(self, message: int) -> None:
        """Make a message due now, whatever the mtime of its file."""
        self.waiting.add(message)
        self.admission.add_due(message, 0)

    def retry_at(self, message: int, due: int) -> None:
        """Make a message due at `due`, whatever the mtime of its file. Ends its loading, if it was being loaded."""
        self.cancel_load(message)
        self.waiting.add(message)
        self.admission.add_due(message, due)

    def forget(self, message: int) -> None:
        """Forget a message that has ended, or is on hold or corrupt: it does not wait any more."""
        if self.waiting.discard(message) and self._with_overflow:
            self._sweep_again = True
        self.forget_tried(message)

    def cancel_load(self, message: int) -> None:
        """End the loading of a message that `next_load` returned: it is gone, or is not to be tried now."""
        if self.attempts.get(message, False) is None:
            self._unload(message)
            self._in_turn.discard(message)

    def _unload(self, message: int) -> None:
        attempt = self.attempts.pop(message)
        self._lower_attempts.discard(message)
        if attempt is not None and attempt.submitter is not None:
            self.admission.count_unload(attempt.submitter)

    def holds(self, message: int) -> bool:
        """Return whether a message is loaded, or being read."""
        return message in self.attempts

    def __len__(self) -> int:
        """Return the number of waiting and loaded messages."""
        return len(self.waiting) + len(self.attempts)

    @property
    def idle(self) -> bool:
        """Whether it has neither messages nor destinations: `next_load` and `start` have nothing to do."""
        mail = self.waiting.count or self.attempts or self.destinations
        return not (mail or self._timers or self._unchanged or self._sweep or self._sweep_again)

    @property
    def active(self) -> int:
        """The number of loaded messages."""
        return len(self.attempts)

    @property
    def overflow(self) -> int:
        """The number of messages that wait for room in a destination; one that waits for two is counted twice."""
        # Destinations may be very many; those with overflow are few.
        self._with_overflow = {name: each for name, each in self._with_overflow.items() if each.overflowing}
        return sum(each.overflowing for each in self._with_overflow.values())

    def overflows_of(self, message: int) -> list[Destination]:
        """Return destinations in whose overflow a message waits; OVERFLOWS_EXAMINED of them are examined."""
        examined = islice(self._with_overflow.values(), OVERFLOWS_EXAMINED)
        return [destination for destination in examined if destination.overflow_holds(message)]

    def next_time(self, now: float) -> float | None:
        """Return when `next_load` or `start` has something to do; None: only after a job or an arrival."""
        waits = self._first_waits(now)
        lower = self._may_start_lower(waits)
        if self._leaving or self._unchanged or self.round_robin.any(self.settings.concurrency, lower):
            return now
        ages = self.round_robin.ages_at()
        first = self._timers[0][0] if self._timers else ages
        if first is not None and ages is not None:
            first = min(first, ages)
        if self._sweep or self._sweep_again:
            first = self._sweep_at if first is None else min(first, self._sweep_at)
        may_load, lower = self._may_load, self._may_load_lower(waits)
        if may_load:
            level = self._load_level
            if self._brisk_with_room:
                return now
            if level == ALL and (self._with_room or (self._lower_with_room and lower)):
                return now
            if self._to_suspend:
                suspend = now if self._may_suspend else self._suspend_at
                first = suspend if first is None else min(first, suspend)
            load = self.admission.next_time(now, lower, level)
            if load is not None and (first is None or load < first):
                first = load
        return first if first is None or first > now else now

    def host(self, entry: Entry) -> bytes:
        """Return the name of the host that takes an entry which was just started: its relay, or its nexthop."""
        relay = self.destinations[entry.nexthop].relay
        return entry.nexthop if relay is None else relay.name

    # Loading

    @property
    def _may_load(self) -> bool:
        """Whether another message may be loaded: the active set has room, and a delivery could be started.

        Messages of lower classes leave room for the first class, at least their share of it.
        """
        return self.in_flight < self.settings.concurrency and self._free_active > 0

    @property
    def _free_active(self) -> int:
        """How many more messages may be loaded."""
        free = self.settings.active - len(self.attempts)
        if free <= self._kept_active:
            free += max(0, len(self._lower_attempts) - self.settings.lower_active)
        return free

    @property
    def has_room(self) -> bool:
        """Whether the active set has room for any message."""
        return self._load_level == ALL

    @property
    def _load_level(self) -> int:
        """What may be loaded, if `_may_load`."""
        free, kept = self._free_active, self._kept_active
        return ALL if free > kept else FEW if free > kept // 2 else BRISK

    def _may_load_lower(self, first_waits: bool) -> bool:
        """Return whether a message of a lower class may be loaded, if any may."""
        if len(self.attempts) >= self.settings.active - self._kept_active:
            return False
        return not first_waits or len(self._lower_attempts) < self.settings.lower_active

    def _may_start_lower(self, first_waits: bool) -> bool:
        """Return whether a job of a lower class may start, if there is a place."""
        return not first_waits or self.lower_in_flight < self.settings.lower_places

    def _first_waits(self, now: float) -> bool:
        """Return whether mail of the first class waits that may be loaded or started as soon as there is a place."""
        if self.round_robin.has_first or self._with_room or self._brisk_with_room:
            return True
        return self.admission.classes[0].is_due(now)

    def next_load(self, now: float) -> tuple[int, int | None] | None:
        """Return the message to read now, with its stamp (Admission.next); None if there is none.

        The caller then calls `load`, `begin_load`, `cancel_load` or `retry_at`.
        """
        while self._may_load:
            found = (self._next_to_suspend(now) if self._to_suspend else None) or self._next_waiting(now)
            if found is None:
                return None
            if found[0] not in self.attempts:
                self.attempts[found[0]] = None
                if self._classes.any and self._classes.rank(found[0]):
                    self._lower_attempts.add(found[0])
                return found
            self._in_turn.discard(found[0])
        return None

    def _next_waiting(self, now: float) -> tuple[int, int | None] | None:
        """Return the next message whose destination has room, or that is new or due.

        Messages of an overflow take turns with other new mail. Both together alternate with due deferred mail. The
        classes have their order.
        """
        admission = self.admission
        if len(admission.classes) == 1 and not self._lower_with_room:
            return self._next_of_class(admission.classes[0], False, now)
        lower = self._may_load_lower(self._first_waits(now))
        for one in admission.order(lower):
            found = self._next_of_class(one, one is not admission.classes[0], now)
            if found is not None:
                admission.count(one, lower)
                return found
        return None

    def _next_of_class(self, admission: ClassAdmission, lower: bool, now: float) -> tuple[int, int | None] | None:
        level = self._load_level
        with_room = self._overflows_with_room(lower, level)
        takes_turn = self._overflow_is_next or not admission.has_new(level)
        if with_room and takes_turn and admission.is_turn_of_new(now, level):
            found = self._next_overflow(lower, level)
            if found is not None:
                self._overflow_is_next = False
                admission.end_turn_of_new()
                return found
        self._overflow_is_next = True
        return admission.next(now, level)

    def _overflows_with_room(self, lower: bool, level: int) -> deque[Destination]:
        """Return the destinations of which one message of the overflow may be loaded next."""
        if lower:
            return self._lower_with_room if level == ALL else _EMPTY
        if self._brisk_with_room and (self._brisk_is_next or level < ALL or not self._with_room):
            return self._brisk_with_room
        return self._with_room if level == ALL else _EMPTY

    def _next_overflow(self, lower: bool, level: int) -> tuple[int, None] | None:
        while with_room := self._overflows_with_room(lower, level):
            destination = with_room[0]
            # Tested each time: the message loaded last may have taken the room.
            room = destination.room_for(lower) > 0 and not destination.dead
            message = destination.overflow_of(lower).take() if room else None
            if message is not None:
                self._in_turn.add(message)
                self._brisk_is_next = with_room is not self._brisk_with_room
                return message, None
            if lower:
                with_room.popleft().lower_loading = False
            else:
                with_room.popleft().loading = False
        return None

    def tried(self, message: int, stamp: int | None) -> Collection[int]:
        """Return the offsets of recipients that were tried already, and are not to be tried before the next attempt.

        `stamp` is the expected next attempt from `next_load`. If there is one, it has come: all are to be tried.
        """
        if stamp is not None:
            self.forget_tried(message)
        return self._tried.get(message, ())

    def forget_tried(self, message: int) -> None:
        """Forget the tried recipients of a message: all that are left are to be tried, or the message has ended."""
        if message in self._tried:
            self._tried_count -= len(self._tried.pop(message))

    def _next_to_suspend(self, now: float) -> tuple[int, None] | None:
        if now >= self._suspend_at:
            self._suspend_at = now + SUSPEND_PAUSE
            self._may_suspend = OVERFLOW_SUSPENDED
        while self._may_suspend and self._to_suspend:
            destination = self._to_suspend[0]
            message = destination.take_overflow() if destination.dead else None
            if message is not None:
                self._to_suspend.rotate(-1)
                self._may_suspend -= 1
                return message, None
            self._to_suspend.popleft().suspending = False
        return None

    def _keep_tried(self, attempt: Attempt) -> None:
        if attempt.placed and self._tried_count < TRIED_MAX:
            tried = self._tried.setdefault(attempt.message, set())
            self._tried_count -= len(tried)
            tried.update(attempt.placed)
            self._tried_count += len(tried)

    def load(
        self, attempt: Attempt, groups: list[tuple[bytes, list[Recipient]]], now: float
    ) -> Sequence[Action]:
        """Add the recipients of a message that `next_load` returned, grouped by nexthop."""
        self.begin_load(attempt, now)
        for nexthop, recipients in groups:
            self._add_entry(Entry(attempt, nexthop, recipients), len(groups) == 1, now)
        attempt.loading = False
        self._close_if_over(attempt, now)
        return self._take_actions()

    def begin_load(self, attempt: Attempt, now: float) -> None:
        """Begin to load a message that `next_load` returned; `add_entry` and `end_load` follow."""
        self.waiting.discard(attempt.message)
        self.attempts[attempt.message] = attempt
        attempt.loaded_at = now
        attempt.loading = True
        attempt.rank = self._classes.rank(attempt.message)
        if attempt.submitter is not None:
            self.admission.count_load(attempt.submitter)
        if attempt.message in self._in_turn:
            self._in_turn.remove(attempt.message)
            attempt.in_turn = True

    def add_entry(self, entry: Entry, whole: bool, now: float) -> Sequence[Action]:
        """Add an entry of a message that is being loaded; `whole`: the message has no other entry."""
        self._add_entry(entry, whole, now)
        return self._take_actions()

    def end_load(self, attempt: Attempt, now: float) -> Sequence[Action]:
        """End the loading of a message: it has no more entries."""
        if attempt.loading:
            attempt.loading = False
            self._close_if_over(attempt, now)
        return self._take_actions()

    def fail_load(self, attempt: Attempt, due: int) -> None:
        """End the loading of a message that could not be read, before any `add_entry`; make it due at `due`."""
        if not attempt.withdrawn:
            attempt.loading = False
            self._unload(attempt.message)
            self.waiting.add(attempt.message)
            self.admission.add_due(attempt.message, due)

    def _add_entry(self, entry: Entry, whole: bool, now: float) -> None:
        """Add an entry to its destination's queue, or suspend it. If there is no room, its message is to overflow."""
        attempt, count = entry.attempt, len(entry.recipients)
        if attempt.withdrawn:
            return
        destination = self._destination(entry.nexthop)
        expired = now > attempt.expires
        # A message with one destination does not overtake what has waited there for longer.
        rank = attempt.rank
        in_turn = attempt.in_turn or not whole or not destination.overflow_of(rank)
        has_room = in_turn and destination.room_for(rank) > 0
        attempt.left += count
        if (destination.dead and destination.suspends(now)) or (expired and destination.next_start(now) > now):
            self._suspend(entry, destination, now)
        elif destination.dead or expired or has_room or (whole and self._may_queue_ahead(destination, rank)):
            destination.probing = destination.dead
            destination.enqueue(entry)
            attempt.queued += count
            self.round_robin.let_pass(destination)
            self._list_if_ready(destination, now)
        elif attempt.overflow is None or destination.overflowing < self._destination(attempt.overflow).overflowing:
            attempt.overflow = entry.nexthop  # Of the destinations without room, that with the shortest overflow.
            return
        else:
            return
        if not whole:
            attempt.placed += [offset for offset, _ in entry.recipients]

    def _may_queue_ahead(self, destination: Destination, rank: int) -> bool:
        """Return whether a message may be queued in a destination that has no room, so that it is loaded only once.

        It may if the overflow is empty (it would overtake the messages there) and the active set is at most half full.
        The caller has checked that the message has no other destination, for which its next attempt would have to wait
        until this one has room.
        """
        queued, loaded = len(destination.queue), len(self.attempts)
        few = queued < QUEUED_AHEAD_MAX and loaded <= self.settings.active // 2
        return few and not destination.overflow_of(rank)

    def _load_overflow(self, destination: Destination) -> None:
        """Have messages of a destination's overflow loaded while there is room for them, in their order.

        If the destination is dead, they are loaded one by one between other mail, to be suspended.
        """
        if destination.dead:
            if destination.overflowing and not destination.suspending:
                destination.suspending = True
                self._to_suspend.append(destination)
            return
        if not destination.loading and destination.overflow and destination.room_for(0) > 0:
            destination.loading = True
            brisk = self.round_robin.is_brisk(destination.name)
            (self._brisk_with_room if brisk else self._with_room).append(destination)
        if destination.lower_overflow and not destination.lower_loading and destination.room > 0:
            destination.lower_loading = True
            self.admission.make(1)
            self._lower_with_room.append(destination)

    # Destinations

    def _destination(self, nexthop: bytes) -> Destination:
        destination = self.destinations.get(nexthop)
        if destination is None:
            settings = self.settings
            destination = Destination(nexthop, settings.table.limits(nexthop, settings.limits))
            destination.set_relay(self._relay(nexthop))
            self.destinations[nexthop] = destination
        return destination

    def _relay(self, nexthop: bytes) -> SharedRelay | None:
        """Return the relay that takes a destination's mail and that of others; None if there is none."""
        name = self.settings.table.relay(nexthop)
        if name is None:
            return None
        relay = self.relays.get(name)
        if relay is None:
            relay = self.relays[name] = SharedRelay(name, self.settings.table.limits(name, self.settings.limits))
            known = self.destinations.get(name)
            if known is not None and relay.limits.rate is not None:
                relay.starts.extend(known.starts)
        return relay

    def _forget(self, destination: Destination) -> None:
        # One that was taken from its relay's queue may still be listed. `_next_entry` then finds that it is empty, and
        # lists the next destination of the relay.
        del self.destinations[destination.name]
        self.dead.pop(destination.name, None)
        self._failed.pop(destination.name, None)
        self._suspended_count -= len(destination.suspended)  # They wait for their next attempt.
        self._with_overflow.pop(destination.name, None)
        if destination.waits_for is not None:
            destination.waits_for, destination.listed = None, False

    def _renew_limits(self, now: float) -> None:
        """Give some destinations the limits of the last `apply_settings`, which may allow them a start."""
        for _ in range(min(CHANGES_AT_ONCE, len(self._unchanged))):
            destination = self.destinations.get(self._unchanged.popleft())
            if destination is not None:
                before = destination.relay
                destination.take_limits(self.settings.table.limits(destination.name, self.settings.limits))
                destination.set_relay(self._relay(destination.name))
                self._list_if_ready(destination, now)
                if before is not None:
                    self._list_next_of(before, now)

    # Starting

    def start(self, now: float) -> Sequence[Action]:
        """Return what is to be done now. If the last action is a Start, more jobs may be possible: call it again."""
        if self._leaving:
            self._suspend_some(now)
        if self._timers and self._timers[0][0] <= now:
            self._run_timers(now)
        if self._unchanged:
            self._renew_limits(now)
        if (self._sweep or self._sweep_again) and now >= self._sweep_at:
            self._sweep_some(now)
        waits = self._first_waits(now) if self._classes.any else False
        lower = self._may_start_lower(waits)
        while (destination := self.round_robin.next(self.settings.concurrency, now, lower)) is not None:
            entry = self._next_entry(destination, now, waits)
            if entry is not None:
                self._actions.append(Start(entry))
                break
        return self._take_actions()

    def _sweep_some(self, now: float) -> None:
        """Remove messages that have ended from the overflows of the next destinations."""
        if not self._sweep:
            self._sweep_again = False
            self._sweep = deque(self._with_overflow)
        blocks = SWEPT_AT_ONCE
        for _ in range(min(SEARCHED_AT_ONCE, len(self._sweep))):
            destination = self.destinations.get(self._sweep[0])
            for overflow in destination.overflows if destination is not None else ():
                if blocks > 0:
                    blocks -= overflow.sweep(self.waiting, blocks)
            if blocks <= 0:
                break  # There may be more in it.
            self._sweep.popleft()
        self._sweep_at = now + (SWEEP_STEP if self._sweep else SWEEP_PAUSE)

    def _run_timers(self, now: float) -> None:
        """Examine the destinations whose rate allows a start by now, or whose probe is due."""
        for _ in range(EXPIRED_AT_ONCE):
            if not self._timers or self._timers[0][0] > now:
                break
            name = heappop(self._timers)[1]
            destination = self.destinations.get(name)
            if destination is not None:
                self._load_probe(destination, now)
                self._list_if_ready(destination, now)
            relay = self.relays.get(name)
            if relay is not None:
                self._list_next_of(relay, now)

    def _next_entry(self, destination: Destination, now: float, first_waits: bool) -> Entry | None:
        """Remove and return the entry of a destination that starts now; None if none may start."""
        withdrawn = False
        while destination.queue and destination.queue[0].attempt.withdrawn:
            destination.queue.pop(0)
            self._end_probing_if_empty(destination)
            withdrawn = True
        relay = destination.relay
        # Who has submitted what is the next entry now may have no place.
        if withdrawn or not destination.queue or not self._may_start(destination, now):
            destination.was_first = False
            self._list_if_ready(destination, now)  # Withdrawn entries have left room.
            if relay is not None:
                self._list_next_of(relay, now)
            return None
        if relay is not None and not self._relay_may_start(relay, now):
            relay.waiting.enqueue(destination)
            return None
        if destination.next_is_lower and not self._may_start_lower(first_waits):
            self.round_robin.add(destination)  # Its mail of the first class has gone in another way.
            return None
        entry = destination.queue.pop(0)
        if len(entry.recipients) > 1:
            self._split(entry, destination, first_waits)
        count = len(entry.recipients)
        entry.attempt.queued -= count
        entry.attempt.in_flight += count
        self.in_flight += count
        if entry.attempt.rank:
            self.lower_in_flight += count
        destination.count_start(now)
        self.round_robin.count_start(entry, destination, now)
        if relay is not None:
            destination.was_first = False
            relay.count_start(now)
            self._list_next_of(relay, now)
        self._list_if_ready(destination, now)
        return entry

    def _split(self, entry: Entry, destination: Destination, first_waits: bool) -> None:
        """Put the recipients of an entry that one job does not take back to the head of the queue."""
        places = self.round_robin.places_for(destination, entry.attempt.submitter, self.settings.concurrency)
        most = min(destination.limits.recipients, places)
        if destination.relay is not None:
            most = min(most, destination.relay.limits.recipients)
        if entry.attempt.rank and first_waits:
            most = min(most, self.settings.lower_places - self.lower_in_flight)
        if len(entry.recipients) > most:
            destination.queue.insert(0, entry.split_off(most))

    def _may_start(self, destination: Destination, now: float) -> bool:
        """Return whether the window and the rate allow a job; set a timer if the rate does not."""
        if destination.in_flight >= (1 if destination.dead else int(destination.window)):
            return False
        return not destination.limits.paced or self._rate_allows(destination, now)

    def _relay_may_start(self, relay: SharedRelay, now: float) -> bool:
        """Return whether a relay's limits allow a job; set a timer if the rate does not."""
        limits = relay.limits
        return relay.in_flight < limits.most and (not limits.paced or self._rate_allows(relay, now))

    def _rate_allows(self, limited: RateLimited, now: float) -> bool:
        start = limited.own_start(now)
        if start > now:
            if limited.checked_at < start:
                limited.checked_at = start
                heappush(self._timers, (start, limited.name))
            return False
        return True

    def _list_if_ready(self, destination: Destination, now: float) -> None:
        """List a destination if it can start a job, and have its overflow loaded if it has room."""
        # If it is listed for its mail of a lower class, it is listed for that of the first class all the same.
        higher = destination.lower and not destination.next_is_lower
        if destination.queue and (higher or not destination.listed) and self._may_start(destination, now):
            if destination.waits_for is not None:
                destination.waits_for, destination.was_first = None, False
            relay = destination.relay
            if relay is None or self._relay_may_start(relay, now):
                self.round_robin.add(destination)
            else:
                relay.waiting.enqueue(destination)
        self._load_overflow(destination)

    def _list_next_of(self, relay: SharedRelay, now: float) -> None:
        """List the destination at the head of a relay's queue, if the relay takes another job."""
        if relay.waiting.has_waiting and self._relay_may_start(relay, now):
            self.round_robin.add_next_of(relay.waiting)

    def note_address(self, entry: Entry, address: bytes) -> None:
        """Note at which server's address the job of an entry is that has been in flight for some seconds."""
        self.round_robin.note_address(entry, address_holder(address))

    # Ending

    def end_job(self, entry: Entry, deferred: int, host_failed: bool, now: float) -> Sequence[Action]:
        """End a job: `deferred` of its recipients are to be tried again; `host_failed`: its host failed."""
        attempt, count = entry.attempt, len(entry.recipients)
        self.in_flight -= count
        if attempt.rank:
            self.lower_in_flight -= count
        self.round_robin.count_end(entry, host_failed, now)
        attempt.in_flight -= count
        attempt.deferred += deferred
        destination = self._destination(entry.nexthop)
        destination.in_flight -= 1
        relay = destination.relay
        if relay is not None:
            relay.in_flight -= 1
            self._list_next_of(relay, now)
        if not host_failed:
            destination.answered_at = now
            if destination.count_success():
                self._revive(destination)
        else:
            self._count_failure(destination, now)
        self._list_if_ready(destination, now)
        self._close_if_over(attempt, now)
        if destination.idle:
            self._forget(destination)
        return self._take_actions()

    def end_expired(self, entry: Entry, now: float) -> Sequence[Action]:
        """End an Expire action: its recipients have failed."""
        entry.attempt.in_flight -= len(entry.recipients)
        self._close_if_over(entry.attempt, now)
        return self._take_actions()

    def withdraw(self, message: int, now: float) -> Sequence[Action]:
        """Prevent further starts of a message. If it is loaded, a Withdrawn action follows, perhaps at once."""
        attempt = self.attempts.get(message)
        if attempt is not None:
            attempt.withdrawn = True
            attempt.queued = 0  # Its entries are dropped when they are first in their queues.
            self._close_if_over(attempt, now)
        return self._take_actions()

    def _close_if_over(self, attempt: Attempt, now: float) -> None:
        message = attempt.message
        if attempt.queued or attempt.in_flight or attempt.loading or self.attempts.get(message) is not attempt:
            return
        self._unload(message)
        if attempt.overflow is None or attempt.withdrawn or not attempt.left:
            self.forget_tried(message)
        if attempt.withdrawn:
            self._actions.append(Withdrawn(attempt))
        elif not attempt.left:
            self._actions.append(Finish(attempt))
        elif attempt.overflow is not None:
            # It gets two entries, independent of each other: in the overflow, for the recipients that were not tried
            # yet; and, if some were deferred, in the backlog, for all that are left at the next attempt.
            self._keep_tried(attempt)
            destination = self._destination(attempt.overflow)
            self.waiting.add(message)
            destination.overflow_of(attempt.rank).put(message, attempt.expires)
            self._with_overflow[destination.name] = destination
            if attempt.deferred and attempt.rest is None:
                self._actions.append(Defer(attempt))
            self._load_overflow(destination)
        else:
            self._actions.append(Defer(attempt))

    # Dead destinations

    def _count_failure(self, destination: Destination, now: float) -> None:
        probe_before = destination.probe_at
        died = destination.count_failure(now)
        if destination.dead:
            if destination.probe_at > probe_before:
                heappush(self._timers, (destination.probe_at, destination.name))
            self.round_robin.forget(destination.name)
            self._leaving += destination.queue  # Also the rest of an entry whose first recipients were the probe.
            destination.queue.clear()
            self._suspend_some(now)
        self._failed[destination.name] = None
        self._failed.move_to_end(destination.name)
        if len(self._failed) > FAILED_MAX:
            self._forget_failed(destination)
        if died:
            self.dead[destination.name] = destination
            self._actions.append(Dead(destination.name, destination.interval, destination.suspended_count))
            self._load_overflow(destination)

    def _forget_failed(self, latest: Destination) -> None:
        """Forget a destination without mail, of those whose failure is the longest ago; what is suspended for it waits.

        Mail for it is tried again as for one that nothing is known of.
        """
        for _ in range(FAILED_AT_ONCE):
            name = next(iter(self._failed))
            destination = self.destinations[name]
            if destination.has_no_mail and destination is not latest:
                self._forget(destination)
                return
            self._failed.move_to_end(name)

    def _revive(self, destination: Destination) -> None:
        """Report that a destination is alive again, and move its suspended messages to its overflow."""
        self.dead.pop(destination.name, None)
        self._actions.append(Alive(destination.name, destination.suspended_count))
        destination.suspended_count = 0
        self._suspended_count -= len(destination.suspended)
        self._join_overflow(destination)
        self._sweep_again = True  # Some may have ended meanwhile.
        self._with_overflow[destination.name] = destination

    def _join_overflow(self, destination: Destination) -> None:
        """Move the suspended messages of a destination to the overflows of their classes."""
        if not self._classes.any:
            destination.overflow.join(destination.suspended)
            return
        first, lower = Fifo(), Fifo()
        for message in destination.suspended.take_all():
            (lower if self._classes.rank(message) else first).put(message)
        destination.overflow.join(first)
        if lower:
            destination.overflow_of(1).join(lower)

    def _suspend(self, entry: Entry, destination: Destination, now: float) -> None:
        """Defer an entry without an attempt, or fail it if it has expired."""
        attempt, count = entry.attempt, len(entry.recipients)
        if now > attempt.expires:
            attempt.in_flight += count
            self._actions.append(Expire(entry))
            return
        destination.suspended_count += count
        attempt.deferred += count
        self._actions.append(Suspended(entry))
        # Over the limit the oldest suspended message of the destination is forgotten, or this one if it has none.
        if self._suspended_count < SUSPENDED_MAX or self._take_suspended(destination) is not None:
            destination.suspended.put(attempt.message)
            self._suspended_count += 1

    def _take_suspended(self, destination: Destination) -> int | None:
        message = destination.suspended.take()
        if message is not None:
            self._suspended_count -= 1
        return message

    def _suspend_some(self, now: float) -> None:
        """Defer some of the entries that were queued in destinations that have died."""
        for _ in range(min(SUSPENDED_AT_ONCE, len(self._leaving))):
            entry = self._leaving.popleft()
            attempt, count = entry.attempt, len(entry.recipients)
            if attempt.withdrawn:
                continue
            attempt.queued -= count
            destination = self._destination(entry.nexthop)
            if destination.dead:
                self._suspend(entry, destination, now)
            else:
                destination.enqueue(entry)  # It is alive again.
                attempt.queued += count
                self._list_if_ready(destination, now)
            self._close_if_over(attempt, now)

    def _load_probe(self, destination: Destination, now: float) -> None:
        """Have a message loaded that can be the probe of a dead destination, if one is due."""
        if destination.dead and not destination.suspends(now):
            message = destination.take_overflow()
            if message is None:
                message = self._take_suspended(destination)
            if message is not None:
                # Among the first class, because other mail waits for what the probe says.
                self.admission.classes[0].readmit(message)

    def _end_probing_if_empty(self, destination: Destination) -> None:
        """Let the next message be the probe, if the probe was withdrawn or failed before its job started."""
        if destination.dead and not destination.queue and not destination.in_flight:
            destination.probing = False

    # Expiry

    def next_expiry(self, now: float) -> float | None:
        """Return when `expire` is to be called; None if there are no destinations."""
        if not self.destinations and not self._search:
            return None
        return now if self._next_search is None else max(now, self._next_search)

    def expire(self, now: float) -> Sequence[Action]:
        """Fail expired messages that have waited longer than LAST_WAIT for their last attempt.

        All destinations are searched every `expiry_round` seconds, SEARCHED_AT_ONCE of them in a call.
        """
        if self._next_search is None:
            self._next_search = now + self.settings.expiry_round
        if now < self._next_search:
            return _NONE
        if not self._search:
            self._search = deque(self.destinations)
        for _ in range(min(SEARCHED_AT_ONCE, len(self._search))):
            destination = self.destinations.get(self._search[0])
            if destination is not None and self._expire_some(destination, now):
                break  # There may be more in it.
            self._search.popleft()
        self._next_search = now + (SEARCH_PAUSE if self._search else self.settings.expiry_round)
        return self._take_actions()

    def _expire_some(self, destination: Destination, now: float) -> bool:
        """Fail some expired messages of a destination; return whether there were any, and may be more."""
        expired = [each for one in destination.overflows for each in one.take_expired(now, EXPIRED_AT_ONCE)]
        for message in expired:
            if message in self.waiting:
                self.admission.add_due(message, int(now))
        over_rate = destination.next_start(now) > now
        entries = list(islice(_late_entries(destination, over_rate, now), EXPIRED_AT_ONCE))
        if not entries:
            if destination.is_expired(now):
                self._forget(destination)
            return bool(expired)
        gone = set(map(id, entries))
        destination.queue = [entry for entry in destination.queue if id(entry) not in gone]
        for entry in entries:
            entry.attempt.queued -= len(entry.recipients)
            self._suspend(entry, destination, now)
        self._end_probing_if_empty(destination)
        self._list_if_ready(destination, now)
        return True


def _late_entries(destination: Destination, over_rate: bool, now: float) -> Iterator[Entry]:
    """Yield the expired entries in a destination's queue that are to fail without their last attempt."""
    for entry in destination.queue:
        if now > entry.attempt.expires and _is_late(entry.attempt, over_rate, now):
            yield entry


def _is_late(attempt: Attempt, over_rate: bool, now: float) -> bool:
    """Return whether an expired message in a destination's queue is to fail without its last attempt."""
    if attempt.withdrawn:
        return False
    return over_rate or now > max(attempt.expires, attempt.loaded_at) + LAST_WAIT
