"""Answers to what queuectl asks through lock/control. Nothing changes by it, and a turn does a bounded amount of work.

`why` costs a search through the keys of the waiting messages, 10 to 20 ms for a million; so there is one message in
a request, and between two requests the loop has a turn.
"""

from queue_base import marks
from queue_send.bouncer import Bouncer
from queue_send.channel import Channel
from queue_send.cleaner import Cleaner
from queue_send.explaining import Explaining
from queue_send.messages import Messages
from queue_send.run import Run
from queue_send.selection import choose
from queue_wire.admin import cause
from queue_wire.admin import socket as wire
from queue_wire.admin.cause import Cause, pack_cause
from queue_wire.admin.facts import DestinationFact, pack_channel, pack_destination
from queue_wire.admin.socket import NEWS, Note, Request, Response
from queue_wire.control.destinationlimits import choose_nexthop

PAGE = 200  # Destinations in one reply, some 60 bytes each.
CAUSES_MOST = 200  # Causes in one reply.
LETTERS = {b"L": "local", b"R": "remote"}


class Answering:
    """`channels` are both, in any order."""

    def __init__(
        self, run: Run, messages: Messages, channels: list[Channel], bouncer: Bouncer, cleaner: Cleaner
    ) -> None:
        self._run = run
        self._messages = messages
        self._channels = {channel.kind: channel for channel in channels}
        self._bouncer = bouncer
        self._cleaner = cleaner
        self._explaining = {
            kind: Explaining(kind.encode(), scheduler) for kind, scheduler in messages.schedulers.items()
        }

    def answer(self, request: Request, now: float) -> Response:
        """Return the reply to a question."""
        if request.command == wire.WHY:
            return self._why(request.names, now)
        if request.command == wire.DESTINATIONS:
            return self._destinations(request.names, now)
        notes = [Note(NEWS, pack_channel(each.channel())) for each in self._explaining.values()]
        return Response(int(self._messages.all_read), notes)

    def _destinations(self, names: list[bytes], now: float) -> Response:
        channel, place, *nexthops = names
        explaining = self._explaining[channel.decode("ascii")]
        if nexthops:
            found, further = explaining.named(self._routed(nexthops), now), 0
        else:
            found, further = explaining.page(int(place) if place else None, PAGE, now)
        return Response(further, [Note(NEWS, pack_destination(self._shown(each))) for each in found])

    def _shown(self, fact: DestinationFact) -> DestinationFact:
        """Return a fact with its times as the system's clock has them."""
        to_disk = self._run.clock.to_disk
        return fact._replace(probe=fact.probe and to_disk(fact.probe), next=fact.next and to_disk(fact.next))

    def _routed(self, names: list[bytes]) -> list[bytes]:
        """Return names as they were given, and the destinations and relays that their mail goes to."""
        lower = [name.lower() for name in names]
        ways = [choose_nexthop(self._run.controls.routes, self._run.controls.lines, name) for name in lower]
        return [*names, *lower, *(way.name for way in ways), *(way.relay for way in ways if way.relay is not None)]

    def _why(self, names: list[bytes], now: float) -> Response:
        layout = self._messages.store.layout
        chosen = choose(names[:1], lambda message: marks.birth_of(layout, message))
        if not chosen.messages:
            return Response(0, chosen.notes)
        found = self._causes(chosen.messages[0], names[1:], now)[:CAUSES_MOST]
        to_disk = self._run.clock.to_disk
        shown = [each._replace(time=each.time and to_disk(each.time)) for each in found]
        return Response(0, [Note(NEWS, pack_cause(each)) for each in shown])

    def _causes(self, message: int, places: list[bytes], now: float) -> list[Cause]:
        messages, bouncer = self._messages, self._bouncer
        if self._cleaner.holds(message):
            return [Cause(cause.REMOVING)]
        if bouncer.holds(message):
            again = bouncer.again_at(message)
            return [Cause(cause.BOUNCING) if again is None else Cause(cause.BOUNCE_DEFERRED, time=int(again))]
        found = []
        if message in messages.parked:
            found.append(Cause(cause.CORRUPT))
        elif message in messages.held:
            found.append(Cause(cause.HELD))
        elif messages.store.is_waiting_in_todo(message):
            found.append(Cause(cause.UNCLASSIFIED))
        stays = bool(found)
        for letter, kind in LETTERS.items():
            stamp = messages.store.due(message, kind)
            if stamp is None:
                continue
            names = [name[1:] for name in places if name[:1] == letter]
            nexthops = self._routed(names) if kind == "remote" else names
            channel = self._channels[kind]
            stamps = self._run.clock.all_from_disk(stamp)
            known = list(
                self._explaining[kind].message(
                    message, stamps, dict.fromkeys(nexthops), channel.flights, channel.stopped, now
                )
            )
            # What is on hold or parked does not wait, whatever its entry says; but it may still be in flight.
            if messages.schedulers[kind].holds(message) or not stays:
                found += known
        if not found:
            found.append(Cause(cause.UNKNOWN if messages.all_read else cause.UNREAD))
        return found
