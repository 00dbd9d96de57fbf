"""The backlog at start: classified messages of earlier runs, read in slices between turns of the loop.

New mail is delivered from the first turn on, however long the queue. What the disk refuses is looked at again later.
"""

import os
import select
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from queue_base.layout import Layout
from queue_send.messages import Messages
from queue_send.run import Run
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

SLICE = 200  # Messages that one turn takes on, at the most,
TAKING = 0.003  # and the seconds that it has for them.


class Backlog:
    """Reads info/ once, from its first bucket to its last."""

    def __init__(self, run: Run, layout: Layout, messages: Messages) -> None:
        self._run = run
        self._messages = messages
        self._directories = iter(layout.directories("info"))
        self._directory = ""
        # Read as it goes: the names of a bucket may be a million.
        self._names: Iterator[os.DirEntry[str]] = iter(())
        self._unread: deque[str] = deque()  # Directories to be tried once more.
        self._read_before = False  # Whether a part of the directory may have been read before.
        self._done = False

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait while there is more to read."""
        return 3600.0 if self._done or self._run.leaving else 0.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Take on one slice."""
        if self._done or self._run.leaving:
            return
        until = self._run.until(TAKING)
        for _ in range(SLICE):
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
            try:
                if self._read_before and self._messages.known.holds(message):
                    continue
                if self._messages.discover(message):
                    self._messages.known.note(message)
            except OSError as error:
                self._run.again.later(("backlog", message), partial(self._discover_again, message), error)

    def _discover_again(self, message: int, now: float) -> None:
        try:
            if self._messages.discover(message):
                self._messages.known.note(message)
        except OSError as error:
            self._run.again.later(("backlog", message), partial(self._discover_again, message), error)

    def _next_name(self) -> str | None:
        """Return the next name; None where a bucket has no more, or all of them."""
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
            self._run.again.later(self._directory, partial(self._read_again, self._directory), error)
            return None
        self._done = True
        self._messages.all_found()
        return None

    def _read_again(self, directory: str, now: float) -> None:
        """Read a directory that could not be read; its mail may be known from notices meanwhile, which is no harm."""
        self._unread.append(directory)
        self._done = False
