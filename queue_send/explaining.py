"""What one channel's scheduler knows, as causes and facts (queue_wire.admin). Pure; reads only."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from math import ceil

from queue_send.attempt import Group
from queue_send.destination import Destination, Rated, RelayTotal
from queue_send.scheduler import Scheduler
from queue_wire.admin import cause, facts
from queue_wire.admin.cause import Cause
from queue_wire.admin.facts import ChannelFact, DestinationFact

RELAYS = 1 << 40  # The place of the first relay, behind all destinations.
NUMBER_MOST = 10**18 - 1  # What a fact can carry; no time is later.


class Explaining:
    """`kind` is b"local" or b"remote"."""

    def __init__(self, kind: bytes, scheduler: Scheduler) -> None:
        self._kind = kind
        self._scheduler = scheduler

    def flies(self, count: int, group: Group) -> Cause:
        """Recipients in flight since their job was started."""
        return Cause(cause.IN_FLIGHT, self._kind, _time(group.started), count, nexthop=group.nexthop)

    def lands(self, count: int) -> Cause:
        """Recipients whose verdicts the disk has not taken yet."""
        return Cause(cause.RECORDING, self._kind, number=count)

    def queued(self, count: int, destination: Destination, now: float) -> Cause:
        """Recipients that wait in a destination: what for."""
        scheduler = self._scheduler
        window, start = int(destination.window), destination.next_start(now)
        kind, flying, name = cause.AWAITING_TURN, destination.flying, destination.name
        relay = destination.relay
        if destination.dead:
            kind = cause.PROBE_PENDING
        elif destination.flying >= window:
            kind = cause.WINDOW_FULL
        elif relay is not None and relay.flying >= relay.limits.most:
            kind, flying, window, name = cause.WINDOW_FULL, relay.flying, relay.limits.most, relay.name
        elif start > now:
            kind, name = cause.RATE_LIMITED, self._slower(destination, now).name
        elif scheduler.running >= scheduler.settings.concurrency:
            kind, window = cause.DELIVERIES_FULL, scheduler.settings.concurrency
        elif scheduler.turns.room(destination, scheduler.settings.concurrency) <= 0:
            kind = cause.SLOW_SHARE_FULL
        return Cause(kind, self._kind, _time(start), count, flying, window, name)

    def _slower(self, destination: Destination, now: float) -> Rated:
        """Return whose rate allows the next message later, the destination's own or its relay's."""
        relay = destination.relay
        return destination if relay is None or destination.own_start(now) >= relay.own_start(now) else relay

    def aside(self, destination: Destination) -> Cause:
        """A message that waits on the disk until there is room."""
        waiting, window = destination.waiting, int(destination.window)
        return Cause(cause.OVERFLOW, self._kind, 0, waiting, destination.flying, window, destination.name)

    def trouble(self, destination: Destination, now: float) -> Iterator[Cause]:
        """What keeps mail from a destination, apart from its window."""
        if destination.dead:
            kind = cause.PROBE_IN_FLIGHT if destination.probing else cause.DESTINATION_DEAD
            probe, turned_away = _time(destination.probe_at), destination.turned_away
            yield Cause(kind, self._kind, probe, turned_away, nexthop=destination.name)
        elif destination.next_start(now) > now:
            name = self._slower(destination, now).name
            yield Cause(cause.DESTINATION_RATE_LIMITED, self._kind, _time(destination.next_start(now)), nexthop=name)

    def due(self, since: int, stopped: bytes) -> Cause:
        """A message that is due and not loaded: why; `stopped` is what keeps the channel from any start."""
        scheduler = self._scheduler
        active, running, settings = len(scheduler.attempts), scheduler.running, scheduler.settings
        if stopped:
            return Cause(stopped, self._kind, since, some=running)
        if active >= settings.active:
            return Cause(cause.ACTIVE_FULL, self._kind, since, some=active, limit=settings.active)
        if running >= settings.concurrency:
            return Cause(cause.CONCURRENCY_FULL, self._kind, since, some=running, limit=settings.concurrency)
        return Cause(cause.DUE, self._kind, since)

    def message(
        self,
        message: int,
        stamps: Collection[int],
        nexthops: Iterable[bytes],
        flights: Collection[Group],
        stopped: bytes,
        now: float,
    ) -> Iterator[Cause]:
        """Yield what is known of a message whose file has one of `stamps` as its next attempt; nothing if none.

        Only the named nexthops are looked at.
        """
        places = [each for name in nexthops if (each := self._scheduler.destinations.get(name)) is not None]
        if message in self._scheduler.attempts:
            yield from self._active(message, places, flights, now)
            return
        aside = [self.aside(destination) for destination in places if destination.aside.holds(message)]
        yield from aside
        admission = self._scheduler.admission
        dues = admission.dues_of(message, stamps)
        if admission.is_next(message) or (dues and min(dues) <= now):
            yield self.due(min(*stamps, int(now)), stopped)
        elif dues:
            yield Cause(cause.DEFERRED, self._kind, min(dues))
        if aside or dues:
            for destination in places:
                yield from self.trouble(destination, now)

    def _active(
        self, message: int, places: list[Destination], flights: Collection[Group], now: float
    ) -> Iterator[Cause]:
        attempt = self._scheduler.attempts[message]
        flying, queued = (attempt.flying, attempt.queued) if attempt is not None else (0, 0)
        for group in flights:
            if group.attempt is attempt:
                flying -= len(group.recipients)
                yield self.flies(len(group.recipients), group)
        if flying > 0:
            yield self.lands(flying)
        for destination in places:
            here = sum(len(group.recipients) for group in destination.queue if group.attempt is attempt)
            if here and queued:
                queued -= here
                yield self.queued(here, destination, now)
                yield from self.trouble(destination, now)
        if queued > 0:
            yield Cause(cause.QUEUED_ELSEWHERE, self._kind, number=queued)
        if attempt is not None and attempt.loading:
            yield Cause(cause.DUE, self._kind, max(0, attempt.due))

    def channel(self) -> ChannelFact:
        """Totals of the channel."""
        scheduler, settings = self._scheduler, self._scheduler.settings
        active = len(scheduler.attempts)
        waiting = len(scheduler.admission) + scheduler.aside
        return ChannelFact(active, settings.active, waiting, scheduler.running, settings.concurrency, self._kind)

    def page(self, place: int | None, most: int, now: float) -> tuple[list[DestinationFact], int]:
        """Return `most` destinations before a place (None: the end), and the place to go on from, 0 for no more.

        From the end to the start: what goes meanwhile moves the others down, so one may come twice, and none is missed.
        After them come the relays, from RELAYS on; they stay where they are.
        """
        known, relays = self._scheduler.destinations, self._scheduler.relays
        if place is not None and place >= RELAYS:
            stop = place - RELAYS + most
            further = RELAYS + stop if stop < len(relays) else 0
            return [self.relay(each, now) for each in islice(relays.values(), stop - most, stop)], further
        stop = len(known) if place is None else min(place, len(known))
        start = max(0, stop - most)
        found = [self.destination(each, now) for each in islice(known.values(), start, stop)]
        return found, start or (RELAYS if relays else 0)

    def named(self, names: Iterable[bytes], now: float) -> list[DestinationFact]:
        """Return those of the named destinations that something is known of."""
        known, relays = self._scheduler.destinations, self._scheduler.relays
        names = dict.fromkeys(names)
        found = [self.destination(known[name], now) for name in names if name in known]
        return found + [self.relay(relays[name], now) for name in names if name in relays]

    def relay(self, each: RelayTotal, now: float) -> DestinationFact:
        """Return what is known of all that goes by a relay."""
        start = each.own_start(now)
        messages, seconds = each.limits.rate or (0, 0)
        return DestinationFact(
            state=facts.RELAY,
            probe=0,
            window=each.limits.most,
            flying=each.flying,
            queued=0,
            aside=0,
            cohorts=0,
            turned_away=0,
            messages=messages,
            seconds=int(seconds),
            next=_time(start) if start > now else 0,
            limits=each.limits.line,
            relay=b"",
            nexthop=each.name,
        )

    def destination(self, each: Destination, now: float) -> DestinationFact:
        """Return what is known of a destination."""
        state = facts.ALIVE if not each.dead else facts.PROBED if each.probing else facts.DEAD
        messages, seconds = each.limits.rate or (0, 0)
        start = each.next_start(now)
        return DestinationFact(
            state=state,
            probe=_time(each.probe_at) if each.dead else 0,
            window=int(each.window),
            flying=each.flying,
            queued=len(each.queue),
            aside=each.waiting,
            cohorts=int(each.cohorts * 100),
            turned_away=each.turned_away,
            messages=messages,
            seconds=int(seconds),
            next=_time(start) if start > now else 0,
            limits=each.limits.line,
            relay=b"" if each.relay is None else each.relay.name,
            nexthop=each.name,
        )


def _time(seconds: float) -> int:
    return min(max(0, ceil(seconds)), NUMBER_MOST)
