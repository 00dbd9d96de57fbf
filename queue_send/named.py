"""The limits of single destinations, as control/destinationlimits and destinationrate name them. Pure."""

from queue_send.destination import Limits
from queue_wire.control.destinationlimits import NO_LINES, LimitLine, LimitLines
from queue_wire.control.hostmap import find_key
from queue_wire.control.smtproutes import Routes, find_nexthop


class Named:
    """What the lines and smtproutes, read together, say of the destinations of one channel."""

    __slots__ = ("_any", "_lines", "_local", "_names", "_routes")

    def __init__(self, lines: LimitLines = NO_LINES, routes: Routes | None = None, local: bool = False) -> None:
        self._lines = lines
        self._routes = routes or {}
        self._local = local
        self._any = bool(lines.recipients or lines.domains or lines.relays)
        used = self._routes.values() if lines.domains and not local else ()
        self._names = frozenset(relays.name for relays in used if relays is not None)

    def limits(self, name: bytes, default: Limits) -> Limits:
        """Return what holds for a destination, by its name."""
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
            return lines.recipients.get(name.lower()) if lines.recipients else None
        if lines.domains and name not in self._names:
            key = find_key(lines.domains, name)
            if key is not None:
                return lines.domains[key]
        return lines.relays.get(name)

    def relay(self, name: bytes) -> bytes | None:
        """Return the relay that takes a destination's mail beside that of others; None where there is none.

        A relay is a destination for the domains without a line, and one in itself; only with both are there others.
        """
        if self._local or not self._routes or not self._lines.domains:
            return None
        if name in self._names:
            return name
        relay, relayed = find_nexthop(self._routes, name)
        return relay if relayed else None
