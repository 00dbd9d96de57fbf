"""At which ages the sender of a message that is still in the queue is told so (control/delaywarning). Pure.

The file holds times such as `4h 24h`; without one nobody is told. What is known of a message is when its sender
was told last: that notice stands for every age that had passed by then.
"""

from queue_send.retry import unpack_seconds
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import InLine


def unpack_ages(data: bytes) -> tuple[int, ...]:
    """Return the ages in seconds, ascending, each once. Raises LineError."""
    ages: set[int] = set()
    for number, line in numbered_lines(data):
        with InLine(number):
            ages.update(unpack_seconds(word) for word in line.decode("ascii", "replace").split())
    return tuple(sorted(ages))


def is_notice_due(ages: tuple[int, ...], birth: int, told: int, now: int) -> bool:
    """Return whether the message has reached an age since its sender was told; times in seconds since the epoch.

    `told` is at or before the birth where nobody was told yet.
    """
    return any(told < birth + age <= now for age in ages)
