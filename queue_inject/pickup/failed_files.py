"""The files of maildrop/ that could not be queued, to be tried again: each user's at intervals of its own.

What fails for one user, such as a message that is too large for the disk, does not make the mail of another one wait
longer. A full disk fails for all, so when a file of anybody was queued, those of all are tried, unless that has helped
nothing a moment ago.
"""

import time

# The time to the next try after a failure. It doubles each time, up to RETRY_MAX, until a file of the user is queued.
RETRY_SECONDS = 5.0
RETRY_MAX = 600.0


class _UserFailures:
    """The names of a user, when they are due, and the interval after that; `retried`: when that was for a success."""

    __slots__ = ("due", "interval", "names", "retried")

    def __init__(self, now: float) -> None:
        self.names: dict[str, None] = {}
        self.due = now
        self.interval = RETRY_SECONDS
        self.retried = -RETRY_MAX


class FailedFiles:
    """Names with the uids of their owners, `most` at the most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._uids: dict[str, int] = {}
        self._users: dict[int, _UserFailures] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._uids

    def __len__(self) -> int:
        return len(self._uids)

    def add(self, name: str, uid: int) -> bool:
        """Add a name that has failed now; return whether there was room for it."""
        if name not in self._uids and len(self._uids) >= self._most:
            return False
        now = time.monotonic()
        user = self._users.get(uid)
        if user is None or (not user.names and now >= user.due + RETRY_MAX):
            user = self._users[uid] = _UserFailures(now)
        if now >= user.due:
            user.due = now + user.interval
            user.interval = min(user.interval * 2, RETRY_MAX)
        self._uids[name] = uid
        user.names[name] = None
        return True

    def remove(self, name: str) -> None:
        """Forget a name, if it is there."""
        uid = self._uids.pop(name, None)
        if uid is not None:
            del self._users[uid].names[name]

    def retry_all(self) -> None:
        """Have all names due now: a file was queued."""
        now = time.monotonic()
        for user in self._users.values() if self._uids else ():
            if user.names and now >= user.retried + RETRY_MAX:
                user.due, user.interval, user.retried = now, RETRY_SECONDS, now

    @property
    def due(self) -> float | None:
        """When the next names are due (monotonic seconds), None if there are none."""
        return min((user.due for user in self._users.values() if user.names), default=None)

    def take(self) -> list[tuple[int, str]]:
        """Return, and forget, the names that are due."""
        now = time.monotonic()
        found: list[tuple[int, str]] = []
        for uid, user in self._users.items():
            if user.names and now >= user.due:
                found += [(uid, name) for name in user.names]
                user.names = {}
        for _, name in found:
            del self._uids[name]
        return found
