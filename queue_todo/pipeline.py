"""The steps of a group of messages: prepared, logged, finished, announced to queue-send.

A DiskThread works on the disk, one piece of work after the other; the loop submits the work and never waits for the
disk. While queue-send writes the lines of a group to the log, the next group is prepared. Large envelopes have a queue
of their own. A slice of one alternates with a group of the others, so that a message with a hundred thousand recipients
does not delay other mail.

queue-send says what is done with new messages: they are announced, left in todo/, or classified; or those of the first
class are announced and the others left. Announced messages (announcements.py) are classified when queue-send asks for
it, in groups of their own. These alternate with groups of new messages: requests for thousands of messages, which take
seconds on a disk, must not delay new mail.
"""

import select
import time
from collections import deque
from itertools import chain, repeat

from queue_base.daemon.disk_thread import DiskThread, Result
from queue_base.errors import reason
from queue_base.queue.layout import Layout
from queue_base.queue.marks_file import LeftMarks
from queue_todo.announcements import Announcement, Announcements
from queue_todo.classify import PreparedMessage, ReadMessage, TodoGroup, confirm, first_domain
from queue_todo.hold_watch import StandingHolds
from queue_todo.notices import NoticePipe
from queue_todo.pending import RETRY_AFTER, LowerClass, Pending
from queue_wire import logline
from queue_wire.control.rewrite import Rules
from queue_wire.files.standing_hold import HoldTable
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    FIRST,
    LEAVE,
    NOTICE_MAX,
    PASSED,
    WRITTEN,
    Arrived,
    Ask,
    Classified,
    ClassifyAnswer,
    ClassifyDeferral,
    ClassifyRequest,
    Gone,
    Resubmission,
    pack_answer,
    pack_arrived,
    pack_ask,
    pack_classified,
    pack_deferral,
    pack_held,
)

GROUP = 250  # The most messages that share a commit.
UNWRITTEN_MAX = 4 << 20  # Bytes of notices that queue-send has not read; above it, no group is begun.
UNFINISHED_MAX = 2  # The most groups that wait for the log, or to be finished.
UNREAD_MAX = 65536  # Bytes of notices that queue-send has not read; above it, no message is announced.
FINISHING = 10.0  # Seconds after X to finish what is in the log, or announced.
SLICE = 0.05  # Seconds of work on envelopes before the thread turns to something else.
EXIT_RETRY = 1.0  # In an exit, seconds until what the disk has refused is tried again.


