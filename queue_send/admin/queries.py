"""Answers the queries of queuectl: why a message waits, which destinations there are, totals. They change nothing.

`why` searches the numbers of the waiting messages, which takes 10 to 20 ms for a million; so a request names one
message, and the loop has a turn between two requests.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from math import ceil

from queue_base.daemon.clock import Clock
from queue_base.limits import RateLimited
from queue_base.queue import hold_marks as marks
from queue_send.admin.figure_list import FigureList
from queue_send.admin.orders import select_messages
from queue_send.cleaner import Cleaner
from queue_send.config import ConfigFiles
from queue_send.messages.life_cycle import Messages
from queue_send.messages.transitions import MessageState
from queue_send.scheduler.destination import Destination, SharedRelay
from queue_send.scheduler.model import Entry
from queue_send.scheduler.scheduler import Scheduler
from queue_wire.address import address_key, domain_key
from queue_wire.admin import cause, facts
from queue_wire.admin import socket as wire
from queue_wire.admin.cause import Cause, pack_cause
from queue_wire.admin.facts import ChannelFact, DestinationFact, pack_channel, pack_destination
from queue_wire.admin.figure import FIGURES, pack_figure
from queue_wire.admin.settings import unpack_in_force
from queue_wire.admin.socket import NEWS, Note, Request, Response
from queue_wire.control.destinationlimits import choose_nexthop
from queue_wire.format_error import FormatError

PAGE = 200  # Destinations in one reply, some 60 bytes each.
CAUSES_MAX = 200  # Causes in one reply.
LETTERS = {b"L": "local", b"R": "remote"}
_STATES = {
    MessageState.PARKED: cause.CORRUPT, MessageState.HELD: cause.HELD, MessageState.RETURNING: cause.HELD,
    MessageState.CLASSIFYING: cause.UNCLASSIFIED,
}  # fmt: skip
_ENDED = (MessageState.ENDING, MessageState.REMOVING, MessageState.LOST)
RELAYS = 1 << 40  # The index of the first relay, behind all destinations.
NUMBER_MAX = 10**18 - 1  # The largest number in a fact. No time is later.


class Queries:
    """The queries that read what queue-send knows."""

    def __init__(
        self,
        messages: Messages,
        cleaner: Cleaner,
        clock: Clock,
        config: ConfigFiles,
        figures: FigureList,
        todo_settings: Callable[[], bytes] = bytes,
    ) -> None:
        """`todo_settings` returns what queue-todo has in force (queue_wire.admin.settings)."""
        self._todo_settings = todo_settings
        self._messages = messages
        self._cleaner = cleaner
        self._clock = clock
        self._config = config
        self._figures = figures
        self._explainers = {
            kind: Explainer(kind.encode(), channel.scheduler) for kind, channel in messages.channels.items()
        }

    def answer(self, request: Request, now: float) -> Response:
        """Return the reply to a query."""
        if request.command == wire.WHY:
            return self._why(request.names, now)
        if request.command == wire.DESTINATIONS:
            return self._destinations(request.names, now)
        if request.command == wire.REMOVALS:
            count, seconds = self._cleaner.lag(now)
            return Response(count, [Note(NEWS, b"%d" % seconds)])
        if request.command == wire.FIGURES:
            return Response(0, [Note(NEWS, pack_figure(each)) for each in self._figures.figures(now)])
        notes = [Note(NEWS, pack_channel(each.channel())) for each in self._explainers.values()]
        return Response(int(self._messages.all_read), notes)

    def counts(self, now: float) -> Response:
        """Return the figures that name no destination: a local one is an address."""
        found = [each for each in self._figures.figures(now) if "nexthop" not in FIGURES[each.name]]
        return Response(0, [Note(NEWS, pack_figure(each)) for each in found])

    def _destinations(self, names: list[bytes], now: float) -> Response:
        channel, place, *nexthops = names
        explainer = self._explainers[channel.decode("ascii")]
        if nexthops:
            found, further = explainer.named(self._routed(channel.decode("ascii"), nexthops), now), 0
        else:
            found, further = explainer.page(int(place) if place else None, PAGE, now)
        why = self._messages.channels[channel.decode("ascii")].failure
        return Response(further, [Note(NEWS, pack_destination(self._shown(each, why))) for each in found])

    def _shown(self, fact: DestinationFact, why: Callable[[bytes], bytes]) -> DestinationFact:
        """Return a fact with the times of the system's clock, and the reason of a dead destination."""
        to_disk = self._clock.to_disk
        fact = fact._replace(probe=fact.probe and to_disk(fact.probe), next=fact.next and to_disk(fact.next))
        return fact._replace(reason=why(fact.nexthop)) if fact.state in (facts.DEAD, facts.PROBED) else fact

    def _routed(self, kind: str, names: list[bytes]) -> list[bytes]:
        """Return the names, and the destinations and relays that their mail goes to.

        Those of the remote channel are domains, those of the local one recipients or domains.
        """
        config = self._config.current
        if kind == "local":
            routes = [config.local_route(name if b"@" in name else b"@" + name) for name in names]
            return [*names, *map(address_key, names), *(route for route in routes if route is not None)]
        keys = [domain_key(name) for name in names]
        ways = [choose_nexthop(config.routes, config.lines, name) for name in keys]
        return [*names, *keys, *(way.name for way in ways), *(way.relay for way in ways if way.relay is not None)]

    def _why(self, names: list[bytes], now: float) -> Response:
        layout = self._messages.store.layout
        selected = select_messages(names[:1], lambda message: marks.birth_of(layout, message))
        if not selected.messages:
            return Response(0, selected.notes)
        found = self._causes(selected.messages[0], names[1:], now)[:CAUSES_MAX]
        to_disk = self._clock.to_disk
        shown = [each._replace(time=each.time and to_disk(each.time)) for each in found]
        record = self._messages.store.records.get(selected.messages[0])
        for state, why, since in () if record is None else record.life:
            shown.append(Cause(cause.LIFE, time=int(since), nexthop=f"{state.name.lower()}: {why.value}".encode()))
        return Response(0, [Note(NEWS, pack_cause(each)) for each in shown])

    @property
    def _classifier_fault(self) -> bytes:
        """Why queue-todo classifies nothing: it could not read its control files yet. Empty if it could."""
        try:
            settings = unpack_in_force(self._todo_settings())
        except FormatError:
            return b""
        return b"" if settings.files else settings.error.encode("ascii", "backslashreplace")

    def _causes(self, message: int, places: list[bytes], now: float) -> list[Cause]:
        messages, store = self._messages, self._messages.store
        state = messages.state(message)
        if state in _ENDED:
            return [Cause(cause.REMOVING)]
        if state is MessageState.BOUNCING:
            again = messages.bouncer.again_at(message)
            return [Cause(cause.BOUNCING) if again is None else Cause(cause.BOUNCE_DEFERRED, time=int(again))]
        if state is MessageState.WAITING and store.is_waiting_in_todo(message):
            state = MessageState.CLASSIFYING
        elif state is MessageState.CLASSIFYING and messages.is_loaded(message):
            state = MessageState.ANNOUNCED
        found = [Cause(_STATES[state])] if state in _STATES else []
        deferral = messages.deferrals.get(message)
        if state is MessageState.CLASSIFYING and deferral is not None:
            when = self._clock.from_disk(deferral.time)
            found = [Cause(cause.CLASSIFY_FAILED, time=when, nexthop=deferral.why)]
        elif state is MessageState.CLASSIFYING and (fault := self._classifier_fault):
            found = [Cause(cause.NOTHING_CLASSIFIED, nexthop=fault)]
        stays = bool(found)
        for letter, kind in LETTERS.items():
            stamp = store.due(message, kind)
            if stamp is None:
                continue
            names = [name[1:] for name in places if name[:1] == letter]
            nexthops = self._routed(kind, names)
            channel = messages.channels[kind]
            stamps = self._clock.all_from_disk(stamp)
            known = list(
                self._explainers[kind].message(
                    message, stamps, dict.fromkeys(nexthops), channel.in_flight, channel.stopped, now
                )
            )
            # A held or parked message does not wait, whatever its entry in the backlog says; but it may be in flight.
            if channel.scheduler.holds(message) or not stays:
                found += known
        if not found:
            found.append(Cause(cause.UNKNOWN if messages.all_read else cause.UNREAD))
        return found


