"""A model of the queue's disk: names that are safe or not, and the slots of queue/marks.

Each name is its own: a power cut leaves of each the value that is safe, or any later one. A sync of a directory makes
its names, and the contents of its files, safe as they are now. SIGKILL changes nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Letter(NamedTuple):
    """A message as it was injected. `serial` is unique, and no process knows it. A recipient is a letter, `a` or `b`:
    the rules decide which of the two is local.
    """

    serial: int
    number: int
    birth: int
    recipients: str

    @property
    def identity(self) -> tuple[int, int, str]:
        """What processes know of the envelope."""
        return self.number, self.birth, self.recipients


class Work(NamedTuple):
    """The content of local/I or remote/I: recipients by their place in the envelope, and whether they are done."""

    letter: Letter
    places: tuple[int, ...]
    done: tuple[bool, ...]

    def with_done(self, at: int) -> "Work":
        return self._replace(done=(*self.done[:at], True, *self.done[at + 1 :]))


Value = Letter | Work | None
Record = tuple[tuple[int, int, str], frozenset[int]]
Pick = Callable[[Sequence[object]], object]


class ModelDisk:
    """Names are (kind, number). A name that is not there is None."""

    def __init__(self, slots: int) -> None:
        # The safe value of each name, and those that came after it.
        self._names: dict[tuple[str, int], list[Value]] = {}
        self.slots: list[Record | None] = [None] * slots
        # All that the slots ever held: none of it is synced.
        self.written: list[list[Record | None]] = [[None] for _ in range(slots)]

    def get(self, kind: str, number: int) -> Value:
        return self._names.get((kind, number), [None])[-1]

    def letter(self, kind: str, number: int) -> Letter | None:
        """Return the letter of a file in mess/, todo/, info/ or pid/."""
        value = self.get(kind, number)
        assert not isinstance(value, Work)
        return value

    def work(self, kind: str, number: int) -> Work | None:
        value = self.get(kind, number)
        assert not isinstance(value, Letter)
        return value

    def put(self, kind: str, number: int, value: Value) -> None:
        self._names.setdefault((kind, number), [None]).append(value)

    def sync(self, *kinds: str) -> None:
        for (kind, _), values in self._names.items():
            if kind in kinds:
                del values[:-1]

    def numbers(self, kind: str) -> list[int]:
        return sorted(number for (each, number), values in self._names.items() if each == kind and values[-1])

    def is_used(self, number: int) -> bool:
        """Return whether the inode has a name."""
        return bool(self.get("mess", number) or self.get("pid", number))

    def write_slot(self, slot: int, record: Record | None) -> None:
        self.slots[slot] = record
        self.written[slot].append(record)

    def cut(self, pick: Pick, keep_marks: bool) -> None:
        """Lose power. `keep_marks`: records of an earlier boot count, each in any version."""
        for values in self._names.values():
            if len(values) > 1:
                values[:] = [values[int(str(pick(range(len(values)))))]]
        for slot, versions in enumerate(self.written):
            self.slots[slot] = versions[int(str(pick(range(len(versions)))))] if keep_marks else None
            self.written[slot] = [self.slots[slot]]

    def state(self, number: int) -> int | None:
        """Return 1 to 5 as queue_base.queue.layout.Presence does, None if no crash may leave it."""
        mess, todo, info = (self.get(kind, number) is not None for kind in ("mess", "todo", "info"))
        rest = bool(self.get("local", number) or self.get("remote", number))
        if not mess:
            return None if todo or info or rest else 1
        if todo:
            return 4
        if info:
            return 5
        return None if rest else 2
