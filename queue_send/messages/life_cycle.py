"""The life of classified messages.

    state        meaning, and what leads to it                                          next states
    ARRIVED      queue-todo has classified it, or it was found on the disk at start     WAITING, HELD, PARKED, FINISHED
    ANNOUNCED    queue-todo has announced it: it is in todo/, and has no other files    the same, CLASSIFYING
    CLASSIFYING  queue-todo is to make its files, because something must wait           the same
    WAITING      its next attempt is set, or it is new: the scheduler has its number    LOADED, HELD, PARKED
    LOADED       the scheduler has its recipients (an attempt)                          IN_FLIGHT, WAITING, FINISHED,
                                                                                        HELD, PARKED
    IN_FLIGHT    deliveries of it have no report yet                                    LOADED
    HELD         it has a mark in hold/: nothing of it is started                       WAITING, RETURNING, ENDED
    PARKED       it has a mark in corrupt/: a file of it is malformed                   WAITING, ENDED
    RETURNING    the administrator wants it, or some recipients, bounced: they are      FINISHED, HELD, PARKED,
                 being failed                                                           WAITING
    FINISHED     no recipient is left                                                   BOUNCING, ENDED
    BOUNCING     its bounce is composed, injected, or to be tried again                 ENDED, PARKED
    ENDED        `end msg` is in the log, and queue-clean removes its files             (none)

An ANNOUNCED or CLASSIFYING message (announced.py) also has one of the other states: it is waiting, loaded, in flight,
or finished. It has no file in info/, local/ or remote/ yet. Whatever reads or changes these files is done when the
message is classified.

For a waiting message only its number and its next attempt are in memory; everything else is on the disk, and is read
when the message is loaded. The scheduler of each channel decides; the channels, Bouncer and BounceOrders report what
happened as events (events.py), which Messages carries out in the same turn. Nothing here waits. An operation that the
disk refuses is tried again later (disk_retry.py).

A mark in hold/ may be an order: to delete the message, or to bounce it or some of its recipients (hold_marks.py). An
order is carried out when nothing of the message is in flight, in this run or, after a crash, in the next one. While the
disk thread works on the marks of a message, the message does not end.
"""

import select
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_base.durable import Commit
from queue_base.errors import reason
from queue_base.queue import hold_marks as marks
from queue_send.admin.bounce_orders import BounceOrders
from queue_send.cleaner import Cleaner
from queue_send.config import ConfigFiles
from queue_send.counters import Counters
from queue_send.delivery.channel import Channel
from queue_send.delivery.result_writer import ResultWriter
from queue_send.disk_retry import DiskRetry
from queue_send.events import Corrupt, Event, Events, Failed, MayEnd, NoneInFlight, NoneLeft, SomeFailed
from queue_send.log import Log
from queue_send.messages.announced import AnnouncedMessage
from queue_send.messages.backlog import FoundMessages
from queue_send.messages.message_changes import MessageChanges
from queue_send.messages.message_files import Store
from queue_send.notify.bounce import Bouncer
from queue_send.notify.delay import DelayNotifier
from queue_send.scheduler.retry import AGAIN_AFTER, within_lifetime
from queue_wire import logline
from queue_wire.admin.returning import RecipientSelector
from queue_wire.files.hold_mark import HoldMark, HoldOrder
from queue_wire.format_error import FormatError
from queue_wire.pipes.cleaning import TODO, Removal
from queue_wire.pipes.notice import LOCAL, REMOTE, Arrived, Classified, ClassifyAnswer, ClassifyDeferral, Notice

DEFERRALS_MAX = 10_000  # Messages that could not be classified of which the reason is known.
BIRTH_AHEAD_MAX = 60  # Seconds that a birth may lie in the future: clocks of different hosts differ a little.


class State(Enum):
    """The states that `Messages.state` tells apart (see the module). UNCLASSIFIED: it is still in todo/."""

    UNCLASSIFIED = "in todo/"
    WAITING = "waiting"
    LOADED = "loaded"
    HELD = "held"
    PARKED = "parked"
    BOUNCING = "bouncing"
    ENDED = "ended"


