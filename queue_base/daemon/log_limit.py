"""Limits the log lines that users can cause, so that no user can fill the log: a few a minute, then their number."""

import time
from collections import Counter
from collections.abc import Callable

LINES_MAX = 10
WINDOW_SECONDS = 60.0
# The users whose lines are omitted: as many are counted, and as many are named.
USERS_COUNTED = 1000
USERS_NAMED = 5


class LimitedLog:
    """Passes the first LINES_MAX lines of each window to `say`, and at its end a line with the number of the rest."""

    def __init__(self, say: Callable[[str], None], more: str) -> None:
        """`more` follows the number of omitted lines: `more files were set aside`, for instance."""
        self._say = say
        self._more = more
        self._said = 0
        self._end = 0.0
        self._omitted = 0
        self._users: Counter[str] = Counter()

    def add(self, text: str, uid: int | None = None) -> None:
        """Log a line that user `uid` caused, or count it."""
        self.run()
        if not self._end:
            self._end = time.monotonic() + WINDOW_SECONDS
        if self._said < LINES_MAX:
            self._said += 1
            self._say(text)
            return
        self._omitted += 1
        user = "unknown" if uid is None else str(uid)
        if user in self._users or len(self._users) < USERS_COUNTED:
            self._users[user] += 1

    @property
    def due(self) -> float | None:
        """When `run` must be called, on the monotonic clock, or None."""
        return self._end if self._omitted else None

    def run(self) -> None:
        """End the window if its time is over."""
        if not self._end or time.monotonic() < self._end:
            return
        if self._omitted:
            named = ", ".join(f"{count} of uid {user}" for user, count in self._users.most_common(USERS_NAMED))
            self._say(f"{self._omitted} {self._more} in {WINDOW_SECONDS:.0f} s: {named}")
        self._said = self._omitted = 0
        self._end = 0.0
        self._users.clear()
