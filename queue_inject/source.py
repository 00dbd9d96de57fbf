"""Reads a message or an envelope from a descriptor in pieces, within a time limit of 24 hours.

Messages that were never finished are swept away after 36 hours, so a sweep never meets a running injector. A
descriptor that cannot be read, or is not open, raises QueueTrouble.
"""

import os
import select
import time

from queue_base.errors import READ, TIMEOUT, QueueTrouble, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 24 * 3600.0
_CHUNK = 65536


class Deadline:
    """The time, on the monotonic clock, by which all reading and writing must be done."""

    def __init__(self, seconds: float | None = None) -> None:
        self._end = time.monotonic() + (SECONDS if seconds is None else seconds)

    def left(self) -> float:
        """Return the seconds that are left. Raises QueueTrouble if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise QueueTrouble(TIMEOUT, "unable to take the message: it took too long; nothing was queued")
        return left


class TimedSource:
    """The bytes of one descriptor, up to a deadline. `what` names the descriptor in error messages."""

    def __init__(self, descriptor: int, what: str, deadline: Deadline) -> None:
        self._descriptor = descriptor
        self._what = what
        self._deadline = deadline
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self) -> bytes:
        """Return the next bytes, empty at the end. Raises QueueTrouble."""
        try:
            while not self._poll.poll(self._deadline.left() * 1000):
                pass
            return os.read(self._descriptor, _CHUNK)
        except OSError as error:
            raise QueueTrouble(READ, f"unable to read {self._what}: {reason(error)}; nothing was queued") from error

    def __iter__(self) -> "Iterator[bytes]":
        """Yield the bytes up to the end as they arrive. Raises QueueTrouble."""
        while data := self.read():
            yield data


def guard_descriptors(needed: int, readable: int = 0) -> None:
    """Make sure that descriptors 0, 1 and 2 are open, so that no file of the queue becomes one of them.

    Descriptors below `needed` must be open already, those below `readable` for reading: raises QueueTrouble if one is
    not. The others become /dev/null.
    """
    for descriptor in range(3):
        try:
            if descriptor < readable:
                # Nothing is read. The kernel refuses a descriptor that is open for writing alone.
                os.read(descriptor, 0)
            else:
                os.fstat(descriptor)
        except OSError as error:
            if descriptor < needed:
                raise QueueTrouble(READ, f"unable to use descriptor {descriptor}: {reason(error)}") from error
            os.open("/dev/null", os.O_RDWR)
