"""The last hours of a suite, in memory: a sample of its figures each INTERVAL seconds, for the plots.

A sample is some numbers, not messages. If queue-send does not run there is a gap.

A reading may take long: queue-send does not answer, or the disk hangs. A thread takes it, and a page waits PATIENCE for
it; after that it says that the queue does not answer. The thread may hang as long as the disk does.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from queue_admin.messages.admin_client import QUERY_WAIT
from queue_admin.metrics.reading import Reading, silent_reading

INTERVAL = 15.0
FRESH = 1.0  # Seconds for which a reading is used again.
# Seconds that a page waits for a reading. A queue-send that does not answer costs QUERY_WAIT; the rest is known then.
PATIENCE = QUERY_WAIT + 1
KNOWN = 5.0  # Seconds for which the last reading is shown while the next one takes long.
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
    """Takes samples in a thread. `samples` are those of the last HOURS, the oldest first; `latest` the last reading.

    `read` takes a reading; it runs once at a time, in a thread of its own.
    """

    def __init__(self, read: Callable[[], Reading], interval: float = INTERVAL) -> None:
        self._read = read
        self._interval = interval
        self._samples: deque[HistorySample] = deque(maxlen=int(HOURS * 3600 / interval))
        self._changed = threading.Condition()
        self._latest: Reading | None = None
        # When the reading that is being taken was begun, 0.0 if none is (monotonic clock).
        self._begun = 0.0

    def start(self) -> None:
        """Begin the thread."""
        threading.Thread(target=self._work, name="history", daemon=True).start()

    def samples(self) -> list[HistorySample]:
        """Return the samples so far."""
        with self._changed:
            return list(self._samples)

    def ask(self) -> None:
        """Have a reading taken, unless the last one is fresh."""
        with self._changed:
            if self._begun or self._age() <= FRESH:
                return
            self._begun = time.monotonic()
        threading.Thread(target=self._take, name="reading", daemon=True).start()

    def latest(self, patience: float = PATIENCE) -> Reading:
        """Return a fresh reading; if it takes longer than `patience`, the last one, or one that says so."""
        self.ask()
        with self._changed:
            self._changed.wait_for(lambda: not self._begun, patience)
            if self._latest is not None and (not self._begun or self._age() <= KNOWN):
                return self._latest
            return silent_reading(time.time(), time.monotonic() - self._begun)

    def _age(self) -> float:
        """Return how many seconds old the last reading is."""
        return float("inf") if self._latest is None else abs(time.time() - self._latest.at)

    def _take(self) -> None:
        try:
            reading = self._read()
        except Exception as error:
            reading = silent_reading(time.time(), 0.0)._replace(trouble=f"{type(error).__name__}: {error}")
        with self._changed:
            self._latest, self._begun = reading, 0.0
            self._changed.notify_all()

    def _work(self) -> None:
        wait = threading.Event()
        while True:
            reading = self.latest()
            with self._changed:
                self._samples.append(sample_of(reading))
            wait.wait(self._interval)
