"""The backlog at start: classified messages of earlier runs, read in slices between turns of the loop.

New mail is delivered from the first turn on, however long the queue.
"""

import os
import select
import time
from collections.abc import Iterator

from queue_base.errors import reason
from queue_base.layout import Layout
from queue_send.messages import Messages
from queue_send.run import Run
from queue_wire.errors import FormatError
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
                if self._messages.discover(message):
                    self._messages.known.note(message)
            except OSError as error:
                path = error.filename or name
                self._run.log.warning(f"unable to look at {path}: {reason(error)}; it waits for the next start")

    def _next_name(self) -> str | None:
        """Return the next name; None where a bucket has no more, or all of them."""
        try:
            entry = next(self._names, None)
            if entry is not None:
                return entry.name
            self._directory = next(self._directories, "")
            if self._directory:
                self._names = os.scandir(self._directory)
                return None
        except OSError as error:
            path = self._directory
            self._run.log.warning(f"unable to read {path}: {reason(error)}; its mail waits for the next start")
            self._names = iter(())
            return None
        self._done = True
        self._messages.all_found()
        return None
