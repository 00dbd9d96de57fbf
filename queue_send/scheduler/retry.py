"""The next attempt of a deferred message. Pure: the schedule, the time and random numbers are passed in.

Jitter lengthens a wait by up to that many percent, so that a host that is back does not get all mail at once.
"""

from collections.abc import Callable
from math import isqrt

from queue_wire.control.schedule import Schedule

# qmail's CHANNEL skip: the first retry is after 100 s for local mail, after 400 s for remote mail.
SKIP_LOCAL = 10
SKIP_REMOTE = 20
SKIPS = {"local": SKIP_LOCAL, "remote": SKIP_REMOTE}
AGAIN_AFTER = 123  # Seconds until an operation that the disk refused is tried again (qmail's SLEEP_SYSFAIL).


def next_attempt(schedule: Schedule, birth: int, now: int, skip: int, random: Callable[[], float]) -> int:
    """Return the next attempt in seconds since the epoch, later than `now`."""
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
    """Return `due`, but no later than one second after the lifetime.

    If the lifetime is over, the last attempt could not be recorded, and is repeated after AGAIN_AFTER seconds.
    """
    return min(due, expires + 1 if expires > now else now + AGAIN_AFTER)


def _step(steps: tuple[int, ...], age: int) -> int:
    """Return the wait after the attempt at `age`. The sums of the steps are the ages of the attempts."""
    total = 0
    for step in steps:
        total += step
        # Jitter and a busy queue make an attempt late, never early.
        if age < total:
            return step
    return steps[-1]
