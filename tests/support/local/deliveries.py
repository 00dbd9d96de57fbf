"""Deliveries run from a test: a process for each, as queue-local starts them."""

import select
import time
from collections.abc import Callable
from pathlib import Path

from queue_local.deliveries import Deliveries, Ended
from queue_local.result import Outcome
from queue_wire.pipes.job import Job

JOB = Job(7, b"mess/0/1", b"from@far.example", b"joe@host.example", [b"joe@host.example"])
SECONDS = 60


def run(
    work: Callable[[int], str | Outcome], message: Path, *, seconds: int = SECONDS, grace: float = 30.0
) -> tuple[bytes, bytes]:
    """Run `work` as a delivery on a message; return the verdict."""
    ended = end_of(work, message, seconds=seconds, grace=grace)
    return ended.letter, ended.text


def end_of(
    work: Callable[[int], str | Outcome], message: Path, *, seconds: int = SECONDS, grace: float = 30.0
) -> Ended:
    """Run `work` as a delivery on a message; return its end, with the forward that it wants."""
    deliveries = Deliveries(1, grace)
    with message.open("rb") as file:
        deliveries.start(JOB, outcome_of(work), file.fileno(), seconds)
    return finish(deliveries)[0]


def outcome_of(work: Callable[[int], str | Outcome]) -> Callable[[int], Outcome]:
    """Return `work` as a delivery: a text alone is an outcome."""

    def call(message: int) -> Outcome:
        made = work(message)
        return Outcome(made) if isinstance(made, str) else made

    return call


def finish(deliveries: Deliveries) -> list[Ended]:
    """Wait for all deliveries; return their ends."""
    ended: list[Ended] = []
    deadline = time.monotonic() + SECONDS
    while deliveries:
        poll = select.poll()
        wait = deliveries.prepare(poll)
        assert time.monotonic() < deadline
        wait = SECONDS if wait is None else wait
        ended += deliveries.run({descriptor for descriptor, _ in poll.poll(wait * 1000 + 1)})
    return ended
