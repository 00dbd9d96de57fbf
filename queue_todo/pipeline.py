"""The steps of a group of messages: prepared, logged, finished, announced to queue-send.

A DiskThread works on the disk, one piece of work after the other; the loop submits the work and never waits. While
queue-send writes the lines of a group to the log, the next group is prepared. Large envelopes have a queue of their
own. A slice of one alternates with a group of the others, so that a message with a hundred thousand recipients does not
delay other mail.
"""

import select
from collections import deque
from itertools import chain

from queue_base.daemon.disk_thread import DiskThread, Result
from queue_base.errors import reason
from queue_base.layout import Layout
from queue_todo.classify import PreparedMessage, TodoGroup, confirm
from queue_todo.notices import NoticePipe
from queue_todo.pending import RETRY_AFTER, Pending
from queue_wire import logline
from queue_wire.control.rewrite import Rules
from queue_wire.pipes.notice import NOTICE_MOST, Arrived, Ask, Classified, pack_arrived, pack_ask, pack_classified

GROUP = 250  # The most messages that share a commit.
UNWRITTEN_MOST = 4 << 20  # Bytes of notices that queue-send has not read; above it, no group is begun.
UNFINISHED_MOST = 2  # The most groups that wait for the log, or to be finished.
SLICE = 0.05  # Seconds of work on envelopes before the thread turns to something else.


class Pipeline:
    """Takes ids from `pending`, and sends log lines and notices to queue-send."""

    def __init__(self, layout: Layout, pending: Pending, notices: NoticePipe) -> None:
        self._layout = layout
        self._pending = pending
        self._notices = notices
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
        self._unsure: list[PreparedMessage] = []
        self._next_confirm = 0.0
        self._worked = False
        self._small_since = 0.0
        self._now = 0.0

    def prepare(self, poll: "select.poll", now: float, rules: Rules | None) -> float:
        """Register the thread's descriptor; return the seconds to wait at most."""
        self._disk.prepare(poll, now)
        if self._disk.busy:
            return 3600.0
        if self._logged or (rules is not None and self._may_begin):
            return 0.0
        return max(0.0, self._next_confirm - now) if self._unsure else 3600.0

    def run(self, ready: dict[int, int], now: float, rules: Rules | None) -> None:
        """Take results of the thread, and give it the next work. Without rules no group is begun."""
        self._now = now
        self._disk.run(ready, now)
        if self._disk.busy:
            return
        if self._logged:
            self._finish(self._logged.popleft())
        elif self._unsure and now >= self._next_confirm:
            self._confirm()
        elif rules is not None and self._may_begin:
            self._go_on(rules)

    def written(self) -> None:
        """Note that queue-send has written the lines of the oldest group to the log."""
        if self._sent:
            self._logged.append(self._sent.popleft())

    def ask_passed(self) -> None:
        """Answer, as soon as the groups whose lines have been sent are announced."""
        self._passes.append(self._groups_sent)
        self._answer_passed()

    def _answer_passed(self) -> None:
        while self._passes and self._passes[0] <= self._groups_announced:
            self._passes.popleft()
            self._notices.put(pack_ask(Ask.PASSED))

    def take_worked(self) -> bool:
        """Return whether messages were classified or parked since the last call."""
        worked, self._worked = self._worked, False
        return worked

    @property
    def has_unfinished(self) -> bool:
        """Whether there are messages whose lines are in the log, or were sent to it, and that are not finished."""
        return bool(self._sent or self._logged) or self._finishing

    @property
    def _may_begin(self) -> bool:
        if len(self._sent) + len(self._logged) >= UNFINISHED_MOST or self._notices.unwritten > UNWRITTEN_MOST:
            return False
        return bool(self._small or self._large or self._large_waiting or len(self._pending))

    def _go_on(self, rules: Rules) -> None:
        """Let the thread continue or begin a group; a large envelope alternates with the others."""
        others = self._small is not None or len(self._pending) > 0
        if (self._large or self._large_waiting) and (self._large_is_next or not others):
            self._large_is_next = False
            if self._large is None:
                self._large = TodoGroup(self._layout, rules, [self._large_waiting.popleft()], large=True)
            self._prepare(self._large)
        else:
            self._large_is_next = True
            if self._small is None:
                self._small_since = self._pending.arrival or self._now
                self._small = TodoGroup(self._layout, rules, self._pending.take(GROUP))
            self._prepare(self._small)

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
            self._pending.done([message], self._now)
            self._pending.park(message)
            self._notices.log(logline.corrupt_message(message, why))
            self._notices.alert(f"msg {message} cannot be read and is parked in corrupt: {why}")
            self._worked = True
        kept = {entry.message for entry in group.entries}
        kept.update(group.left, group.large, (message for message, _ in chain(group.parked, group.deferred)))
        self._pending.done([message for message in group.messages if message not in kept], self._now)
        self._defer(group)
        self._pending.part(group.together)
        if not group.entries:
            return
        for entry in group.entries:
            self._notices.log(logline.new_message(entry.message))
            line = logline.info_message(entry.message, entry.size, entry.sender, entry.pid, entry.uid)
            self._notices.log(line)
        self._notices.put(pack_ask(Ask.WRITTEN))
        self._sent.append(group)
        self._groups_sent += 1

    def _defer(self, group: TodoGroup) -> None:
        for message, _ in group.deferred:
            if message:
                self._pending.defer(message, self._now)
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
            self._pending.done([entry.message for entry in chain(group.entries, group.unsure)], self._now)
            self._defer(group)
            for entry in group.entries:
                self._notices.put(_pack(entry))
            self._worked = self._worked or bool(group.entries)
            self._groups_announced += 1
            self._answer_passed()
            if group.unsure:
                self._unsure += group.unsure
                self._next_confirm = self._now + RETRY_AFTER

        self._disk.submit(group.finish, then)

    def _confirm(self) -> None:
        unsure, self._unsure = self._unsure, []
        confirmed: list[PreparedMessage] = []

        def work() -> None:
            confirmed.extend(confirm(self._layout, unsure))

        def then(trouble: Result) -> None:
            if trouble is not None:
                self._unsure += unsure
                self._next_confirm = self._now + RETRY_AFTER
                return
            for entry in confirmed:
                # Not a full one: after so much time, queue-send may have found the message in its backlog.
                self._notices.put(_pack_short(entry))
            self._worked = self._worked or bool(confirmed)
            gone = {entry.message for entry in confirmed}
            # The others are classified again.
            self._pending.add([entry.message for entry in unsure if entry.message not in gone], self._now)

        self._disk.submit(work, then)


def _pack(entry: PreparedMessage) -> bytes:
    """Return the full notice of a classified message; a short one if its envelope is too long for that."""
    if entry.recipients is not None:
        full = pack_arrived(Arrived(entry.message, entry.birth, entry.size, entry.sender, entry.recipients))
        if len(full) <= NOTICE_MOST:
            return full
    return _pack_short(entry)


def _pack_short(entry: PreparedMessage) -> bytes:
    return pack_classified(Classified(entry.message, entry.local, entry.remote))
