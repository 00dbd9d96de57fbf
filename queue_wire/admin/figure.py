"""The figures that queue-send knows of itself: notes of its response to the request `figures` on lock/control.

A figure is a name of FIGURES, a number, and labels. It is packed as `name number label ...`, separated by spaces; only
the last label, a nexthop, may contain spaces. A name without figures is one whose numbers are all 0.
"""

import math
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

COLUMNS = 21  # The last one has no end.
# The labels of each name. `column` counts times under 2**column units that no column before has.
FIGURES: dict[bytes, tuple[str, ...]] = {
    b"started": (),  # When queue-send started, in seconds since the epoch.
    b"read": (),  # 1 if the backlog has been read.
    b"arrived": (),  # New messages.
    b"ended": (),  # Messages that have ended.
    b"messages": ("channel", "state"),  # Messages now: active, new, on-disk, deferred.
    b"marked": ("state",),  # Messages now: held, corrupt, announced, removing, bouncing.
    b"removal-wait": (),  # Seconds that the oldest request to queue-clean has waited.
    b"running": ("channel",),  # Deliveries in flight,
    b"running-limit": ("channel",),  # and how many may be.
    b"active-limit": ("channel",),
    b"results": ("channel", "result", "class"),  # Recipients: success, deferral, failure.
    b"delivery": ("channel", "column"),  # Recipients by the length of their job, in milliseconds,
    b"delivery-seconds": ("channel",),  # and the sum.
    b"age": ("channel", "column"),  # Successes by the age of their message, in seconds,
    b"age-seconds": ("channel",),
    b"wait": ("column",),  # New messages by their age when their notice came, in milliseconds,
    b"wait-seconds": (),
    b"destinations": ("channel",),  # Destinations in memory,
    b"dead": ("channel",),  # dead ones,
    b"suspended": ("channel", "nexthop"),  # those with the most recipients deferred without an attempt, and how many.
    b"window": ("channel", "nexthop"),  # These, and those with the most waiting mail: the present limit of jobs,
    b"in-flight": ("channel", "nexthop"),  # jobs in flight,
    b"waiting": ("channel", "nexthop"),  # and messages that wait for it.
    b"turns": (),  # Turns of the loop,
    b"turn-seconds": (),  # their work,
    b"turn-worst": (),  # the longest one since the start,
    b"turn-recent": (),  # and that of the last minute or two.
    b"disk-work": (),  # Pieces of work of the disk thread: commits, and last results that are kept without a sync,
    b"disk-work-seconds": (),  # the time that this took,
    b"disk-work-worst": (),  # and the longest one.
    b"syncs": (),  # Its commits alone, each of which syncs one or more files,
    b"sync-seconds": (),  # and their time.
    b"log-unwritten": (),  # Bytes of the log that the logger has not taken.
}


class Figure(NamedTuple):
    """One number. There are as many labels as FIGURES says."""

    name: bytes
    number: float
    labels: tuple[bytes, ...] = ()


def pack_figure(figure: Figure) -> bytes:
    """Return the text of the note that carries a figure."""
    return b" ".join([figure.name, b"%.10g" % figure.number, *figure.labels])


def unpack_figure(text: bytes) -> Figure:
    """Return the figure in the text of a note. Raises FormatError."""
    name, _, rest = text.partition(b" ")
    labels = FIGURES.get(name)
    if labels is None:
        raise FormatError(f"control: unknown figure: {quoted(text)}")
    number, *found = rest.split(b" ", len(labels))
    try:
        value = float(number)
    except ValueError as error:
        raise FormatError(f"control: not a number in a figure: {quoted(text)}") from error
    if len(found) != len(labels) or not math.isfinite(value):
        raise FormatError(f"control: not a figure: {quoted(text)}")
    return Figure(name, value, tuple(found))
