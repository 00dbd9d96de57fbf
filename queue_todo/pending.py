"""The messages that wait to be classified: ids from inotify, the trigger and scans, each once.

They are taken in order of arrival. If many wait, they are sorted by domain, and the domains take turns, so that mail
for others does not wait behind a batch. What a scan has found is one more domain: it costs no look at the envelopes.

A lower class of mail (queue_wire.control.priorities) is taken when no message of a higher one waits, and one of ten
messages otherwise, so that it is never starved. Its messages are taken in order of their age. Of a tree with very many
files LOWER_MAX are known at a time: their names and times are read in the disk thread, and the next ones when these
have been taken.
"""

import math
import os
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, islice, repeat

from queue_base.errors import reason
from queue_base.queue.layout import Layout
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

SCAN_EVERY = 1500.0  # Seconds: 25 minutes, qmail's SLEEP_TODO.
RETRY_AFTER = 30.0  # Seconds until a deferred message, or an unreadable directory, is tried again.
RETRY_MAX = 1800.0  # Seconds until a message is tried again that was deferred often: each time twice as many.
SAY_EVERY = 600.0  # Seconds after which a warning about an unreadable directory is repeated.
# The most messages that are taken alone, because a sync with others failed. With more, the disk refuses everything.
ALONE_MAX = 250
SORT_FROM = 1000  # Waiting ids from which on they are sorted by domain; fewer are a fraction of a second.
SORTED_MAX = 20_000  # The most ids that are sorted.
SCANNED = b"SCANNED"  # The domain of ids that a scan has found. Those of recipients are in lower case.
LOWER_MAX = 20_000  # The most ids of a lower class that are known.
LOWER_SLICE = 1000  # Names that the disk thread reads at a time.
# How an id that is in hand became known again meanwhile.
UNNAMED, RESCANNED, NAMED = range(3)
FLOOR = 9  # After so many of higher classes, one of a lower class is taken.
SLICE = 1000  # The most names that one turn of the loop reads from todo/, and the most deferred ones that it adds.


