"""Announced messages: queue-send delivers them from queue-todo's notice. They have mess/B/I and todo/B/I, and no file
in info/, local/ or remote/. Their DONE marks are records in queue/marks.

If all recipients of an ANNOUNCED message are done, queue-clean removes todo/B/I, the record, and mess/B/I. queue-todo
is asked to classify a message if the message is deferred, has a failure, is on hold, is the subject of an order of
queuectl, or is not started within `classifyafter` seconds; and at the exit. If there are very many announced messages,
also those are classified whose deliveries take longer than `classifyafter`. Deliveries go on while a message is
CLASSIFYING, and recipients that are done are marked in the record. After queue-todo's answer those marks are written to
the files, and then everything that waits for the files is done, such as recording a failure in bounce/.

If `classifyafter` is 0, or queue/marks cannot be written, every message is classified before it is delivered.

queue-send tells queue-todo what to do with new mail:

    ANNOUNCE    announce it
    FIRST       announce it if it is of the first class, else leave it: enough of lower classes wait for their start
    LEAVE       leave it in todo/: enough announced messages wait for their start, and deliveries are being started
    CLASSIFY    classify it: few or no deliveries are being started, or the oldest announced message has waited longer
                than `classifyafter`. So deliveries that hang never delay classification.

In the first `classifyafter` seconds of a run, mail is left in todo/ until deliveries can be started. So most of a full
queue is never classified.
"""

import select
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from queue_base.errors import reason
from queue_base.queue.layout import Layout, is_there
from queue_base.queue.marks_file import MarksFile
from queue_send.config import ConfigFiles
from queue_send.disk_retry import QueueDisk
from queue_send.log import Log
from queue_send.loop import Shutdown
from queue_send.messages.records import CHANNELS, KeptEnvelope, MessageRecords
from queue_send.messages.transitions import MessageEvent, MessageState
from queue_wire.files.marks import SLOTS, DoneMarks, EnvelopeIdentity
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    FIRST,
    LEAVE,
    Arrived,
    ClassifyAnswer,
    ClassifyRequest,
    pack_gone,
    pack_request,
)

# The limit of announced messages that wait for their start is the number of messages that were started recently, at
# most UNSTARTED_MAX. If fewer than BRISK were started recently, it is UNSTARTED_FIRST. With a higher limit, messages
# would wait for longer than classifyafter.
UNSTARTED_FIRST = 300
UNSTARTED_MAX = 4000
BRISK = 50  # If so many were started recently, and the limit is reached, new messages are left in todo/.
WARMING_UP = 0.1  # Seconds after the first start of a run. Before that, the number of starts is not yet typical.
BROKEN_SECONDS = 60.0  # Seconds for which mail is classified after a mark could not be written; then one is tried.
LATE_A_TURN = 100  # In a turn, classification is asked for of so many messages that wait for too long.
# If there are more announced messages, those whose deliveries take too long are classified too. They are looked for
# every CROWDED_WAIT seconds, among the CROWDED_LOOK oldest. queue-todo's limit of announced messages is higher.
CROWDED = SLOTS // 2
CROWDED_LOOK = 1000
CROWDED_WAIT = 0.1
REQUESTS_A_TURN = 1000  # Requests that one turn sends.

_REMOVING = MessageState.REMOVING


