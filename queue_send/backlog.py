"""The backlog at start: classified messages of earlier runs, read in slices between turns of the loop.

New mail is delivered from the first turn on, however long the queue.
"""

import os
import select

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
        self._messages = messages
        self._buckets = enumerate(layout.directories("info"))
        self._bucket = -1
        self._names: list[str] = []
        self._done = False

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait while there is more to read."""
        return 3600.0 if self._done or self._run.leaving else 0.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Take on one slice."""
        if self._done or self._run.leaving:
            return
        if not self._names:
            self._next_bucket()
        slice_, self._names = self._names[:SLICE], self._names[SLICE:]
        for name in slice_:
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

    def _next_bucket(self) -> None:
        if self._bucket >= 0:
            self._messages.known.seal(self._bucket)
        self._bucket, directory = next(self._buckets, (-1, ""))
        if self._bucket < 0:
            self._done = True
            self._messages.all_found()
            return
        try:
            self._names = os.listdir(directory)
        except OSError as error:
            self._run.log.warning(f"unable to read {directory}: {reason(error)}; its mail waits for the next start")
