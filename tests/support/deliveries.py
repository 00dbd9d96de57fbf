"""Deliveries run from a test: a process for each, as queue-local starts them."""

import select
import time
from collections.abc import Callable
from pathlib import Path

from queue_local.deliveries import Deliveries
from queue_wire.job import Job
from queue_wire.report import Report

JOB = Job(7, b"mess/0/1", b"from@far.example", b"joe@host.example", [b"joe@host.example"])
SECONDS = 60


def run(
    work: Callable[[int], str], message: Path, *, seconds: int = SECONDS, grace: float = 30.0
) -> tuple[bytes, bytes]:
    """Run `work` as a delivery on a message; return the verdict."""
    deliveries = Deliveries(1, grace)
    with message.open("rb") as file:
        deliveries.start(JOB, work, file.fileno(), seconds)
    report = finish(deliveries)[0]
    assert (report.number, report.scope) == (7, b"m")
    return report.verdicts[0]


def finish(deliveries: Deliveries) -> list[Report]:
    """Wait for all deliveries; return their reports."""
    reports: list[Report] = []
    deadline = time.monotonic() + SECONDS
    while deliveries:
        poll = select.poll()
        wait = deliveries.prepare(poll)
        assert wait is not None and time.monotonic() < deadline
        reports += deliveries.run({descriptor for descriptor, _ in poll.poll(wait * 1000 + 1)})
    return reports