def shorten(notice: Notice) -> Notice:
    """Return a notice about a classified message without its envelope, so that the disk says what is there."""
    if isinstance(notice, Classified):
        return notice._replace(uid=None, submitter=b"")
    if notice.announced:
        return notice
    channels = {channel for channel, _ in notice.recipients}
    return Classified(notice.message, LOCAL in channels, REMOTE in channels, notice.priority)


class Messages:
    """All classified messages of the queue; a part of the loop."""

    def __init__(
        self,
        store: Store,
        channels: Sequence[Channel],
        bouncer: Bouncer,
        delays: DelayNotifier,
        results: ResultWriter,
        bounce_orders: BounceOrders,
        cleaner: Cleaner,
        log: Log,
        clock: Clock,
        config: ConfigFiles,
        disk: DiskThread,
        retry: DiskRetry,
        events: Events,
        ask_passed: Callable[[], None],
        counters: Counters,
    ) -> None:
        """`ask_passed` asks queue-todo whether notices may be late; `none_late` is to be called then."""
        self.store = store
        self.channels = {channel.kind: channel for channel in channels}
        self.bouncer = bouncer
        self._delays = delays
        self._results = results
        self._bounce_orders = bounce_orders
        self._cleaner = cleaner
        self._cleaner_lost = False  # Whether it was lost before this turn.
        self._log = log
        self._clock = clock
        self._config = config
        self._disk = disk
        self._retry = retry
        self._events = events
        self._counters = counters
        self.found = FoundMessages()
        self.all_read = False  # Whether the backlog has been read.
        self._arrived: set[int] = set()  # Messages that arrived before that; `discover` does not add them again.
        self._all_due = False  # ALRM came before that.
        # A notice is late if its message was found on the disk before it came: at start, or by an order of the
        # administrator, which has made it due or ended it. _none_late: no late notice can come any more. _doubtful:
        # there was such an order since queue-todo was asked whether it has sent all notices.
        self._none_late = False
        self._doubtful = False
        self._ask_passed = ask_passed
        # Orders by message, and messages with a mark whose reason was not read yet.
        self._orders: dict[int, HoldOrder] = {}
        self._unread_marks = set(store.held)
        self.changes = MessageChanges(log, disk, events)
        # The messages that queue-todo could not classify, the latest at the end.
        self.deferrals: OrderedDict[int, ClassifyDeferral] = OrderedDict()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait if there are events, or after the loss of queue-clean: `run` then says what is gone with it."""
        news = self._cleaner.lost and not self._cleaner_lost
        self._cleaner_lost = self._cleaner.lost
        return 0.0 if self._events or news else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Carry out the events, and the notices that the Cleaner has kept."""
        announced = self.store.announced
        for message in self._cleaner.take_removed():
            announced.removed(message)
        for notice in self._cleaner.take_notices():
            self.arrive(notice, now)
        while self._events:
            self._carry_out(self._events.popleft())
        if self._cleaner_lost and len(announced):
            # queue-todo exits when it was told of the end of all announced messages, and queue-clean will not answer
            # about these any more. By now queue-todo has its order to exit, which followed the loss of queue-clean, so
            # it does not look at their numbers again.
            for message in self._cleaner.held:
                announced.removed(message, durable=False)

    def _carry_out(self, event: Event) -> None:
        if isinstance(event, NoneLeft):
            self._finish_channel(event.message, event.kind)
        elif isinstance(event, NoneInFlight):
            self._withdrawn(event.message, event.kind)
        elif isinstance(event, Corrupt):
            self._park(event.message, event.why)
        elif isinstance(event, Failed):
            self.finish(event.message)
        elif isinstance(event, SomeFailed):
            self._end_return(event.message, event.held)
        elif isinstance(event, MayEnd):
            self.end(event.message)

    def state(self, message: int) -> State:
        """Return the state of a message; LOADED includes IN_FLIGHT, HELD includes RETURNING. Raises OSError."""
        if self._cleaner.holds(message):
            return State.ENDED
        if self.bouncer.holds(message):
            return State.BOUNCING
        if message in self.store.parked:
            return State.PARKED
        if message in self.store.held:
            return State.HELD
        if self.store.is_waiting_in_todo(message):
            return State.UNCLASSIFIED
        if self.is_loaded(message):
            return State.LOADED
        known = self.store.announced_message(message)
        return State.UNCLASSIFIED if known is not None and known.asked else State.WAITING

    def is_loaded(self, message: int) -> bool:
        """Return whether recipients of a message are queued or in flight."""
        return any(channel.scheduler.holds(message) for channel in self.channels.values())

    def status(self, leaving: bool) -> bytes:
        """Return the status line."""
        local, remote = self.channels["local"].scheduler, self.channels["remote"].scheduler
        limits = local.settings.concurrency, remote.settings.concurrency
        return logline.status(local.in_flight, limits[0], remote.in_flight, limits[1], leaving)

    # Arrival

    def arrive(self, notice: Notice, now: float) -> None:
        """Add a message that was classified just now; if the disk refuses a read, it is tried again later."""
        try:
            self._arrive(notice, now)
        except OSError as error:
            if self.store.classify_first(notice.message, partial(self._start_classified, notice.message)):
                return  # It is announced.
            # By then the envelope may be that of an earlier message of this number: the disk says what is there.
            self.store.envelopes.forget(notice.message)
            self._retry.later(("arrive", notice.message), partial(self.arrive, shorten(notice)), error)

    def _arrive(self, notice: Notice, now: float) -> None:
        """Add a message; a late notice changes nothing.

        While notices may be late, only the number in a notice is used: its envelope may be that of an earlier message
        of this number, which was found on the disk and is gone by now. The files tell which channels have recipients.
        """
        message = notice.message
        self.deferrals.pop(message, None)
        if self._cleaner.defer(notice if self._none_late else shorten(notice)):
            # The earlier message of this number is being removed; after that the notice is taken again. If it may be
            # late, it is kept without its envelope, because by then it may not look like a late one any more.
            return
        if isinstance(notice, Arrived):
            self._counters.add_arrival(now + self._clock.ahead - notice.birth / 1e6)
            if notice.announced:
                self._arrive_announced(notice, now)
                return
        self.store.announced.classified(message)
        certain = self._none_late and not self.found.holds(message)
        if isinstance(notice, Arrived) and certain:
            self.store.envelopes.keep(notice, self._clock.to_disk(int(now)))
            self.store.classes.put(message, notice.priority)
        elif self.found.holds(message) or self.store.discover(message) is None:
            return  # Found at start; gone; or a new message of this number, whose own notice will come.
        if not self.all_read:
            self._arrived.add(message)
        self._forget_old_marks(message)
        if message in self.store.held:
            self.store.envelopes.forget(message)
        if self.carry_out_order(message, now):
            return
        channels = [each for each in self.channels.values() if self.store.due(message, each.kind) is not None]
        # The destination of a late notice may be that of another message.
        known = notice if certain else shorten(notice)
        if not (isinstance(notice, Arrived) and certain):
            self.found.add(message)  # If this notice was a late one, its own will come, and changes nothing then.
        for channel in channels:
            channel.add_new(known)
            if message in self.store.held:
                channel.scheduler.forget(message)
        if not channels and message not in self.store.held:
            self.finish(message)

    def defer_classification(self, deferral: ClassifyDeferral) -> None:
        """Note why a message could not be classified."""
        self.deferrals.pop(deferral.message, None)
        self.deferrals[deferral.message] = deferral
        if len(self.deferrals) > DEFERRALS_MAX:
            self.deferrals.popitem(last=False)
        if deferral.message in self.store.held:
            self.carry_out_order(deferral.message, self._clock.now())

    def _arrive_announced(self, notice: Arrived, now: float) -> None:
        """Add a message that is delivered from its notice, while it is still in todo/."""
        message = notice.message
        if message in self.store.announced:
            self._log.warning(f"internal error: queue-todo announced msg {message} twice")
            return
        if not self.all_read:
            self._arrived.add(message)  # If it is classified soon, the backlog may find it.
        self.store.classes.put(message, notice.priority)
        known = self.store.announced.arrive(notice, self._clock.to_disk(int(now)))
        self._forget_old_marks(message)
        if message in self.store.held:
            self.store.classify_first(message, partial(self._start_classified, message))
            return
        for kind in known.left:
            self.channels[kind].add_new(notice)
        if not known.left:
            self.finish(message)

    def _start_classified(self, message: int, classified: bool) -> None:
        """Start a message that was to be classified first. If it is on hold, carries out its order, if it has one."""
        if not classified:
            return
        if message in self.store.held:
            self.carry_out_order(message, self._clock.now())
        else:
            self.make_due(message)

    def answer(self, answer: ClassifyAnswer) -> None:
        """Take queue-todo's answer about an announced message: it has files from now on, or is gone."""
        self._take_answer(answer)

    def _take_answer(self, answer: ClassifyAnswer, durable: bool = True) -> None:
        """Do what follows from an answer; only marks are written if the message may return to todo/."""
        announced = self.store.announced
        known = announced.answer(answer)
        if known is None:
            return
        if answer.classified:
            self._write_marks(answer.message, known)
        else:
            self._lose(answer.message)
        if not durable:
            return
        announced.clear(known)
        for then in known.waiting:
            then(answer.classified)

    def _lose(self, message: int) -> None:
        """Drop an announced message that is not in todo/ any more. What is in flight of it ends without marks."""
        if not self._is_deleted(message):
            self._log.warning(f"msg {message} has left todo/, or is another one; nothing more of it is tried")
        self._log.put(logline.end_message(message))
        loaded = self.is_loaded(message)
        if loaded:
            # NoneInFlight follows.
            self.store.absent.add(message)
            self._cleaner.reserve(message)
            self.withdraw(message, self._clock.now())
        for channel in self.channels.values():
            channel.forget(message)
        if not loaded:
            self._let_go(message)

    def _is_deleted(self, message: int) -> bool:
        return self._orders.get(message) == HoldOrder.DELETE

    def _let_go(self, message: int) -> None:
        """Free the number of a message that has left todo/, when nothing of it is in flight; a deleted one is removed.
        """
        if self._is_deleted(message):
            self.store.held.discard(message)
            self._forget_order(message)
            self._cleaner.remove(Removal(message), self._clock.now())
        else:
            self._cleaner.free(message)

    def delete_in_todo(self, message: int) -> None:
        """Delete an announced message that was removed from todo/ by an order, as soon as queue-todo answers."""
        self.store.held.add(message)
        self._unread_marks.discard(message)
        self._orders[message] = HoldOrder.DELETE
        self.withdraw(message, self._clock.now())
        self.store.classify_first(message, partial(self._start_classified, message))

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
                self._take_answer(ClassifyAnswer(message, classified), durable=trouble is None)

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
        """Forget marks that are gone from the disk: they were of an earlier message of this number."""
        store = self.store
        if message not in store.held and message not in store.parked:
            return
        for kind, marked in (("hold", store.held), ("corrupt", store.parked)):
            if message in marked and not marks.is_marked(store.layout, kind, message):
                marked.discard(message)
                self._forget_order(message)

    def discover(self, message: int) -> bool:
        """Add a message that was found in info/ at start, as the last run left it, if it is classified.

        Returns whether the caller is to add it to `found`. Raises OSError; it may be called again then.
        """
        if message in self._arrived or self._cleaner.holds(message) or message in self.store.parked:
            return False
        birth = self.store.discover(message)
        if birth is None:
            return False
        if self.carry_out_order(message, self._clock.now()):
            return not self._cleaner.holds(message)
        dues = self._dues(message)
        latest = self._latest_attempt(birth, max(dues.values(), default=0))
        for kind, due in dues.items():
            if message not in self.store.held:
                self.channels[kind].scheduler.add_deferred(message, due, self._all_due, latest)
        if not dues and message not in self.store.held:
            self.finish(message)
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
        self._ask_passed()

    def none_late(self) -> None:
        """Called with queue-todo's answer: the notices of all messages that were classified before the question have
        come.
        """
        self._none_late = not self._doubtful
        if self._doubtful:
            self._doubtful = False
            self._ask_passed()

    def _doubt_notices(self) -> None:
        """Called before an order tries or ends a message that was found on the disk: its notice may come later.

        Until queue-todo says that it has sent all notices, only the number in a notice is used (`_arrive`).
        """
        if self._none_late:
            self._none_late = False
            self._ask_passed()
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
        self.store.envelopes.forget(message)  # Its next attempt is that of its file.
        try:
            dues = self._dues(message)
        except OSError as error:
            self._retry.later(("wake", message), lambda now: self._make_due_again(message), error)
            return False
        if not dues and message not in self.store.held:
            self.finish(message)
        made = [self.channels[kind].make_due(message, due) for kind, due in dues.items()]
        return any(made)

    def make_some_due(self, message: int, selector: RecipientSelector) -> bool:
        """Make the chosen recipients of a waiting message due now; return whether they were made due.

        The others wait as before, unless the message is due anyway. Raises OSError.
        """
        if self.store.announced_message(message) is not None:
            return not self.is_loaded(message)  # It is new: it is due.
        self._doubt_notices()
        self.store.envelopes.forget(message)
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
        """Prevent further starts of a message; return whether it was loaded, in which case NoneInFlight follows."""
        loaded = self.is_loaded(message)
        for channel in self.channels.values():
            channel.withdraw(message, now)
        return loaded

    def _withdrawn(self, message: int, kind: str) -> None:
        if message in self.store.absent:
            if not self.is_loaded(message):
                self.store.absent.discard(message)
                self._let_go(message)
            return
        if self._cleaner.holds(message):
            return  # It ended when the other channel had nothing in flight any more.
        if message in self.store.held:
            self.carry_out_order(message, self._clock.now())
        elif message not in self.store.parked:
            self.channels[kind].scheduler.make_due(message)  # It was released meanwhile, or has a new birth.

    # Marks and orders

    def _park(self, message: int, why: str) -> None:
        """Park a message because a file of it is malformed: make the mark in corrupt/, and log an alert."""
        self.store.parked.add(message)
        self._stop_waiting(message)
        self._log.put(logline.corrupt_message(message, why))

        def write(message: int, commit: Commit) -> None:
            self.store.park(message, why, commit)

        def done(changed: int, trouble: str) -> None:
            more = f"; {trouble}" if trouble else ""
            self._log.alert(f"msg {message} cannot be read and is parked in corrupt: {why}{more}")

        self.changes.make([message], write, done)

    def order_of(self, message: int) -> HoldOrder | None:
        """Return the order that a message's mark in hold/ has, None if it has none. Raises OSError."""
        if message in self._unread_marks:
            mark = marks.read_mark(self.store.layout, message)
            self._unread_marks.discard(message)
            if mark is not None and mark.order is not None:
                self._orders[message] = mark.order
            elif mark is not None and mark.fault:
                self._log.alert(
                    f"msg {message} stays on hold, because its mark in hold is not clear: {mark.fault}; "
                    "delete, bounce or release it"
                )
        return self._orders.get(message)

    def hold(self, message: int, order: HoldOrder | None) -> None:
        """Prevent further starts of a message that got a mark in hold/; carry out the order, if the mark has one."""
        self.store.held.add(message)
        self._stop_waiting(message)
        self._unread_marks.discard(message)
        if order is not None:
            self._orders[message] = order
            self.carry_out_order(message, self._clock.now())
        else:
            self.withdraw(message, self._clock.now())

    def _stop_waiting(self, message: int) -> None:
        for channel in self.channels.values():
            channel.scheduler.forget(message)

    def hold_new(self, message: int) -> None:
        """Note the mark in hold/ of a new message, which arrives later. It was made before this notice came."""
        self.store.held.add(message)

    def release(self, message: int) -> None:
        """Forget the marks of a message, which were removed."""
        self.store.held.discard(message)
        self.store.parked.discard(message)
        self._forget_order(message)

    def is_returning(self, message: int) -> bool:
        """Return whether the recipients of a message are being failed by an order."""
        return self._bounce_orders.holds(message)

    def carry_out_order(self, message: int, now: float) -> bool:
        """Carry out the order to delete or bounce a message, if nothing of it is in flight; return whether it has
        one.

        If the disk refuses a read, nothing of it is started, and it is tried again later.
        """
        try:
            return self._carry_out_order(message, now)
        except OSError as error:
            self._retry.later(("order", message), lambda now: self.carry_out_order(message, now), error)
            return True

    def _carry_out_order(self, message: int, now: float) -> bool:
        order = self.order_of(message)
        if order is None:
            return False
        if self.withdraw(message, now) or self._cleaner.holds(message):
            return True
        if self.store.classify_first(message, partial(self._start_classified, message)):
            return True  # Its mark was being made when its notice came.
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
                    self.end,
                )
        elif order != HoldOrder.DELETE:
            self._bounce_orders.take(message, order == HoldOrder.BOUNCE_SOME)
        elif self._bounce_orders.drop(message) and self.bouncer.drop(message):
            self.end(message)
        return True

    def _end_return(self, message: int, held: bytes | None) -> None:
        """Remove the order to bounce some recipients, which is carried out; the others are tried as before."""
        if self._orders.get(message) != HoldOrder.BOUNCE_SOME:
            self.carry_out_order(message, self._clock.now())  # Another one has taken its place.
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
            self._forget_order(message)
            if held is None:
                self.store.held.discard(message)
                self._wait_again(message)

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

    def _forget_order(self, message: int) -> None:
        self._unread_marks.discard(message)
        self._orders.pop(message, None)

    # The end

    def _finish_channel(self, message: int, kind: str) -> None:
        """Remove the file of a channel that is done; if the other one is done too, finish the message."""
        try:
            last = self.store.finish_channel(message, kind)
        except OSError as error:
            self._finish_channel_later(message, kind, error)
            return
        if last and message not in self.store.parked:
            self.finish(message)

    def _finish_channel_later(self, message: int, kind: str, error: OSError) -> None:
        """Have a channel that is done read its file again later, because the disk refused to remove it."""
        path = error.filename or message
        self._log.warning(f"unable to change {path}: {reason(error)}; will try again later")
        self.channels[kind].scheduler.retry_at(message, int(self._clock.now()) + AGAIN_AFTER)

    def finish(self, message: int) -> None:
        """End a message that has no recipients left. If it has failures, their bounce is sent first."""
        try:
            stays = self._cleaner.holds(message) or self.bouncer.holds(message) or self.bouncer.accept(message)
        except OSError as error:
            self._retry.later(("finish", message), partial(self._finish_again, message), error)
            return
        if not stays:
            self.end(message)

    def _finish_again(self, message: int, now: float) -> None:
        """Finish a message, if it still has no recipients left."""
        try:
            if self.is_loaded(message) or not self.store.may_be_tried(message) or not self.store.is_classified(message):
                return
            left = any(each is not None for kind in self.channels for each in self.store.left(message, kind))
        except FormatError as error:
            self._park(message, str(error))
        except OSError as error:
            self._retry.later(("finish", message), partial(self._finish_again, message), error)
        else:
            if not left:
                self.finish(message)

    def bounce_again(self, message: int) -> None:
        """Have the bounce of a message sent that was cancelled, because the message was to be deleted and is not."""
        now = self._clock.now()
        if not self.carry_out_order(message, now):
            self._finish_again(message, now)

    def end(self, message: int) -> None:
        """Log `end msg`, and have queue-clean remove the files of the message."""
        known = self.store.announced_message(message)
        if self.changes.holds(message) or message in self.store.held or message in self.store.parked:
            # It may have marks in hold/ and corrupt/. queue-clean looks for all files of a message whose envelope is
            # not kept.
            self.store.envelopes.forget(message)
            marked = True
        else:
            marked = False
        if known is not None and (marked or known.asked):
            self.store.classify_first(message, lambda classified: self.end(message) if classified else None)
            return
        if self.changes.defer_end(message) or self._results.defer_end(message):
            return  # MayEnd follows.
        if not self._bounce_orders.drop(message):
            return  # Failures of it are being written; MayEnd follows.
        if self._cleaner.holds(message) or not self._delays.release(message):
            return  # It has ended; or queue-enqueue has its notice, and MayEnd follows.
        self.store.held.discard(message)
        self.store.parked.discard(message)
        self._forget_order(message)
        self.found.forget(message)
        for channel in self.channels.values():
            channel.forget(message)
        self.store.classes.discard(message)
        self.deferrals.pop(message, None)
        if known is not None:
            removal = Removal(message, TODO, self.store.announced.end(message), known.birth, known.priority)
        else:
            removal = Removal(message, self.store.envelopes.files(message))
        self.store.envelopes.forget(message)
        self._log.put(logline.end_message(message))
        self._counters.ended += 1
        self._cleaner.remove(removal, self._clock.now())