class AnnouncedMessage(KeptEnvelope):
    """One announced message.

    recipients: all of them, as the notice has them. done: a bit for each of those that are done, the lowest for the
    first one. slot: that of its record, None if it has none. arrived: when it came (monotonic). position: that in the
    log behind the lines of its arrival. unstarted: recipients that were not started. asked: queue-todo is, or is to
    be, asked to classify it. requested: the done bits of that request, None before it is sent. awaited: something waits
    for the answer.
    """

    announced = True
    __slots__ = (
        *("arrived", "asked", "awaited", "done", "identity", "position", "recipients", "requested", "slot"),
        "unstarted",
    )

    def __init__(self, notice: Arrived, due: int, arrived: float, position: int) -> None:
        super().__init__(notice, due)
        self.identity = EnvelopeIdentity(notice.message, notice.birth, notice.todo_size, notice.check)
        self.recipients = notice.recipients
        self.done = 0
        self.slot: int | None = None
        self.arrived = arrived
        self.position = position
        self.unstarted = len(notice.recipients)
        self.asked = False
        self.requested: int | None = None
        self.awaited = False

    @property
    def ended(self) -> bool:
        """Whether queue-clean removes it."""
        return self.state is _REMOVING

    def _places(self) -> Iterator[tuple[str, int, int]]:
        """Yield the channel, the offset and the bit of each recipient."""
        at = {"local": 0, "remote": 0}
        for number, (letter, address) in enumerate(self.recipients):
            kind = CHANNELS[letter]
            yield kind, at[kind], 1 << number
            at[kind] += len(address) + 2

    @property
    def all_done(self) -> bool:
        """Whether all recipients are done."""
        return self.done + 1 == 1 << len(self.recipients)

    def note_done(self, kind: str, offsets: Collection[int]) -> None:
        """Note recipients of a channel that are done."""
        if len(self.recipients) == 1:
            self.done = 1
        else:
            self.done |= sum(bit for each, offset, bit in self._places() if each == kind and offset in offsets)

    def take_done(self, done: int) -> None:
        """Note recipients that an earlier run has marked."""
        self.done = done
        for kind, offset, bit in self._places():
            if done & bit:
                self.left[kind] = [each for each in self.left[kind] if each[0] != offset]
                self.unstarted -= 1
        self.left = {kind: left for kind, left in self.left.items() if left}

    def offsets(self, bits: int) -> dict[str, list[int]]:
        """Return the offsets of the recipients with these bits, by channel."""
        found: dict[str, list[int]] = {}
        for kind, offset, bit in self._places():
            if bits & bit:
                found.setdefault(kind, []).append(offset)
        return found


