"""The backlog at start: classified messages of earlier runs, read in slices between turns of the loop.

New mail is delivered from the first turn on, however long the queue. What the disk refuses is looked at again later.
"""

import os
import select
from collections import deque
from functools import partial

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
        self._unread: deque[tuple[int, str]] = deque()  # Buckets to be tried once more.
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
                self._run.again.later(("backlog", message), partial(self._discover_again, message), error)

    def _discover_again(self, message: int, now: float) -> None:
        try:
            if self._messages.discover(message):
                self._messages.known.note_late(message)
        except OSError as error:
            self._run.again.later(("backlog", message), partial(self._discover_again, message), error)

    def _next_bucket(self) -> None:
        if self._bucket >= 0:
            self._messages.known.seal(self._bucket)
        self._bucket, directory = self._unread.popleft() if self._unread else next(self._buckets, (-1, ""))
        if self._bucket < 0:
            self._done = True
            self._messages.all_found()
            return
        try:
            self._names = os.listdir(directory)
        except OSError as error:
            self._run.again.later(directory, partial(self._read_again, self._bucket, directory), error)

    def _read_again(self, bucket: int, directory: str, now: float) -> None:
        """Read a directory that could not be read; its mail may be known from notices meanwhile, which is no harm."""
        self._unread.append((bucket, directory))
        self._done = False

