"""The last hours of a suite, in memory: a sample of its figures each INTERVAL seconds, for the plots.

A sample is some numbers, not messages. If queue-send does not run there is a gap.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from queue_admin.metrics.reading import Reading

INTERVAL = 15.0
HOURS = 6
CHANNELS = (b"local", b"remote")


class HistorySample(NamedTuple):
    """What is kept of a reading. `run` is the start of queue-send, 0 if it did not answer. Counters are those of a run.

    `seconds` has the recipients by column of their time in queue.
    """

    at: float
    run: float
    arrived: float = 0
    ended: float = 0
    successes: float = 0
    deferrals: float = 0
    failures: float = 0
    active: float = 0
    deferred: float = 0
    in_flight: float = 0


def sample_of(reading: Reading) -> HistorySample:
    """Return the sample of a reading."""
    if not reading.figures:
        return HistorySample(reading.at, 0)

    def results(word: bytes) -> float:
        return sum(reading.number(b"results", channel, word) for channel in CHANNELS)

    def messages(state: bytes) -> float:
        return sum(reading.number(b"messages", channel, state) for channel in CHANNELS)

    return HistorySample(
        reading.at,
        reading.number(b"started"),
        reading.number(b"arrived"),
        reading.number(b"ended"),
        results(b"success"),
        results(b"deferral"),
        results(b"failure"),
        messages(b"active") + messages(b"new") + messages(b"on-disk"),
        messages(b"deferred"),
        reading.number(b"running"),
    )


def rates(samples: Sequence[HistorySample], value: Callable[[HistorySample], float]) -> list[float | None]:
    """Return by how much a counter grew a second before each sample; None after a gap or a new start."""
    found: list[float | None] = [None] * min(1, len(samples))
    for before, after in pairwise(samples):
        if not after.run or before.run != after.run or after.at <= before.at:
            found.append(None)
        else:
            found.append(max(0.0, value(after) - value(before)) / (after.at - before.at))
    return found


def levels(samples: Sequence[HistorySample], value: Callable[[HistorySample], float]) -> list[float | None]:
    """Return a number of each sample; None in a gap."""
    return [value(each) if each.run else None for each in samples]


class History:
    """Takes samples in a thread. `samples` are those of the last HOURS, the oldest first; `latest` the last reading."""

    def __init__(self, read: Callable[[], Reading], interval: float = INTERVAL) -> None:
        self._read = read
        self._interval = interval
        self._samples: deque[HistorySample] = deque(maxlen=int(HOURS * 3600 / interval))
        self._lock = threading.Lock()
        self._latest = read()
        self._keep(self._latest)

    def start(self) -> None:
        """Begin the thread."""
        threading.Thread(target=self._work, name="history", daemon=True).start()

    def samples(self) -> list[HistorySample]:
        """Return the samples so far."""
        with self._lock:
            return list(self._samples)

    def latest(self) -> Reading:
        """Return a reading that is at most a second old."""
        with self._lock:
            if time.time() - self._latest.at > 1.0:
                self._latest = self._read()
            return self._latest

    def _keep(self, reading: Reading) -> None:
        with self._lock:
            self._latest = reading
            self._samples.append(sample_of(reading))

    def _work(self) -> None:
        wait = threading.Event()
        while True:
            wait.wait(self._interval)
            self._keep(self._read())
