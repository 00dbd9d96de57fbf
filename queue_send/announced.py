"""Announced messages: delivered from queue-todo's notice, while todo/B/I is their only file.

    state        meaning                                                              next states
    ANNOUNCED    it is delivered; its DONE marks are a record in queue/marks          CLASSIFYING, ENDED
    CLASSIFYING  queue-todo was asked to classify it, and has not answered yet        classified (messages.py), gone

A message that ends as ANNOUNCED is removed by queue-clean: todo/B/I, the record, mess/B/I. Whatever needs files makes
it CLASSIFYING: a deferral, a failure, an order of queuectl, a hold, a start that comes later than `classifyafter`
seconds, and the exit; with very many announced messages, also a delivery that takes longer.
What waits for the files is done after queue-todo's answer. Deliveries go on meanwhile, and their marks go to the
record, and to the files when the answer has come.

`classifyafter` 0 has every message classified before it is delivered. So has a queue/marks that cannot be written.

queue-todo is told what to do with new mail: to announce it, to leave it in todo/ while enough announced messages have
not been started, or to classify it while such messages wait for longer than `classifyafter`, so that deliveries that
hang never delay classification.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Collection
from itertools import islice

from queue_base.errors import reason
from queue_base.layout import Layout, is_there
from queue_base.marks_file import MarksFile
from queue_send.config import ConfigFiles
from queue_send.envelopes import Envelopes, KeptEnvelope
from queue_send.log import Log
from queue_send.loop import Shutdown
from queue_wire.marks import SLOTS, DoneMarks, EnvelopeIdentity
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    LEAVE,
    Arrived,
    ClassifyAnswer,
    ClassifyRequest,
    pack_gone,
    pack_request,
)

UNSTARTED_LEAST = 300  # Announced messages that have not been started: as many as were started recently, within these.
UNSTARTED_MOST = 4000
BRISK = 50  # Messages started recently from which on new ones are left in todo/ at the limit, because their turn comes.
BROKEN_SECONDS = 60.0  # Seconds for which mail is classified after a mark could not be written; then one is tried.
LATE_A_TURN = 100  # Messages that wait for too long, of which one turn asks for the classification.
# With more announced messages, those that are in flight for too long are classified too. queue-todo's limit is higher.
CROWDED = SLOTS // 2
CROWDED_LOOK = 1000  # The oldest messages that a turn looks at then,
CROWDED_WAIT = 0.1  # at least so often, in seconds.
REQUESTS_A_TURN = 1000  # Requests that one turn sends.

# Called when a message is classified (True), or is not in todo/ any more (False).
Then = Callable[[bool], None]


class AnnouncedMessage(KeptEnvelope):
    """One announced message.

    places: the bit of each recipient by channel and offset. done: the bits of those that are done. slot: that of its
    record, None if it has none. since: when it arrived (monotonic). unstarted: recipients that were not started.
    requested: the done bits of the request to classify it, None if there is none. waiting: what waits for the answer.
    ended: queue-clean removes it.
    """

    announced = True
    __slots__ = ("done", "ended", "identity", "places", "requested", "since", "slot", "unstarted", "waiting")

    def __init__(self, notice: Arrived, due: int, since: float) -> None:
        super().__init__(notice, due)
        self.identity = EnvelopeIdentity(notice.message, notice.birth, notice.todo_size, notice.check)
        self.places: dict[tuple[str, int], int] = {}
        self.done = 0
        self.slot: int | None = None
        self.since = since
        self.unstarted = len(notice.recipients)
        self.requested: int | None = None
        self.waiting: list[Then] = []
        self.ended = False
        at = {"local": 0, "remote": 0}
        for bit, (letter, address) in enumerate(notice.recipients):
            kind = "local" if letter == b"L" else "remote"
            self.places[kind, at[kind]] = bit
            at[kind] += len(address) + 2

    def take_done(self, done: int) -> None:
        """Notes recipients that an earlier run has marked."""
        self.done = done
        for (kind, offset), bit in self.places.items():
            if done >> bit & 1:
                self.left[kind] = [each for each in self.left[kind] if each[0] != offset]
                self.unstarted -= 1
        self.left = {kind: left for kind, left in self.left.items() if left}

    def offsets(self, bits: int) -> dict[str, list[int]]:
        """Returns the offsets of the recipients with these bits, by channel."""
        found: dict[str, list[int]] = {}
        for (kind, offset), bit in self.places.items():
            if bits >> bit & 1:
                found.setdefault(kind, []).append(offset)
        return found


class Pace:
    """How many announced messages may wait for their start: as many as were started in `seconds` recently."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = self._before = 0

    def count(self) -> None:
        """Counts a message that was started."""
        self._count += 1

    @property
    def recent(self) -> bool:
        """Whether any message was started recently."""
        return bool(self._before or self._count)

    @property
    def brisk(self) -> bool:
        """Whether so many were started recently that those in todo/ may wait for their turn."""
        return max(self._before, self._count) >= BRISK

    def limit(self, now: float, seconds: float) -> int:
        """Returns the limit."""
        if now - self._began > 2 * seconds:
            self._before = self._count = 0
            self._began = now
        elif now - self._began > seconds:
            self._before, self._count = self._count, 0
            self._began = now
        return max(UNSTARTED_LEAST, min(UNSTARTED_MOST, max(self._before, self._count)))