class Pending:
    """The waiting ids, the deferred ids, and the current scan, if any.

    An id that was taken is in hand until `done` or `defer`. If it is named again meanwhile, it is added again after
    that, so that a message is never processed twice at the same time. So it is if a scan finds it, unless it is
    deferred or parked: it may be the next message of the number, which came after the thread had looked for it.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._waiting: dict[int, float] = {}  # When each was first seen.
        self._order: deque[int] = deque()  # The waiting ids that are not sorted, in order.
        self._turns: OrderedDict[bytes, deque[int]] = OrderedDict()  # The others by domain, the next domain first.
        self._in_hand: dict[int, int] = {}  # And how each became known again meanwhile.
        self._scans: set[float] = set()  # When scans began, which is when the messages that they found arrived.
        self.scanned: set[int] = set()  # Ids in hand that a scan has found.
        self._later: list[tuple[float, int]] = []  # A heap.
        self._later_due: dict[int, float] = {}  # An entry of _later with another time is ignored.
        self._deferrals: dict[int, int] = {}  # How often each was deferred, of those that are in hand or deferred.
        self._resubmitted = 0  # So many of the first entries of _later are due now.
        self._refused: dict[int, None] = {}  # Ids that were deferred because the disk refused them, and may be retried.
        self._next_probe = 0.0
        self._retried: set[int] = set()  # Ids that were tried again when the disk had taken another message.
        self._retries: deque[int] = deque()  # Those of them that are still to be added.
        self._lower: list[LowerClass] = []  # The highest first.
        self._classes: dict[int, str] = {}  # Of ids in hand, and of deferred ones, that are of a lower class.
        self._parked: set[int] = set()
        self._alone: set[int] = set()
        self._scan: _TodoScan | None = None
        self._again = False
        self.scan_began = False  # A scan of all of todo/ has begun since the caller set it to False.
        self._next_scan = 0.0
        self._unread: list[str] = []  # Directories that could not be read, tried again before the next scan.
        self._next_unread = 0.0
        self._said: tuple[str, float] = ("", 0.0)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def arrival(self) -> float | None:
        """When the oldest message was first seen (monotonic seconds), None if none waits."""
        return next(iter(self._waiting.values()), None)

    def set_classes(self, layout: Layout, names: Sequence[str]) -> None:
        """Set the lower classes, the highest first. A new one is read."""
        known = {lower.name: lower for lower in self._lower}
        self._lower = [known.get(name) or LowerClass(layout, name) for name in names]

    def read_lower_soon(self) -> None:
        """Read the trees of the lower classes anew, as soon as few of their messages are known."""
        for lower in self._lower:
            lower.unread = True

    def add(self, messages: Iterable[int], now: float, priority: str = "") -> None:
        """Add ids of a class that inotify or a command has named.

        One that a scan has found counts as named from now on: it may be the next message of the number, which is not
        left to the time of a deferred one.
        """
        if now in self._scans:
            now = math.nextafter(now, math.inf)
        for message in messages:
            self._later_due.pop(message, None)
            if message in self._in_hand:
                self._in_hand[message] = NAMED
            else:
                self._wait(message, now, priority)

    def _note_rescanned(self, message: int) -> bool:
        """Return whether an id that a scan has found is in hand; it is added again after that, then."""
        if message not in self._in_hand:
            return False
        self._in_hand[message] = max(self._in_hand[message], RESCANNED)
        return True

    def add_again(self, messages: Iterable[int], now: float) -> None:
        """Add ids whose class is not known."""
        for message in messages:
            self.add([message], now, self._layout.class_of(message))

    def _wait(self, message: int, since: float, priority: str = "") -> None:
        if priority:
            self._wait_lower(message, priority)
        elif message not in self._waiting:
            self._waiting[message] = since
            self._order.append(message)
        elif self._waiting[message] in self._scans:
            del self._waiting[message]  # The last one of them is the latest.
            self._waiting[message] = since

    def _wait_lower(self, message: int, priority: str) -> None:
        for lower in self._lower:
            if lower.name == priority:
                if len(lower.named) < LOWER_MAX:
                    lower.old.pop(message, None)
                    lower.named[message] = None
                else:
                    lower.unread = True  # It is read when its turn comes.

    def may_take(self, first_only: bool = False) -> bool:
        """Return whether an id waits."""
        if self._waiting:
            return True
        return not first_only and any(map(len, self._lower))

    def classes_of(self, messages: Iterable[int]) -> dict[int, str]:
        """Return the classes of ids in hand that are of a lower class."""
        if not self._classes:
            return {}
        return {message: self._classes[message] for message in messages if message in self._classes}

    def take(self, most: int, first_only: bool = False) -> list[int]:
        """Return at most `most` ids; they are in hand. An id that must be alone comes alone.

        Those that are not sorted take turns with the domains, and the domains with each other. Those of the lower
        classes come after them, unless `first_only`.
        """
        lower = not first_only and any(map(len, self._lower))
        if self._order and self._order[0] in self._alone:
            found, lower = [self._order.popleft()], False
        else:
            found = self._take_turns(most - most // (FLOOR + 1) if lower else most)
        for message in found:
            if self._waiting.pop(message) in self._scans:
                self.scanned.add(message)
            self._parked.discard(message)
            self._classes.pop(message, None)
            self._in_hand[message] = UNNAMED
        return found + self._take_lower(max(1, most - len(found)), len(found)) if lower else found

    def _take_lower(self, most: int, higher: int) -> list[int]:
        """Take ids of the lower classes: of the highest that has any, and of others what the floor gives them.

        `higher` ids of the first class were taken.
        """
        found: list[int] = []
        for lower in self._lower:
            if not len(lower):
                lower.credit = 0
                continue
            count = most
            if higher:
                count, lower.credit = divmod(lower.credit + higher, FLOOR)
            taken = self._take_waiting(lower, min(count, most - len(found)), len(found) + higher > 0)
            found += taken
            higher += len(taken)
        return found

    def _take_waiting(self, lower: "LowerClass", most: int, others: bool) -> list[int]:
        found: list[int] = []
        while len(lower) and len(found) < most:
            if lower.first in self._alone and (found or others):
                break
            message, scanned = lower.take()
            if message in self._in_hand:
                self._in_hand[message] = NAMED
                continue
            found.append(message)
            if scanned:
                self.scanned.add(message)
            self._parked.discard(message)
            self._classes[message] = lower.name
            self._in_hand[message] = UNNAMED
            if message in self._alone:
                break
        return found

    def next_to_read(self, now: float) -> "LowerClass | None":
        """Return the lower class whose tree is to be read further: what was read of it has been taken."""
        for lower in self._lower:
            if not lower.old and not lower.found and now >= lower.read_at and (lower.unread or lower.reading):
                return lower
        return None

    def take_read(self, lower: "LowerClass", now: float, trouble: OSError | MemoryError | None) -> str | None:
        """Take what the disk thread has read of a class; return a warning or None."""
        if trouble is None and lower.reading:
            return None
        lower.reading = False
        if trouble is None and not lower.failed:
            return None
        lower.unread = True
        lower.read_at = now + RETRY_AFTER
        place, error = next(iter(lower.failed.items()), (f"priority/{lower.name}", trouble))
        return self._complaint({place: error} if isinstance(error, OSError) else {}, now)

    def _take_turns(self, most: int) -> list[int]:
        order, turns, alone = self._order, self._turns, self._alone
        found: list[int] = []
        while len(found) < most:
            before = len(found)
            if order and order[0] not in alone:
                found.append(order.popleft())
            if turns and len(found) < most:
                domain, ids = next(iter(turns.items()))
                found.append(ids.popleft())
                if not ids:
                    del turns[domain]
                elif len(turns) > 1:
                    turns.move_to_end(domain)
            if len(found) == before:
                break
        return found

    @property
    def may_sort(self) -> bool:
        """Whether so many ids wait that they are to be sorted by domain."""
        if len(self._waiting) < SORT_FROM or not self._order or self._order[0] in self._alone:
            return False
        return len(self._waiting) - len(self._order) - len(self._turns.get(SCANNED, ())) < SORTED_MAX

    def take_unsorted(self, most: int) -> list[int]:
        """Return at most `most` ids that are to be sorted. `sort` must follow before anything is taken."""
        found: list[int] = []
        while self._order and len(found) < most and self._order[0] not in self._alone:
            found.append(self._order.popleft())
        return found

    def sort(self, domains: Iterable[tuple[int, bytes]]) -> None:
        """Give ids of `take_unsorted` their turns, with the domain of each."""
        for message, domain in domains:
            self._turns.setdefault(domain, deque()).append(message)

    def give_back(self, messages: Sequence[int], since: float) -> None:
        """Put ids that were taken and not processed back in front of the others."""
        for message in reversed(messages):
            del self._in_hand[message]
            priority = self._classes.pop(message, "")
            if priority:
                for lower in self._lower:
                    if lower.name == priority:
                        lower.give_back(message)
            elif message not in self._waiting:
                self._waiting[message] = since
                self._order.appendleft(message)

    def done(self, messages: Iterable[int], now: float) -> None:
        """Note that ids that were taken have been processed; one that is parked is parked before."""
        for message in messages:
            self._alone.discard(message)
            self.scanned.discard(message)
            self._classes.pop(message, None)
            self._deferrals.pop(message, None)
            self._retried.discard(message)
            known = self._in_hand.pop(message, UNNAMED)
            if known == NAMED or (known == RESCANNED and message not in self._parked):
                self._wait(message, now, self._layout.class_of(message))

    def part(self, messages: Iterable[int]) -> None:
        """Take ids that failed together one by one until they are done, unless too many are taken so already."""
        if len(self._alone) < ALONE_MAX:
            self._alone.update(messages)

    def defer(self, message: int, now: float, refused: bool = False) -> float:
        """Try a message again later, or at once if it was named meanwhile; return the seconds until then.

        The first time that is RETRY_AFTER, and then twice as long each time, up to RETRY_MAX. If the disk has `refused`
        it, one such message is tried after RETRY_AFTER in any case, and all when the disk takes a message again.
        """
        if self._in_hand.pop(message, UNNAMED) == NAMED:
            self._classes.pop(message, None)
            self._wait(message, now, self._layout.class_of(message))
            return 0.0
        count = self._deferrals.get(message, 0)
        self._deferrals[message] = count + 1
        delay = min(RETRY_MAX, RETRY_AFTER * 2.0 ** min(count, 16))
        self._later_due[message] = now + delay
        heappush(self._later, (now + delay, message))
        # What has failed again after a success of others fails by itself.
        if refused and message not in self._retried:
            self._next_probe = now + RETRY_AFTER
            self._refused[message] = None
        return delay

    def retry_refused(self) -> None:
        """Try again what the disk has refused: it has taken a message."""
        if self._refused:
            self._retries.extend(self._refused)
            self._refused = {}

    def _add_refused(self, now: float) -> None:
        """Add some of what `retry_refused` has named, or one message as a probe, if that is due."""
        for _ in range(min(SLICE, len(self._retries))):
            message = self._retries.popleft()
            if message in self._later_due:
                self._retried.add(message)
                self._deferrals.pop(message, None)
                self.resubmit(message, now)
        if self._refused and now >= self._next_probe:
            self._next_probe = now + RETRY_AFTER
            message = next(iter(self._refused))
            del self._refused[message]
            if message in self._later_due:
                self.resubmit(message, now)

    def resubmit(self, message: int, now: float) -> None:
        """Try a deferred message now, or all of them if the number is 0."""
        if not message:
            self._resubmitted = len(self._later)
            self.scan_soon()
        elif self._later_due.pop(message, None) is not None:
            self._wait(message, now, self._classes.pop(message, ""))
        else:
            self.add_again([message], now)

    def park(self, message: int) -> None:
        """Exclude a message from the next scans, until it is named."""
        self._parked.add(message)
        if self._scan is not None:
            self._scan.marked.add(message)

    def scan_soon(self) -> None:
        """Scan todo/ as soon as the current scan, if any, is done."""
        self._again = True

    def run(self, now: float) -> str | None:
        """Do one slice: add deferred ids that are due, read names of todo/; return a warning or None."""
        for _ in range(SLICE):
            if not self._later or (self._later[0][0] > now and not self._resubmitted):
                break
            due, message = heappop(self._later)
            self._resubmitted = max(0, self._resubmitted - 1)
            if self._later_due.get(message) == due:
                del self._later_due[message]
                self._wait(message, now, self._classes.pop(message, ""))
        self._add_refused(now)
        self._take_found()
        if self._scan is None:
            if self._again or now >= self._next_scan:
                self._again = False
                self._next_scan = now + SCAN_EVERY
                self._scans.add(now)
                self.scan_began = True
                first = self._layout.todo_directories("")
                self._scan = _TodoScan(first, now, self._layout.directories("corrupt"))
            elif self._unread and now >= self._next_unread:
                self._scans.add(now)
                self._scan = _TodoScan(self._unread, now)
        return None if self._scan is None else self._look(self._scan, now)

    def _take_found(self) -> None:
        """Add some of what was read of the trees of the lower classes, as soon as the marks in corrupt/ are known."""
        if self._scan is not None and not self._scan.marks_done:
            return
        for lower in self._lower:
            for _ in range(min(SLICE, len(lower.found))):
                message = lower.found.popleft()
                if any(message in each for each in (self._parked, self._later_due, lower.named)):
                    continue
                if not self._note_rescanned(message):
                    lower.old[message] = None

    def _look(self, scan: "_TodoScan", now: float) -> str | None:
        """Read a slice of a scan; return a warning at its end, or None."""
        count = 0
        for is_mark, message in islice(scan.names, SLICE):
            count += 1
            if is_mark:
                scan.marked.add(message)
            elif not message:
                # Marks that were removed no longer count. If not all could be read, the known ones still count.
                self._parked = scan.marked if scan.marks_read else self._parked | scan.marked
                scan.marks_done = True
            elif any(message in each for each in (self._parked, self._later_due, self._waiting)):
                continue
            elif not self._note_rescanned(message):
                self._waiting[message] = scan.began
                self.sort([(message, SCANNED)])
        if count == SLICE:
            return None
        self._scan = None
        self._unread = list(scan.failed)
        self._next_unread = now + RETRY_AFTER
        return self._complaint(scan.failed, now)

    def _complaint(self, failed: dict[str, OSError], now: float) -> str | None:
        """Return the warning about directories that could not be read: at once, then every SAY_EVERY seconds."""
        text = ""
        for directory, error in failed.items():
            others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            text = f"unable to read {directory}{others}: {reason(error)}; will try again every {RETRY_AFTER:.0f} s"
            break
        if not text or (text == self._said[0] and now < self._said[1] + SAY_EVERY):
            self._said = (text, self._said[1])
            return None
        self._said = (text, now)
        return text

    def wait(self, now: float) -> float:
        """Return the seconds until `run` has work that no descriptor announces."""
        if self._scan is not None or self._again or self._resubmitted or self._retries:
            return 0.0
        if any(lower.found for lower in self._lower):
            return 0.0
        wait = self._next_scan
        if self._later:
            # The first one may be ignored; the next turn finds out.
            wait = min(wait, self._later[0][0])
        if self._unread:
            wait = min(wait, self._next_unread)
        if self._refused:
            wait = min(wait, self._next_probe)
        return max(0.0, wait - now)


class LowerClass:
    """The messages of a lower class that are known, and how far its tree has been read.

    old: ids that were read in the tree, in order of age. named: ids that inotify or a command has named since.
    unread: the tree is to be read anew. reading: names of it were not read yet. found: what was read and is not in
    `old` yet. failed: directories that could not be read. read_at: nothing is read before that. credit: how many of
    higher classes were taken while these waited.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        self.name = name
        self.old: OrderedDict[int, None] = OrderedDict()
        self.named: OrderedDict[int, None] = OrderedDict()
        self.unread = True
        self.reading = False
        self.found: deque[int] = deque()
        self.failed: dict[str, OSError] = {}
        self.read_at = 0.0
        self.credit = 0
        self._layout = layout
        self._names: Iterator[int] = iter(())
        self._dated: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.old) + len(self.named)

    @property
    def first(self) -> int:
        """The id that is taken next. Raises StopIteration if there is none."""
        return next(iter(self.old or self.named))

    def take(self) -> tuple[int, bool]:
        """Remove and return the next id, and whether it was read in the tree. Raises KeyError if there is none."""
        scanned = bool(self.old)
        return (self.old if scanned else self.named).popitem(last=False)[0], scanned

    def give_back(self, message: int) -> None:
        """Put an id in front of the others."""
        self.named.pop(message, None)
        self.old[message] = None
        self.old.move_to_end(message, last=False)

    def read(self) -> None:
        """Read some names and their times. Called in the disk thread, while no other thread uses `found`."""
        if not self.reading:
            self.unread, self.reading = False, True
            self.failed = {}
            self._names = _ids(self._layout.todo_directories(self.name), self.failed, may_lack=False)
        count = 0
        for message in islice(self._names, LOWER_SLICE):
            count += 1
            try:
                self._dated.append((os.lstat(self._layout.todo_in(self.name, message)).st_mtime_ns, message))
            except FileNotFoundError:
                continue
            except OSError:
                self._dated.append((0, message))  # Its classification deals with that.
        ended = count < LOWER_SLICE
        if ended or len(self._dated) >= LOWER_MAX:
            self._dated.sort()
            self.found = deque(message for _, message in self._dated)
            self._dated = []
        if ended:
            self.reading = False


