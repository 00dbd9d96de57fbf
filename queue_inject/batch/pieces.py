"""What the readers of batch formats return: the bytes of messages, and how each message ends.

`feed` takes the next bytes of the input and returns the pieces that they make. For each message these are its bytes, in
any number of pieces, then one EndOfMessage. `finish` is called once, at the end of the input. A message may be larger
than memory, so readers do not keep it. If the rest of the input cannot be understood, the last piece is Unreadable.
"""

from collections.abc import Sequence
from typing import NamedTuple


class EndOfMessage(NamedTuple):
    """A message has ended. If `error` is not empty, the message must not be sent. A sender of None means that the
    message's header has the envelope.
    """

    sender: bytes | None = None
    recipients: Sequence[bytes] = ()
    error: str = ""


class Unreadable(NamedTuple):
    """The current message and all messages after it cannot be read."""

    error: str


Piece = bytes | EndOfMessage | Unreadable


class BatchReader:
    """The reader of one format."""

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces of the next bytes of the input."""
        raise NotImplementedError

    def finish(self) -> list[Piece]:
        """Return the pieces that are left at the end of the input."""
        raise NotImplementedError
