"""A batch's input, descriptor 0: read as it comes, with a word when it pauses.

There is no limit to how long a batch takes. A message that has begun must end within 24 hours, as any other: what an
injector has made in the queue is swept away when it is 36 hours old.
"""

import os
import select
import stat
import time

from queue_base.errors import READ, TIMEOUT, QueueTrouble, reason
from queue_inject.source import SECONDS

_CHUNK = 1 << 18
# A producer that is only a little slower than we are does not get a commit for each piece that it writes.
PAUSE_SECONDS = 0.02


class BatchInput:
    """`place` is how many bytes were read, `size` how many there are to read, None where that cannot be known."""

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
        """Return the next bytes, empty at the end; None where `impatient` and there are none yet. Raises QueueTrouble.

        `begun` is when the message under way began, on the monotonic clock.
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
