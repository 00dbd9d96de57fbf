"""Carries out the orders of queuectl: hold, release, requeue, delete, bounce, bounce-some, flush, flush-some, probe.

An order is on the disk, synced, before it is answered, and before it has any effect. hold, delete and bounce are marks
in hold/ (hold_marks.py); Messages carries the last two out when nothing of the message is in flight, in this run or,
after a crash, in the next one. The line in the log comes before the mark, so that a crash leaves no mark without a
line; if the disk refuses the mark, another line takes it back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from queue_base.durable import Commit
from queue_base.errors import reason as why
from queue_base.queue import hold_marks as marks
from queue_send.messages.announced import AnnouncedMessage
from queue_send.messages.life_cycle import Messages
from queue_send.messages.transitions import MARKED, MessageEvent, MessageState
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.address import address_key
from queue_wire.admin import socket as wire
from queue_wire.admin.returning import RecipientSelector
from queue_wire.admin.socket import (
    GONE,
    NEWS,
    ON_HOLD,
    TROUBLE,
    Note,
    Request,
    Response,
)
from queue_wire.control.destinationlimits import choose_nexthop
from queue_wire.control.localroutes import find_domain_route
from queue_wire.files.hold_mark import HoldMark, HoldOrder, order_mark
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_long_id, unpack_long_id

CLASSIFY_WAIT = 10.0  # Seconds for which an order waits until its messages are classified. A full disk may refuse that.
_CLASSIFY_WAITS = {wire.DELETE: 1.0}  # A delete is carried out without that then.

NO_ROOM = (
    "the disk has no room to record the order: if queue-send is killed before `end msg` is in its log, delete it again"
)
FLUSHES_FULL = "too many messages wait with some of their recipients flushed; try again"
NOT_CLASSIFIED = "queue-todo has not classified it yet; if it cannot, the log says why"

Answer = Callable[[Response], None]
_FLUSHES = (wire.FLUSH, wire.FLUSH_SOME)
_ORDERS = {
    wire.DELETE: HoldOrder.DELETE, wire.BOUNCE: HoldOrder.BOUNCE, wire.BOUNCE_SOME: HoldOrder.BOUNCE_SOME
}  # fmt: skip


@dataclass
class Selected:
    """The messages that a request names by their long ids, each once, their `names`, and the notes of the reply."""

    messages: list[int] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, message: int, name: str) -> None:
        """Add a message with the long id by which it was named."""
        if message not in self.names:
            self.names[message] = name
            self.messages.append(message)

    def note(self, letter: bytes, message: int, text: str) -> None:
        """Add a note about a message."""
        self.notes.append(Note(letter, f"{self.names[message]}: {text}".encode()))


def select_messages(names: list[bytes], birth_of: Callable[[int], int | None]) -> Selected:
    """Return the messages with these long ids. A later message of the same number is not selected.

    `birth_of` returns the birth of a message in microseconds, None if there is none; it may raise OSError.
    """
    selected = Selected()
    for each in names:
        name = each.decode("ascii", "replace")
        try:
            message, birth = unpack_long_id(name)
            found = birth_of(message)
        except (FormatError, OSError) as error:
            selected.notes.append(Note(TROUBLE, f"{name}: {error}".encode("utf-8", "replace")))
            continue
        if birth is None or found is None or found != birth:
            selected.notes.append(Note(GONE, f"{name}: no such message".encode("utf-8", "replace")))
        else:
            selected.add(message, name)
    return selected


@dataclass
class UnclassifiedRequest:
    """A request that waits, until a time, because messages of it, `left`, are not classified yet.

    names: the long ids of all its messages.
    """

    request: Request
    answer: Answer
    left: list[AnnouncedMessage]
    names: dict[int, str]
    until: float


def _line_of(message: int, mark: HoldMark) -> bytes:
    """Return the log line for a mark in hold/."""
    if mark.order == HoldOrder.DELETE:
        return logline.delete_message(message)
    return logline.hold_message(message, mark.reason)


class Orders:
    """The orders that change messages. `rescan` has queue-todo look through todo/; `resubmit` has it classify a message
    that it could not classify, or all of them, 0.
    """

    def __init__(
        self,
        messages: Messages,
        parts: SharedParts,
        rescan: Callable[[], object],
        resubmit: Callable[[int], object] = int,
    ) -> None:
        self._messages = messages
        self._store = messages.store
        self._layout = messages.store.layout
        self._log, self._clock, self._config, self._retry = parts.log, parts.clock, parts.config, parts.retry
        self._rescan = rescan
        self._resubmit = resubmit
        self._waiting: UnclassifiedRequest | None = None  # There is one request at a time.

    def carry_out(self, request: Request, answer: Answer, now: float) -> None:
        """Carry out a request; `answer` is called with the reply, perhaps later."""
        if request.command == wire.PROBE:
            answer(self._probe(request.names, now))
            return
        selected = select_messages(request.names, self._birth_of)
        if request.command == wire.RESUBMIT:
            answer(self._resubmit_those(selected, not request.names))
            return
        if self._classify(selected, request, answer):
            return
        for message in selected.messages:
            self._store.records.forget(message)
        if request.command in _FLUSHES:
            answer(self._flush(selected, request.selector))
        elif request.command == wire.RELEASE:
            self._release(selected, answer)
        elif request.command == wire.REQUEUE:
            self._requeue(selected, answer, now)
        else:
            order = _ORDERS.get(request.command)
            new = HoldMark(marks.clean_reason(request.reason)) if order is None else order_mark(order, request.selector)
            self._mark(selected, new, answer)

    def _classify(self, selected: Selected, request: Request, answer: Answer) -> bool:
        """Return whether some messages are announced. They are classified, and then the request is carried out.

        flush changes no file, so it only waits for those that are being classified: one may have been deferred.
        """
        left: list[AnnouncedMessage] = []
        for message in selected.messages:
            known = self._store.announced_message(message)
            if known is not None and (request.command not in _FLUSHES or known.asked):
                left.append(known)
                self._store.classify_first(message, MessageEvent.WANTED)
        if not left:
            return False
        until = self._clock.now() + _CLASSIFY_WAITS.get(request.command, CLASSIFY_WAIT)
        self._waiting = UnclassifiedRequest(request, answer, left, selected.names, until)
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until `look_again` has something to do, unless messages are classified before."""
        return 3600.0 if self._waiting is None else max(0.0, self._waiting.until - now)

    def look_again(self, now: float) -> None:
        """Carry out a request when its messages are classified, or without those that are not after some time.

        So an order about a message that the disk refuses to classify does not delay the next requests for ever.
        """
        waiting = self._waiting
        if waiting is None:
            return
        waiting.left = [each for each in waiting.left if self._store.announced_message(each.number) is each]
        if waiting.left and now < waiting.until:
            return
        self._waiting = None
        if not waiting.left:
            self.carry_out(waiting.request, waiting.answer, now)
            return
        if waiting.request.command == wire.DELETE:
            self._delete_in_todo(waiting)
            return
        late = {waiting.names[each.number] for each in waiting.left}
        names = [name for name in waiting.request.names if name.decode("ascii", "replace") not in late]
        notes = [Note(TROUBLE, f"{name}: {NOT_CLASSIFIED}".encode()) for name in sorted(late)]

        def answer(response: Response) -> None:
            waiting.answer(response._replace(notes=[*notes, *response.notes]))

        self.carry_out(waiting.request._replace(names=names), answer, now)

    def _delete_in_todo(self, waiting: UnclassifiedRequest) -> None:
        """Delete messages that queue-todo cannot classify, as on a full disk, and then the others of the request.

        Their envelopes are removed, which needs no room; queue-todo answers that they are gone, or classified.
        """
        late = [each.number for each in waiting.left]
        names = [name for name in waiting.request.names if unpack_long_id(name.decode("ascii"))[0] not in late]

        def answer_both(count: int, trouble: str) -> None:
            notes = [Note(TROUBLE, trouble.encode("utf-8", "replace"))] if trouble else []

            def answer(response: Response) -> None:
                waiting.answer(Response(response.touched + count, [*notes, *response.notes]))

            self.carry_out(waiting.request._replace(names=names), answer, self._clock.now())

        def write(message: int, commit: Commit) -> None:
            marks.leave_todo(self._layout, message, commit)

        def then(message: int) -> None:
            self._messages.hold(message, HoldOrder.DELETE)
            self._resubmit(message)

        for message in late:
            self._log.put(logline.delete_message(message))
        self._messages.changes.make(late, write, answer_both, then)

    def _birth_of(self, message: int) -> int | None:
        """Return the birth of a message that has not ended."""
        return None if self._has_ended(message) else marks.birth_of(self._layout, message)

    def _has_ended(self, message: int) -> bool:
        return self._messages.state(message) in (MessageState.REMOVING, MessageState.LOST)

    def _resubmit_those(self, selected: Selected, everything: bool) -> Response:
        if everything:
            count = len(self._messages.deferrals)
            self._resubmit(0)
            return Response(count, selected.notes)
        waiting = self._those(selected.messages, self._store.is_waiting_in_todo, selected)
        for message in selected.messages:
            if message in waiting:
                self._resubmit(message)
            else:
                selected.note(NEWS, message, "does not wait for queue-todo")
        return Response(len(waiting), selected.notes)

    def _probe(self, domains: list[bytes], now: float) -> Response:
        config, channels = self._config.current, self._messages.channels
        for domain in domains:
            way = choose_nexthop(config.routes, config.lines, address_key(domain))
            channels["remote"].scheduler.probe(way.name, now)
            servers = find_domain_route(config.localroutes, domain)
            if servers is not None:
                channels["local"].scheduler.probe(servers.name, now)
        return Response(0, [])

    def _flush(self, selected: Selected, selector: RecipientSelector) -> Response:
        messages = self._messages
        for message in selected.messages:
            if self._is_held(message) and messages.order_of(message) is None:
                selected.note(ON_HOLD, message, marks.STAYS_HELD)
        free = self._those(selected.messages, self._store.may_be_tried, selected)
        if not selector.any:
            return Response(sum(messages.make_due(message) for message in free), selected.notes)

        def make_some_due(message: int) -> bool:
            if messages.takes_partial_flushes:
                return messages.make_some_due(message, selector)
            selected.note(TROUBLE, message, FLUSHES_FULL)
            return False

        return Response(len(self._those(free, make_some_due, selected)), selected.notes)

    @staticmethod
    def _those(some: list[int], wanted: Callable[[int], bool], selected: Selected) -> list[int]:
        """Return the messages that are wanted; add a note about each of which the disk refuses to say so."""
        found = []
        for message in some:
            try:
                if wanted(message):
                    found.append(message)
            except OSError as error:
                selected.note(TROUBLE, message, f"unable to look at {error.filename or 'it'}: {why(error)}")
        return found

    def _change(
        self,
        messages: list[int],
        notes: list[Note],
        answer: Answer,
        work: Callable[[int, Commit], None],
        then: Callable[[int], None],
        refused: Callable[[int], None] = lambda message: None,
    ) -> None:
        """Have the disk thread do `work` for the messages (MessageChanges.make), then answer."""
        if not messages:
            answer(Response(0, notes))
            return

        def done(count: int, trouble: str) -> None:
            if trouble:
                notes.append(Note(TROUBLE, trouble.encode("utf-8", "replace")))
            answer(Response(count, notes))

        self._messages.changes.make(messages, work, done, then, refused)

    def _free(self, selected: Selected) -> list[int]:
        """Return the selected messages that the disk thread does not change; add a note about the others."""
        for message in selected.messages:
            if self._messages.changes.holds(message):
                selected.note(TROUBLE, message, "another command is at it; try again")
        return [message for message in selected.messages if not self._messages.changes.holds(message)]

    def _mark(self, selected: Selected, new: HoldMark, answer: Answer) -> None:
        bouncing = {message for message in selected.messages if self._is_bouncing(message)}
        work = self._those(self._free(selected), lambda message: self._may_mark(message, new.order, selected), selected)

        unrecorded: set[int] = set()

        def write(message: int, commit: Commit) -> None:
            if new.order == HoldOrder.DELETE:
                if not marks.mark_deleted(self._layout, message, commit):
                    unrecorded.add(message)
            elif new.order == HoldOrder.BOUNCE_SOME:
                marks.mark_return(self._layout, message, new.selector, commit)
            else:
                marks.mark(self._layout, message, new, commit)

        def then(message: int) -> None:
            self._messages.hold(message, new.order)
            if message in unrecorded and not self._has_ended(message):
                selected.note(NEWS, message, NO_ROOM)

        def refused(message: int) -> None:
            if not self._is_held(message):
                self._log.put(logline.release_message(message))
            if message in bouncing:
                self._messages.bounce_again(message)  # To delete the message, its bounce was cancelled.

        for message in work:
            self._log.put(_line_of(message, new))
        self._change(work, selected.notes, answer, write, then, refused)

    def _is_held(self, message: int) -> bool:
        """Return whether a message has a mark in hold/. One in corrupt/ may have that, too. Raises OSError."""
        state = self._messages.state(message)
        if state is MessageState.PARKED:
            return marks.is_marked(self._layout, "hold", message)
        return state in MARKED

    def _is_bouncing(self, message: int) -> bool:
        return self._messages.state(message) is MessageState.BOUNCING

    def _may_mark(self, message: int, order: HoldOrder | None, selected: Selected) -> bool:
        given = self._messages.order_of(message)
        if given is not None and order in (None, HoldOrder.BOUNCE_SOME):
            selected.note(TROUBLE, message, given.value.decode())
            return False
        if order is None and self._is_held(message):
            selected.note(ON_HOLD, message, marks.KEEPS_REASON)
            return False
        if given is not None and given == order:
            self._messages.carry_out_order(message)
            return False
        if order != HoldOrder.DELETE:
            if self._is_bouncing(message):
                selected.note(NEWS, message, "nothing is left of it but its bounce, which is on its way")
                return False
            if order is not None and marks.is_marked(self._layout, "corrupt", message):
                selected.note(TROUBLE, message, "it is corrupt and cannot be bounced; release or delete it")
                return False
        elif not self._messages.cancel_bounce(message):
            selected.note(TROUBLE, message, "its bounce is being injected")
            return False
        return True

    def _release(self, selected: Selected, answer: Answer) -> None:
        state = self._messages.state
        free = [message for message in self._free(selected) if state(message) is not MessageState.RETURNING]

        def has_mark(message: int) -> bool:
            return any(marks.is_marked(self._layout, kind, message) for kind in marks.KINDS)

        work = self._those(free, has_mark, selected)
        reasons = {message: self._reason_of(message) for message in work}

        def write(message: int, commit: Commit) -> None:
            marks.unmark(self._layout, message, commit)

        def then(message: int) -> None:
            self._messages.release(message)
            self._go_on(message)

        def refused(message: int) -> None:
            self._log.put(reasons[message])

        for message in work:
            self._log.put(logline.release_message(message))
        self._change(work, selected.notes, answer, write, then, refused)

    def _go_on(self, message: int) -> None:
        """Have a released message classified, or tried."""
        try:
            if self._store.is_waiting_in_todo(message):
                self._rescan()
            else:
                self._messages.make_due(message)
        except OSError as error:
            self._retry.later(("release", message), lambda now: self._go_on(message), error)

    def _reason_of(self, message: int) -> bytes:
        """Return the log line for the mark that a message has."""
        try:
            mark = marks.read_mark(self._layout, message)
        except OSError:
            mark = HoldMark(b"")
        if mark is None:
            return logline.corrupt_message(message, "its mark could not be removed")
        return _line_of(message, mark)

    def _requeue(self, selected: Selected, answer: Answer, now: float) -> None:
        birth = int((now + self._clock.ahead) * 1_000_000)

        def may_change(message: int) -> bool:
            if self._messages.state(message) is MessageState.PARKED or self._store.is_waiting_in_todo(message):
                selected.note(TROUBLE, message, "it is not classified, or corrupt, and cannot have a new birth")
            elif self._messages.order_of(message) is not None or self._is_bouncing(message):
                selected.note(TROUBLE, message, "it is about to end")
            else:
                return True
            return False

        work = self._those(self._free(selected), may_change, selected)

        def write(message: int, commit: Commit) -> None:
            marks.set_birth(self._layout, message, birth, commit)

        def then(message: int) -> None:
            new = pack_long_id(message, birth)
            self._log.put(logline.requeue_message(message, selected.names[message], new))
            selected.note(NEWS, message, f"is {new} now")
            if not self._is_held(message):
                self._messages.make_due(message)
                self._messages.withdraw(message, self._clock.now())

        self._change(work, selected.notes, answer, write, then)
