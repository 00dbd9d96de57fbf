"""Times in control files: control/retryschedule, when a deferred message is tried again, and control/delaywarning.

retryschedule has one line:

    quadratic           qmail's, exactly: birth + (floor(sqrt(now - birth)) + skip)^2, whole seconds
    exponential MIN MAX the wait is the message's age, at least MIN and at most MAX, so the age doubles each time
    15m 30m 2h 4h       steps; the last one repeats

delaywarning has ages, such as `4h 24h`, on one line or several.
"""

from typing import NamedTuple

from queue_wire.control.lines import numbered_lines, unpack_line
from queue_wire.control.registry import RETRYJITTER
from queue_wire.format_error import FormatError, InLine, quoted

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Schedule(NamedTuple):
    """`kind` is quadratic, exponential or list; `steps` are MIN and MAX, or the list, in seconds; jitter in percent."""

    kind: str
    steps: tuple[int, ...]
    jitter: int


QUADRATIC = Schedule("quadratic", (), 0)


def unpack_seconds(word: str) -> int:
    """Return the seconds in `15m`, `2h`, `1d`, `90s` or `90`, more than 0. Raises FormatError."""
    unit = _UNITS.get(word[-1:], 0)
    digits = word[:-1] if unit else word
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9 or int(digits) == 0:
        raise FormatError(f"not a time: {quoted(word.encode('utf-8', 'replace'))} (expected such as 90s, 15m, 2h, 1d)")
    return int(digits) * (unit or 1)


def unpack_schedule(line: bytes, jitter: int | None = None) -> Schedule:
    """Return the schedule on a line; jitter None is the default: 0 for quadratic, else 10. Raises FormatError."""
    words = line.decode("ascii", "replace").split()
    if words == ["quadratic"] or not words:
        return Schedule("quadratic", (), jitter or 0)
    rest = RETRYJITTER.bounds[0] if jitter is None else jitter
    if words[0] == "exponential":
        if len(words) != 3:
            raise FormatError("exponential needs two times, MIN and MAX")
        least, most = (unpack_seconds(word) for word in words[1:])
        if least > most:
            raise FormatError(f"exponential: MIN {words[1]} is more than MAX {words[2]}")
        return Schedule("exponential", (least, most), rest)
    try:
        return Schedule("list", tuple(unpack_seconds(word) for word in words), rest)
    except FormatError as error:
        if len(words) > 1 and words[0][:1].isdigit():
            raise
        allowed = "not quadratic, exponential MIN MAX, or times such as 90s, 15m, 2h, 1d"
        raise FormatError(f"{allowed}: {quoted(words[0].encode('utf-8', 'replace'))}") from error


def unpack_retry(data: bytes, jitter: int | None = None) -> Schedule:
    """Return the schedule of control/retryschedule. Raises LineError."""
    with InLine(1):
        return unpack_schedule(unpack_line(data), jitter)


def unpack_ages(data: bytes) -> tuple[int, ...]:
    """Return the ages of delaywarning in seconds, ascending, each once. Raises LineError."""
    ages: set[int] = set()
    for number, line in numbered_lines(data):
        with InLine(number):
            ages.update(unpack_seconds(word) for word in line.decode("ascii", "replace").split())
    return tuple(sorted(ages))
