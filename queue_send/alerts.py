"""Which overdue messages are named in the log: each once a day, a few at a time, the others as a number. Pure.

A stall of 100,000 messages is to be a handful of lines. A round names LINES messages; as long as there are more, the
next rounds with lines come after twice the time each, up to an hour.
"""

LINES = 5
DAY = 86400.0
QUIET_FIRST = 60.0  # Seconds.
QUIET_MOST = 3600.0

Key = tuple[str, int, int]  # channel, message, birth in seconds


class Alerts:
    """`lines` are those that are left in this round."""

    def __init__(self) -> None:
        self.lines = 0
        self._said: dict[Key, float] = {}
        self._others = 0
        self._quiet = QUIET_FIRST
        self._quiet_until = 0.0

    def begin(self, now: float) -> bool:
        """Begin a round; return whether anything may be said in it."""
        self.lines = LINES if now >= self._quiet_until else 0
        self._others = 0
        # The earliest were said first.
        for key, said in list(self._said.items()):
            if now - said < DAY:
                break
            del self._said[key]
        return self.lines > 0

    def says(self, key: Key, now: float) -> bool:
        """Return whether an overdue message is to be named now; it is counted where it is not, and was not today."""
        if key in self._said:
            return False
        if not self.lines:
            self._others += 1
            return False
        self.lines -= 1
        self._said[key] = now
        return True

    def count(self, others: int) -> None:
        """Count overdue messages that nobody has looked at one by one."""
        self._others += others

    def end(self, now: float) -> int:
        """End a round in which something may be said; return how many more are overdue."""
        if self._others:
            self._quiet_until = now + self._quiet
            self._quiet = min(self._quiet * 2, QUIET_MOST)
        else:
            self._quiet = QUIET_FIRST
        return self._others
