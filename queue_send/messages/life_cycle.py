"""The life of messages in queue-send: carries out what the table of transitions.py leads to.

For a waiting message only its number and its next attempt are in memory; everything else is on the disk, and is read
when the message is loaded. The scheduler of each channel decides; the parts of queue-send report what happened as
events (events.py), which Messages carries out in the same turn. Nothing here waits. An operation that the disk refuses
is tried again later (disk_retry.py).

A mark in hold/ may be an order: to delete the message, or to bounce it or some of its recipients (hold_marks.py). An
order is carried out when nothing of the message is in flight, in this run or, after a crash, in the next one.

A message that is finished ends in stages: an announced one of which queue-todo was asked to make files waits for the
answer; then what is kept of it is given up, as soon as nothing of it is being written; then `end msg` is logged and
queue-clean removes its files.
"""

import select
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from queue_base.durable import Commit
from queue_base.errors import reason
from queue_base.queue import hold_marks as marks
from queue_send.admin.bounce_orders import BounceOrders
from queue_send.cleaner import Cleaner
from queue_send.delivery.channel import Channel
from queue_send.delivery.result_writer import ResultWriter
from queue_send.messages.announced import AnnouncedMessage
from queue_send.messages.backlog import FoundMessages
from queue_send.messages.message_changes import MessageChanges
from queue_send.messages.transitions import MARKED, NOT_TRIED, MessageAction, MessageEvent, MessageState
from queue_send.notify.bounce import Bouncer
from queue_send.notify.delay import DelayNotifier
from queue_send.scheduler.retry import AGAIN_AFTER, within_lifetime
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.admin.returning import RecipientSelector
from queue_wire.files.hold_mark import HoldMark, HoldOrder
from queue_wire.format_error import FormatError
from queue_wire.pipes import cleaning
from queue_wire.pipes.cleaning import TODO, Removal
from queue_wire.pipes.notice import (
    LOCAL,
    PASSED,
    REMOTE,
    Arrived,
    Classified,
    ClassifyAnswer,
    ClassifyDeferral,
    Held,
    Notice,
)

DEFERRALS_MAX = 10_000  # Messages that could not be classified of which the reason is known.
BIRTH_AHEAD_MAX = 60  # Seconds that a birth may lie in the future: clocks of different hosts differ a little.


# Names of their own, because Python 3.11 is slow to look up a member of an Enum.
_ANNOUNCED, _NONE_LEFT, _FREE = MessageEvent.ANNOUNCED, MessageEvent.NONE_LEFT, MessageEvent.FREE
_REMOVED = MessageEvent.REMOVED
_GONE = (MessageState.REMOVING, MessageState.LOST)
# What queue-todo, queue-pickup and queue-intake say about messages.
MessageNotice = Notice | ClassifyAnswer | ClassifyDeferral | Held
# What an event says besides: a channel, a text, the notice that has come, or what waits for queue-todo's answer.
Detail = str | bytes | Notice | AnnouncedMessage | None


def shorten(notice: Notice) -> Notice:
    """Return a notice about a classified message without its envelope, so that the disk says what is there."""
    if isinstance(notice, Classified):
        return notice._replace(uid=None, submitter=b"")
    if notice.announced:
        return notice
    channels = {channel for channel, _ in notice.recipients}
    return Classified(notice.message, LOCAL in channels, REMOTE in channels, notice.priority)


