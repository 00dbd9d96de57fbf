"""Normal mail that comes in while very much bulk mail waits: how long until the first attempt at it starts.

All bulk mail is there at the beginning, half of it new and half deferred and due, for hosts of all kinds; it would use
every place. Normal mail comes in one by one, for healthy hosts. The run ends when all of it has been started. A message
whose host already has as many deliveries as its window allows cannot be started, whatever its class: such ones are
counted apart.
"""

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random

from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.model import Action, Attempt, Defer, Entry, Settings, Start
from queue_send.scheduler.scheduler import Scheduler
from simulation.world import HEALTHY, Host

LIFETIME = 604800
BEFORE = 30.0  # Seconds of bulk mail alone.
EVERY = 0.1  # Seconds between normal messages.
RETRY = 900  # Seconds after which a deferred message is tried again.


class BulkRun:
    """The scheduler, its messages, and when the first attempt at each normal one was started."""

    def __init__(self, settings: Settings, world: list[Host], bulk: int, normal: int, seed: int | None) -> None:
        random = Random(f"bulk {seed}")
        self._classes = MessageClasses(("normal", "bulk"))
        self.scheduler = Scheduler(settings, self._classes)
        self._world = world
        self._names = {host.name: host for host in world}
        self._draws = [random.getrandbits(12) for _ in range(4096)]
        weights = [host.weight for host in world]
        healthy = [place for place, host in enumerate(world) if host.kind == HEALTHY]
        # The place of each message's host; message 0 does not exist.
        self._hosts = array("i", [0, *random.choices(range(len(world)), weights, k=bulk)])
        self._hosts.extend(random.choices(healthy, [weights[place] for place in healthy], k=normal))
        self._bulk = bulk
        self._due: dict[int, int] = {}
        self.delays = array("d")
        self.delays_at_full_windows = array("d")
        self._full: set[int] = set()  # Normal messages that came when the window of their host was in use.
        self.most_bulk = 0  # Bulk recipients in flight, at most, when one was started while normal mail waited.
        self._flights: list[tuple[float, int, Entry, bool]] = []
        self._jobs = 0
        for message in range(1, bulk + 1):
            self._classes.put(message, "bulk")
            if message % 2:
                self.scheduler.add_new(message, world[self._hosts[message]].name, LIFETIME)
            else:
                self.scheduler.add_deferred(message, 0)

    def run(self) -> None:
        """Run until all normal mail has been started."""
        arrived, now, total = 0, 0.0, len(self._hosts) - 1 - self._bulk
        while len(self.delays) + len(self.delays_at_full_windows) < total:
            while arrived < total and BEFORE + arrived * EVERY <= now:
                arrived += 1
                message = self._bulk + arrived
                destination = self.scheduler.destinations.get(self._world[self._hosts[message]].name)
                if destination is not None and destination.in_flight >= int(destination.window):
                    self._full.add(message)
                self.scheduler.add_new(message, self._world[self._hosts[message]].name, LIFETIME)
            while self._flights and self._flights[0][0] <= now:
                _, _, entry, good = heappop(self._flights)
                if good:
                    entry.attempt.left -= len(entry.recipients)
                deferred = 0 if good else len(entry.recipients)
                self._carry_out(self.scheduler.end_job(entry, deferred, not good, now), now)
            self._start(now)
            times = [self.scheduler.next_time(now), self._flights[0][0] if self._flights else None]
            if arrived < total:
                times.append(BEFORE + arrived * EVERY)
            now = max(min(time for time in times if time is not None), now + 1e-6)

    def _start(self, now: float) -> None:
        loading = True
        while True:
            loading = loading and self._load(now)
            waits = self.scheduler.admission.classes[0].is_due(now) or self.scheduler.round_robin.has_first
            entry = self._carry_out(self.scheduler.start(now), now)
            if entry is not None:
                self._count(entry, waits, now)
                loading = True
            elif not loading:
                return

    def _load(self, now: float) -> bool:
        found = self.scheduler.next_load(now)
        if found is None:
            return False
        message, stamp = found
        if stamp is not None and stamp != self._due.get(message, 0):
            self.scheduler.cancel_load(message)
            return True
        attempt = Attempt(message, b"", 0, LIFETIME)
        groups = [(self._world[self._hosts[message]].name, [(0, b"")])]
        self._carry_out(self.scheduler.load(attempt, groups, now), now)
        return True

    def _count(self, entry: Entry, waits: bool, now: float) -> None:
        message = entry.attempt.message
        if message > self._bulk:
            delays = self.delays_at_full_windows if message in self._full else self.delays
            delays.append(now - BEFORE - (message - self._bulk - 1) * EVERY)
        elif waits:
            self.most_bulk = max(self.most_bulk, self.scheduler.lower_in_flight)
        self._jobs += 1
        seconds, good = self._names[entry.nexthop].answer(self._draws[message % 4096], len(entry.recipients), now)
        heappush(self._flights, (now + seconds, self._jobs, entry, good))

    def _carry_out(self, actions: Sequence[Action], now: float) -> Entry | None:
        for action in actions:
            if isinstance(action, Start):
                return action.entry
            if isinstance(action, Defer):
                message = action.attempt.message
                self._due[message] = int(now) + RETRY
                self.scheduler.add_deferred(message, int(now) + RETRY)
        return None