class Announced:
    """A part of the loop: the announced messages, and what queue-todo is told. `send` writes to queue-todo."""

    def __init__(self, layout: Layout, log: Log, config: ConfigFiles, shutdown: Shutdown) -> None:
        self._layout = layout
        self.envelopes = Envelopes()
        self._log = log
        self._config = config
        self._shutdown = shutdown
        self.send: Callable[[bytes], None] = lambda data: None
        self._messages: dict[int, AnnouncedMessage] = {}
        self._order: deque[tuple[AnnouncedMessage, int]] = deque()  # Those that may be unstarted, in order of arrival.
        self._unstarted = 0
        self._requests: deque[tuple[int, int]] = deque()  # (position in the log, message) of requests to be sent.
        self._pace = Pace()
        self._mode = CLASSIFY
        self._marks: MarksFile | None = None
        self._broken_until = 0.0  # Mail is classified until then, because a mark could not be written.
        self._opened = False
        self._looked = False
        self._all_asked = False  # Whether all were asked to be classified at the exit.

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: int) -> bool:
        return message in self._messages

    def get(self, message: int) -> AnnouncedMessage | None:
        """Returns an announced message that has not ended."""
        known = self._messages.get(message)
        return None if known is None or known.ended else known

    # What queue-todo says

    def arrive(self, notice: Arrived, due: int) -> AnnouncedMessage:
        """Adds a message that queue-todo has announced."""
        known = AnnouncedMessage(notice, due, time.monotonic())
        try:
            self._take_over(known)
        except OSError as error:
            self._fail(error)
        self._messages[notice.message] = known
        self.envelopes.put(notice.message, known)
        if known.unstarted:
            self._unstarted += 1
            self._order.append((known, notice.message))
        if self._shutdown.begun:
            self._ask(known, notice.message)
        return known

    def _take_over(self, known: AnnouncedMessage) -> None:
        """Takes over the record that an earlier run has left for a message; drops that of another one of its number."""
        marks = self._open_marks()
        if marks is None or not marks.left:
            return
        left = marks.adopt(known.identity)
        if left is None:
            marks.drop(known.identity.message)
        else:
            known.slot = left[0]
            known.take_done(left[1])

    def classified(self, message: int) -> None:
        """A message was classified by queue-todo itself: what an earlier run has left for its number is over."""
        marks = self._marks
        if marks is not None and marks.left:
            try:
                marks.drop(message)
            except OSError as error:
                self._fail(error)

    def answer(self, answer: ClassifyAnswer) -> AnnouncedMessage | None:
        """Takes an answer of queue-todo; returns the message, which is not announced any more."""
        known = self._messages.get(answer.message)
        if known is None or known.requested is None:
            self._log.warning("internal error: queue-todo classified a message that it was not asked for")
            return None
        del self._messages[answer.message]
        self._start_all(known)
        self.envelopes.drop(answer.message)
        return known

    # What the other parts of queue-send say

    def started(self, message: int, count: int) -> None:
        """Notes that deliveries to `count` recipients of a message are started."""
        known = self._messages.get(message)
        if known is not None and known.unstarted:
            known.unstarted = max(0, known.unstarted - count)
            if not known.unstarted:
                self._unstarted -= 1
                self._pace.count()

    def _start_all(self, known: AnnouncedMessage) -> None:
        if known.unstarted:
            known.unstarted = 0
            self._unstarted -= 1

    def mark_done(self, known: AnnouncedMessage, kind: str, offsets: Collection[int]) -> None:
        """Marks recipients done in the record of a message. Raises OSError.

        If the record cannot be written, a message with recipients left is classified, which makes the marks durable.
        """
        for offset in offsets:
            known.done |= 1 << known.places[kind, offset]
        marks = self._open_marks()
        try:
            if marks is None:
                raise OSError(0, "queue/marks cannot be used")
            if known.slot is None:
                known.slot = marks.take()
            if known.slot is None:
                raise OSError(0, "queue/marks is full")
            marks.write(known.slot, DoneMarks(known.identity, known.done))
        except OSError as error:
            error.filename = error.filename or f"{self._layout.queue}/marks"
            self._broken_until = time.monotonic() + BROKEN_SECONDS
            if known.done + 1 < 1 << len(known.places):
                self._ask(known, known.identity.message)
            raise

    def classify(self, message: int, then: Then) -> None:
        """Has an announced message classified; calls `then` after queue-todo's answer."""
        known = self._messages[message]
        known.waiting.append(then)
        self._ask(known, message)

    def _ask(self, known: AnnouncedMessage, message: int) -> None:
        if known.requested is None and not known.ended:
            known.requested = -1  # The bits are those of the time when it is sent.
            self._requests.append((self._log.position, message))

    def end(self, message: int) -> int | None:
        """A message has ended without being classified; returns the slot of its record."""
        known = self._messages[message]
        known.ended = True
        self._start_all(known)
        self.envelopes.drop(message)
        return known.slot

    def removed(self, message: int, durable: bool = True) -> None:
        """queue-clean has removed a message; or, if not `durable`, is lost: then its record must stay."""
        known = self._messages.get(message)
        if known is not None and known.ended:
            del self._messages[message]
            if known.slot is not None and self._marks is not None and durable:
                self._marks.release(known.slot)
            self.send(pack_gone(message))

    def clear(self, known: AnnouncedMessage) -> None:
        """Clears the record of a message that is classified, when its files have the marks, or that is gone."""
        if known.slot is not None and self._marks is not None:
            try:
                self._marks.clear(known.slot)
            except OSError as error:
                self._fail(error)

    def left_behind(self) -> list[tuple[int, AnnouncedMessage]]:
        """Returns the messages that queue-todo, which is gone, has classified without an answer. Raises OSError."""
        found = []
        for message, known in self._messages.items():
            if not known.ended and known.requested is not None and not is_there(self._layout.todo(message)):
                found.append((message, known))
        return found

    # The loop

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Waits until the oldest message that was not started is to be classified."""
        if not self._looked:
            # An earlier run may have left records, also if no more are made.
            self._looked = True
            self._open_marks()
        if self._requests:
            return 0.0 if self._log.has_written(self._requests[0][0]) else 3600.0
        if self._mode != self._choose():
            return 0.0
        wait = CROWDED_WAIT if len(self._messages) > CROWDED else 3600.0
        if self._mode == LEAVE:
            wait = min(wait, self._after / 2)  # What was started recently is less by then.
        if not self._order:
            return wait
        return max(0.0, min(wait, self._order[0][0].since + self._after - time.monotonic()))

    def run(self, ready: dict[int, int], now: float) -> None:
        """Asks for the classification of messages that wait for too long; tells queue-todo what to do with new ones."""
        if self._shutdown.begun and not self._all_asked:
            self._all_asked = True
            for message, known in self._messages.items():
                self._ask(known, message)
        self._ask_unstarted()
        if len(self._messages) > CROWDED:
            self._ask_oldest()
        mode = self._choose()
        if mode != self._mode:
            self._mode = mode
            self.send(mode)
        if self._requests:
            self._log.flush()
        for _ in range(REQUESTS_A_TURN):
            if not self._requests or not self._log.has_written(self._requests[0][0]):
                break
            message = self._requests.popleft()[1]
            asked = self.get(message)
            if asked is not None:
                asked.requested = asked.done
                self.send(pack_request(ClassifyRequest(message, asked.done)))

    def _ask_unstarted(self) -> None:
        """Asks for the classification of messages that were not started for too long."""
        limit = time.monotonic() - self._after
        for _ in range(LATE_A_TURN):
            while self._order and (not self._order[0][0].unstarted or self._order[0][0].requested is not None):
                self._order.popleft()
            if not self._order or self._order[0][0].since > limit:
                return
            known, message = self._order.popleft()
            self._ask(known, message)

    def _ask_oldest(self) -> None:
        """Asks for the classification of messages that are in flight for too long: they take up the limits."""
        limit = time.monotonic() - self._after
        asked = 0
        for message, known in islice(self._messages.items(), CROWDED_LOOK):
            if known.since > limit or asked == LATE_A_TURN:
                return
            if known.requested is None and not known.ended:
                self._ask(known, message)
                asked += 1

    @property
    def _after(self) -> float:
        return float(self._config.current.classifyafter)

    def _choose(self) -> bytes:
        """Returns what queue-todo is to do with new messages."""
        now = time.monotonic()
        if not self._after or self._shutdown.begun or self._open_marks() is None or self._is_broken(now):
            return CLASSIFY
        limit = self._pace.limit(now, self._after / 2)
        if self._mode != ANNOUNCE:
            limit = limit * 3 // 4  # Not back and forth with each message.
        if self._unstarted < limit and not (self._mode == CLASSIFY and self._unstarted and not self._pace.recent):
            return ANNOUNCE
        late = self._order and now - self._order[0][0].since > self._after
        # While few are started, waiting would only delay classification.
        return CLASSIFY if late or self._mode == CLASSIFY or not self._pace.brisk else LEAVE

    def _is_broken(self, now: float) -> bool:
        """Returns whether marks cannot be written. After a failure, a slot is tried before mail is announced again."""
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
        """Returns queue/marks, None if it cannot be used. It is opened when it is needed for the first time."""
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
