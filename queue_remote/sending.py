"""A message on its way to a peer: the next bytes for the wire, and how long they may take to get off."""

import time

from queue_remote.message.file import Message
from queue_smtp.dotstuff import DotStuffer

# Bytes a second, as Postfix's smtp_min_data_rate: a peer that takes a little now and then holds no delivery for days.
RATE_LEAST = 500


class Sending:
    """`sent` counts the bytes for the wire so far; `ended` once the closing dot is among them."""

    __slots__ = ("_begun", "_message", "_stuffer", "ended", "sent")

    def __init__(self, message: Message) -> None:
        self.ended = False
        self.sent = 0
        self._begun = time.monotonic()
        self._message = message
        self._stuffer = DotStuffer()

    def next(self) -> bytes:
        """Return the next bytes to send. Raises OSError where the message cannot be read."""
        wire = self._stuffer.feed(self._message.read())
        if self._message.ended:
            wire += self._stuffer.finish()
            self.ended = True
        self.sent += len(wire)
        return wire

    def limit(self, timeout: float) -> float:
        """Return when, by time.monotonic, what was taken so far must have got off."""
        return self._begun + timeout + self.sent / RATE_LEAST
