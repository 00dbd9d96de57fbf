"""What the administrator orders through lock/control: hold, release, requeue, delete, bounce, flush, probe.

An order is on the disk, safe, before it is answered, and before anything comes of it. hold, delete and bounce are
marks in hold/ (queue_base.marks); the last two are carried out once nothing of the message is in flight,
in this run or, after a crash, in the next one. The disk is waited for in the thread of Run.syncing. Its line is in
the log before the mark is on the disk, so a kill leaves no mark without one; where the disk refuses the mark,
another line takes it back.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_base import marks
from queue_base.durable import Commit
from queue_base.errors import reason as why
from queue_send.bouncer import Bouncer
from queue_send.cleaner import Cleaner
from queue_send.returning import Returning
from queue_send.run import Run
from queue_send.selection import Chosen, choose
from queue_wire import logline
from queue_wire.admin import socket as wire
from queue_wire.admin.socket import NEWS, TROUBLE, Note, Request, Response
from queue_wire.control.destinationlimits import choose_nexthop
from queue_wire.ids import pack_long_id

if TYPE_CHECKING:
    from queue_send.messages import Messages

Answer = Callable[[Response], None]


class Orders:
    """`held` are the messages with a mark that earlier runs left; which are orders is looked at in time."""

    def __init__(
        self, run: Run, messages: "Messages", bouncer: Bouncer, cleaner: Cleaner, held: set[int]
    ) -> None:
        self._run = run
        self._messages = messages
        self._layout = messages.store.layout
        self._bouncer = bouncer
        self._cleaner = cleaner
        self._given: dict[int, bytes] = {}
        self._unread = set(held)
        self.returning = Returning(run, messages)
        self._rescan: Callable[[], None] = lambda: None
        # Messages that the thread is at, and those of them that have ended meanwhile.
        self._busy: Counter[int] = Counter()
        self._ended: set[int] = set()

    def attach(self, rescan: Callable[[], None]) -> None:
        """Name the function that has queue-todo look through todo/."""
        self._rescan = rescan

    def obey(self, request: Request, answer: Answer, now: float) -> None:
        """Do what a request says; `answer` is called with the reply, perhaps later."""
        if request.command == wire.PROBE:
            answer(self._probe(request.names, now))
            return
        chosen = choose(request.names, self._birth_of)
        if request.command == wire.FLUSH:
            answer(self._flush(chosen))
        elif request.command == wire.RELEASE:
            self._release(chosen, answer)
        elif request.command == wire.REQUEUE:
            self._requeue(chosen, answer, now)
        else:
            orders = {wire.DELETE: marks.DELETED, wire.BOUNCE: marks.RETURNED}
            reason = orders.get(request.command) or marks.clean_reason(request.reason)
            self._mark(chosen, reason, answer)

    def _birth_of(self, message: int) -> int | None:
        """Return the birth of a message that has not ended."""
        return None if self._cleaner.holds(message) else marks.birth_of(self._layout, message)

    def _probe(self, domains: list[bytes], now: float) -> Response:
        for domain in domains:
            way = choose_nexthop(self._run.controls.routes, self._run.controls.lines, domain.lower())
            self._messages.schedulers["remote"].probe(way.name, now)
        return Response(0, [])

    def _flush(self, chosen: Chosen) -> Response:
        messages = self._messages
        free = self._those(chosen.messages, messages.may_be_tried, chosen)
        return Response(sum(messages.wake(message) for message in free), chosen.notes)

    @staticmethod
    def _those(some: list[int], wanted: Callable[[int], bool], chosen: Chosen) -> list[int]:
        """Return those of some messages that are wanted; a note tells of each that the disk cannot tell of."""
        found = []
        for message in some:
            try:
                if wanted(message):
                    found.append(message)
            except OSError as error:
                chosen.note(TROUBLE, message, f"unable to look at {error.filename or 'it'}: {why(error)}")
        return found

    def _submit(
        self, chosen: list[int], notes: list[Note], answer: Answer, work: Callable[[int, Commit], None],
        then: Callable[[int], None], refused: Callable[[int], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Have `work` done and made safe for the chosen messages, then `then` called for each; answer.

        Where the disk refuses, `then` is called for those that it was done for: what we know is what is there; and
        `refused` for the others. What the caller has put into the log is written before.
        """
        if not chosen:
            answer(Response(0, notes))
            return
        made: list[int] = []

        def whole() -> None:
            commit = Commit()
            for message in chosen:
                work(message, commit)
                made.append(message)
            commit.sync()

        def done(trouble: OSError | None) -> None:
            ended = self._let_go(chosen)
            left = [message for message in made if message not in ended]
            for message in left:
                then(message)
            for message in [message for message in chosen if message not in made and message not in ended]:
                refused(message)
            if trouble is not None:
                text = f"unable to change {trouble.filename2 or trouble.filename or 'the disk'}: {why(trouble)}"
                notes.append(Note(TROUBLE, text.encode("utf-8", "replace")))
            answer(Response(len(left), notes))
            for message in ended:
                self._messages.end(message)

        self._busy.update(chosen)
        self._run.log.flush()
        self._run.syncing.submit(whole, done)

    def _let_go(self, chosen: list[int]) -> set[int]:
        """The thread has done one thing with each of these; return those that are to end now."""
        self._busy.subtract(chosen)
        for message in chosen:
            if not self._busy[message]:
                del self._busy[message]
        ended = {message for message in chosen if message in self._ended and message not in self._busy}
        self._ended -= ended
        return ended

    def put_in_corrupt(self, message: int, why: str, then: Callable[[str], None]) -> None:
        """Have the mark of a message that cannot be read made; `then` is called with what went wrong, or nothing."""

        def answer(reply: Response) -> None:
            then("".join(note.text.decode("utf-8", "replace") for note in reply.notes))

        def write(message: int, commit: Commit) -> None:
            self._messages.store.park(message, why, commit)

        self._submit([message], [], answer, write, lambda _: None)

    def puts_off(self, message: int) -> bool:
        """Return whether a message must not end yet: the thread is at it. It ends after that."""
        if message not in self._busy:
            return False
        self._ended.add(message)
        return True

    def _free(self, chosen: Chosen) -> list[int]:
        """Return the chosen messages that the thread is not at; the others get a note."""
        for message in chosen.messages:
            if message in self._busy:
                chosen.note(TROUBLE, message, "another command is at it; try again")
        return [message for message in chosen.messages if message not in self._busy]

    def _mark(self, chosen: Chosen, reason: bytes, answer: Answer) -> None:
        work = self._those(self._free(chosen), lambda message: self._may_mark(message, reason, chosen), chosen)

        def write(message: int, commit: Commit) -> None:
            marks.mark(self._layout, message, reason, commit)

        def then(message: int) -> None:
            self._messages.held.add(message)
            if reason in marks.ORDERS:
                self._unread.discard(message)
                self._given[message] = reason
                self.carry_out(message, self._run.clock.now())
            else:
                self._messages.withdraw(message, self._run.clock.now())

        def refused(message: int) -> None:
            if message not in self._messages.held:
                self._run.log.put(logline.release_message(message))

        for message in work:
            self._run.log.put(logline.hold_message(message, reason))
        self._submit(work, chosen.notes, answer, write, then, refused)

    def _may_mark(self, message: int, reason: bytes, chosen: Chosen) -> bool:
        given = self._order_of(message)
        if given == reason or (message in self._messages.held and reason not in marks.ORDERS):
            if given == reason:
                self.carry_out(message, self._run.clock.now())
            elif given is not None:
                chosen.note(TROUBLE, message, given.decode())
            return False
        if reason != marks.DELETED:
            if self._bouncer.holds(message):
                chosen.note(NEWS, message, "nothing is left of it but its bounce, which is on its way")
                return False
            if reason == marks.RETURNED and marks.is_marked(self._layout, "corrupt", message):
                chosen.note(TROUBLE, message, "it is corrupt and cannot be bounced; release or delete it")
                return False
        elif not self._bouncer.drop(message):
            chosen.note(TROUBLE, message, "its bounce is being injected")
            return False
        return True

    def carry_out(self, message: int, now: float) -> bool:
        """End a message that is to be deleted or returned, if nothing is in flight; return whether it is such a one.

        Where the disk cannot tell, nothing of it is started, and it is looked at again later.
        """
        try:
            return self._carry_out(message, now)
        except OSError as error:
            self._run.again.later(("order", message), lambda now: self.carry_out(message, now), error)
            return True

    def _carry_out(self, message: int, now: float) -> bool:
        order = self._order_of(message)
        if order is None:
            return False
        if self._messages.withdraw(message, now) or self._cleaner.holds(message):
            return True
        if self._messages.store.is_waiting_in_todo(message):
            if order == marks.DELETED and marks.is_marked(self._layout, "corrupt", message):
                # queue-todo leaves it alone. What is not corrupt is classified first, and comes back here then.
                self._submit(
                    [message], [], lambda _: None,
                    lambda one, commit: marks.leave_todo(self._layout, one, commit), self._messages.end,
                )  # fmt: skip
        elif order == marks.RETURNED:
            self.returning.take(message)
        elif self._bouncer.drop(message):
            self._messages.end(message)
        return True

    def _order_of(self, message: int) -> bytes | None:
        """Return the order that a message's mark is, None where it is none. Raises OSError."""
        if message in self._unread:
            reason = marks.read_mark(self._layout, message)
            self._unread.discard(message)
            if reason is not None and reason in marks.ORDERS:
                self._given[message] = reason
        return self._given.get(message)

    def forget(self, message: int) -> None:
        """The message has ended, or its mark is gone."""
        self._unread.discard(message)
        self._given.pop(message, None)

    def _release(self, chosen: Chosen, answer: Answer) -> None:
        free = [message for message in self._free(chosen) if not self.returning.holds(message)]

        def has_mark(message: int) -> bool:
            return any(marks.is_marked(self._layout, kind, message) for kind in marks.KINDS)

        work = self._those(free, has_mark, chosen)
        reasons = {message: self._reason_of(message) for message in work}

        def write(message: int, commit: Commit) -> None:
            marks.unmark(self._layout, message, commit)

        def then(message: int) -> None:
            self._messages.held.discard(message)
            self._messages.parked.discard(message)
            self.forget(message)
            self._go_on(message)

        def refused(message: int) -> None:
            self._run.log.put(reasons[message])

        for message in work:
            self._run.log.put(logline.release_message(message))
        self._submit(work, chosen.notes, answer, write, then, refused)

    def _go_on(self, message: int) -> None:
        """Have a released message classified, or tried."""
        try:
            if self._messages.store.is_waiting_in_todo(message):
                self._rescan()
            else:
                self._messages.wake(message)
        except OSError as error:
            self._run.again.later(("release", message), lambda now: self._go_on(message), error)

    def _reason_of(self, message: int) -> bytes:
        """Return the line that says that a message has its mark."""
        try:
            reason = marks.read_mark(self._layout, message)
        except OSError:
            reason = b""
        if reason is None:
            return logline.corrupt_message(message, "its mark could not be removed")
        return logline.hold_message(message, reason)

    def _requeue(self, chosen: Chosen, answer: Answer, now: float) -> None:
        birth = int((now + self._run.clock.ahead) * 1_000_000)

        def may_change(message: int) -> bool:
            if message in self._messages.parked or self._messages.store.is_waiting_in_todo(message):
                chosen.note(TROUBLE, message, "it is not classified, or corrupt, and cannot have a new birth")
            elif self._order_of(message) is not None or self._bouncer.holds(message):
                chosen.note(TROUBLE, message, "it is about to end")
            else:
                return True
            return False

        work = self._those(self._free(chosen), may_change, chosen)

        def write(message: int, commit: Commit) -> None:
            marks.give_birth(self._layout, message, birth, commit)

        def then(message: int) -> None:
            chosen.note(NEWS, message, f"is {pack_long_id(message, birth)} now")
            if message not in self._messages.held:
                self._messages.wake(message)
                self._messages.withdraw(message, self._run.clock.now())

        self._submit(work, chosen.notes, answer, write, then)
