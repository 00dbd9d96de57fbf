"""The hosts that mail goes to: most are well; some are dead for hours, slow, limit their senders, or come and go."""

from collections import deque
from random import Random
from typing import NamedTuple

from queue_base.limits import LimitTable
from queue_wire.control.destinationlimits import join_lines, unpack_rates

HEALTHY, DEAD, SLOW, LIMITED, FLAPPING = "healthy", "dead", "slow", "limited", "flapping"
KINDS = (HEALTHY, DEAD, SLOW, LIMITED, FLAPPING)
TIMEOUT = 60.0  # Seconds until queue-remote gives up a connection (timeoutconnect).
REFUSAL = 0.2
EACH_MORE = 0.02  # Seconds for each further recipient of the same message.
COPES = 10.0  # Connections over which a slow host just keeps up with its mail, day and night together.
STORING = 0.02  # Seconds until queue-ondemand has stored a recipient.
UNREACHABLE = 1800.0  # Seconds for which it stores without an attempt, once one has failed.
BLOCK = 25  # One dead, one slow, and one that is limited or flaps, in so many ranks.
DRAWS = 4096


class Shape(NamedTuple):
    """How large the world is: destinations; seconds in which mail comes in; a seed."""

    destinations: int
    seconds: float
    seed: int


class Host:
    """One destination. Its answers depend on the time and on a number that is drawn for each recipient.

    `on_demand`: while it is down its mail is stored, which ends well for the scheduler.
    """

    __slots__ = (
        *("_failing", "_luck", "_pace", "_period", "_starts", "_unreachable", "kind", "name", "on_demand", "rate"),
        "weight",
    )

    def __init__(self, name: bytes, kind: str, weight: float, pace: float, failing: float, luck: list[float]) -> None:
        self.name = name
        self.kind = kind
        self.weight = weight
        self.rate: tuple[int, float] | None = None
        self.on_demand = False
        self._unreachable = (0.0, 0.0)  # From when on, and until when, that is known, if it is on demand.
        self._pace = pace  # Seconds that a delivery takes.
        self._failing = failing  # Seconds until an attempt fails while the host is down.
        self._luck = luck
        self._period = (0.0, 0.0, 0.0)  # From when it is down, for how long, and how often.
        self._starts: deque[float] = deque()

    def go_down(self, first: float, length: float, every: float) -> None:
        """Be down for `length` seconds from `first` on, and again `every` so many seconds."""
        self._period = (first, length, every)

    def is_down(self, now: float) -> bool:
        """Whether nobody answers."""
        first, length, every = self._period
        return now >= first and (now - first) % every < length if length else False

    def answer(self, draw: int, recipients: int, now: float) -> tuple[float, bool]:
        """Return how long an attempt that begins now takes, and whether it ends well; if not, no host was there."""
        if self.is_down(now):
            return (self._store(now), True) if self.on_demand else (self._failing, False)
        if self.rate is not None and not self._admits(self.rate, now):
            return REFUSAL, False
        return self.lasts(draw) + EACH_MORE * (recipients - 1), True

    def lasts(self, draw: int) -> float:
        """Return the seconds that a delivery to one recipient takes while nothing is wrong."""
        return self._pace * self._luck[draw % DRAWS]

    def _store(self, now: float) -> float:
        """Return how long it takes to store mail, after an attempt if the host is not known to be unreachable."""
        known, until = self._unreachable
        if known <= now < until:
            return STORING
        if now >= until:
            known = now + self._failing
            self._unreachable = known, known + UNREACHABLE
        return self._failing + STORING

    def _admits(self, rate: tuple[int, float], now: float) -> bool:
        while self._starts and self._starts[0] <= now - rate[1]:
            self._starts.popleft()
        if len(self._starts) >= rate[0]:
            return False
        self._starts.append(now)
        return True


def build_world(shape: Shape, messages: int) -> list[Host]:
    """Return the hosts, the most popular first (Zipf); the sick ones are spread evenly over the ranks."""
    random = Random(f"world {shape.seed}")
    luck = [random.lognormvariate(0.0, 0.4) for _ in range(DRAWS)]
    total = sum(1.0 / rank for rank in range(1, shape.destinations + 1))
    hosts = []
    for start in range(0, shape.destinations, BLOCK):
        kinds = [DEAD, SLOW, LIMITED if start // BLOCK % 2 else FLAPPING]
        kinds += [HEALTHY] * (BLOCK - len(kinds))
        random.shuffle(kinds)
        for rank, kind in enumerate(kinds[: shape.destinations - start], start + 1):
            weight = 1.0 / rank / total
            hosts.append(_host(rank, kind, weight, messages * weight / shape.seconds, shape.seconds, luck, random))
    return hosts


def _host(
    rank: int, kind: str, weight: float, demand: float, seconds: float, luck: list[float], random: Random
) -> Host:
    """Return one host; `demand` is the messages that it gets in a second."""
    pace = random.uniform(0.3, 3.0)
    if kind == SLOW:
        pace = min(random.uniform(60.0, 300.0), COPES / demand)
    failing = TIMEOUT if random.random() < 0.5 else REFUSAL
    host = Host(b"h%d.example" % rank, kind, weight, pace, failing, luck)
    if kind == DEAD:
        host.go_down(random.uniform(0.0, 0.5) * seconds, random.uniform(0.1, 0.35) * seconds, 2 * seconds)
    elif kind == FLAPPING:
        every = random.uniform(0.01, 0.04) * seconds
        host.go_down(random.random() * every, every * random.uniform(0.2, 0.5), every)
    elif kind == LIMITED:
        host.rate = (max(10, int(demand * 60.0 * 1.2)), 60.0)
    return host


def rates(hosts: list[Host]) -> LimitTable:
    """Return what an operator would write into destinationrate."""
    lines = [b"%s:%d/%d\n" % (host.name, *host.rate) for host in hosts if host.rate is not None]
    return LimitTable(join_lines([], unpack_rates(b"".join(lines))))
