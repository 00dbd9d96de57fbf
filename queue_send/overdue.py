"""When mail has waited for too long, by the clock alone, whatever the reason. Pure: times are passed in.

Too long is due and not tried for TIMES its interval, or past its lifetime for GRACE seconds: within those it gets its
last attempt, or fails. The interval is the wait that the schedule gave before it was due; jitter is left
out. A run does not count what was due before it began: nobody could try it then.
"""

from math import isqrt
from typing import NamedTuple

from queue_send.retry import Schedule

TIMES = 10
GRACE = 7200  # Seconds; twice what a last attempt is waited for (scheduler.LAST_WAIT).


class Dates(NamedTuple):
    """Of one message on one channel, in seconds since the epoch; `due` is its next attempt, by the disk."""

    birth: int
    due: int
    expires: int


def last_wait(schedule: Schedule, birth: int, due: int, skip: int) -> int:
    """Return the wait that ended at `due`, in seconds; for mail that was never tried, the one that would be next."""
    age = max(0, due - birth)
    if schedule.kind == "quadratic":
        root = max(isqrt(age), skip)
        return root * root - (root - skip) ** 2
    if schedule.kind == "exponential":
        least, most = schedule.steps
        return min(max(age // 2, least), most)
    wait = schedule.steps[0]
    total = 0
    for step in schedule.steps:
        total += step
        if age < total:
            break
        wait = step
    return wait


class Rule:
    """Judges the mail of one channel; `begun` is when this run began, `skip` the channel's (queue_send.retry)."""

    def __init__(self, schedule: Schedule, skip: int, begun: float) -> None:
        self.schedule = schedule
        self._skip = skip
        self._begun = begun

    @property
    def shortest(self) -> int:
        """Seconds for which anything must have been due before it can be overdue."""
        if self.schedule.kind == "quadratic":
            return TIMES * self._skip**2
        return TIMES * min(self.schedule.steps)

    def is_past(self, dates: Dates, now: float) -> bool:
        """Return whether a message should be gone: its lifetime is over, and so is the time for a last attempt."""
        return now > max(dates.expires, self._begun) + GRACE

    def is_overdue(self, dates: Dates, now: float) -> bool:
        """Return whether a message that is due has waited for too long, or is past its lifetime."""
        due = max(dates.due, dates.birth)
        if now <= max(due, self._begun):
            return self.is_past(dates, now)
        wait = last_wait(self.schedule, dates.birth, due, self._skip)
        return self.is_past(dates, now) or now > max(due, self._begun) + TIMES * wait
