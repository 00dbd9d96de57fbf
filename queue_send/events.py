"""What the parts of queue-send report to Messages, which carries it out (messages/life_cycle.py)."""

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


class SomeFailed(NamedTuple):
    """The recipients that are to be bounced have failed, and others are left.

    `held`: the reason for which the message was on hold before, None if it was not.
    """

    message: int
    held: bytes | None


class MayEnd(NamedTuple):
    """What the end of the message had to wait for is over: its bounce or delay notice, or a change of its files."""

    message: int


Event = NoneLeft | NoneInFlight | Corrupt | Failed | SomeFailed | MayEnd
Events = deque[Event]
