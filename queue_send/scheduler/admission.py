"""Which waiting message is loaded next: of the highest class that has one, new mail and due deferred mail alternately.
Pure.

So neither new mail nor deferred mail delays the other, however much of it there is. Probes are loaded before both. One
of ten messages is of a lower class, if any of these waits and may be loaded, so that none is starved. Of new mail the
submitters take turns (new_mail.py).
"""

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from queue_send.scheduler.fifo import Fifo
from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.new_mail import LoadedCounts, NewMail
from queue_send.scheduler.waiting import LONG_AGO, Waiting

FLOOR = 9  # After so many of higher classes comes one of a lower class.

# What may be loaded: only for destinations that are known to take mail promptly, also new mail of submitters of whom
# few messages are loaded, or all.
BRISK, FEW, ALL = range(3)


class ClassAdmission:
    """The messages of one class that are not loaded, by their numbers."""

    def __init__(self, loaded: LoadedCounts) -> None:
        self._new = NewMail(loaded)
        self._readmitted: deque[int] = deque()
        self._waiting = Waiting()
        self._new_is_next = True

    def __len__(self) -> int:
        """Return the number of entries; a message may have two."""
        return len(self._waiting) + len(self._new) + len(self._readmitted)

    def add_new(self, message: int, submitter: bytes | None = None) -> None:
        """Add a new message."""
        self._new.put(message, submitter)

    def add_deferred(self, message: int, due: int, flushed: bool) -> None:
        """Add a deferred message with the next attempt in the mtime of its file; `flushed` makes it due now."""
        self._waiting.push(due - LONG_AGO if flushed else due, message << 1)

    def add_due(self, message: int, due: int) -> None:
        """Add a message to be tried at `due`, whatever the mtime of its file."""
        self._waiting.push(due, message << 1 | 1)

    def readmit(self, message: int) -> None:
        """Add a message that is loaded before all others."""
        self._readmitted.append(message)

    def flush(self) -> None:
        """Make all deferred messages due, in their order."""
        self._waiting.make_due()

    def next(self, now: float, level: int = ALL) -> tuple[int, int | None] | None:
        """Return (message, expected next attempt in the mtime of its file, or None for any); None if nothing is due.

        If the file has another next attempt, the message was tried in between and has another entry. `level`: what may
        be loaded. Readmitted messages always may.
        """
        if self._readmitted:
            return self._readmitted.popleft(), None
        due = self._waiting.first_due() if level == ALL else None
        deferred_is_due = due is not None and due <= now
        if self.has_new(level) and (self._new_is_next or not deferred_is_due):
            message = self._new.take(level < ALL)
            assert message is not None
            self._new_is_next = False
            return message, None
        if not deferred_is_due:
            return None
        self._new_is_next = True
        due, key = self._waiting.pop()
        return key >> 1, None if key & 1 else due % LONG_AGO

    def has_new(self, level: int = ALL) -> bool:
        """Return whether there is a new message that may be loaded."""
        return level > BRISK and self._new.has(level < ALL)

    def is_turn_of_new(self, now: float, level: int) -> bool:
        """Return whether a new message may be loaded next, if there is one."""
        if self._readmitted or self._new_is_next or level < ALL:
            return not self._readmitted
        due = self._waiting.first_due()
        return due is None or due > now

    def sort(self, submitter: bytes) -> None:
        """Note that few messages of a submitter are loaded now, or no longer few."""
        self._new.sort(submitter)

    def end_turn_of_new(self) -> None:
        """A message was loaded as a new one that `next` did not return: deferred mail is next."""
        self._new_is_next = False

    def next_time(self, now: float, level: int = ALL) -> float | None:
        """Return when `next` will return a message, in seconds since the epoch; None if there is none."""
        if self._readmitted or self.has_new(level):
            return now
        return self._waiting.first_due() if level == ALL else None

    def is_next(self, message: int) -> bool:
        """Return whether a message is new or readmitted, and so due whatever the mtime of its file."""
        return self._new.holds(message) or message in self._readmitted

    def dues_of(self, message: int, stamps: Collection[int]) -> list[int]:
        """Return when a message is tried, by its valid entries; `stamps` are the next attempts its file may have.

        A time of 0 or less is at once.
        """
        dues = [due for due in self._waiting.dues_of(message << 1) if due % LONG_AGO in stamps]
        return dues + self._waiting.dues_of(message << 1 | 1)

    def oldest(self, most: int) -> Iterator[int]:
        """Yield up to `most` readmitted messages, then up to `most` new ones, the oldest first."""
        yield from islice(self._readmitted, most)
        yield from self._new.oldest(most)

    @property
    def new(self) -> int:
        """The number of new messages."""
        return len(self._new)

    def new_queues(self) -> Iterator[Fifo]:
        """Yield the new messages of each submitter, the oldest first."""
        return self._new.queues()

    @property
    def entries(self) -> int:
        """The number of entries in the heap of deferred mail."""
        return len(self._waiting)

    def due_by(self, due: int, start: int, count: int) -> Iterator[tuple[int, int | None]]:
        """Yield (message, expected next attempt) of `count` entries of the heap that are due at `due` or earlier."""
        for one, key in self._waiting.due_by(due, start, count):
            yield key >> 1, None if key & 1 else one % LONG_AGO

    def first_due(self) -> int | None:
        """Return the earliest next attempt of deferred mail; None if there is none."""
        return self._waiting.first_due()

    def is_due(self, now: float) -> bool:
        """Return whether `next` returns a message."""
        if self._readmitted or self._new:
            return True
        due = self._waiting.first_due()
        return due is not None and due <= now


