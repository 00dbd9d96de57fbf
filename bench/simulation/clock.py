"""The virtual clock: mail arrives, attempts begin and end, and what becomes of them is measured."""

import time
from array import array
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Protocol

from simulation.traffic import Traffic
from simulation.watch import Watch
from simulation.world import DEAD, FLAPPING, KINDS, Host


class Job:
    """One attempt: the recipients of a message that go over one connection. `tag` is the scheduler's own."""

    __slots__ = ("host", "message", "recipients", "tag")

    def __init__(self, message: int, host: int, recipients: list[int], tag: object = None) -> None:
        self.message = message
        self.host = host
        self.recipients = recipients
        self.tag = tag


class Sender(Protocol):
    """A scheduler as the clock drives it; recipients and hosts are numbers in the traffic and in the world."""

    def arrived(self, message: int, now: float) -> None:
        """A message is in the queue."""

    def jobs(self, now: float) -> Iterator[Job]:
        """What begins now."""

    def ended(self, job: Job, good: bool, now: float) -> None:
        """An attempt ended: all recipients are done, or all are to be tried again."""

    def next_time(self, now: float) -> float | None:
        """When there may be something to begin, if nothing happens before."""


class Result:
    """What one run has shown; delays in seconds, sorted, by the kind of the host."""

    def __init__(self) -> None:
        self.delays = {kind: array("f") for kind in KINDS}
        self.attempts = self.failures = self.refused = 0
        self.most_waiting = 0
        self.wall = self.last = 0.0
        self.watches: dict[int, Watch] = {}


def run(sender: Sender, traffic: Traffic, world: list[Host], result: Result) -> Result:
    """Run until every recipient is done. Raises RuntimeError where the scheduler waits for nothing with mail left."""
    begun = time.perf_counter()
    flights: list[tuple[float, int, Job, bool]] = []
    times, arriving, total, left, now = traffic.times, 0, len(traffic), len(traffic.hosts), 0.0
    number = 0
    while True:
        while arriving < total and times[arriving] <= now:
            sender.arrived(arriving, now)
            arriving += 1
        while flights and flights[0][0] <= now:
            _, _, job, good = heappop(flights)
            if (watch := result.watches.get(job.host)) is not None:
                watch.ended(good, now)
            if good:
                delays = result.delays[world[job.host].kind]
                delays.extend([now - times[job.message]] * len(job.recipients))
                left -= len(job.recipients)
            sender.ended(job, good, now)
        for job in sender.jobs(now):
            host = world[job.host]
            seconds, good = host.answer(traffic.draws[job.recipients[0]], len(job.recipients), now)
            number += 1
            result.failures += not good
            if (watch := result.watches.get(job.host)) is not None:
                watch.started(now, not good)
            elif not good:
                result.refused += 1
            heappush(flights, (now + seconds, number, job, good))
        result.most_waiting = max(result.most_waiting, left - (len(traffic.hosts) - traffic.firsts[arriving]))
        if not left:
            break
        now = _next(now, [flights[0][0] if flights else None, times[arriving] if arriving < total else None,
                          sender.next_time(now)])  # fmt: skip
    result.delays = {kind: array("f", sorted(delays)) for kind, delays in result.delays.items()}
    result.attempts, result.last, result.wall = number, now, time.perf_counter() - begun
    return result


def _next(now: float, times: list[float | None]) -> float:
    """Return the earliest of the times, and a moment later than now, so that the clock goes on."""
    known = [time for time in times if time is not None]
    if not known:
        raise RuntimeError("mail is left and the scheduler waits for nothing")
    return max(min(known), now + 1e-6)


def watches(world: list[Host], declares: bool) -> dict[int, Watch]:
    """Return a watch for each host that goes down."""
    return {place: Watch(declares) for place, host in enumerate(world) if host.kind in (DEAD, FLAPPING)}
