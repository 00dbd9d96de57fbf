"""The backlog at start: classified messages of earlier runs, read in slices between turns of the loop.

New mail is delivered from the first turn on, however long the queue.
"""

import os
import select
from collections.abc import Iterator
from itertools import islice

from queue_base.errors import reason
from queue_base.layout import Layout
from queue_send.messages import Messages
from queue_send.run import Run
from queue_wire.errors import FormatError
from queue_wire.ids import unpack_id

SLICE = 200  # Messages that one turn takes on.


class Backlog:
    """Reads info/ once, from its first bucket to its last."""

    def __init__(self, run: Run, layout: Layout, messages: Messages) -> None:
        self._run = run
        self._layout = layout
        self._messages = messages
        self._rest: Iterator[int] | None = self._ids()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait while there is more to read."""
        return 3600.0 if self._rest is None or self._run.leaving else 0.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Take on one slice."""
        if self._rest is None or self._run.leaving:
            return
        found = list(islice(self._rest, SLICE))
        if len(found) < SLICE:
            self._rest = None
        for message in found:
            try:
                if not self._messages.store.is_parked(message):
                    self._messages.discover(message)
            except OSError as error:
                name = error.filename or message
                self._run.log.warning(f"unable to look at {name}: {reason(error)}; it waits for the next start")

    def _ids(self) -> Iterator[int]:
        for directory in self._layout.directories("info"):
            try:
                names = os.listdir(directory)
            except OSError as error:
                self._run.log.warning(f"unable to read {directory}: {reason(error)}; its mail waits for the next start")
                continue
            for name in names:
                try:
                    yield unpack_id(os.fsencode(name))
                except FormatError:
                    continue  # Not a message: a person's file.