class Pipeline:
    """The part of the loop that has messages classified, as queue-send tells it to: a thread works on the disk.

    exit_by: the latest time to exit, None before X; a disk that hangs must not prevent the exit. No group is begun
    after X.
    """

    def __init__(self, layout: Layout, pending: Pending, notices: NoticePipe, holds: StandingHolds) -> None:
        self._layout = layout
        self._pending = pending
        self._notices = notices
        self.exit_by: float | None = None
        self._mode = CLASSIFY
        self._left_until = 0.0  # Until then messages were left in todo/, and did not wait for this process.
        self._worked = False
        self._now = 0.0
        self._disk = DiskThread()
        self._small: TodoGroup | None = None  # The group that is being prepared.
        self._large: TodoGroup | None = None
        self._large_waiting: deque[int] = deque()
        self._large_is_next = False
        self._sent: deque[TodoGroup] = deque()  # Groups whose lines were sent to queue-send.
        self._logged: deque[TodoGroup] = deque()  # Groups whose lines are in the log.
        self._finishing = False
        self._groups_sent = self._groups_announced = 0
        self._passes: deque[int] = deque()  # For each P, the number of groups that were sent before it.
        self.announced = Announcements()
        self._left_marks = self._read_marks()
        self._holds = holds
        self._begun: set[int] = set()  # Messages that may have files of a classification that failed,
        self._held: dict[int, bytes] = {}  # and those that may have the mark of a standing hold, with its reason.
        # The requests of queue-send that have no answer yet, by message, with the done bits; those that are next; and
        # those that the disk has refused, with the time of the next attempt.
        self._requested: dict[int, int] = {}
        self._next_requests: deque[int] = deque()
        self._refused: deque[tuple[float, int]] = deque()
        self._requested_alone: set[int] = set()  # Requests that failed together, and are tried one by one.
        self._answering = False
        self._lower_is_next = False  # Whether a look at the trees of the lower classes comes before the next group.
        self._new_is_next = False  # Whether a group of new messages comes before the next requests.
        self._unsure: list[PreparedMessage] = []
        self._next_confirm = 0.0
        self._retry_after = RETRY_AFTER  # Seconds until such requests, and `_unsure`, are tried again.
        self._small_since = 0.0

    def _read_marks(self) -> LeftMarks | None:
        try:
            return LeftMarks(self._layout)
        except OSError as error:
            why = reason(error)
            what = "some mail may be delivered twice"
            self._notices.alert(f"unable to read {self._layout.queue}/marks: {why}; {what}")
            return None

    def prepare(self, poll: "select.poll", now: float, rules: Rules | None) -> float:
        """Register the thread's descriptor; return the seconds to wait at most."""
        wait = self._disk.prepare(poll, now)
        if self._disk.busy:
            return wait
        if self._logged or self._next_requests:
            return 0.0
        if rules is not None and (self._may_begin or self._pending.may_sort or self._next_lower(now) is not None):
            return 0.0
        wait = max(0.0, self._next_confirm - now) if self._unsure else 3600.0
        return min(wait, max(0.0, self._refused[0][0] - now)) if self._refused else wait

    def run(self, ready: dict[int, int], now: float, rules: Rules | None) -> None:
        """Take results of the thread, and give it the next work. Without rules no group is begun."""
        self._now = now
        self._disk.run(ready, now)
        if self._disk.busy:
            return
        while self._refused and self._refused[0][0] <= now:
            self._next_requests.append(self._refused.popleft()[1])
        begins = rules is not None and self._may_begin
        if self._logged:
            self._finish(self._logged.popleft())
        elif self._next_requests and not (self._new_is_next and begins):
            self._new_is_next = True
            self._classify_requested()
        elif self._unsure and now >= self._next_confirm:
            self._confirm()
        elif (
            rules is not None
            and (self._lower_is_next or not begins)
            and (lower := self._next_lower(now)) is not None
        ):
            self._lower_is_next = False
            read_lower(self._disk, self._pending, self._notices, lower, now)
        elif rules is not None and begins:
            self._new_is_next = False
            self._lower_is_next = True
            self._go_on(rules)
        elif rules is not None and self._pending.may_sort:
            sort_waiting(self._disk, self._pending, self._layout)

    def carry_out(self, command: bytes | ClassifyRequest | Gone | Resubmission, now: float) -> bool:
        """Carry out a command of queue-send about messages; return False if it is another one."""
        if isinstance(command, ClassifyRequest):
            self._request(command.message, command.done)
        elif isinstance(command, Gone):
            self._gone(command.message)
        elif isinstance(command, Resubmission):
            self.resubmit(command.message, now)
        elif command == WRITTEN:
            if self._sent:
                self._logged.append(self._sent.popleft())
        elif command == PASSED:
            self._passes.append(self._groups_sent)
            self._answer_passed()
        elif command in (ANNOUNCE, LEAVE, CLASSIFY, FIRST):
            if self._mode == LEAVE:
                self._left_until = self._now
            self._mode = command
        else:
            return False
        return True

    @property
    def arrival(self) -> float | None:
        """When the next message arrived, or was not left in todo/ any more; None if none waits for this process."""
        arrival = self._pending.arrival
        if arrival is None or self._mode == LEAVE:
            return None
        return max(arrival, self._left_until)

    def _next_lower(self, now: float) -> LowerClass | None:
        """Return the lower class whose tree is to be read further, None if there is none."""
        return None if self._mode in (LEAVE, FIRST) else self._pending.next_to_read(now)

    def take_worked(self) -> bool:
        """Return whether messages were classified or parked since the last call."""
        worked, self._worked = self._worked, False
        return worked

    def begin_exit(self, now: float) -> None:
        """Finish what queue-send waits for, within FINISHING seconds, and begin nothing else. Only the first call
        counts.

        What the disk has refused is tried at once, and then each second: little time is left for the requests.
        """
        if self.exit_by is None:
            self.exit_by = now + FINISHING
            self._retry_after = EXIT_RETRY
            self._next_requests += [message for _, message in self._refused]
            self._refused.clear()
            self._next_confirm = self._now

    def _request(self, message: int, done: int) -> None:
        """Classify an announced message; `done` are the bits of its recipients that are done."""
        if message not in self._requested:
            self._requested[message] = done
            self._next_requests.append(message)

    def resubmit(self, message: int, now: float) -> None:
        """Classify a message now that could not be classified, or all of them if the number is 0."""
        refused = [each for _, each in self._refused if message in (0, each)]
        if refused:
            self._refused = deque(each for each in self._refused if each[1] not in refused)
            self._next_requests += refused
        if message not in self._requested:
            self._pending.resubmit(message, now)

    def _gone(self, message: int) -> None:
        """Note that an announced message has ended."""
        if self.announced.remove(message):
            self._pending.add_again([message], self._now)

    def _answer(self, message: int, classified: bool) -> None:
        """Answer a request; from now on the number is as any other."""
        self._requested.pop(message, None)
        self._requested_alone.discard(message)
        if classified:
            self._begun.discard(message)
        self._notices.put(pack_answer(ClassifyAnswer(message, classified)))
        self._gone(message)

    def _answer_passed(self) -> None:
        """Answer each P whose messages, those whose lines had been sent, are announced by now."""
        while self._passes and self._passes[0] <= self._groups_announced:
            self._passes.popleft()
            self._notices.put(pack_ask(Ask.PASSED))

    @property
    def has_unfinished(self) -> bool:
        """Whether there are announced messages, or some that are not finished and whose lines were sent to the log."""
        if self._sent or self._logged or self._next_requests or len(self.announced):
            return True
        return self._finishing or self._answering

    @property
    def may_exit(self) -> bool:
        """Whether an exit was begun, and nothing is unfinished, or that takes too long."""
        return self.exit_by is not None and (not self.has_unfinished or time.monotonic() >= self.exit_by)

    @property
    def _may_begin(self) -> bool:
        if len(self._sent) + len(self._logged) >= UNFINISHED_MAX or self._notices.unwritten > UNWRITTEN_MAX:
            return False
        if self._small or self._large or self._large_waiting:
            return True
        if self._mode == LEAVE or (self._mode in (ANNOUNCE, FIRST) and self._notices.unwritten > UNREAD_MAX):
            return False
        return self._pending.may_take(self._mode == FIRST)

    def _go_on(self, rules: Rules) -> None:
        """Let the thread continue or begin a group; a large envelope alternates with the others."""
        others = self._small is not None or (self._mode != LEAVE and self._pending.may_take(self._mode == FIRST))
        if (self._large or self._large_waiting) and (self._large_is_next or not others):
            self._large_is_next = False
            if self._large is None:
                messages = [self._large_waiting.popleft()]
                self._large = TodoGroup(
                    self._layout, rules, messages, large=True, holds=self._read_holds(), held=self._held,
                    classes=self._pending.classes_of(messages),
                )  # fmt: skip
            self._prepare(self._large)
        else:
            self._large_is_next = True
            if self._small is None:
                self._small_since = self._pending.arrival or self._now
                self._small = self._take_group(rules)
            if self._small is not None:
                self._prepare(self._small)

    def _take_group(self, rules: Rules) -> TodoGroup | None:
        """Return a group of pending messages; None if all of them are announced already."""
        messages = []
        for message in self._pending.take(GROUP, self._mode == FIRST):
            if self.announced.defer(message):
                self._pending.done([message], self._now)
            else:
                messages.append(message)
        if not messages:
            return None
        announce = self._mode in (ANNOUNCE, FIRST) and not self.announced.full
        return TodoGroup(
            self._layout,
            rules,
            messages,
            announce=set(messages) - self._begun if announce else (),
            scanned=self._pending.scanned.intersection(messages),
            marks=self._left_marks,
            holds=self._read_holds(),
            held=self._held,
            classes=self._pending.classes_of(messages),
        )

    def _read_holds(self) -> HoldTable:
        holds = self._holds.current()
        trouble = self._holds.take_trouble()
        if trouble is not None:
            self._notices.alert(trouble)
        return holds

    def _classify_requested(self) -> None:
        """Classify announced messages, because queue-send asks for it. Their lines are in the log already."""
        asked: dict[int, tuple[int, Announcement]] = {}
        while self._next_requests and len(asked) < GROUP:
            alone = self._next_requests[0] in self._requested_alone
            if alone and asked:
                break
            message = self._next_requests.popleft()
            announcement = self.announced.get(message)
            if announcement is None:
                self._answer(message, classified=False)  # queue-send has mistaken it.
            else:
                asked[message] = self._requested[message], announcement
                if alone:
                    break
        if not asked:
            return
        rules = next(iter(asked.values()))[1].rules
        classes = {message: each.priority for message, (_, each) in asked.items() if each.priority}
        group = TodoGroup(self._layout, rules, list(asked), requests=asked, classes=classes)
        self._answering = True

        def work() -> None:
            group.prepare()
            group.finish()

        def then(trouble: Result) -> None:
            self._answering = False
            if trouble is not None:
                # It is unknown how far it came. What has left todo/ is found by `_confirm`.
                group.unsure += group.entries
                unsure = {entry.message for entry in group.unsure}
                group.give_up(reason(trouble))
                group.deferred = [(message, why) for message, why in group.deferred if message not in unsure]
            for entry in group.entries:
                self._answer(entry.message, classified=True)
            if group.entries:
                self._pending.retry_refused()
            for message in group.absent:
                self._answer(message, classified=False)
            for message, why in group.parked:
                self._log_parked(message, why)
                self._answer(message, classified=False)
            self._next_requests += group.left
            refused = [message for message, _ in group.deferred if message]
            self._refused += [(self._now + self._retry_after, message) for message in refused]
            # If queue-send is told that one of these is gone, the number may have files of it.
            self._begun.update(refused)
            self._requested_alone.update(group.together)
            self._warn_deferred(group)
            if group.unsure:
                self._unsure += group.unsure
                self._next_confirm = self._now + self._retry_after

        self._disk.submit(work, then)

    def _prepare(self, group: TodoGroup) -> None:
        prepared = False

        def work() -> None:
            nonlocal prepared
            prepared = group.prepare(SLICE)

        def then(trouble: Result) -> None:
            if trouble is not None:
                group.give_up(reason(trouble))
            elif not prepared:
                return
            if group is self._large:
                self._large = None
            else:
                self._small = None
            self._log_group(group)

        self._disk.submit(work, then)

    def _log_group(self, group: TodoGroup) -> None:
        """Log the prepared messages and the parked ones; return the others of the group to the pending ones."""
        self._pending.give_back(group.left, self._small_since)
        self._large_waiting += group.large
        for message, why in group.parked:
            self._log_parked(message, why)
            self._pending.done([message], self._now)
        self._announce(group.announced, group.rules)
        kept = {entry.message for entry in group.entries}
        kept.update(group.left, group.large, (message for message, _ in chain(group.parked, group.deferred)))
        self._pending.done([message for message in group.messages if message not in kept], self._now)
        self._note_held(group)
        self._defer(group)
        self._pending.part(group.together)
        if not group.entries:
            return
        for entry in group.entries:
            if not entry.logged:
                self._log_arrival(entry)
            if entry.held is not None:
                self._notices.put(pack_held(entry.message))
                self._notices.log(logline.hold_message(entry.message, entry.held))
        self._notices.put(pack_ask(Ask.WRITTEN))
        self._sent.append(group)
        self._groups_sent += 1

    def _note_held(self, group: TodoGroup) -> None:
        """Note which messages of a group were not classified and may have a mark that queue-send was not told of."""
        if self._held or group.held:
            deferred = {message for message, _ in group.deferred}
            for message in group.messages:
                if message in deferred and message in group.held:
                    self._held[message] = group.held[message]
                elif message not in deferred and message not in group.left and message not in group.large:
                    self._held.pop(message, None)

    def _log_arrival(self, entry: PreparedMessage) -> None:
        self._notices.log(logline.new_message(entry.message))
        self._notices.log(logline.info_message(entry.message, entry.size, entry.sender, entry.pid, entry.uid))

    def _log_parked(self, message: int, why: str) -> None:
        self._pending.park(message)
        self._notices.log(logline.corrupt_message(message, why))
        self._notices.alert(f"msg {message} cannot be read and is parked in corrupt: {why}")
        self._worked = True

    def _announce(self, entries: list[ReadMessage], rules: Rules) -> None:
        """Hand messages to queue-send as they are; it logs them."""
        for notice, read in entries:
            self.announced.add(notice.message, Announcement(rules, read, notice.todo_size, notice.priority))
            self._notices.put(pack_arrived(notice))
            self._worked = True

    def _defer(self, group: TodoGroup) -> None:
        for message, why in group.deferred:
            if message:
                self._begun.add(message)
                delay = self._pending.defer(message, self._now, refused=message in group.refused)
                if delay:
                    when = int(time.time() + delay)
                    self._notices.put(pack_deferral(ClassifyDeferral(message, when, why.encode("utf-8", "replace"))))
        self._warn_deferred(group)

    def _warn_deferred(self, group: TodoGroup) -> None:
        if group.deferred:
            # One line for the whole group, so that a full disk does not fill the log.
            message, why = group.deferred[0]
            others = f" (and {len(group.deferred) - 1} more)" if len(group.deferred) > 1 else ""
            which = f"msg {message}" if message else "some messages"
            self._notices.warn(f"unable to classify {which}{others}: {why}; will try again later")
        group.deferred = []

    def _finish(self, group: TodoGroup) -> None:
        self._finishing = True

        def then(trouble: Result) -> None:
            self._finishing = False
            if trouble is not None:
                # It is unknown how far it came: `_confirm` finds out.
                group.unsure, group.entries = group.entries, []
                group.deferred.append((0, reason(trouble)))
            self._begun.difference_update(entry.message for entry in chain(group.entries, group.unsure))
            self._pending.done([entry.message for entry in chain(group.entries, group.unsure)], self._now)
            self._defer(group)
            for entry in group.entries:
                self._notices.put(_pack(entry))
            if group.entries:
                self._worked = True
                self._pending.retry_refused()
            self._groups_announced += 1
            self._answer_passed()
            if group.unsure:
                self._unsure += group.unsure
                self._next_confirm = self._now + self._retry_after

        self._disk.submit(group.finish, then)

    def _confirm(self) -> None:
        unsure, self._unsure = self._unsure, []
        confirmed: list[PreparedMessage] = []

        def work() -> None:
            confirmed.extend(confirm(self._layout, unsure))

        def then(trouble: Result) -> None:
            if trouble is not None:
                self._unsure += unsure
                self._next_confirm = self._now + self._retry_after
                return
            for entry in confirmed:
                if entry.message in self._requested:
                    self._answer(entry.message, classified=True)
                else:
                    # Not a full one: after so much time, queue-send may have found the message in its backlog.
                    self._notices.put(_pack_short(entry))
            if confirmed:
                self._worked = True
                self._pending.retry_refused()
            gone = {entry.message for entry in confirmed}
            # The others are classified again.
            again = [entry.message for entry in unsure if entry.message not in gone]
            self._begun.update(again)
            self._next_requests += [message for message in again if message in self._requested]
            self._pending.add_again([message for message in again if message not in self._requested], self._now)

        self._disk.submit(work, then)


