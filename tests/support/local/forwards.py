"""Forwards made by a forwarder that a test has forked, as queue-local does it."""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from queue_local.deliveries import Ended
from queue_local.forwarding import Forwards
from queue_local.result import Forward, pack_forward
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import SUCCESS, Report

SECONDS = 60.0
DID = b"did 0+1+0\n"
HEAD = b"Delivered-To: joe@host.example\n"
JOE = 4711


@contextmanager
def forwarding(home: Home) -> Iterator[Forwards]:
    """Give the forwards of a home; end the forwarder afterwards."""
    forwards = Forwards(home)
    try:
        yield forwards
    finally:
        forwards.close()


def put_message(home: Home, data: bytes, name: str = "mess/0/999") -> bytes:
    """Write a message that is being delivered; return its path under queue/."""
    Path(home.queue, name).write_bytes(data)
    return name.encode()


def ended(
    number: int, path: bytes, recipients: list[bytes], *, sender: bytes = b"from@far.example", uid: int = JOE
) -> Ended:
    """Return the end of a delivery that wants a forward."""
    job = Job(number, path, sender, b"joe@host.example", [b"joe@host.example"])
    return Ended(job, SUCCESS, DID, [pack_forward(Forward(uid, sender, HEAD, recipients))])


def turn(forwards: Forwards, most: float = SECONDS) -> list[Report]:
    """Wait once, `most` seconds at the longest; return the reports that came."""
    poll = select.poll()
    seconds = forwards.prepare(poll)
    wait = most if seconds is None else min(seconds, most)
    return forwards.run({descriptor for descriptor, _ in poll.poll(wait * 1000 + 1)})


def finish(forwards: Forwards) -> dict[int, tuple[bytes, bytes]]:
    """Wait until all forwards are reported; return the letter and text of each."""
    found: dict[int, tuple[bytes, bytes]] = {}
    deadline = time.monotonic() + SECONDS
    while forwards:
        assert time.monotonic() < deadline
        found.update({report.number: report.verdicts[0] for report in turn(forwards)})
    return found


def make(
    forwards: Forwards, path: bytes, recipients: list[bytes], *, sender: bytes = b"from@far.example"
) -> tuple[bytes, bytes]:
    """Make one forward; return the letter and text of its report."""
    report = forwards.take(ended(7, path, recipients, sender=sender), SECONDS)
    return report.verdicts[0] if report else finish(forwards)[7]
