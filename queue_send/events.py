"""What the parts of queue-send report to Messages, which carries it out (messages.py)."""

from collections import deque
from typing import NamedTuple


class NoneLeft(NamedTuple):
    """No recipient of the message is left on the channel."""

    message: int
    kind: str


class NoneInFlight(NamedTuple):
    """Nothing of a withdrawn message is in flight any more on the channel."""

    message: int
    kind: str


class Corrupt(NamedTuple):
    """A file of the message is malformed."""

    message: int
    why: str


class Failed(NamedTuple):
    """All recipients of a message that is to be bounced have failed."""

    message: int


class MayEnd(NamedTuple):
    """The bounce or delay notice of the message is queued, or is not to be sent: the message may end."""

    message: int


Event = NoneLeft | NoneInFlight | Corrupt | Failed | MayEnd
Events = deque[Event]
