"""The input of a batch, descriptor 0: reads what is there and notices when the input pauses.

A batch may take any time. A message that has begun must end within 24 hours, like any other: unfinished messages in the
queue are swept away after 36 hours.
"""

import os
import select
import stat
import time

from queue_base.errors import READ, TIMEOUT, QueueTrouble, reason
from queue_inject.source import SECONDS

_CHUNK = 1 << 18
# A producer that is only slightly slower than we are does not cause a commit for each piece that it writes.
PAUSE_SECONDS = 0.02


class BatchInput:
    """place: the number of bytes read so far; size: the number of bytes in all, or None if that is unknown."""

    def __init__(self, descriptor: int) -> None:
        self.place = 0
        self.size: int | None = None
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        status = os.fstat(descriptor)
        # A regular file is always ready.
        self._regular = stat.S_ISREG(status.st_mode)
        if self._regular:
            self.size = max(0, status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))

    def read(self, impatient: bool, begun: float | None) -> bytes | None:
        """Return the next bytes, empty at the end, or None if `impatient` and the input pauses. Raises QueueTrouble.

        `begun` is when the current message began, on the monotonic clock, or None between messages.
        """
        try:
            if not self._regular and not self._wait(impatient, begun):
                return None
            data = os.read(self._descriptor, _CHUNK)
        except OSError as error:
            raise QueueTrouble(READ, f"unable to read the batch on standard input: {reason(error)}") from error
        self.place += len(data)
        return data

    def _wait(self, impatient: bool, begun: float | None) -> bool:
        left = None if begun is None else begun + SECONDS - time.monotonic()
        if left is not None and left <= 0:
            raise QueueTrouble(TIMEOUT, "unable to take the message that is under way: it took too long")
        wait = PAUSE_SECONDS if impatient else left
        while not self._poll.poll(None if wait is None else wait * 1000):
            if impatient:
                return False
            raise QueueTrouble(TIMEOUT, "unable to take the message that is under way: it took too long")
        return True
