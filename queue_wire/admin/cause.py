"""Why a message waits, or what is being done with it: queue-send's answer to the request `why` on lock/control.

A message may have several causes. Each is a record of numbers and names; `describe` returns the sentence for it, which
`queuectl show` prints and which follows `alert: msg ... has been due since`. Pure.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.logline import escape, moment

# The kinds, as they are sent. The sentence of a kind shows which of the numbers it uses.
UNKNOWN = b"unknown"
UNREAD = b"unread"
UNCLASSIFIED = b"unclassified"
CLASSIFY_FAILED = b"refused"
NOTHING_CLASSIFIED = b"halted"
DEFERRED = b"waits"
DUE = b"due"
ACTIVE_FULL = b"full"
CONCURRENCY_FULL = b"places"
EXITING = b"leaving"
LOG_BLOCKED = b"log"
DAEMON_FULL = b"daemon"
REMOVALS_BEHIND = b"removals"
DISK_FAILED = b"disk"
IN_FLIGHT = b"flies"
RECORDING = b"lands"
AWAITING_TURN = b"turn"
WINDOW_FULL = b"window"
RATE_LIMITED = b"rate"
SLOW_SHARE_FULL = b"share"
DELIVERIES_FULL = b"taken"
PROBE_PENDING = b"probe"
QUEUED_ELSEWHERE = b"queued"
OVERFLOW = b"aside"
DESTINATION_DEAD = b"dead"
PROBE_IN_FLIGHT = b"probed"
DESTINATION_RATE_LIMITED = b"limited"
HELD = b"held"
CORRUPT = b"parked"
BOUNCING = b"bounces"
BOUNCE_DEFERRED = b"again"
REMOVING = b"ends"
LIFE = b"life"  # Not a cause: a state of the message, and what led to it.

_SENTENCES = {
    UNKNOWN: "queue-send does not know this message",
    UNREAD: "queue-send is still reading the backlog and has not reached it",
    UNCLASSIFIED: "waits for queue-todo to classify it",
    CLASSIFY_FAILED: "could not be classified ({reason}); next attempt at {time}, or with queuectl resubmit",
    NOTHING_CLASSIFIED: "queue-todo classifies nothing: {reason}; tried again each minute, or with queuectl resubmit",
    DEFERRED: "waits for its next attempt at {time}",
    DUE: "due since {time}, and next to be loaded",
    ACTIVE_FULL: "due since {time}, and waits for a place: {some} of {limit} messages are active",
    CONCURRENCY_FULL: "due since {time}, and waits for a place: {some} of {limit} deliveries are in flight",
    EXITING: "due since {time}; queue-send is shutting down and starts no deliveries",
    LOG_BLOCKED: "due since {time}; the logger does not read the log, so no delivery is started",
    DAEMON_FULL: "due since {time}; the delivery daemon takes no more jobs, {some} are in flight",
    REMOVALS_BEHIND: "due since {time}; too many finished messages wait for queue-clean, so no delivery is started",
    DISK_FAILED: "due since {time}; the queue's disk takes no changes, so no delivery is started",
    IN_FLIGHT: "{recipients} in flight to {nexthop} since {time}",
    RECORDING: "{recipients} whose result is being written to disk",
    AWAITING_TURN: "{recipients} waiting at {nexthop} for a turn",
    WINDOW_FULL: "{recipients} waiting at {nexthop}: its window is {limit}, jobs in flight: {some}",
    RATE_LIMITED: "{recipients} waiting at {nexthop}: its rate allows the next message at {time}",
    SLOW_SHARE_FULL: (
        "{recipients} waiting at {nexthop}: it is slow or untested, and the deliveries kept for such destinations are"
        " all in flight; or those of its user, zone, address or submitter are"
    ),
    DELIVERIES_FULL: "{recipients} waiting at {nexthop}: all {limit} deliveries are in flight",
    PROBE_PENDING: "{recipients} waiting to probe {nexthop}, which is dead",
    QUEUED_ELSEWHERE: "{recipients} waiting at other destinations",
    OVERFLOW: (
        "put aside until {nexthop} has room, messages there: {count}; its window is {limit}, jobs in flight: {some}"
    ),
    DESTINATION_DEAD: "{nexthop} is dead, next probe {due}; recipients deferred without an attempt: {count}",
    PROBE_IN_FLIGHT: "{nexthop} is dead, and a probe is in flight; recipients deferred without an attempt: {count}",
    DESTINATION_RATE_LIMITED: "the rate of {nexthop} allows the next message at {time}",
    HELD: "on hold: nothing is tried",
    CORRUPT: "corrupt: it cannot be read",
    BOUNCING: "its bounce is being made",
    BOUNCE_DEFERRED: "its bounce could not be injected; next attempt at {time}",
    REMOVING: "finished; queue-clean is removing it",
    LIFE: "{time} {reason}",
}
KINDS = frozenset(_SENTENCES)
_CHANNELS = (b"", b"local", b"remote")


class Cause(NamedTuple):
    """`channel` is local, remote, or empty for both; `time` is in seconds since the epoch; `nexthop` has no NUL.

    That of CLASSIFY_FAILED and NOTHING_CLASSIFIED is a reason, that of LIFE a state with its reason.
    """

    kind: bytes
    channel: bytes = b""
    time: int = 0
    number: int = 0
    some: int = 0
    limit: int = 0
    nexthop: bytes = b""


def pack_cause(cause: Cause) -> bytes:
    """Return the text of the note that carries a cause."""
    numbers = b" ".join(b"%d" % number for number in (cause.time, cause.number, cause.some, cause.limit))
    return b"%s %s %s %s" % (cause.kind, cause.channel, numbers, cause.nexthop)


def unpack_cause(text: bytes) -> Cause:
    """Return the cause in the text of a note. Raises FormatError."""
    kind, channel, *numbers, nexthop = (text.split(b" ", 6) + [b""] * 7)[:7]
    if kind not in KINDS or channel not in _CHANNELS:
        raise FormatError(f"control: unknown cause: {quoted(text)}")
    if not all(number.isdigit() and len(number) <= 18 for number in numbers):
        raise FormatError(f"control: not a number in a cause: {quoted(text)}")
    time, number, some, limit = map(int, numbers)
    return Cause(kind, channel, time, number, some, limit, nexthop)


def describe(cause: Cause) -> str:
    """Return the sentence for a cause: one line of printable ASCII."""
    return _SENTENCES[cause.kind].format(
        time=moment(cause.time),
        due=f"at {moment(cause.time)}" if cause.time else "now",
        count=cause.number,
        recipients=f"{cause.number} recipient{'s' * (cause.number != 1)}",
        some=cause.some,
        limit=cause.limit,
        nexthop=escape(cause.nexthop).decode("ascii"),
        reason=" ".join(escape(word).decode("ascii") for word in cause.nexthop.split(b" ")),
    )
