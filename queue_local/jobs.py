"""Reads jobs from the pipe of queue-send, and opens their messages."""

import os
import select
from collections import deque

from queue_base.accounts import queue_owner
from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.safe_open import open_file_below
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import REREAD, Job, unpack_job
from queue_wire.pipes.report import MESSAGE_SCOPE, TEMPORARY, Report

# A job has one recipient: three addresses and a path are far below this.
_CAP = 1 << 16


class BadJob(FormatError):
    """A netstring that is not a job for queue-local. `report` answers it, None if its number is unknown."""

    def __init__(self, text: str, report: Report | None) -> None:
        super().__init__(text)
        self.report = report


class Jobs:
    """The reading end. `open` becomes False at end of file; jobs that were read before are still returned.

    `ended` becomes True as soon as the other end is closed, even if the pipe holds jobs for which there is no room.
    `rereads` counts the orders to read the control files again that were read and not answered. queue-send gives no job
    that there is no room for, so without room the pipe is still read for those orders, until a job comes.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.open = True
        self.ended = False
        self.rereads = 0
        self._reader = NetstringReader(_CAP)
        self._waiting: deque[bytes] = deque()
        self._lost: FormatError | None = None  # Why framing is lost.

    def prepare(self, poll: select.poll, room: bool) -> None:
        """Register for jobs if there is room, and for the closing of the other end."""
        reads = self._reads(room)
        if self.open and (reads or not self.ended):
            poll.register(self.descriptor, select.POLLIN if reads else 0)

    def run(self, ready: set[int], room: bool) -> None:
        """Read what is available. Without room for a job that waits, the pipe is only ready if the other end is closed.
        """
        if self.descriptor not in ready:
            return
        if not self._reads(room):
            self.ended = True
            return
        try:
            self._reader.feed(read_available(self.descriptor) or b"")
            while (payload := self._reader.next()) is not None:
                if payload == REREAD:
                    self.rereads += 1
                else:
                    self._waiting.append(payload)
        except PeerLost:
            self.stop()
        except FormatError as error:
            self._lost = error

    def _reads(self, room: bool) -> bool:
        return self._lost is None and (room or not self._waiting)

    def stop(self) -> None:
        """Read no more jobs."""
        self.open = False
        self.ended = True

    def next(self) -> Job | None:
        """Return the next job, None if no complete one was read. Raises BadJob; FormatError if framing is lost."""
        if not self._waiting:
            if self._lost is not None:
                raise self._lost
            return None
        payload = self._waiting.popleft()
        try:
            job = unpack_job(payload)
        except FormatError as error:
            raise BadJob(str(error), _answer(payload, "Unable to understand the job")) from error
        if len(job.recipients) != 1:
            raise BadJob(
                f"job {job.number} has {len(job.recipients)} recipients, expected 1",
                _answer(payload, "queue-local takes one recipient a job"),
            )
        return job


def _answer(payload: bytes, text: str) -> Report | None:
    number, *fields = payload.split(b"\0")
    if not number.isdigit() or len(number) > 18:
        return None
    verdict = (TEMPORARY, text.encode() + b". (#4.3.5)\n")
    return Report(int(number), MESSAGE_SCOPE, [verdict] * max(1, len(fields) - 3))


def open_message(home: Home, name: bytes) -> int:
    """Return a descriptor of the message `mess/B/I`, at offset 0. Raises Temporary.

    Root opens it on behalf of a user, so it must be a regular file of the queue's owner.
    """
    path = os.fsdecode(name)
    try:
        return open_file_below(home.queue, path, (queue_owner(home).uid,))
    except OSError as error:
        raise Temporary(f"Unable to open message: {home.queue}/{path}: {reason(error)}. (#4.3.0)") from error
