"""When a message is tried again (control/retryschedule). Pure: clock and random numbers are passed in.

    quadratic           qmail's, exactly: birth + (floor(sqrt(now - birth)) + skip)^2, whole seconds
    exponential MIN MAX the age of the message, clamped: so it doubles
    15m 30m 2h 4h       steps; the last one repeats

Jitter makes a wait longer by up to so many percent, so that a host that comes back is not hit by everything at once.
"""

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# Steps skipped at the first retry: a local mailbox is tried again after 100 s, a remote host after 400 s.
SKIP_LOCAL = 10
SKIP_REMOTE = 20
AGAIN_AFTER = 123  # Seconds until what the disk has refused is tried again (qmail's SLEEP_SYSFAIL).

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
    rest = 10 if jitter is None else jitter
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


def next_attempt(schedule: Schedule, birth: int, now: int, skip: int, random: Callable[[], float]) -> int:
    """Return the next attempt in seconds since the epoch, later than `now`."""
    birth = min(birth, now)  # One that is yet to come is of a clock that was put back since.
    age = now - birth
    if schedule.kind == "quadratic":
        due = birth + (isqrt(age) + skip) ** 2
    elif schedule.kind == "exponential":
        due = now + min(max(age, schedule.steps[0]), schedule.steps[1])
    else:
        due = now + _step(schedule.steps, age)
    wait = max(1, due - now)
    if schedule.jitter:
        wait += int(wait * schedule.jitter / 100 * random())
    return now + wait


def within_lifetime(due: int, now: int, expires: int) -> int:
    """Return when a message that the schedule would try at `due` is tried: no later than right after its lifetime.

    Where that is over, its last attempt is one that the disk kept from counting, and is repeated soon.
    """
    return min(due, expires + 1 if expires > now else now + AGAIN_AFTER)


def _step(steps: tuple[int, ...], age: int) -> int:
    """Return the wait after the attempt at `age`: steps add up to the ages at which attempts are made."""
    total = 0
    for step in steps:
        total += step
        # An attempt is late by what jitter and a busy queue add to it, never early.
        if age < total:
            return step
    return steps[-1]
