"""Lines for the log about what users do, so bounded that nobody can fill it: a few in a minute, then their number."""

import time
from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 10
WINDOW_SECONDS = 60.0
# Of those who caused the lines that were left out, so many are counted, and so many named.
USERS_COUNTED = 1000
USERS_NAMED = 5


class BoundedLines:
    """`say` prints a line. The first MOST of a window are said; at its end it is said how many more there were."""

    def __init__(self, say: "Callable[[str], None]", more: str) -> None:
        """`more` reads after a number, such as `more files were set aside`."""
        self._say = say
        self._more = more
        self._said = 0
        self._end = 0.0
        self._left_out = 0
        self._users: Counter[str] = Counter()

    def tell(self, text: str, uid: int | None = None) -> None:
        """Say a line that `uid` caused, or count it."""
        self.run()
        if not self._end:
            self._end = time.monotonic() + WINDOW_SECONDS
        if self._said < MOST:
            self._said += 1
            self._say(text)
            return
        self._left_out += 1
        user = "unknown" if uid is None else str(uid)
        if user in self._users or len(self._users) < USERS_COUNTED:
            self._users[user] += 1

    @property
    def due(self) -> float | None:
        """When `run` has something to do, on the monotonic clock."""
        return self._end if self._left_out else None

    def run(self) -> None:
        """End a window that is over."""
        if not self._end or time.monotonic() < self._end:
            return
        if self._left_out:
            named = ", ".join(f"{count} of uid {user}" for user, count in self._users.most_common(USERS_NAMED))
            self._say(f"{self._left_out} {self._more} in {WINDOW_SECONDS:.0f} s: {named}")
        self._said = self._left_out = 0
        self._end = 0.0
        self._users.clear()
