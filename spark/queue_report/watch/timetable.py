"""When a resident build makes its batches, puts small files together and writes its page.

Pure: every time comes in, in seconds of a clock that never goes back; nothing here reads a clock or waits.

Batches are due at fixed times, `every` seconds apart from the first, however long each takes. A batch that is still
going on when the next is due has that one skipped. After a temporary failure the pauses grow.
"""

import math

# The longest pause after failures, unless batches are further apart.
LONGEST_PAUSE = 900.0
# The lake is tidied so long after the last time at the earliest, where the log is quiet; and at the latest, where it
# is not, or so many batches have written files.
QUIET_TIDY = 3600.0
LATEST_TIDY = 86400.0
BATCHES_MAX = 240
# Quiet is a batch with at most this share of the lines that batches have on average, of the last dozen or so.
QUIET_SHARE = 0.5
_WEIGHT = 1 / 12
# The fixed times are no exact multiples in binary: so little of a period is nothing.
_NOTHING = 1e-6
# The page is written so seldom that it takes at most this share of the time.
PAGE_SHARE = 0.1


class Timetable:
    """What is due when. begin() and end() enclose each batch; tidied() and page_written() tell of the rest."""

    def __init__(self, every: float, now: float) -> None:
        self.every = every
        self.due = now
        self._first = now
        self._began = now
        self._failures = 0
        self._average = 0.0
        self._quiet = False
        self._written = 0
        self._tidied = now
        self._untidy = True
        self._page_due = now
        self._stale = True

    def begin(self, now: float) -> None:
        """Note that a batch begins, whether it was due or asked for."""
        self._began = now

    def end(self, now: float, lines: int) -> int:
        """Note that a batch has ended that has read so many lines; return how many others were due meanwhile."""
        self._failures = 0
        self._average += (lines - self._average) * _WEIGHT
        self._quiet = lines <= self._average * QUIET_SHARE
        if lines:
            self._written += 1
            self._untidy = self._stale = True
        return self._go_on(now)

    def fail(self, now: float) -> float:
        """Note that a batch has failed for now; return in how many seconds the next is due."""
        pause = min(self.every * 2**self._failures, max(LONGEST_PAUSE, self.every))
        # 2^64 s would do as well, but is no number to count with.
        self._failures = min(self._failures + 1, 64)
        self._quiet = False
        self._go_on(now)
        self.due = max(self.due, self._at_or_after(self._began + pause))
        return self.due - now

    def _go_on(self, now: float) -> int:
        planned = self._first + (math.floor((self._began - self._first) / self.every + _NOTHING) + 1) * self.every
        self.due = max(planned, self._at_or_after(now))
        return round((self.due - planned) / self.every)

    def _at_or_after(self, time: float) -> float:
        """Return the first of the fixed times that is not before a time."""
        return self._first + math.ceil((time - self._first) / self.every - _NOTHING) * self.every

    def is_tidy_due(self, now: float) -> bool:
        """Return whether small files are to be put together and old dates dropped now, after a batch."""
        past = now - self._tidied
        if past >= LATEST_TIDY:
            return True
        if not self._untidy or self._failures:
            return False
        return self._written >= BATCHES_MAX or (self._quiet and past >= QUIET_TIDY)

    def tidied(self, now: float) -> None:
        """Note that the lake was tidied, or that this failed."""
        self._tidied = now
        self._written = 0
        self._untidy = False

    def changed(self) -> None:
        """Note that the lake has changed, so that the page is to be written."""
        self._stale = True

    def is_page_due(self, now: float) -> bool:
        """Return whether the page is to be written: the lake has changed, and the last one did not take too long."""
        return self._stale and now >= self._page_due

    def page_written(self, began: float, ended: float) -> None:
        """Note that the page was written, or that this failed."""
        self._stale = False
        self._page_due = began + (ended - began) / PAGE_SHARE
