"""The finished files of maildrop/ that wait, in a queue for each user. Users take turns: one file of each.

So a user's single file does not wait for another user's million files. A name takes 16 bytes, its 128 random bits. The
number of names is limited for each user and for all users together; a later scan finds the names that were not kept. A
name may be in a queue twice.
"""

from collections import deque
from collections.abc import Container

from queue_wire.files.maildrop import FINISHED_PREFIX

# Numbers of names: 4 MB for one user, 16 MB for all. There is always room for the first few names of a user.
USER_MAX = 1 << 18
TOTAL_MAX = 1 << 20
FEW = 16
_WIDTH = 16


class UserQueues:
    """The waiting names of each user, and the order in which users take turns."""

    def __init__(self) -> None:
        self._names: dict[int, bytearray] = {}
        self._order: deque[int] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, uid: int, name: str) -> bool:
        """Add a name at the end of the user's queue; return whether there was room for it."""
        names = self._names.get(uid)
        held = len(names) // _WIDTH if names else 0
        if held >= FEW and (held >= USER_MAX or self._count >= TOTAL_MAX):
            return False
        if names is None:
            names = self._names[uid] = bytearray()
            self._order.append(uid)
        names += bytes.fromhex(name[len(FINISHED_PREFIX) :])
        self._count += 1
        return True

    def put_back(self, uid: int, name: str) -> None:
        """Put a name that was taken back, so that it is the next one again."""
        names = self._names.setdefault(uid, bytearray())
        names[:0] = bytes.fromhex(name[len(FINISHED_PREFIX) :])
        self._count += 1
        if uid in self._order:
            self._order.remove(uid)
        self._order.appendleft(uid)

    def next(self, but: Container[int] = ()) -> tuple[int, str] | None:
        """Take the first name of the user whose turn it is; None if there is none. Users in `but` are skipped."""
        for _ in range(len(self._order)):
            uid = self._order.popleft()
            if uid in but:
                self._order.append(uid)
                continue
            names = self._names[uid]
            name = FINISHED_PREFIX + names[:_WIDTH].hex()
            del names[:_WIDTH]
            self._count -= 1
            if names:
                self._order.append(uid)
            else:
                del self._names[uid]
            return uid, name
        return None

    def forget_long(self) -> None:
        """Forget the queues with more than a few names, before a scan that finds them all again."""
        for uid in [uid for uid, names in self._names.items() if len(names) > FEW * _WIDTH]:
            self._count -= len(self._names.pop(uid)) // _WIDTH
            self._order.remove(uid)
