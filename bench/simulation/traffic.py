"""The mail: when messages come in and whom they are for, in flat arrays."""

from array import array
from itertools import accumulate
from random import Random

from simulation.world import HEALTHY, Host, Shape

MINUTE = 60.0
SEVERAL = 0.05  # The share of messages with two to five recipients.
LISTS = 0.00003  # The share of messages with 100 to 300 recipients at one destination.
RUSH = 0.01  # The share of minutes with four times the mail.


class Traffic:
    """Message m came at times[m]; its recipients are those from firsts[m] up to firsts[m + 1]."""

    def __init__(self) -> None:
        self.times = array("d")
        self.firsts = array("q", [0])
        self.hosts = array("i")  # The place of a recipient's host in the world.
        self.draws = array("H")

    def __len__(self) -> int:
        return len(self.times)

    def add(self, time: float, recipients: list[tuple[int, int]]) -> None:
        """One message; recipients are (host, draw)."""
        self.times.append(time)
        for host, draw in recipients:
            self.hosts.append(host)
            self.draws.append(draw)
        self.firsts.append(len(self.hosts))

    def recipients(self, message: int) -> range:
        """Return the numbers of the recipients of a message."""
        return range(self.firsts[message], self.firsts[message + 1])


def build_traffic(shape: Shape, world: list[Host], messages: int) -> Traffic:
    """Return mail over the day: more by day than by night, and a rush now and then."""
    random = Random(f"traffic {shape.seed}")
    weights = list(accumulate(host.weight for host in world))
    places = range(len(world))
    traffic = Traffic()
    for time in _times(shape, messages, random):
        chance = random.random()
        count = random.randint(2, 5) if chance < SEVERAL else 1
        chosen = random.choices(places, cum_weights=weights, k=count)
        if chance > 1.0 - LISTS:
            chosen *= random.randint(100, 300)
        traffic.add(time, [(host, random.getrandbits(12)) for host in chosen])
    return traffic


def _times(shape: Shape, messages: int, random: Random) -> list[float]:
    minutes = max(1, int(shape.seconds / MINUTE))
    weights = []
    for minute in range(minutes):
        by_day = 1.6 if 0.3 < minute / minutes < 0.8 else 0.4
        weights.append(by_day * (4.0 if random.random() < RUSH else 1.0))
    chosen = random.choices(range(minutes), weights=weights, k=messages)
    return sorted((minute + random.random()) * MINUTE for minute in chosen)


def healthy_only(traffic: Traffic, world: list[Host]) -> Traffic:
    """Return the same mail without the recipients whose hosts are sick."""
    rest = Traffic()
    for message, time in enumerate(traffic.times):
        kept = [
            (traffic.hosts[place], traffic.draws[place])
            for place in traffic.recipients(message)
            if world[traffic.hosts[place]].kind == HEALTHY
        ]
        if kept:
            rest.add(time, kept)
    return rest


def needs(traffic: Traffic, world: list[Host]) -> "array[float]":
    """Return the places that the mail of each minute would take, if it all began in its minute; the least first."""
    seconds = array("d", bytes(8 * (1 + int(traffic.times[-1] / MINUTE))))
    for message, time in enumerate(traffic.times):
        for place in traffic.recipients(message):
            seconds[int(time / MINUTE)] += world[traffic.hosts[place]].lasts(traffic.draws[place])
    return array("d", sorted(total / MINUTE for total in seconds))
