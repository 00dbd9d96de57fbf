"""Bytes of memory that the scheduler takes for a message that only waits."""

import tracemalloc
from collections.abc import Callable

from queue_send.scheduler.model import Attempt, Settings
from queue_send.scheduler.scheduler import Scheduler

LIFETIME = 604800


def measure(settings: Settings, count: int) -> dict[str, float]:
    """Return bytes a message for mail that is deferred, that is new, and that waits for its destination."""

    def deferred(scheduler: Scheduler) -> None:
        for message in range(1, count + 1):
            scheduler.add_deferred(message, message * 7919 % LIFETIME)

    def new(scheduler: Scheduler) -> None:
        for message in range(1, count + 1):
            scheduler.add_new(message)

    def aside(scheduler: Scheduler) -> None:
        for message in range(1, count + 1):
            scheduler.add_new(message)
            scheduler.next_load(0.0)
            scheduler.load(Attempt(message, b"", 0, LIFETIME), [(b"busy.example", [(0, b"")])], 0.0)

    return {"deferred": _bytes(settings, count, deferred), "new": _bytes(settings, count, new),
            "aside": _bytes(settings, count, aside)}  # fmt: skip


def _bytes(settings: Settings, count: int, fill: Callable[[Scheduler], None]) -> float:
    scheduler = Scheduler(settings)
    tracemalloc.start()
    try:
        fill(scheduler)
        return tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
