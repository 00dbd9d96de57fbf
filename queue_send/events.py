"""What the parts of queue-send report to Messages, which carries it out in the same turn (messages/life_cycle.py)."""

from collections import deque
from typing import NamedTuple

from queue_send.messages.transitions import MessageEvent


class Happened(NamedTuple):
    """An event of a message. `detail`: the channel of WITHDRAWN and CHANNEL_DONE, why it is CORRUPT, and of RETURNED,
    if others than the recipients that were to be bounced are left, the reason for which the message was on hold before.
    """

    event: MessageEvent
    message: int
    detail: str | bytes | None = None


Events = deque[Happened]