class Admission:
    """The messages of one channel that are not loaded, each in the ClassAdmission of its class: `classes`, by rank."""

    def __init__(self, known: MessageClasses | None = None) -> None:
        """`known` says of which class a message is."""
        self._known = known or MessageClasses()
        self._loaded = LoadedCounts()
        self.classes = [ClassAdmission(self._loaded)]
        self._credit = 0  # How many of the first class were loaded since one of a lower class was.

    def __len__(self) -> int:
        """Return the number of entries; a message may have two."""
        return sum(map(len, self.classes))

    def of(self, message: int) -> ClassAdmission:
        """Return the admission of a message's class."""
        rank = self._known.rank(message)
        self.make(rank)
        return self.classes[rank]

    def make(self, rank: int) -> None:
        """Make the classes up to a rank, as far as they are not there."""
        while len(self.classes) <= rank:
            self.classes.append(ClassAdmission(self._loaded))

    def add_new(self, message: int, submitter: bytes | None = None) -> None:
        """Add a new message."""
        self.of(message).add_new(message, submitter)

    def count_load(self, submitter: bytes) -> None:
        """Count a message of a submitter that is loaded."""
        if self._loaded.add(submitter):
            for each in self.classes:
                each.sort(submitter)

    def count_unload(self, submitter: bytes) -> None:
        """Count a message of a submitter that is not loaded any more."""
        if self._loaded.remove(submitter):
            for each in self.classes:
                each.sort(submitter)

    def add_deferred(self, message: int, due: int, flushed: bool) -> None:
        """Add a deferred message (ClassAdmission.add_deferred)."""
        self.of(message).add_deferred(message, due, flushed)

    def add_due(self, message: int, due: int) -> None:
        """Add a message to be tried at `due`, whatever the mtime of its file."""
        self.of(message).add_due(message, due)

    def order(self, lower: bool) -> Iterator[ClassAdmission]:
        """Yield the classes in the order in which they may be loaded now; only the first one unless `lower`."""
        if not lower or len(self.classes) == 1:
            yield self.classes[0]
        elif self._credit >= FLOOR:
            yield from self.classes[1:]
            yield self.classes[0]
        else:
            yield from self.classes

    def count(self, loaded: ClassAdmission, lower: bool) -> None:
        """Count a message that is loaded; `lower`: one of a lower class might have been loaded instead."""
        if loaded is not self.classes[0]:
            self._credit = 0
        elif lower:
            self._credit = min(FLOOR, self._credit + 1)

    def flush(self) -> None:
        """Make all deferred messages due, in their order."""
        for each in self.classes:
            each.flush()

    def next_time(self, now: float, lower: bool = True, level: int = ALL) -> float | None:
        """Return when a message may be loaded, in seconds since the epoch; None if there is none.

        Without `lower` only the first class counts.
        """
        times = [each.next_time(now, level) for each in (self.classes if lower else self.classes[:1])]
        return min((each for each in times if each is not None), default=None)

    def is_next(self, message: int) -> bool:
        """Return whether a message is new or readmitted, and so due whatever the mtime of its file."""
        return self.of(message).is_next(message) or self.classes[0].is_next(message)

    def dues_of(self, message: int, stamps: Collection[int]) -> list[int]:
        """Return when a message is tried (ClassAdmission.dues_of)."""
        return self.of(message).dues_of(message, stamps)

    @property
    def new(self) -> int:
        """The number of new messages."""
        return sum(each.new for each in self.classes)

    @property
    def entries(self) -> int:
        """The number of entries of deferred mail."""
        return sum(each.entries for each in self.classes)