def read_lower(disk: DiskThread, pending: Pending, notices: NoticePipe, lower: LowerClass, now: float) -> None:
    """Have the thread read names, and their times, in the tree of a lower class."""

    def then(trouble: Result) -> None:
        complaint = pending.take_read(lower, now, trouble)
        if complaint is not None:
            notices.warn(complaint)

    disk.submit(lower.read, then)


def sort_waiting(disk: DiskThread, pending: Pending, layout: Layout) -> None:
    """Have the thread sort messages that have to wait by domain. Until that is done, none may be taken."""
    messages = pending.take_unsorted(GROUP)
    domains: list[bytes] = []

    def work() -> None:
        domains.extend(first_domain(layout.todo_in("", message)) for message in messages)

    def then(trouble: Result) -> None:
        del trouble  # Those that were not looked at have no domain.
        pending.sort(zip(messages, chain(domains, repeat(b"")), strict=False))

    disk.submit(work, then)


def _pack(entry: PreparedMessage) -> bytes:
    """Return the full notice of a classified message; a short one if that does not hold its envelope or its birth."""
    if entry.recipients is not None:
        facts = entry.message, entry.birth, entry.size, entry.sender, entry.recipients
        full = pack_arrived(Arrived(*facts, uid=entry.uid, priority=entry.priority, submitter=entry.submitter))
        if len(full) <= NOTICE_MAX:
            return full
    return _pack_short(entry)


def _pack_short(entry: PreparedMessage) -> bytes:
    facts = entry.message, entry.local, entry.remote, entry.priority
    return pack_classified(Classified(*facts, entry.uid, entry.submitter))
