"""What a batch of messages is made of: the pieces that its readers (mbox, bsmtp, netstring_batch) hand over.

A reader's `feed` takes the next bytes and returns what they make: bytes of a message, as many pieces as there are, and
an End after each message's last one. `finish` is called once, at the end of the input. A message may be larger than
memory, so nothing of it is kept. Where the rest cannot be understood any more the last piece is Lost.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class End:
    """A message has ended. `error` says why it must not be sent; the envelope is None where its header has it."""

    __slots__ = ("error", "recipients", "sender")

    def __init__(self, sender: bytes | None = None, recipients: "Sequence[bytes]" = (), error: str = "") -> None:
        self.sender = sender
        self.recipients = list(recipients)
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, End) and repr(self) == repr(other)

    def __repr__(self) -> str:
        return f"End({self.sender!r}, {self.recipients!r}, {self.error!r})"


class Lost:
    """The message that began here, and all after it, cannot be read."""

    __slots__ = ("error",)

    def __init__(self, error: str) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lost) and self.error == other.error

    def __repr__(self) -> str:
        return f"Lost({self.error!r})"


if TYPE_CHECKING:
    Piece = bytes | End | Lost


class BatchReader:
    """One format's reader; `rewritten` says whether its messages are completed as queue-inject does it."""

    rewritten = False

    def feed(self, data: bytes) -> "list[Piece]":
        """Return what the next bytes of the input make."""
        raise NotImplementedError

    def finish(self) -> "list[Piece]":
        """Return what is left at the input's end."""
        raise NotImplementedError
