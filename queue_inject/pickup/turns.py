"""Whose file is next: names in maildrop/ by the user that left them, a name of each user in turn.

One user's million files cost another's single one no time, and us 16 bytes each: a name is its 128 bits. There is
a bound for each user and one for all; what does not fit is found again by a later scan. A name may be in here twice.
"""

from collections import deque

from queue_wire.maildrop import FINISHED_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

# Names: 4 MB for one user, 16 MB for all. Who has only a few always has room for them.
MOST_OF_ONE = 1 << 18
MOST_OF_ALL = 1 << 20
A_FEW = 16
_WIDTH = 16


class Turns:
    """Finished names that wait, and whose turn it is."""

    def __init__(self) -> None:
        self._names: dict[int, bytearray] = {}
        self._order: deque[int] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, uid: int, name: str) -> bool:
        """Note a name behind the user's others; return whether there was room for it."""
        names = self._names.get(uid)
        held = len(names) // _WIDTH if names else 0
        if held >= A_FEW and (held >= MOST_OF_ONE or self._count >= MOST_OF_ALL):
            return False
        if names is None:
            names = self._names[uid] = bytearray()
            self._order.append(uid)
        names += bytes.fromhex(name[len(FINISHED_PREFIX) :])
        self._count += 1
        return True

    def put_back(self, uid: int, name: str) -> None:
        """Let a name that was taken be the next one again."""
        names = self._names.setdefault(uid, bytearray())
        names[:0] = bytes.fromhex(name[len(FINISHED_PREFIX) :])
        self._count += 1
        if uid in self._order:
            self._order.remove(uid)
        self._order.appendleft(uid)

    def next(self, but: "Container[int]" = ()) -> tuple[int, str] | None:
        """Return the next user's next name, and go on to the user after; None where nobody has one.

        Users in `but` are passed over.
        """
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

    def forget_crowds(self) -> None:
        """Forget the names of those who have more than a few: a scan that begins now finds them all again."""
        for uid in [uid for uid, names in self._names.items() if len(names) > A_FEW * _WIDTH]:
            self._count -= len(self._names.pop(uid)) // _WIDTH
            self._order.remove(uid)
