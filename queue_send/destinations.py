"""The part of the scheduler that knows its destinations: their limits, and when the dead ones are probed. Pure."""

from collections import deque

from queue_send.destination import Destination, RelayTotal
from queue_send.events import Settings
from queue_send.loading import Loading
from queue_send.turns import Turns


class Destinations(Loading):
    """`destinations` are those that something is known of, by name; `turns` says whose turn it is.

    `relays` are those that take the mail of several destinations. There are no more than smtproutes has had.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.destinations: dict[bytes, Destination] = {}
        self.relays: dict[bytes, RelayTotal] = {}
        self.turns = Turns()
        self._unchanged: deque[bytes] = deque()  # Destinations that have the limits of earlier settings.

    def change(self, settings: Settings) -> None:
        """Take new limits; destinations that are known take them with the next jobs, a few at a time."""
        self.settings = settings
        for relay in self.relays.values():
            relay.take_limits(settings.named.limits(relay.name, settings.limits))
        self._unchanged = deque(self.destinations)

    def flush(self, now: float) -> None:
        """Everything that waits is due, in its order. Each dead destination is probed once, not overrun."""
        self.admission.flush()
        for destination in self.destinations.values():
            if destination.dead:
                destination.probe_at = now

    def probe(self, nexthop: bytes, now: float) -> None:
        """Probe a destination with the next message for it, if it is dead."""
        destination = self.destinations.get(nexthop)
        if destination is not None and destination.dead:
            destination.probe_at = now

    def _destination(self, nexthop: bytes) -> Destination:
        destination = self.destinations.get(nexthop)
        if destination is None:
            settings = self.settings
            destination = Destination(nexthop, settings.named.limits(nexthop, settings.limits))
            destination.attach(self._relay(nexthop))
            self.destinations[nexthop] = destination
        return destination

    def _relay(self, nexthop: bytes) -> RelayTotal | None:
        """Return the relay that takes a destination's mail beside that of others, None where there is none."""
        name = self.settings.named.relay(nexthop)
        if name is None:
            return None
        relay = self.relays.get(name)
        if relay is None:
            relay = self.relays[name] = RelayTotal(name, self.settings.named.limits(name, self.settings.limits))
            known = self.destinations.get(name)
            if known is not None and relay.limits.rate is not None:
                relay.starts.extend(known.starts)
        return relay

    def _forget_unused(self, destination: Destination, now: float) -> None:
        """Forget a destination that has failed and that nobody sends to any more: there are ever new ones."""
        if destination.is_forgotten(now):
            self._away.forget(destination)
            self._forget(destination)

    def _forget(self, destination: Destination) -> None:
        # It stays in its relay's hands until its turn has passed, so that the next one is called then.
        del self.destinations[destination.name]
        if destination.held is not None:
            destination.held, destination.listed = None, False
