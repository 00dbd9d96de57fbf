"""Slows or refuses injectors while todo/ waits too long (queue_base.queue.inflow), and logs when the disk is short.

Slow: the next message has waited for SLOW_AFTER seconds. Refused: it has waited for REFUSE_AFTER seconds although
queue-todo classifies, and it is not part of the backlog that queue-todo found when it began, or began again, to work:
after a start with a million messages in todo/, injectors are slowed until these are done, and not refused. Messages
that are parked or deferred do not count, so they do not slow injectors. Each state ends at half of its limit.
"""

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.queue.inflow import MARK_SECONDS, find_shortage, read_least, refuse_mark, slow_mark
from queue_wire import logline

SLOW_AFTER = 5.0
REFUSE_AFTER = 60.0
# Seconds between two settings of a mark, which must not expire while it is wanted.
MARK_EVERY = MARK_SECONDS / 4
SPACE_EVERY = 30.0  # Seconds between checks of the disk.

FREE, SLOW, REFUSED = range(3)
_WORDS = ("free", "slow", "refused")


class Backpressure:
    """The two marks, and when they are set. Times are monotonic seconds."""

    def __init__(self, home: Home) -> None:
        self._marks = (slow_mark(home), refuse_mark(home))
        self._lines: list[bytes] = []
        self._level = FREE
        self._next_mark = 0.0
        self._waits_since = 0.0  # Messages that arrived earlier count from then.
        self._last_work = float("-inf")
        self._idle = False
        # When classification began: messages that arrived earlier are never a reason to refuse mail.
        self._began = float("inf")
        self._caught_up = 0.0  # When all of these were done.
        self._marks_fail = False
        # Marks of a process that was killed.
        self._clear(FREE)

    def update(self, now: float, waiting: int, arrival: float | None, worked: bool) -> None:
        """Set or remove the marks. `waiting` messages wait; the next one arrived at `arrival`, None if there is none.

        `worked` says that messages were classified since the last call. It is not called before rules are known.
        """
        idle = arrival is None
        arrival = now if arrival is None else arrival
        if idle or self._began > now:
            self._waits_since = now
        # While nothing waits there may be no call, so an idle time has lasted until now.
        if worked or idle or self._idle:
            if now - self._last_work > REFUSE_AFTER and not self._idle:
                self._began = now
            self._last_work = now
        self._idle = idle
        if arrival < self._began:
            self._caught_up = now
        level = self._choose(now, max(arrival, self._waits_since))
        if level != self._level:
            self._lines.append(logline.inflow(_WORDS[level], waiting, int(now - arrival)))
            self._clear(level)
            self._level, self._next_mark = level, now
        if level and now >= self._next_mark:
            self._next_mark = now + MARK_EVERY
            self._set(level)

    def _choose(self, now: float, since: float) -> int:
        works = now - self._last_work <= REFUSE_AFTER
        refused = REFUSE_AFTER / (2 if self._level == REFUSED else 1)
        if works and now - max(since, self._caught_up) > refused:
            return REFUSED
        slow = SLOW_AFTER / (2 if self._level else 1)
        return SLOW if now - since > slow else FREE

    def wait(self, now: float, arrival: float | None) -> float:
        """Return the seconds until `update` must be called."""
        if self._level:
            return max(0.0, self._next_mark - now)
        return 3600.0 if arrival is None else max(0.0, max(arrival, self._waits_since) + SLOW_AFTER - now)

    def take_lines(self) -> list[bytes]:
        """Return the lines for the log since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def end(self) -> None:
        """Remove the marks."""
        self._clear(FREE)

    def _set(self, level: int) -> None:
        try:
            for mark, word in zip(self._marks[:level], _WORDS[1:], strict=False):
                mark.set(f"{word} while the time of this file is ahead\n")
            self._marks_fail = False
        except OSError as error:
            self._fail(f"set {error.filename or 'a mark in lock'}: {reason(error)}; injectors are not slowed")

    def _clear(self, level: int) -> None:
        """Remove the marks above `level`."""
        try:
            for mark in self._marks[level:]:
                mark.clear()
        except OSError as error:
            self._fail(f"remove {error.filename}: {reason(error)}; it ends by itself")

    def _fail(self, text: str) -> None:
        if not self._marks_fail:
            self._lines.append(logline.warning(f"queue-todo: unable to {text}"))
        self._marks_fail = True


class Space:
    """Reports when the queue's disk becomes short, and when it has space again: injectors have no log for it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._short = False
        self._next = 0.0

    def run(self, now: float) -> bytes | None:
        """Look at the disk if it is time; return a line for the log, None for nothing to tell."""
        if now < self._next:
            return None
        self._next = now + SPACE_EVERY
        try:
            why = find_shortage(self._home.queue, self._home.queue, read_least(self._home))
        except Temporary as error:
            why = str(error)
        was_short, self._short = self._short, why is not None
        if why and not was_short:
            return logline.alert(f"queue-todo: unable to take mail: {why}; injectors refuse it until then")
        return logline.inflow_space(self._home.queue) if was_short and not why else None

    def wait(self, now: float) -> float:
        """Return the seconds until the next check."""
        return max(0.0, self._next - now)
