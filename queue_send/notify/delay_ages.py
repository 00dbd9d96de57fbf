"""The ages at which the sender of a message that is still queued gets a delay notice (control/delaywarning). Pure.

The file holds times such as `4h 24h`; without it there are no notices. Of a message only the time of its last notice is
known: it counts for every age that had passed by then.
"""

from queue_send.scheduler.retry import unpack_seconds
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import InLine


def unpack_ages(data: bytes) -> tuple[int, ...]:
    """Returns the ages in seconds, ascending, each once. Raises LineError."""
    ages: set[int] = set()
    for number, line in numbered_lines(data):
        with InLine(number):
            ages.update(unpack_seconds(word) for word in line.decode("ascii", "replace").split())
    return tuple(sorted(ages))


def is_notice_due(ages: tuple[int, ...], birth: int, last_notice: int, now: int) -> bool:
    """Returns whether the message has reached an age since the last notice; times in seconds since the epoch.

    `last_notice` is the time of the last notice; it is not after `birth` if there was none.
    """
    return any(last_notice < birth + age <= now for age in ages)
