"""The figures of queue-send (queue_wire.admin.figure), gathered from what its parts know. It changes nothing.

The work is bounded: it looks at the destinations with jobs in flight and the dead ones, at most LOOKED_AT of each, and
at no list of messages.
"""

from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_send.cleaner import Cleaner
from queue_send.counters import Counters, TimeColumns
from queue_send.delivery.channel import Channel
from queue_send.log import Log
from queue_send.messages.life_cycle import Messages
from queue_send.messages.transitions import MessageState
from queue_send.scheduler.destination import Destination
from queue_wire.admin.figure import Figure

TOP = 10  # Destinations of each kind that are named.
LOOKED_AT = 5000


class FigureList:
    """What the figures are gathered from."""

    def __init__(
        self, counters: Counters, messages: Messages, cleaner: Cleaner, clock: Clock, disk: DiskThread, log: Log
    ) -> None:
        self._counters = counters
        self._messages = messages
        self._cleaner = cleaner
        self._disk = disk
        self._log = log
        self._started = clock.to_disk(int(clock.now()))

    def figures(self, now: float) -> list[Figure]:
        """Return all figures; those of a column, a class or a destination only if they are not 0."""
        counters, messages, disk = self._counters, self._messages, self._disk
        store, marked = messages.store, messages.store.records.marked
        removing, removal_wait = self._cleaner.lag(now)
        found = [
            Figure(b"started", self._started),
            Figure(b"read", int(messages.all_read)),
            Figure(b"arrived", counters.arrived),
            Figure(b"ended", counters.ended),
            Figure(b"marked", marked[MessageState.HELD] + marked[MessageState.RETURNING], (b"held",)),
            Figure(b"marked", marked[MessageState.PARKED], (b"corrupt",)),
            Figure(b"marked", len(store.announced), (b"announced",)),
            Figure(b"marked", removing, (b"removing",)),
            Figure(b"marked", len(messages.bouncer), (b"bouncing",)),
            Figure(b"removal-wait", removal_wait),
            *_columns(b"wait", counters.waits, ()),
            Figure(b"turns", counters.turns),
            Figure(b"turn-seconds", counters.turn_seconds),
            Figure(b"turn-worst", counters.worst),
            Figure(b"turn-recent", counters.worst_recent),
            Figure(b"disk-work", disk.done),
            Figure(b"disk-work-seconds", disk.seconds),
            Figure(b"disk-work-worst", disk.worst),
            Figure(b"syncs", disk.commits),
            Figure(b"sync-seconds", disk.commit_seconds),
            Figure(b"log-unwritten", self._log.unwritten),
        ]
        for channel in messages.channels.values():
            found += self._of_channel(channel)
        return found

    def _of_channel(self, channel: Channel) -> Iterator[Figure]:
        name, scheduler = channel.kind.encode(), channel.scheduler
        admission, settings, counters = scheduler.admission, scheduler.settings, self._counters.channels[channel.kind]
        yield Figure(b"messages", len(scheduler.attempts), (name, b"active"))
        # Lists keep entries of messages that have ended, and have another one after a flush. So each message is counted
        # once as waiting, and is deferred if it is neither new nor on the disk.
        waiting = len(scheduler.waiting)
        new = min(len(admission) - admission.entries, waiting)
        on_disk = min(scheduler.overflow, waiting - new)
        yield Figure(b"messages", new, (name, b"new"))
        yield Figure(b"messages", on_disk, (name, b"on-disk"))
        yield Figure(b"messages", waiting - new - on_disk, (name, b"deferred"))
        yield Figure(b"running", scheduler.in_flight, (name,))
        yield Figure(b"running-limit", settings.concurrency, (name,))
        yield Figure(b"active-limit", settings.active, (name,))
        yield Figure(b"results", counters.successes, (name, b"success", b"none"))
        for (deferred, kind), count in counters.troubles.items():
            yield Figure(b"results", count, (name, b"deferral" if deferred else b"failure", kind))
        yield from _columns(b"delivery", counters.deliveries, (name,))
        yield from _columns(b"age", counters.ages, (name,))
        yield Figure(b"destinations", len(scheduler.destinations), (name,))
        yield Figure(b"dead", len(scheduler.dead), (name,))
        dead = nlargest(TOP, islice(scheduler.dead.values(), LOOKED_AT), key=_left)
        for each in dead:
            yield Figure(b"suspended", each.suspended_count, (name, each.name))
        for each in dict.fromkeys([*nlargest(TOP, _busy(channel), key=_waiting), *dead]):
            labels = (name, each.name)
            yield Figure(b"window", int(each.window), labels)
            yield Figure(b"in-flight", each.in_flight, labels)
            yield Figure(b"waiting", _waiting(each), labels)


def _busy(channel: Channel) -> list[Destination]:
    """Return the destinations that have jobs in flight."""
    known = channel.scheduler.destinations
    names = dict.fromkeys([entry.nexthop for entry in islice(channel.in_flight, LOOKED_AT)])
    return [known[name] for name in names if name in known]


def _left(destination: Destination) -> int:
    return destination.suspended_count + _waiting(destination)


def _waiting(destination: Destination) -> int:
    return len(destination.queue) + destination.overflowing


def _columns(name: bytes, times: TimeColumns, labels: tuple[bytes, ...]) -> Iterator[Figure]:
    for column, count in enumerate(times.counts):
        if count:
            yield Figure(name, count, (*labels, b"%d" % column))
    yield Figure(name + b"-seconds", times.seconds, labels)