class Pace:
    """Counts started messages, for the limit of announced messages that wait for their start.

    "Recently" is the current or the last period of the length that is given to `limit`.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._count = self._before = 0
        self._first: float | None = None  # When the first one was started.

    def count(self) -> None:
        """Count a message that was started."""
        self._count += 1
        if self._first is None:
            self._first = time.monotonic()

    def has_warmed_up(self, now: float) -> bool:
        """Return whether messages have been started for some time; at first the delivery daemons are not ready."""
        return self._first is not None and now - self._first > WARMING_UP

    @property
    def recent(self) -> bool:
        """Whether any message was started recently."""
        return bool(self._before or self._count)

    @property
    def brisk(self) -> bool:
        """Whether so many were started recently that new ones may be left in todo/."""
        return max(self._before, self._count) >= BRISK

    def limit(self, now: float, seconds: float) -> int:
        """Begin a new period if the last one is over; return the limit. A period has `seconds`."""
        if now - self._began > 2 * seconds:
            self._before = self._count = 0
            self._began = now
        elif now - self._began > seconds:
            self._before, self._count = self._count, 0
            self._began = now
        if not self.brisk:
            return UNSTARTED_FIRST
        return min(UNSTARTED_MAX, max(self._before, self._count))


class Announced:
    """A part of the loop: the announced messages, and what queue-todo is told. `send` sends it a command."""

    def __init__(
        self, layout: Layout, log: Log, config: ConfigFiles, shutdown: Shutdown, send: Callable[[bytes], None]
    ) -> None:
        self._layout = layout
        self.records = MessageRecords()
        self._log = log
        self._config = config
        self._shutdown = shutdown
        self.send = send
        self._messages: dict[int, AnnouncedMessage] = {}
        # Those that wait for their start, oldest first, without those that queue-todo is asked to classify.
        self._order: OrderedDict[int, AnnouncedMessage] = OrderedDict()
        self._unstarted = self._unstarted_lower = 0  # All of them, and those of lower classes.
        self._unmarked: list[AnnouncedMessage] = []  # Those whose records `write` writes.
        # Those whose records were written while the log was blocked, before the lines of their arrival. The records are
        # written again when the log has been written up to the position.
        self._unlogged: deque[tuple[int, AnnouncedMessage]] = deque()
        self._requests: deque[tuple[int, int]] = deque()  # (position in the log, message) of requests to be sent.
        self._begun = time.monotonic()
        self._pace = Pace(self._begun)
        self._mode = CLASSIFY
        self._marks: MarksFile | None = None
        self.disk = QueueDisk(layout.queue, log)
        self._broken_until = 0.0  # Mail is classified until then, because a mark could not be written.
        self._opened = False
        self._looked = False
        self._all_asked = False  # Whether all were asked to be classified at the exit.
        self._answered: set[int] = set()  # Messages of `left_behind`: an answer that comes later changes nothing.

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: int) -> bool:
        return message in self._messages

    def get(self, message: int) -> AnnouncedMessage | None:
        """Return an announced message that has not ended."""
        known = self._messages.get(message)
        return None if known is None or known.state is _REMOVING else known

    # What queue-todo says

    def arrive(self, notice: Arrived, due: int) -> AnnouncedMessage:
        """Add a message that queue-todo has announced."""
        known = AnnouncedMessage(notice, due, time.monotonic(), self._log.position)
        try:
            self._take_over(known)
        except OSError as error:
            self._fail(error)
        self._messages[notice.message] = known
        self.records.put(known)
        if known.unstarted:
            self._count_unstarted(known, 1)
            self._order[notice.message] = known
        self._all_asked = False
        return known

    def _take_over(self, known: AnnouncedMessage) -> None:
        """Take over the record that an earlier run has left for a message; drop that of another one of its number."""
        marks = self._open_marks()
        if marks is None or not marks.has_left:
            return
        left = marks.adopt(known.identity)
        if left is None:
            marks.drop(known.number)
        else:
            known.slot = left[0]
            known.take_done(left[1])

    def classified(self, message: int) -> None:
        """A message was classified by queue-todo itself: what an earlier run has left for its number is over."""
        marks = self._marks
        if marks is not None and marks.has_left:
            try:
                marks.drop(message)
            except OSError as error:
                self._fail(error)

    def answer(self, answer: ClassifyAnswer) -> AnnouncedMessage | None:
        """Take an answer of queue-todo; return the message, which is not announced any more."""
        known = self._messages.get(answer.message)
        if known is None or known.requested is None:
            if answer.message not in self._answered:
                self._log.warning("internal error: queue-todo classified a message that it was not asked for")
            return None
        del self._messages[answer.message]
        self._start_all(known)
        self.records.drop(known)
        return known

    # What the other parts of queue-send say

    def started(self, message: int, count: int) -> None:
        """Note that deliveries to `count` recipients of a message are started."""
        known = self._messages.get(message)
        if known is not None and known.unstarted:
            known.unstarted = max(0, known.unstarted - count)
            if not known.unstarted:
                self._count_unstarted(known, -1)
                self._order.pop(message, None)
                self._pace.count()

    def _start_all(self, known: AnnouncedMessage) -> None:
        if known.unstarted:
            known.unstarted = 0
            self._count_unstarted(known, -1)
            self._order.pop(known.number, None)

    def _count_unstarted(self, known: AnnouncedMessage, count: int) -> None:
        self._unstarted += count
        if known.priority:
            self._unstarted_lower += count

    def mark_done(self, known: AnnouncedMessage, kind: str, offsets: Collection[int]) -> None:
        """Mark recipients done; `write` writes the record of the message."""
        known.note_done(kind, offsets)
        marks = self._open_marks()
        if marks is None:
            self._fail_to_mark(known, OSError(0, "queue/marks cannot be used"))
            return
        if known.slot is None:
            known.slot = marks.take()
        if known.slot is None:
            self._fail_to_mark(known, OSError(0, "queue/marks is full"))
        elif not self._unmarked or self._unmarked[-1] is not known:
            self._unmarked.append(known)

    def _write_marks(self) -> None:
        # If one is classified by now, its files have the marks.
        unmarked = [
            each for each in dict.fromkeys(self._unmarked) if self._messages.get(each.number) is each
        ]
        self._unmarked = []
        records = {}
        for each in unmarked:
            logged = self._log.has_written(each.position)
            if each.slot is not None:
                # Lines that were given up count as written, but the log does not have them.
                records[each.slot] = DoneMarks(each.identity, each.done, logged and not self._log.given_up)
            if not logged:
                self._unlogged.append((self._log.position, each))
        if self._marks is not None:
            try:
                self._marks.write_all(records)
            except OSError as error:
                for known in unmarked:
                    self._fail_to_mark(known, error)

    def _fail_to_mark(self, known: AnnouncedMessage, error: OSError) -> None:
        """The record of a message cannot be written. If recipients are left it is classified, which makes the marks
        durable.
        """
        path = error.filename or f"{self._layout.queue}/marks"
        self._log.warning(f"trouble marking {path}: {reason(error)}; message will be delivered twice!")
        self.disk.note()
        self._broken_until = time.monotonic() + BROKEN_SECONDS
        if not known.all_done:
            self.ask(known, MessageEvent.UNMARKED)

    def ask(self, known: AnnouncedMessage, why: MessageEvent) -> None:
        """Have queue-todo classify an announced message."""
        if not (known.asked or known.state is _REMOVING):
            known.asked = True
            self._order.pop(known.number, None)
            self._requests.append((self._log.position, known.number))
            self.records.step(why, known.number)

    def end(self, known: AnnouncedMessage) -> int | None:
        """Note that a message has ended without being classified; return the slot of its record."""
        self._start_all(known)
        return known.slot

    def removed(self, message: int, durable: bool = True) -> None:
        """queue-clean has removed a message; or, if not `durable`, is lost: then its record must stay."""
        known = self._messages.get(message)
        if known is not None and known.state is _REMOVING:
            del self._messages[message]
            if known.slot is not None and self._marks is not None and durable:
                self._marks.release(known.slot)
            self.send(pack_gone(message))

    def clear(self, known: AnnouncedMessage) -> None:
        """Clear the record of a message that is classified, when its files have the marks, or that is gone."""
        if known.slot is not None and self._marks is not None:
            try:
                self._marks.clear(known.slot)
            except OSError as error:
                self._fail(error)

    def left_behind(self) -> list[int]:
        """Return the messages that queue-todo was asked to classify and that have left todo/, without an answer.

        Called at the exit, when queue-todo has ended. Raises OSError.
        """
        found = []
        for message, known in self._messages.items():
            if known.requested is not None and not known.ended and not is_there(self._layout.todo(message)):
                found.append(message)
        self._answered.update(found)
        return found

    @property
    def unanswered(self) -> int:
        """How many messages have something that waits for queue-todo's answer."""
        alone = (MessageState.ANNOUNCED, MessageState.CLASSIFYING, _REMOVING)
        return sum(known.awaited or known.state not in alone for known in self._messages.values())

    def ended(self) -> list[int]:
        """Return the messages that queue-clean is to remove."""
        return [message for message, known in self._messages.items() if known.ended]

    # The loop

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the oldest message that was not started is to be classified."""
        if not self._looked:
            # An earlier run may have left records, also if no more are made.
            self._looked = True
            self._open_marks()
            return 0.0
        if self._requests:
            return 0.0 if self._log.has_written(self._requests[0][0]) else 3600.0
        wait = CROWDED_WAIT if len(self._messages) > CROWDED else 3600.0
        if self._mode in (LEAVE, FIRST):
            wait = min(wait, self._after / 2)  # What was started recently is less by then.
        if not self._order:
            return wait
        return max(0.0, min(wait, self._oldest.arrived + self._after - time.monotonic()))

    def run(self, ready: dict[int, int], now: float) -> None:
        """Ask for the classification of messages that wait for too long; tell queue-todo what to do with new ones."""
        if self._shutdown.begun and not self._all_asked:
            self._all_asked = True
            for known in self._messages.values():
                self.ask(known, MessageEvent.EXITING)
        moment = time.monotonic()
        self._ask_unstarted(moment)
        if len(self._messages) > CROWDED:
            self._ask_oldest(moment)
        mode = self._choose(moment)
        if mode != self._mode:
            self._mode = mode
            self.send(mode)

    def write(self) -> None:
        """Write marks; asks for classifications, as far as the log has the lines of the messages."""
        while self._unlogged and self._log.has_written(self._unlogged[0][0]):
            self._unmarked.append(self._unlogged.popleft()[1])
        if self._unmarked:
            self._write_marks()
        for _ in range(REQUESTS_A_TURN):
            if not self._requests or not self._log.has_written(self._requests[0][0]):
                break
            message = self._requests.popleft()[1]
            known = self.get(message)
            if known is not None:
                known.requested = known.done
                self.send(pack_request(ClassifyRequest(message, known.done)))

    def _ask_unstarted(self, now: float) -> None:
        """Ask for the classification of messages that were not started for too long."""
        limit = now - self._after
        for _ in range(LATE_A_TURN):
            if not self._order or self._oldest.arrived > limit:
                return
            self.ask(self._oldest, MessageEvent.OVERDUE)

    @property
    def _oldest(self) -> AnnouncedMessage:
        """The first of `_order`, which is not empty."""
        return next(iter(self._order.values()))

    def _ask_oldest(self, now: float) -> None:
        """Ask for the classification of messages that are in flight for too long: they take up the limits."""
        limit = now - self._after
        asked = 0
        for known in islice(self._messages.values(), CROWDED_LOOK):
            if known.arrived > limit or asked == LATE_A_TURN:
                return
            if not (known.asked or known.ended):
                self.ask(known, MessageEvent.OVERDUE)
                asked += 1

    @property
    def _after(self) -> float:
        return float(self._config.current.classifyafter)

    def _choose(self, now: float) -> bytes:
        """Return what queue-todo is to do with new messages. `now` is the time of time.monotonic."""
        after = self._after
        if not after or self._shutdown.begun or self._open_marks() is None or self._is_broken(now):
            return CLASSIFY
        limit = self._pace.limit(now, after / 2)
        if self._mode != ANNOUNCE:
            limit = limit * 3 // 4  # Not back and forth with each message.
        if self._unstarted < limit and not (self._mode == CLASSIFY and self._unstarted and not self._pace.recent):
            # Mail of lower classes leaves half of the places to the first class.
            return FIRST if self._unstarted_lower >= limit // 2 else ANNOUNCE
        of_first = self._unstarted - self._unstarted_lower
        if self._unstarted_lower >= limit // 4 and of_first < limit // 2 and self._pace.brisk:
            return FIRST
        late = self._order and now - self._oldest.arrived > after
        if late or self._mode == CLASSIFY:
            return CLASSIFY
        starting = now - self._begun < after and not self._pace.has_warmed_up(now)
        # While few are started, waiting would only delay classification.
        return LEAVE if self._pace.brisk or starting else CLASSIFY

    def _is_broken(self, now: float) -> bool:
        """Return whether marks cannot be written. After a failure, a slot is tried before mail is announced again."""
        if not self._broken_until or now < self._broken_until or self._marks is None:
            return now < self._broken_until
        slot = self._marks.take()
        if slot is None:
            self._broken_until = now + BROKEN_SECONDS
            return True
        try:
            self._marks.clear(slot)
        except OSError:
            self._marks.release(slot)
            self._broken_until = now + BROKEN_SECONDS
            return True
        self._broken_until = 0.0
        return False

    def _open_marks(self) -> MarksFile | None:
        """Return queue/marks, None if it cannot be used. It is opened when it is needed for the first time."""
        if not self._opened:
            try:
                if not self._after and not is_there(f"{self._layout.queue}/marks"):
                    return None
                self._opened = True
                self._marks = MarksFile(self._layout)
                for trouble in self._marks.clear_absent():
                    self._fail(trouble)
            except OSError as error:
                why = reason(error)
                self._log.alert(f"unable to use {self._layout.queue}/marks: {why}; mail is classified before delivery")
        return self._marks

    def _fail(self, error: OSError) -> None:
        self._log.warning(f"unable to change {self._layout.queue}/marks: {reason(error)}; mail goes on")