class Messages:
    """The messages of the queue, announced and classified; a part of the loop."""

    def __init__(
        self,
        parts: SharedParts,
        channels: Sequence[Channel],
        bouncer: Bouncer,
        delays: DelayNotifier,
        results: ResultWriter,
        bounce_orders: BounceOrders,
        cleaner: Cleaner,
    ) -> None:
        self.store, self._log, self._clock, self._config = parts.store, parts.log, parts.clock, parts.config
        self._disk, self._retry, self._events, self._counters = parts.disk, parts.retry, parts.events, parts.counters
        self.channels = {channel.kind: channel for channel in channels}
        self.bouncer = bouncer
        self._delays = delays
        self._results = results
        self._bounce_orders = bounce_orders
        self._cleaner = cleaner
        self._cleaner_lost = False  # Whether it was lost before this turn.
        self.found = FoundMessages()
        self.all_read = False  # Whether the backlog has been read.
        self._arrived: set[int] = set()  # Messages that arrived before that; `discover` does not add them again.
        self._all_due = False  # ALRM came before that.
        # A notice is late if its message was found on the disk before it came: at start, or by an order of the
        # administrator, which has made it due or ended it. _none_late: no late notice can come any more. _doubtful:
        # there was such an order since queue-todo was asked whether it has sent all notices.
        self._none_late = False
        self._doubtful = False
        self._actions: dict[MessageAction, Callable[[int, Detail], None]] = {
            MessageAction.START: self._start,
            MessageAction.TRY_AGAIN: self._try_again,
            MessageAction.TELL: self._tell,
            MessageAction.STOP: self._stop,
            MessageAction.CARRY_OUT: self.carry_out_order,
            MessageAction.PARK: self._park,
            MessageAction.FINISH_CHANNEL: self._finish_channel,
            MessageAction.FINISH: self._finish,
            MessageAction.BOUNCE: self._bounce,
            MessageAction.RETURN: self._return,
            MessageAction.END_RETURN: self._end_return,
            MessageAction.SETTLE: self._settle,
            MessageAction.REMOVE: self._remove,
            MessageAction.LOSE: self._lose,
            MessageAction.LET_GO: self._let_go,
            MessageAction.TAKE_KEPT: self._take_kept,
        }
        self._step = self.store.records.step
        # Notices about messages whose numbers are in use by earlier ones, which have ended.
        self._kept: dict[int, list[Notice | Held]] = {}
        self.changes = MessageChanges(self.store.records, self._log, self._disk, self._events)
        # The messages that queue-todo could not classify, the latest at the end.
        self.deferrals: OrderedDict[int, ClassifyDeferral] = OrderedDict()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait if there are events, or after the loss of queue-clean: `run` then says what is gone with it."""
        news = self._cleaner.lost and not self._cleaner_lost
        self._cleaner_lost = self._cleaner.lost
        return 0.0 if self._events or news else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Carry out the events, and queue-clean's answers."""
        for message in self._cleaner.take_removed():
            self.store.announced.removed(message)
            self.happened(_REMOVED, message)
        while self._events:
            self.happened(*self._events.popleft())
        if self._cleaner_lost:
            self._free_removing()

    def _free_removing(self) -> None:
        """queue-clean will not answer any more. A notice about a new message shows that the earlier one is gone.

        queue-todo exits when it was told of the end of all announced messages. By now it has its order to exit, which
        followed the loss of queue-clean, so it does not look at their numbers again.
        """
        for message in self.store.announced.ended():
            self.store.announced.removed(message, durable=False)
        for message in list(self._kept):
            if self.state(message) is MessageState.REMOVING:
                self.happened(MessageEvent.REMOVED, message)

    def happened(self, event: MessageEvent, message: int, detail: Detail = None) -> None:
        """Carry out an event of a message."""
        for action in self._step(event, message):
            self._actions[action](message, detail)

    def state(self, message: int) -> MessageState:
        """Return the state of a message."""
        return self.store.records.state(message)

    def _try_again(self, message: int, kind: Detail) -> None:
        """Have a channel try a message that was released, or has a new birth, while it was in flight."""
        assert isinstance(kind, str)
        self.channels[kind].scheduler.make_due(message)

    def _stop(self, message: int, detail: Detail) -> None:
        for channel in self.channels.values():
            channel.scheduler.forget(message)

    def _bounce(self, message: int, detail: Detail) -> None:
        self.bouncer.accept(message)

    def _return(self, message: int, detail: Detail) -> None:
        self._bounce_orders.take(message, self.order_of(message) == HoldOrder.BOUNCE_SOME)

    def is_loaded(self, message: int) -> bool:
        """Return whether recipients of a message are queued or in flight."""
        return any(channel.scheduler.holds(message) for channel in self.channels.values())

    def status(self, leaving: bool) -> bytes:
        """Return the status line."""
        local, remote = self.channels["local"].scheduler, self.channels["remote"].scheduler
        limits = local.settings.concurrency, remote.settings.concurrency
        return logline.status(local.in_flight, limits[0], remote.in_flight, limits[1], leaving)

    # Arrival

    def take(self, notice: MessageNotice, now: float) -> None:
        """Take a notice about a message."""
        if isinstance(notice, Arrived | Classified):
            self.arrive(notice, now)
        elif isinstance(notice, ClassifyAnswer):
            self.answer(notice)
        elif isinstance(notice, Held):
            self.hold_new(notice.message)
        elif isinstance(notice, ClassifyDeferral):
            self.defer_classification(notice)
        else:
            assert_never(notice)

    @property
    def injects(self) -> bool:
        """Whether a message of our own is being injected."""
        return self.bouncer.busy or self._delays.busy

    def announce(self, pid: int) -> None:
        """Log that a bounce or a delay notice is queued, if process `pid`, which has injected a message, is ours."""
        self.bouncer.announce(pid)
        self._delays.announce(pid)

    def arrive(self, notice: Notice, now: float) -> None:
        """Add a message that was announced or classified just now; if the disk refuses a read, it is tried again later.
        """
        try:
            self._arrive(notice, now)
        except OSError as error:
            # By then the envelope may be that of an earlier message of this number: the disk says what is there.
            self.store.records.forget(notice.message)
            self.found.forget(notice.message)
            self._retry.later(("arrive", notice.message), partial(self.arrive, shorten(notice)), error)

    def _arrive(self, notice: Notice, now: float) -> None:
        """Add a message; a late notice changes nothing.

        While notices may be late, only the number in a notice is used: its envelope may be that of an earlier message
        of this number, which was found on the disk and is gone by now. The files tell which channels have recipients.
        """
        message = notice.message
        self.deferrals.pop(message, None)
        # If it may be late, it is kept without its envelope, because by then it may not look like a late one any more.
        if self._keep(message, notice if self._none_late else shorten(notice)):
            return
        if isinstance(notice, Arrived):
            self._counters.add_arrival(now + self._clock.ahead - notice.birth / 1e6)
            if notice.announced:
                self._arrive_announced(notice, now)
                return
        self.store.announced.classified(message)
        certain = self._none_late and not self.found.holds(message)
        if isinstance(notice, Arrived) and certain:
            self.store.records.keep(notice, self._clock.to_disk(int(now)))
            self.store.classes.put(message, notice.priority)
        elif self.found.holds(message) or self.store.discover(message) is None:
            return  # Found at start; gone; or a new message of this number, whose own notice will come.
        if not self.all_read:
            self._arrived.add(message)
        self._forget_old_marks(message)
        if not (isinstance(notice, Arrived) and certain):
            self.found.add(message)  # If this notice was a late one, its own will come, and changes nothing then.
        # The destination of a late notice may be that of another message.
        self.happened(MessageEvent.ARRIVED, message, notice if certain else shorten(notice))

    def _arrive_announced(self, notice: Arrived, now: float) -> None:
        """Add a message that is delivered from its notice, while it is still in todo/."""
        message = notice.message
        if message in self.store.announced:
            self._log.warning(f"internal error: queue-todo announced msg {message} twice")
            return
        if not self.all_read:
            self._arrived.add(message)  # If it is classified soon, the backlog may find it.
        self.store.classes.put(message, notice.priority)
        with suppress(OSError):  # Then it counts as marked, and is classified first.
            self._forget_old_marks(message)
        self.store.announced.arrive(notice, self._clock.to_disk(int(now)))
        self.happened(_ANNOUNCED, message, notice)

    def _start(self, message: int, notice: Detail) -> None:
        """Have a new message tried on the channels that have recipients of it. Raises OSError."""
        assert isinstance(notice, Arrived | Classified)
        known = self.store.records.facts(message)
        kinds: Collection[str] = self._dues(message) if known is None else known.left
        for kind in kinds:
            channel = self.channels[kind]
            if not channel.scheduler.holds(message):
                channel.add_new(notice)
        if not kinds:
            self.happened(_NONE_LEFT, message)

    def _keep(self, message: int, notice: Notice | Held) -> bool:
        """Return whether the number of a notice is in use by a message that has ended; the notice is kept then."""
        record = self.store.records.get(message)
        if record is None or record.state not in _GONE:
            return False
        if self._cleaner.lost and record.state is MessageState.REMOVING:
            self.store.announced.removed(message, durable=False)
            self.happened(MessageEvent.REMOVED, message)
            return False
        kept = self._kept.setdefault(message, [])
        kept[:] = [each for each in kept if isinstance(each, Held)] + [notice]
        return True

    def _take_kept(self, message: int, detail: Detail) -> None:
        for notice in self._kept.pop(message, ()):
            if isinstance(notice, Held):
                self.hold_new(message)
            else:
                self.arrive(notice, self._clock.now())

    def defer_classification(self, deferral: ClassifyDeferral) -> None:
        """Note why a message could not be classified."""
        self.deferrals.pop(deferral.message, None)
        self.deferrals[deferral.message] = deferral
        if len(self.deferrals) > DEFERRALS_MAX:
            self.deferrals.popitem(last=False)
        self.carry_out_order(deferral.message)

    def answer(self, answer: ClassifyAnswer, durable: bool = True) -> None:
        """Take queue-todo's answer about an announced message: it has files from now on, or is gone.

        Only marks are written if the message may return to todo/.
        """
        known = self.store.announced.answer(answer)
        if known is None:
            return
        if answer.classified:
            self._write_marks(answer.message, known)
        if not durable:
            return
        self.happened(MessageEvent.CLASSIFIED if answer.classified else MessageEvent.GONE, answer.message, known)

    def _tell(self, message: int, known: Detail) -> None:
        """Do what has waited for an answer of queue-todo."""
        assert isinstance(known, AnnouncedMessage)
        self.store.announced.clear(known)
        for channel in self.channels.values():
            channel.classified(message, not self.store.is_lost(message))

    def _lose(self, message: int, detail: Detail) -> None:
        """Drop an announced message that is not in todo/ any more. What is in flight of it ends without marks."""
        if not self._is_deleted(message):
            self._log.warning(f"msg {message} has left todo/, or is another one; nothing more of it is tried")
        self._log.put(logline.end_message(message))
        self.withdraw(message, self._clock.now())
        for channel in self.channels.values():
            channel.forget(message)
        self._let_go(message, detail)

    def _is_deleted(self, message: int) -> bool:
        record = self.store.records.get(message)
        return record is not None and record.order == HoldOrder.DELETE

    def _let_go(self, message: int, detail: Detail) -> None:
        """Free the number of a message that has left todo/, when nothing of it is in flight; a deleted one is removed.
        """
        if self.is_loaded(message):
            return  # WITHDRAWN follows.
        if self._is_deleted(message):
            self.happened(_FREE, message)
            self._cleaner.remove(Removal(message), self._clock.now())
        else:
            self.happened(MessageEvent.REMOVED, message)

    def _write_marks(self, message: int, known: AnnouncedMessage) -> None:
        """Mark recipients in the files of a message that were done after queue-todo was asked to classify it.

        If the disk refuses to remove the file of a channel that is done, the channel tries it again later: until then
        the other one cannot finish the message.
        """
        late = known.done & ~(known.requested or 0)
        for kind, offsets in known.offsets(late).items():
            try:
                self.store.mark_done(message, kind, offsets)
            except OSError as error:
                path = error.filename or message
                self._log.warning(f"trouble marking {path}: {reason(error)}; message will be delivered twice!")
                self.store.disk.note()
        for kind in known.sizes:
            if kind not in known.left and known.left:
                try:
                    self.store.drop(self.store.layout.hashed(kind, message))
                except OSError as error:
                    self._finish_channel_later(message, kind, error)

    def settle_announced(self) -> bool:
        """Called at the exit, when nothing is in flight and queue-todo has ended: does what its answers would have led
        to, for the messages that have left todo/ without one. Returns whether there are such messages; then it is
        called again when the disk thread has ended.

        What waits for the answer about a message that is still in todo/ is dropped: the next run delivers it as a new
        one, except to the recipients that are done. A recipient that has failed is tried again. Its failure could only
        be recorded in bounce/, and a message in todo/ has no file there: a bounce would tell of a failure, while the
        next attempt may succeed. The sender gets the bounce of the attempt that is recorded.
        """
        try:
            left = {message: self.store.has_info(message) for message in self.store.announced.left_behind()}
        except OSError as error:
            self._log.warning(f"unable to look at {error.filename or 'todo'}: {reason(error)}; the next run will")
            return False
        if not left:
            return False

        def then(trouble: OSError | None) -> None:
            if trouble is not None:
                where = trouble.filename or "todo"
                what = f"the failures of {len(left)} messages are not recorded"
                self._log.warning(f"unable to sync {where}: {reason(trouble)}; {what}")
            for message, classified in left.items():
                self.answer(ClassifyAnswer(message, classified), durable=trouble is None)

        # Where they were: the layout cannot say it of envelopes that are gone.
        known = [self.store.announced_message(message) for message in left]
        paths = [self.store.layout.todo_in(each.priority, each.identity.message) for each in known if each is not None]
        self._disk.submit(partial(self._sync_removals, paths), then)
        return True

    def _sync_removals(self, paths: list[str]) -> None:
        """Make it durable that envelopes are gone. If a power cut returned one, its mail would be delivered again."""
        commit = Commit()
        for path in paths:
            commit.removed(path)
        commit.sync()

    def report_unclassified(self) -> None:
        """Called at the exit: logs how many messages have results that are dropped, as `settle_announced` explains."""
        count = self.store.announced.unanswered
        if count:
            self._log.warning(
                f"{count} messages could not be classified before the exit; the next run tries all recipients that are "
                "not done"
            )

    def _forget_old_marks(self, message: int) -> None:
        """Forget marks that are gone from the disk: they were of an earlier message of this number. Raises OSError."""
        record = self.store.records.get(message)
        if record is None:
            return
        layout, state = self.store.layout, record.state
        if state is MessageState.HELD and not marks.is_marked(layout, "hold", message):
            self.release(message)
        elif state is MessageState.PARKED and not marks.is_marked(layout, "corrupt", message):
            held = marks.is_marked(layout, "hold", message)
            self.release(message)
            if held:
                self.hold_new(message)

    def discover(self, message: int) -> bool:
        """Add a message that was found in info/ at start, as the last run left it, if it is classified.

        Returns whether the caller is to add it to `found`. Raises OSError; it may be called again then.
        """
        state = self.state(message)
        if message in self._arrived or (state in NOT_TRIED and state is not MessageState.HELD):
            return False
        birth = self.store.discover(message)
        if birth is None:
            return False
        if state is MessageState.HELD:
            self.happened(MessageEvent.ARRIVED, message)
            return self.state(message) is not MessageState.REMOVING
        dues = self._dues(message)
        latest = self._latest_attempt(birth, max(dues.values(), default=0))
        for kind, due in dues.items():
            self.channels[kind].scheduler.add_deferred(message, due, self._all_due, latest)
        if not dues:
            self.happened(_NONE_LEFT, message)
        return bool(dues)

    def _dues(self, message: int) -> dict[str, int]:
        """Return the next attempt on each channel that has recipients left. Raises OSError."""
        from_disk = self._clock.from_disk
        return {kind: from_disk(due) for kind in self.channels if (due := self.store.due(message, kind)) is not None}

    def _latest_attempt(self, disk_birth: int, due: int) -> int:
        """Return the time by which a message of an earlier run is tried: `due`, or the end of its lifetime if sooner.

        The next attempt on the disk may be after the end of the lifetime: qmail's curve goes on beyond it. A birth in
        the future means that the clock was set back: the message then waits as long from now as it would have from its
        birth.
        """
        now = int(self._clock.now())
        if due <= now:
            return due
        birth = self._clock.birth_from_disk(disk_birth)
        if birth > now + BIRTH_AHEAD_MAX:
            due = max(now, due - (birth - now))
        return within_lifetime(due, now, birth + self._config.current.longest)

    def all_found(self) -> None:
        """Called when the backlog has been read."""
        self._arrived.clear()
        self._all_due = False
        self.all_read = True
        self.store.announced.send(PASSED)

    def none_late(self) -> None:
        """Called with queue-todo's answer: the notices of all messages that were classified before the question have
        come.
        """
        self._none_late = not self._doubtful
        if self._doubtful:
            self._doubtful = False
            self.store.announced.send(PASSED)

    def _doubt_notices(self) -> None:
        """Called before an order tries or ends a message that was found on the disk: its notice may come later.

        Until queue-todo says that it has sent all notices, only the number in a notice is used (`_arrive`).
        """
        if self._none_late:
            self._none_late = False
            self.store.announced.send(PASSED)
        else:
            self._doubtful = True

    # Attempts

    def flush(self, now: float) -> None:
        """Make everything due now, on ALRM; also the messages that the backlog has not found yet."""
        self._all_due = not self.all_read
        for channel in self.channels.values():
            channel.flush(now)

    def make_due(self, message: int) -> bool:
        """Make a waiting message due now, or finish it if no recipient is left; return whether it was made due.

        If the disk refuses a read, it is tried again later.
        """
        if self.store.announced_message(message) is not None:
            return not self.is_loaded(message)  # It is new: it is due.
        self._doubt_notices()
        self.store.records.forget(message)  # Its next attempt is that of its file.
        try:
            dues = self._dues(message)
        except OSError as error:
            self._retry.later(("wake", message), lambda now: self._make_due_again(message), error)
            return False
        if not dues and self.state(message) not in MARKED:
            self.happened(_NONE_LEFT, message)
        made = [self.channels[kind].make_due(message, due) for kind, due in dues.items()]
        return any(made)

    def make_some_due(self, message: int, selector: RecipientSelector) -> bool:
        """Make the chosen recipients of a waiting message due now; return whether they were made due.

        The others wait as before, unless the message is due anyway. Raises OSError.
        """
        if self.store.announced_message(message) is not None:
            return not self.is_loaded(message)  # It is new: it is due.
        self._doubt_notices()
        self.store.records.forget(message)
        now = self._clock.now()
        dues = self._dues(message)
        made = [self.channels[kind].make_some_due(message, due, selector, now) for kind, due in dues.items()]
        return any(made)

    @property
    def takes_partial_flushes(self) -> bool:
        """Whether `make_some_due` may add a message."""
        return all(channel.takes_partial_flushes for channel in self.channels.values())

    def _make_due_again(self, message: int) -> None:
        try:
            if self.store.may_be_tried(message) and self.store.is_classified(message):
                self.make_due(message)
        except OSError as error:
            self._retry.later(("wake", message), lambda now: self._make_due_again(message), error)

    def withdraw(self, message: int, now: float) -> bool:
        """Prevent further starts of a message; return whether it was loaded, in which case WITHDRAWN follows."""
        loaded = self.is_loaded(message)
        for channel in self.channels.values():
            channel.withdraw(message, now)
        return loaded

    # Marks and orders

    def _park(self, message: int, why: Detail) -> None:
        """Park a message because a file of it is malformed: make the mark in corrupt/, and log an alert."""
        assert isinstance(why, str)
        self.store.malformed.discard(message)
        self._log.put(logline.corrupt_message(message, why))

        def write(message: int, commit: Commit) -> None:
            self.store.park(message, why, commit)

        def done(changed: int, trouble: str) -> None:
            more = f"; {trouble}" if trouble else ""
            self._log.alert(f"msg {message} cannot be read and is parked in corrupt: {why}{more}")

        self.changes.make([message], write, done)

    def order_of(self, message: int) -> HoldOrder | None:
        """Return the order that a message's mark in hold/ has, None if it has none. Raises OSError."""
        record = self.store.records.get(message)
        if record is None:
            return None
        if record.unread:
            mark = marks.read_mark(self.store.layout, message)
            record.unread = False
            record.order = None if mark is None else mark.order
            if mark is not None and mark.order is None and mark.fault:
                self._log.alert(
                    f"msg {message} stays on hold, because its mark in hold is not clear: {mark.fault}; "
                    "delete, bounce or release it"
                )
        return record.order

    def hold(self, message: int, order: HoldOrder | None) -> None:
        """Prevent further starts of a message that got a mark in hold/; carry out the order, if the mark has one."""
        self.store.records.note_order(message, order)
        self.happened(MessageEvent.ORDERED, message)

    def hold_new(self, message: int) -> None:
        """Note the mark in hold/ of a new message, which arrives later. It was made before this notice came."""
        if not self._keep(message, Held(message)):
            self.happened(MessageEvent.MARKED, message)

    def release(self, message: int) -> None:
        """Forget the marks of a message, which were removed. An announced one is tried and classified."""
        if self.store.classify_first(message, MessageEvent.WANTED):
            self.happened(MessageEvent.RELEASED_EARLY, message, Classified(message, True, True))
        else:
            self.happened(MessageEvent.RELEASED, message)

    def carry_out_order(self, message: int, detail: Detail = None) -> None:
        """Carry out the order to delete or bounce a message that has a mark, if nothing of it is in flight.

        An announced one is classified first. If the disk refuses a read, it is tried again later.
        """
        try:
            self._carry_out_order(message)
        except OSError as error:
            self._retry.later(("order", message), lambda now: self.carry_out_order(message), error)

    def _carry_out_order(self, message: int) -> None:
        state = self.state(message)
        if state not in MARKED and state is not MessageState.BOUNCING:
            return
        loaded = self.withdraw(message, self._clock.now())
        if self.store.classify_first(message, MessageEvent.WANTED) or loaded:
            return
        order = self.order_of(message)
        if order is None:
            return
        self._doubt_notices()
        layout = self.store.layout
        if self.store.is_waiting_in_todo(message):
            refused = message in self.deferrals
            if order == HoldOrder.DELETE and (refused or marks.is_marked(layout, "corrupt", message)):
                # queue-todo does not touch it. A message that is not corrupt is classified first, then comes here; if
                # the disk refuses that, the message is deleted when queue-todo has put it off.
                self.changes.make(
                    [message],
                    lambda one, commit: marks.leave_todo(layout, one, commit),
                    lambda made, why: None,
                    lambda message: self.happened(MessageEvent.END, message),
                )
        elif order != HoldOrder.DELETE:
            self.happened(MessageEvent.RETURN, message)
        elif self.bouncer.drop(message):
            self.happened(MessageEvent.END, message)

    def _end_return(self, message: int, held: Detail) -> None:
        """Remove the order to bounce some recipients, which is carried out; the others are tried as before."""
        assert held is None or isinstance(held, bytes)
        if self.order_of(message) != HoldOrder.BOUNCE_SOME:
            self.carry_out_order(message)  # Another one has taken its place.
            return
        path = self.store.layout.hashed("hold", message)
        self._log.put(logline.release_message(message) if held is None else logline.hold_message(message, held))

        def write(message: int, commit: Commit) -> None:
            self.store.sync_marks(message)  # Without the order, a recipient whose mark is lost would be tried.
            if held is None:
                commit.unlink(path)
            else:
                marks.mark(self.store.layout, message, HoldMark(held), commit)

        def then(message: int) -> None:
            if held is None:
                self.release(message)
                self._wait_again(message)
            else:
                self.store.records.note_order(message, None)

        def refused(message: int) -> None:
            self._log.put(logline.hold_message(message, HoldOrder.BOUNCE_SOME.value))

        def done(changed: int, trouble: str) -> None:
            if trouble:
                self._log.warning(f"msg {message} stays on hold: {trouble}")

        self.changes.make([message], write, done, then, refused)

    def _wait_again(self, message: int) -> None:
        """Have a message that is not loaded wait for the next attempts that its files have."""
        try:
            dues = self._dues(message)
        except OSError as error:
            self._retry.later(("wake", message), lambda now: self._make_due_again(message), error)
            return
        for kind, due in dues.items():
            self.channels[kind].scheduler.add_deferred(message, due)

    # The end

    def _finish_channel(self, message: int, kind: Detail) -> None:
        """Remove the file of a channel that is done; if the other one is done too, no recipient is left."""
        assert isinstance(kind, str)
        try:
            last = self.store.finish_channel(message, kind)
        except OSError as error:
            self._finish_channel_later(message, kind, error)
            return
        if last:
            self.happened(_NONE_LEFT, message)

    def _finish_channel_later(self, message: int, kind: str, error: OSError) -> None:
        """Have a channel that is done read its file again later, because the disk refused to remove it."""
        path = error.filename or message
        self._log.warning(f"unable to change {path}: {reason(error)}; will try again later")
        self.channels[kind].scheduler.retry_at(message, int(self._clock.now()) + AGAIN_AFTER)

    def _finish(self, message: int, detail: Detail) -> None:
        """Look whether a message that has no recipients left has failures, of which its bounce is sent first."""
        try:
            failed = self.store.has_failures(message)
        except OSError as error:
            self._retry.later(("finish", message), partial(self._finish_again, message), error)
            return
        self.happened(MessageEvent.BOUNCE if failed else MessageEvent.END, message)

    def _finish_again(self, message: int, now: float) -> None:
        """Finish a message, if it still has no recipients left."""
        try:
            if self.is_loaded(message) or not self.store.may_be_tried(message) or not self.store.is_classified(message):
                return
            left = any(each is not None for kind in self.channels for each in self.store.left(message, kind))
        except FormatError as error:
            self.happened(MessageEvent.CORRUPT, message, str(error))
        except OSError as error:
            self._retry.later(("finish", message), partial(self._finish_again, message), error)
        else:
            if not left:
                self.happened(_NONE_LEFT, message)

    def cancel_bounce(self, message: int) -> bool:
        """Cancel the bounce of a message that is to be deleted; return False if queue-enqueue has it already."""
        dropped = self.bouncer.drop(message)
        if dropped:
            self.happened(MessageEvent.CANCELLED, message)
        return dropped

    def bounce_again(self, message: int) -> None:
        """Have the bounce of a message sent that was cancelled, because the message was to be deleted and is not."""
        self.carry_out_order(message)
        self._finish_again(message, self._clock.now())

    def _settle(self, message: int, detail: Detail) -> None:
        """Give up what is kept of a message that is to end. What is being written of it is waited for."""
        known, changing = self.store.announced.get(message), self.changes.holds(message)
        if known is not None and (known.asked or changing):
            self.store.announced.ask(known, MessageEvent.WANTED)
            return  # CLASSIFIED follows.
        if changing:
            self.store.records.forget(message)  # It may have marks, so queue-clean looks for all of its files.
            return  # WRITTEN follows.
        if self._results.release(message) and self._bounce_orders.release(message) and self._delays.release(message):
            self.happened(_FREE, message)  # Else WRITTEN follows.

    def _remove(self, message: int, detail: Detail) -> None:
        """Log `end msg`, and have queue-clean remove the files of the message."""
        self.found.forget(message)
        for channel in self.channels.values():
            channel.forget(message)
        self.store.classes.discard(message)
        self.deferrals.pop(message, None)
        known = self.store.records.facts(message)
        if isinstance(known, AnnouncedMessage):
            removal = Removal(message, TODO, self.store.announced.end(known), known.birth, known.priority)
        else:
            removal = Removal(message, cleaning.ANY if known is None else known.files)
        self._log.put(logline.end_message(message))
        self._counters.ended += 1
        self._cleaner.remove(removal, self._clock.now())
