"""The backlog at start: classified messages of earlier runs, read from info/, some in each turn of the loop.

So new mail is delivered from the first turn on, however long the queue is. A read that the disk refuses is tried again
later.
"""

import os
import select
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from queue_base.queue.layout import Layout
from queue_send.disk_retry import DiskRetry
from queue_send.loop import Shutdown, TimeBudget
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

MESSAGES_A_TURN = 200
READING = 0.003  # Seconds of a turn.
_PARTS = 4093  # With ten million numbers a part has about 2,500, so that inserting one takes little time.
_LARGEST = (1 << 32) - 1  # In an array of 32-bit numbers.


class FoundMessages:
    """The messages of earlier runs that were found at start and have not ended, some 5 bytes each.

    A notice about one of them is late and changes nothing; one about a later message of the same number is carried out.
    """

    def __init__(self) -> None:
        # Of the numbers with one remainder by _PARTS, the quotients, sorted. They fit 32 bits on most file systems.
        self._parts: dict[int, array[int]] = {}

    def add(self, message: int) -> None:
        """Add a message."""
        quotient, remainder = divmod(message, _PARTS)
        part = self._parts.get(remainder)
        if part is None:
            part = self._parts[remainder] = array("I")
        if quotient > _LARGEST and part.typecode == "I":
            part = self._parts[remainder] = array("Q", part)
        index = bisect_left(part, quotient)
        if index == len(part) or part[index] != quotient:
            part.insert(index, quotient)

    def holds(self, message: int) -> bool:
        """Return whether the message was found at start and has not ended."""
        quotient, remainder = divmod(message, _PARTS)
        part = self._parts.get(remainder)
        if part is None:
            return False
        index = bisect_left(part, quotient)
        return index < len(part) and part[index] == quotient

    def forget(self, message: int) -> None:
        """The message has ended; its number may be used again."""
        if self.holds(message):
            quotient, remainder = divmod(message, _PARTS)
            part = self._parts[remainder]
            del part[bisect_left(part, quotient)]


class Backlog:
    """A part of the loop that reads info/ once.

    `discover` adds a message and returns whether `found` is to hold it (Messages.discover); `all_found` is called at
    the end.
    """

    def __init__(
        self,
        layout: Layout,
        found: FoundMessages,
        discover: Callable[[int], bool],
        all_found: Callable[[], None],
        budget: TimeBudget,
        shutdown: Shutdown,
        retry: DiskRetry,
    ) -> None:
        self._found = found
        self._discover = discover
        self._all_found = all_found
        self._budget = budget
        self._shutdown = shutdown
        self._retry = retry
        self._directories = iter(layout.directories("info"))
        self._directory = ""
        # An iterator, because one bucket may have a million names.
        self._names: Iterator[os.DirEntry[str]] = iter(())
        self._unread: deque[str] = deque()  # Directories to be read again.
        self._read_before = False  # Whether a part of the directory may have been read before.
        self._done = False

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait while there is more to read."""
        return 3600.0 if self._done or self._shutdown.begun else 0.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Read some messages."""
        if self._done or self._shutdown.begun:
            return
        until = self._budget.until(READING)
        for _ in range(MESSAGES_A_TURN):
            if time.monotonic() >= until:
                return
            name = self._next_name()
            if self._done:
                return
            if name is None:
                continue
            try:
                message = unpack_id(os.fsencode(name))
            except FormatError:
                continue  # Not a message: a person's file.
            if not (self._read_before and self._found.holds(message)):
                self._add(message, now)

    def _add(self, message: int, now: float) -> None:
        try:
            if self._discover(message):
                self._found.add(message)
        except OSError as error:
            self._retry.later(("backlog", message), partial(self._add, message), error)

    def _next_name(self) -> str | None:
        """Return the next name; None at the end of a directory, or of all of them."""
        try:
            entry = next(self._names, None)
            if entry is not None:
                return entry.name
            self._read_before = bool(self._unread)
            self._directory = self._unread.popleft() if self._unread else next(self._directories, "")
            if self._directory:
                self._names = os.scandir(self._directory)
                return None
        except OSError as error:
            self._names = iter(())
            self._retry.later(self._directory, partial(self._read_again, self._directory), error)
            return None
        self._done = True
        self._all_found()
        return None

    def _read_again(self, directory: str, now: float) -> None:
        """Have a directory read again that could not be read."""
        self._unread.append(directory)
        self._done = False
