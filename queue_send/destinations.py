"""The part of the scheduler that knows its destinations: their limits, and when the dead ones are probed. Pure."""

from queue_send.destination import Destination
from queue_send.events import Settings
from queue_send.loading import Loading
from queue_send.turns import Turns


class Destinations(Loading):
    """`destinations` are those that something is known of, by name; `turns` says whose turn it is."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.destinations: dict[bytes, Destination] = {}
        self.turns = Turns()

    def change(self, settings: Settings) -> None:
        """Take new limits; destinations that are known keep their windows."""
        self.settings = settings
        for destination in self.destinations.values():
            destination.rate = settings.rates.get(destination.name)

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
            destination = Destination(nexthop, self.settings.limits, self.settings.rates.get(nexthop))
            self.destinations[nexthop] = destination
        return destination

    def _forget_unused(self, destination: Destination, now: float) -> None:
        """Forget a destination that has failed and that nobody sends to any more: there are ever new ones."""
        if destination.is_forgotten(now):
            self._away.forget(destination)
            self.destinations.pop(destination.name, None)
