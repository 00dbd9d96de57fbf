"""The next attempt of a deferred message (control/retryschedule). Pure: the time and random numbers are passed in.

    quadratic           qmail's, exactly: birth + (floor(sqrt(now - birth)) + skip)^2, whole seconds
    exponential MIN MAX the wait is the message's age, at least MIN and at most MAX, so the age doubles each time
    15m 30m 2h 4h       steps; the last one repeats

Jitter lengthens a wait by up to that many percent, so that a host that is back does not get all mail at once.
"""

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# qmail's CHANNEL skip: the first retry is after 100 s for local mail, after 400 s for remote mail.
SKIP_LOCAL = 10
SKIP_REMOTE = 20
SKIPS = {"local": SKIP_LOCAL, "remote": SKIP_REMOTE}
AGAIN_AFTER = 123  # Seconds until an operation that the disk refused is tried again (qmail's SLEEP_SYSFAIL).

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Schedule(NamedTuple):
    """`kind` is quadratic, exponential or list; `steps` are MIN and MAX, or the list, in seconds; jitter in percent."""

    kind: str
    steps: tuple[int, ...]
    jitter: int


QUADRATIC = Schedule("quadratic", (), 0)


def unpack_seconds(word: str) -> int:
    """Returns the seconds in `15m`, `2h`, `1d`, `90s` or `90`, more than 0. Raises FormatError."""
    unit = _UNITS.get(word[-1:], 0)
    digits = word[:-1] if unit else word
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9 or int(digits) == 0:
        raise FormatError(f"not a time: {quoted(word.encode('utf-8', 'replace'))} (expected such as 90s, 15m, 2h, 1d)")
    return int(digits) * (unit or 1)


def unpack_schedule(line: bytes, jitter: int | None = None) -> Schedule:
    """Returns the schedule on a line; jitter None is the default: 0 for quadratic, else 10. Raises FormatError."""
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
    """Returns the next attempt in seconds since the epoch, later than `now`."""
    birth = min(birth, now)  # A birth in the future: the clock was set back.
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
    """Returns `due`, but no later than one second after the lifetime.

    If the lifetime is over, the last attempt could not be recorded, and is repeated after AGAIN_AFTER seconds.
    """
    return min(due, expires + 1 if expires > now else now + AGAIN_AFTER)


def _step(steps: tuple[int, ...], age: int) -> int:
    """Returns the wait after the attempt at `age`. The sums of the steps are the ages of the attempts."""
    total = 0
    for step in steps:
        total += step
        # Jitter and a busy queue make an attempt late, never early.
        if age < total:
            return step
    return steps[-1]