class _TodoScan:
    """One scan of directories of todo/. `names` yields (is a mark, id): the marks, an id of 0, then the messages.

    `failed` are the directories that could not be read.
    """

    def __init__(self, directories: Sequence[str], began: float, marks: Sequence[str] | None = None) -> None:
        self.began = began
        self.marks_done = marks is None  # Whether the marks have been read.
        self.marked: set[int] = set()
        self.failed: dict[str, OSError] = {}
        self._marks = marks
        self._marks_failed: dict[str, OSError] = {}
        in_marks = zip(repeat(True), _ids(marks or (), self._marks_failed, may_lack=True))
        in_todo = zip(repeat(False), _ids(directories, self.failed, may_lack=False))
        self.names = chain(in_marks, [(False, 0)], in_todo)

    @property
    def marks_read(self) -> bool:
        """Whether `marked` are all marks. queue-todo learns of another mark when it reads the message."""
        return self._marks is not None and not self._marks_failed


def _ids(directories: Iterable[str], failed: dict[str, OSError], *, may_lack: bool) -> Iterator[int]:
    """Yield the ids that have a file in the directories; record directories that cannot be read."""
    for directory in directories:
        try:
            with os.scandir(directory) as names:
                for name in names:
                    try:
                        yield unpack_id(os.fsencode(name.name))
                    except FormatError:
                        continue  # Not a message.
        except FileNotFoundError as error:
            if not may_lack:
                failed[directory] = error
        except OSError as error:
            failed[directory] = error
