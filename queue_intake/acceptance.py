"""Whether a message may be taken now: its size, the room on the disk, and what queue-todo asks of injectors.

Nothing here waits. Who is slowed is told how long to wait before its message begins (queue_base.queue.inflow).
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from queue_base.control import read_value
from queue_base.errors import QueueTrouble, Temporary
from queue_base.home import Home
from queue_base.queue.inflow import SLOW_SECONDS
from queue_base.queue.spreading import QueueFacts
from queue_base.queue.writer import CHECK_BYTES, QueueDraft, QueueWriter
from queue_wire.control.registry import DATABYTES
from queue_wire.ids import pack_queue_id
from queue_wire.pipes.qmtp import PERMANENT, TEMPORARY

# The most bytes that a message is promised at a time: who announces a very large one must not keep others out.
PROMISE_BYTES = CHECK_BYTES

# Seconds between looks at the marks of queue-todo, and at the control files, while messages come.
MARKS_SECONDS = 0.25
CONTROLS_SECONDS = 1.0


class Refusal(NamedTuple):
    """Why a message is not taken: Z or D, and a text."""

    letter: bytes
    text: str


def refusal_of(error: QueueTrouble) -> Refusal:
    """Return the refusal for a failure of the queue."""
    return Refusal(PERMANENT if 11 <= error.code <= 40 else TEMPORARY, str(error))


class Acceptance:
    """The checks before a message, for one queue. Problems with control files go to `warn`.

    promised: the bytes that all messages which were begun may write without another check, so that many of them
    together do not take what control/queueminfree keeps free. in_hand: how many messages were begun and are not
    decided. name, writer: those of the queue. failed: why the queue could not begin a message, empty if it could.
    fault: why control/databytes could not be read last, empty if it could.
    """

    def __init__(self, home: Home, writer: QueueWriter, warn: Callable[[str], None]) -> None:
        self._home = home
        self.writer = writer
        self._warn = warn
        self.name = home.name
        self.promised = self.in_hand = 0
        self.failed = ""
        self._databytes: int | None = None
        self.fault = ""
        self._marks_at = self._controls_at = 0.0
        self._slow = self._refused = False

    def reread(self) -> None:
        """Read the control files again. If databytes is wrong, the value before stays in force."""
        try:
            self._databytes = read_value(self._home, DATABYTES)
            self.fault = ""
        except Temporary as error:
            if self.fault != str(error):
                fate = "no mail is taken" if self._databytes is None else "the old value stays"
                self._warn(f"{error}; {fate}")
            self.fault = str(error)
        self.writer.inflow.reread()

    def _look(self, now: float) -> None:
        """Look at the marks and the control files if that was some time ago."""
        if now >= self._controls_at:
            self._controls_at = now + CONTROLS_SECONDS
            self.reread()
        if now >= self._marks_at:
            self._marks_at = now + MARKS_SECONDS
            self._slow = self.writer.inflow.slow
            self._refused = self._slow and self.writer.inflow.refused

    def delay(self, now: float) -> float:
        """Return the seconds that the next message of a connection must wait before it begins."""
        self._look(now)
        # Between half of it and all of it, so that clients do not stay in step.
        return SLOW_SECONDS * (0.5 + os.urandom(1)[0] / 512) if self._slow and not self._refused else 0.0

    def refuse_size(self, size: int) -> Refusal | None:
        """Return the refusal of a message of so many bytes, None if it is not too large."""
        if not self._databytes or size <= self._databytes:
            return None
        return Refusal(PERMANENT, f"message too large, the limit is {self._databytes} bytes (#5.3.4)")

    def promise(self, size: int, coming: int = 0) -> Refusal | None:
        """Promise room for `size` bytes. Return why there is none for these, or `coming`, besides what is promised."""
        try:
            self.writer.inflow.check(coming=self.promised + max(size, coming))
        except QueueTrouble as error:
            return refusal_of(error)
        self.promised += size
        return None

    def begin(self, uid: int, size: int, now: float, promise: int) -> QueueDraft | Refusal:
        """Return a new draft for a message of `size` bytes of a user, or why it is refused.

        Room for `promise` bytes of it is promised; the caller takes what is written off `promised`.
        """
        self._look(now)
        if self._databytes is None:
            return Refusal(TEMPORARY, f"unable to take mail: {self.fault}; try again later (#4.3.0)")
        if (refusal := self.refuse_size(size)) is not None:
            return refusal
        if self._refused:
            return Refusal(TEMPORARY, "too much new mail is waiting; try again later (#4.3.2)")
        if (refusal := self.promise(promise, size)) is not None:
            return refusal
        try:
            draft = self.writer.begin(uid, checked=True)
        except QueueTrouble as error:
            self.promised -= promise
            self.failed = str(error)
            return refusal_of(error)
        self.in_hand += 1
        return draft

    def judge(self, now: float) -> QueueFacts:
        """Return what decides whether this queue takes the next message, of several."""
        self._look(now)
        room, why = self.writer.inflow.judge()
        if why:
            self.failed = why
        closed = bool(why) or self._refused or self._databytes is None
        stopped = self.writer.inflow.stopped
        room = max(0, room - self.promised)
        return QueueFacts(closed, stopped=stopped, slow=self._slow, room=room, waiting=self.in_hand)

    def long_id(self, draft: QueueDraft) -> str:
        """Return the long id of a message in this queue, with the queue's name if there are several."""
        return pack_queue_id(self.name, draft.long_id)
