"""qmail's plain scheduler: first in, first out by due time, no destinations, quadratic retries."""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from math import isqrt

from queue_send.scheduler.retry import SKIP_REMOTE
from simulation.clock import Job
from simulation.traffic import Traffic


class Plain:
    """Each recipient is a delivery of its own; a message is tried again once all of its deliveries have ended."""

    def __init__(self, traffic: Traffic, concurrency: int) -> None:
        self._traffic = traffic
        self._concurrency = concurrency
        self._running = 0
        self._waiting: list[tuple[float, int]] = []
        self._opened: deque[tuple[int, int]] = deque()
        self._pending: dict[int, int] = {}  # Deliveries of a message that have not ended.
        self._deferred: dict[int, list[int]] = {}

    def arrived(self, message: int, now: float) -> None:
        """Due at once."""
        heappush(self._waiting, (now, message))

    def jobs(self, now: float) -> Iterator[Job]:
        """Begin recipients of the message that has been due for longest, while there is a place."""
        while self._running < self._concurrency:
            if not self._opened:
                if not self._waiting or self._waiting[0][0] > now:
                    return
                _, message = heappop(self._waiting)
                left = self._deferred.pop(message, None) or self._traffic.recipients(message)
                self._opened.extend((message, recipient) for recipient in left)
                self._pending[message] = len(left)
            message, recipient = self._opened.popleft()
            self._running += 1
            yield Job(message, self._traffic.hosts[recipient], [recipient])

    def ended(self, job: Job, good: bool, now: float) -> None:
        """Try again what failed, qmail's way."""
        self._running -= 1
        self._pending[job.message] -= 1
        if not good:
            self._deferred.setdefault(job.message, []).extend(job.recipients)
        if not self._pending[job.message]:
            del self._pending[job.message]
            if job.message in self._deferred:
                birth = int(self._traffic.times[job.message])
                due = birth + (isqrt(max(0, int(now) - birth)) + SKIP_REMOTE) ** 2
                heappush(self._waiting, (due, job.message))

    def next_time(self, now: float) -> float | None:
        """When the next message is due, if there is a place for it."""
        if self._running >= self._concurrency or not self._waiting:
            return None
        return max(now, self._waiting[0][0])