class Explainer:
    """Returns what one channel's scheduler knows as causes and facts (queue_wire.admin). It changes nothing."""

    def __init__(self, kind: bytes, scheduler: Scheduler) -> None:
        self._kind = kind
        self._scheduler = scheduler

    def in_flight(self, count: int, entry: Entry) -> Cause:
        """Return the cause for recipients in flight."""
        return Cause(cause.IN_FLIGHT, self._kind, _time(entry.started), count, nexthop=entry.nexthop)

    def unwritten(self, count: int) -> Cause:
        """Return the cause for recipients whose verdicts are not written down yet."""
        return Cause(cause.RECORDING, self._kind, number=count)

    def queued(self, count: int, destination: Destination, now: float) -> Cause:
        """Return the cause for recipients in the queue of a destination."""
        scheduler = self._scheduler
        window, start = int(destination.window), destination.next_start(now)
        kind, in_flight, name = cause.AWAITING_TURN, destination.in_flight, destination.name
        relay = destination.relay
        if destination.dead:
            kind = cause.PROBE_PENDING
        elif destination.in_flight >= window:
            kind = cause.WINDOW_FULL
        elif relay is not None and relay.in_flight >= relay.limits.most:
            kind, in_flight, window, name = cause.WINDOW_FULL, relay.in_flight, relay.limits.most, relay.name
        elif start > now:
            kind, name = cause.RATE_LIMITED, self._slower(destination, now).name
        elif scheduler.in_flight >= scheduler.settings.concurrency:
            kind, window = cause.DELIVERIES_FULL, scheduler.settings.concurrency
        elif not scheduler.round_robin.has_place(destination, scheduler.settings.concurrency):
            kind = cause.SLOW_SHARE_FULL
        return Cause(kind, self._kind, _time(start), count, in_flight, window, name)

    def _slower(self, destination: Destination, now: float) -> RateLimited:
        """Return the destination or its relay, whichever rate allows the next job later."""
        relay = destination.relay
        return destination if relay is None or destination.own_start(now) >= relay.own_start(now) else relay

    def overflow(self, destination: Destination, since: int, stopped: bytes) -> Cause:
        """Return the cause for a message in the overflow of a destination; the rest is as for `due`."""
        if destination.room > 0 and not destination.dead:
            return self.due(since, stopped)
        waiting, window = destination.overflowing, int(destination.window)
        return Cause(cause.OVERFLOW, self._kind, 0, waiting, destination.in_flight, window, destination.name)

    def obstacles(self, destination: Destination, now: float) -> Iterator[Cause]:
        """Yield what keeps mail from a destination besides its window."""
        if destination.dead:
            kind = cause.PROBE_IN_FLIGHT if destination.probing else cause.DESTINATION_DEAD
            probe, suspended = _probe_time(destination, now), destination.suspended_count
            yield Cause(kind, self._kind, probe, suspended, nexthop=destination.name)
        elif destination.next_start(now) > now:
            name = self._slower(destination, now).name
            yield Cause(cause.DESTINATION_RATE_LIMITED, self._kind, _time(destination.next_start(now)), nexthop=name)

    def due(self, since: int, stopped: bytes) -> Cause:
        """Return the cause for a message that is due and not loaded. `stopped` is Channel.stopped."""
        scheduler = self._scheduler
        active, running, settings = len(scheduler.attempts), scheduler.in_flight, scheduler.settings
        if stopped:
            return Cause(stopped, self._kind, since, some=running)
        if not scheduler.has_room:
            return Cause(cause.ACTIVE_FULL, self._kind, since, some=active, limit=settings.active)
        if running >= settings.concurrency:
            return Cause(cause.CONCURRENCY_FULL, self._kind, since, some=running, limit=settings.concurrency)
        return Cause(cause.DUE, self._kind, since)

    def message(
        self,
        message: int,
        stamps: Collection[int],
        nexthops: Iterable[bytes],
        jobs: Collection[Entry],
        stopped: bytes,
        now: float,
    ) -> Iterator[Cause]:
        """Yield the causes for a message whose file has one of `stamps` as its next attempt.

        Only the named nexthops are examined. `jobs` are the entries in flight.
        """
        places = [each for name in nexthops if (each := self._scheduler.destinations.get(name)) is not None]
        if message in self._scheduler.attempts:
            yield from self._active(message, places, jobs, now)
            return
        admission = self._scheduler.admission
        dues = admission.dues_of(message, stamps)
        overflow = [destination for destination in places if destination.overflow_holds(message)]
        if not (overflow or dues or admission.is_next(message)):
            # It may have waited since before smtproutes was changed. It gets its new nexthop when it is loaded.
            places = overflow = self._scheduler.overflows_of(message)
        for destination in overflow:
            yield self.overflow(destination, min(*stamps, int(now)), stopped)
        if admission.is_next(message) or (dues and min(dues) <= now):
            yield self.due(min(*stamps, int(now)), stopped)
        elif dues:
            yield Cause(cause.DEFERRED, self._kind, min(dues))
        if overflow or dues:
            for destination in places:
                yield from self.obstacles(destination, now)

    def _active(
        self, message: int, places: list[Destination], jobs: Collection[Entry], now: float
    ) -> Iterator[Cause]:
        attempt = self._scheduler.attempts[message]
        in_flight, queued = (attempt.in_flight, attempt.queued) if attempt is not None else (0, 0)
        for entry in jobs:
            if entry.attempt is attempt:
                in_flight -= len(entry.recipients)
                yield self.in_flight(len(entry.recipients), entry)
        if in_flight > 0:
            yield self.unwritten(in_flight)
        for destination in places:
            here = sum(len(entry.recipients) for entry in destination.queue if entry.attempt is attempt)
            if here and queued:
                queued -= here
                yield self.queued(here, destination, now)
                yield from self.obstacles(destination, now)
        if queued > 0:
            yield Cause(cause.QUEUED_ELSEWHERE, self._kind, number=queued)
        if attempt is not None and attempt.loading:
            yield Cause(cause.DUE, self._kind, max(0, attempt.due))

    def channel(self) -> ChannelFact:
        """Return the totals of the channel."""
        scheduler, settings = self._scheduler, self._scheduler.settings
        active, waiting = len(scheduler.attempts), len(scheduler.waiting)
        return ChannelFact(active, settings.active, waiting, scheduler.in_flight, settings.concurrency, self._kind)

    def page(self, place: int | None, most: int, now: float) -> tuple[list[DestinationFact], int]:
        """Return `most` destinations before an index (None: the end), and the index to go on from, 0 for no more.

        They are listed from the end to the start: if one is forgotten meanwhile, another may be listed twice, and none
        is missed. The relays follow from index RELAYS on; their indexes do not change.
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
        """Return those of the named destinations that are known."""
        known, relays = self._scheduler.destinations, self._scheduler.relays
        names = dict.fromkeys(names)
        found = [self.destination(known[name], now) for name in names if name in known]
        return found + [self.relay(relays[name], now) for name in names if name in relays]

    def relay(self, each: SharedRelay, now: float) -> DestinationFact:
        """Return the facts of a relay."""
        start = each.own_start(now)
        messages, seconds = each.limits.rate or (0, 0)
        return DestinationFact(
            state=facts.RELAY,
            probe=0,
            window=each.limits.most,
            in_flight=each.in_flight,
            queued=0,
            on_disk=0,
            cohorts=0,
            suspended=0,
            messages=messages,
            seconds=int(seconds),
            next=_time(start) if start > now else 0,
            limits=each.limits.line,
            relay=b"",
            nexthop=each.name,
        )

    def destination(self, each: Destination, now: float) -> DestinationFact:
        """Return the facts of a destination."""
        state = facts.ALIVE if not each.dead else facts.PROBED if each.probing else facts.DEAD
        messages, seconds = each.limits.rate or (0, 0)
        start = each.next_start(now)
        return DestinationFact(
            state=state,
            probe=_probe_time(each, now) if each.dead else 0,
            window=int(each.window),
            in_flight=each.in_flight,
            queued=len(each.queue),
            on_disk=each.overflowing,
            cohorts=int(each.cohorts * 100),
            suspended=each.suspended_count,
            messages=messages,
            seconds=int(seconds),
            next=_time(start) if start > now else 0,
            limits=each.limits.line,
            relay=b"" if each.relay is None else each.relay.name,
            nexthop=each.name,
        )


def _probe_time(destination: Destination, now: float) -> int:
    """Return the time of the next probe; 0 if its next message is the probe."""
    return _time(destination.probe_at) if destination.probe_at > now else 0


def _time(seconds: float) -> int:
    return min(max(0, ceil(seconds)), NUMBER_MAX)
