"""Why a message is not on its way yet, or what is being done with it: what queue-send says of it. Pure.

One fact each, in numbers and names, as it goes over lock/control; `describe` makes the sentence that people
read in `queuectl show` and after `alert: msg ... has been due since`. A message may have several.
"""

from typing import NamedTuple

from queue_wire.errors import FormatError, quoted
from queue_wire.logline import escape
from queue_wire.moment import moment

# The kinds. Which of the numbers a kind uses is what its sentence says.
UNKNOWN = b"unknown"
UNREAD = b"unread"
UNCLASSIFIED = b"unclassified"
WAITS = b"waits"
DUE = b"due"
FULL = b"full"
PLACES = b"places"
LEAVING = b"leaving"
LOG = b"log"
DAEMON = b"daemon"
FLIES = b"flies"
LANDS = b"lands"
TURN = b"turn"
WINDOW = b"window"
RATE = b"rate"
SHARE = b"share"
TAKEN = b"taken"
PROBE = b"probe"
QUEUED = b"queued"
ASIDE = b"aside"
DEAD = b"dead"
PROBED = b"probed"
LIMITED = b"limited"
HELD = b"held"
PARKED = b"parked"
BOUNCES = b"bounces"
AGAIN = b"again"
ENDS = b"ends"

_SENTENCES = {
    UNKNOWN: "queue-send does not know of it",
    UNREAD: "queue-send is still reading the backlog and has not come to it",
    UNCLASSIFIED: "waits for queue-todo to classify it",
    WAITS: "waits for its next attempt at {time}",
    DUE: "due since {time}, and next to be loaded",
    FULL: "due since {time}, and waits for a place: {some} of {limit} messages are active",
    PLACES: "due since {time}, and waits for a place: {some} of {limit} deliveries are in flight",
    LEAVING: "due since {time}; queue-send is about to end and starts nothing",
    LOG: "due since {time}; the logger does not read, so nothing is started",
    DAEMON: "due since {time}; the delivery daemon takes no more jobs, {some} are in flight",
    FLIES: "{recipients} in flight to {nexthop} since {time}",
    LANDS: "{recipients} with a verdict that is being written to the disk",
    TURN: "{recipients} waiting at {nexthop} for a turn",
    WINDOW: "{recipients} waiting at {nexthop}: its window is {limit}, jobs in flight: {some}",
    RATE: "{recipients} waiting at {nexthop}: its rate allows the next message at {time}",
    SHARE: "{recipients} waiting at {nexthop}: slow, or unproven, and the places for such are taken",
    TAKEN: "{recipients} waiting at {nexthop}: all {limit} deliveries that may be in flight at once are",
    PROBE: "{recipients} waiting at {nexthop}, which is dead, to probe it",
    QUEUED: "{recipients} waiting at other destinations",
    ASIDE: "put aside until {nexthop} has room, messages there: {count}; its window is {limit}, jobs in flight: {some}",
    DEAD: "{nexthop} is dead, next probe at {time}; recipients deferred without an attempt: {count}",
    PROBED: "{nexthop} is dead, and a probe is on its way; recipients deferred without an attempt: {count}",
    LIMITED: "the rate of {nexthop} allows the next message at {time}",
    HELD: "on hold: nothing is tried",
    PARKED: "parked: it cannot be read",
    BOUNCES: "its bounce is being made",
    AGAIN: "its bounce could not be injected; that is tried again at {time}",
    ENDS: "it has ended; queue-clean removes it",
}
KINDS = frozenset(_SENTENCES)
_CHANNELS = (b"", b"local", b"remote")


class Cause(NamedTuple):
    """`channel` is local, remote, or empty for both; `time` is in seconds since the epoch; `nexthop` is without NUL."""

    kind: bytes
    channel: bytes = b""
    time: int = 0
    number: int = 0
    some: int = 0
    limit: int = 0
    nexthop: bytes = b""


def pack_cause(cause: Cause) -> bytes:
    """Return the text of a note."""
    numbers = b" ".join(b"%d" % number for number in (cause.time, cause.number, cause.some, cause.limit))
    return b"%s %s %s %s" % (cause.kind, cause.channel, numbers, cause.nexthop)


def unpack_cause(text: bytes) -> Cause:
    """Return what `pack_cause` packed. Raises FormatError."""
    kind, channel, *numbers, nexthop = (text.split(b" ", 6) + [b""] * 7)[:7]
    if kind not in KINDS or channel not in _CHANNELS:
        raise FormatError(f"control: unknown cause: {quoted(text)}")
    if not all(number.isdigit() and len(number) <= 18 for number in numbers):
        raise FormatError(f"control: not a number in a cause: {quoted(text)}")
    time, number, some, limit = map(int, numbers)
    return Cause(kind, channel, time, number, some, limit, nexthop)


def describe(cause: Cause) -> str:
    """Return a cause as people read it: printable ASCII, one line."""
    return _SENTENCES[cause.kind].format(
        time=moment(cause.time),
        count=cause.number,
        recipients=f"{cause.number} recipient{'s' * (cause.number != 1)}",
        some=cause.some,
        limit=cause.limit,
        nexthop=escape(cause.nexthop).decode("ascii"),
    )
