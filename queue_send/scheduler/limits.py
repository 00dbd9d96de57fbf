"""The limits of destinations: control/destinationconcurrency and its like, destinationlimits, destinationrate. Pure."""

from typing import NamedTuple

from queue_wire.control.destinationlimits import NO_LINES, LimitLine, LimitLines
from queue_wire.control.hostmap import find_key
from queue_wire.control.localroutes import is_route_name
from queue_wire.control.smtproutes import Routes, find_nexthop


class Limits(NamedTuple):
    """The limits of a destination.

    initial, most: size of the concurrency window at first and at most, in jobs. recipients: most recipients in one job.
    cohorts: windows of host failures after which the destination is dead.
    probe_first, probe_most: seconds between probes of a dead destination, at first and at most.
    rate: (messages, seconds), None for no limit.
    line: where the control files set limits for this destination alone, as `file:number`; empty if they do not.
    """

    initial: int = 2
    most: int = 20
    cohorts: int = 3
    probe_first: int = 60
    probe_most: int = 3600
    recipients: int = 50
    rate: tuple[int, float] | None = None
    line: bytes = b""


class LimitTable:
    """The limits of the destinations of one channel that the lines and smtproutes, read together, name."""

    __slots__ = ("_any", "_lines", "_local", "_relays", "_routes")

    def __init__(self, lines: LimitLines = NO_LINES, routes: Routes | None = None, local: bool = False) -> None:
        self._lines = lines
        self._routes = routes or {}
        self._local = local
        self._any = bool(lines.recipients or lines.domains or lines.relays)
        used = self._routes.values() if lines.domains and not local else ()
        self._relays = frozenset(relays.name for relays in used if relays is not None)

    def limits(self, name: bytes, default: Limits) -> Limits:
        """Returns the limits of a destination, by its name."""
        line = self._line(name) if self._any else None
        if line is None:
            return default
        return default._replace(
            initial=default.initial if line.initial is None else line.initial,
            most=default.most if line.concurrency is None else line.concurrency,
            recipients=default.recipients if line.recipients is None else line.recipients,
            rate=line.rate,
            line=b",".join(b"%s:%d" % (file.encode("ascii"), number) for file, number in line.where),
        )

    def _line(self, name: bytes) -> LimitLine | None:
        lines = self._lines
        if self._local:
            if is_route_name(name):
                return lines.relays.get(name)
            return lines.recipients.get(name.lower()) if lines.recipients else None
        if lines.domains and name not in self._relays:
            key = find_key(lines.domains, name)
            if key is not None:
                return lines.domains[key]
        return lines.relays.get(name)

    def relay(self, name: bytes) -> bytes | None:
        """Returns the relay that takes the mail of several destinations, this one among them; None if none does.

        A relay is one destination for all its domains without a line, and each domain with a line is one of its own.
        """
        if self._local or not self._routes or not self._lines.domains:
            return None
        if name in self._relays:
            return name
        relay, relayed = find_nexthop(self._routes, name)
        return relay if relayed else None
