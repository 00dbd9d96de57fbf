"""The rules of matching: what each line of the log changes of what is open, and which rows come of it.

One life of a message number begins with `new`, `info` or a delivery's start while none is open, and ends with `end`. An
`info` with other facts than the open life's shows that this one's `end` is missing: it is lost, and the next began with
the last `new` before that `info`. A line about a number without an open life (such as a second `end`) has no effect.

A delivery is a start and the next result of its number. When a status says that nothing is in flight, or the queue
exits, those in flight are lost; so is one whose number is started again. A status that finds deliveries in flight, and
says that there are none, is the first of a run after a crash.
"""

from collections import Counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from queue_report.match.ondemand_log import (
    OnDemandRows,
    OpenRun,
    OpenStored,
    StoredKey,
    end_run,
    end_stored,
    key_of,
    push,
    result_of,
)
from queue_report.match.smtp_log import SessionRows, apply_line, lose_process, lose_session
from queue_report.match.state import NO_FACTS, Facts, Level, Message, State

BOUNCE_SENDERS = (b"", b"#@[]")
LOST_DAEMON = b"oh no! lost "
# The reason of a hold as earlier versions logged a deletion.
DELETED_BEFORE = b"deleted by the administrator; it ends when nothing of it is in flight"

# key, id, delivery, address, start, done, result, reason, facts; done and reason may be None.
DeliveryRow: TypeAlias = tuple[str, int, int, bytes, int, int | None, str, bytes | None, Facts]
# Stamp, alert or warning, and what it says.
AlertRow: TypeAlias = tuple[int, str, bytes]
# From when until when (ns), and levels, a row each.
Stretches: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


class Found:
    """Rows that are complete. messages: with the end and the outcome. intervals: from, until, and the level.
    stretches: the same, many at once."""

    def __init__(self) -> None:
        self.messages: list[tuple[Message, int, str]] = []
        self.deliveries: list[DeliveryRow] = []
        self.intervals: list[tuple[int, int, Level]] = []
        self.stretches: list[Stretches] = []
        self.alerts: list[AlertRow] = []
        self.smtp = SessionRows()
        self.on_demand = OnDemandRows()

    def clear(self) -> None:
        for rows in (self.messages, self.deliveries, self.intervals, self.stretches, self.alerts):
            rows.clear()
        self.smtp.clear()
        self.on_demand.clear()


class Rules:
    """One method a kind of line, called in the order of the log; `at` is its stamp.

    state: changed as the lines say. found: where rows go. counts: lines by kind, in which some kinds are put right.
    """

    def __init__(self, state: State, found: Found, counts: Counter[str]) -> None:
        self.state, self.found, self.counts = state, found, counts
        self.messages, self.deliveries, self.bounces = state.messages, state.deliveries, state.bounces

    def new(self, at: int, number: int) -> None:
        message = self.messages.get(number)
        if message is None:
            self.begin(number, at, (None, None, None, None, at, None))
        elif message.facts[0] is not None or message.facts[4] is None:
            message.again_ns = at

    def begin(self, number: int, at: int, facts: Facts) -> Message:
        """A life of a number begins: the first one with this stamp, or another one."""
        state = self.state
        if at != state.begun_ns:
            state.begun_ns, state.begun = at, {}
        lives = state.begun[number] = state.begun.get(number, 0) + 1
        message = self.messages[number] = Message(number, at, facts)
        if lives > 1:
            message.key = f"{message.key}.{lives}"
        return message

    def info(self, at: int, number: int, size: int, sender: bytes, qp: int, uid: int) -> None:
        message = self.messages.get(number)
        begin = at
        if message is not None:
            old_qp, old_uid, old_sender, old_size, birth, _ = message.facts
            again, message.again_ns = message.again_ns, None
            told = old_qp is not None
            if birth is None or (told and (old_qp, old_uid, old_sender, old_size) != (qp, uid, sender, size)):
                begin = at if again is None else again
                self.close(message, begin, "lost")
                message = None
            else:
                message.facts = (qp, uid, sender, size, birth, at)
                if told:
                    return
        if message is None:
            message = self.begin(number, begin, (qp, uid, sender, size, begin, at))
        if sender in BOUNCE_SENDERS:
            self.take(message, qp)

    def take(self, message: Message, qp: int) -> None:
        """A message may be a bounce: of the last `bounce msg` with its qp, unless another took that."""
        bounce = self.bounces.pop(qp, None)
        message.bounce_of = None if bounce is None else bounce[0]

    def start(self, at: int, delivery: int, number: int, address: bytes) -> None:
        self.drop(delivery)
        message = self.messages.get(number)
        if message is None:
            message = self.begin(number, at, NO_FACTS)
        message.try_address(address)
        self.deliveries[delivery] = (message, delivery, address, at, message.facts)

    def done(self, at: int, delivery: int, result: str, reason: bytes | None) -> None:
        flight = self.deliveries.pop(delivery, None)
        if flight is None:
            return
        message, _, address, start, facts = flight
        number = message.number
        if self.messages.get(number) is message:
            if result == "success":
                message.successes += 1
            elif result == "failure":
                message.failures += 1
            else:
                message.deferrals += 1
        self.found.deliveries.append((message.key, number, delivery, address, start, at, result, reason, facts))

    def mangled(self, at: int, delivery: int) -> None:
        self.done(at, delivery, "mangled", None)

    def drop(self, delivery: int) -> None:
        """A delivery, if it is in flight, is lost."""
        flight = self.deliveries.pop(delivery, None)
        if flight is not None:
            message, _, address, start, facts = flight
            self.found.deliveries.append(
                (message.key, message.number, delivery, address, start, None, "lost", None, facts)
            )

    def drop_all(self) -> None:
        for delivery in list(self.deliveries):
            self.drop(delivery)

    def bounce(self, at: int, number: int, qp: int) -> None:
        message = self.messages.get(number)
        if message is not None:
            if message.bounce_qp is None:
                message.bounce_qp = qp
            self.bounces[qp] = (message.key, number, at)

    def triple(self, at: int, number: int) -> None:
        message = self.messages.get(number)
        if message is not None:
            message.fate = "discarded"

    def hold(self, at: int, number: int, why: bytes) -> None:
        if why == DELETED_BEFORE:
            self.delete(at, number, why)

    def delete(self, at: int, number: int, why: bytes) -> None:
        message = self.messages.get(number)
        if message is not None:
            message.fate = "deleted"

    def release(self, at: int, number: int) -> None:
        message = self.messages.get(number)
        if message is not None and message.fate == "deleted":
            message.fate = None

    def end(self, at: int, number: int) -> None:
        message = self.messages.get(number)
        if message is None:
            return
        # Where a failure was not read, a bounce still tells of it.
        if message.fate is not None:
            outcome = message.fate
        elif not message.failures and message.bounce_qp is None:
            outcome = "delivered"
        else:
            outcome = "partly" if message.successes else "bounced"
        self.close(message, at, outcome)

    def close(self, message: Message, at: int, outcome: str) -> None:
        del self.messages[message.number]
        self.show(message, at, outcome)

    def show(self, message: Message, at: int, outcome: str) -> None:
        self.found.messages.append((message, at, outcome))

    def ondemand_stored(
        self, at: int, domain: bytes, long_id: bytes, size: int, sender: bytes, recipient: bytes
    ) -> None:
        push(self.state.stored, key_of(domain, long_id, recipient), OpenStored(at, sender, size))

    def ondemand_done(
        self, at: int, domain: bytes, long_id: bytes, recipient: bytes, result: bytes, reason: bytes
    ) -> None:
        self.end_stored(at, key_of(domain, long_id, recipient), result_of(result), reason)
        self.count_in_run(domain, result_of(result))

    def ondemand_stays(self, at: int, domain: bytes, long_id: bytes, recipient: bytes, reason: bytes) -> None:
        self.defer_stored(key_of(domain, long_id, recipient))
        self.count_in_run(domain, "deferral")

    def ondemand_requeued(self, at: int, domain: bytes, long_id: bytes, qp: int, recipient: bytes) -> None:
        self.end_stored(at, key_of(domain, long_id, recipient), "requeued", b"qp_%d" % qp)

    def end_stored(self, at: int, key: StoredKey, result: str, reason: bytes) -> None:
        end_stored(self.state.stored, self.found.on_demand, at, key, result, reason)

    def defer_stored(self, key: StoredKey) -> None:
        one = self.state.stored.get(key)
        if one is not None:
            one.deferrals += 1

    def ondemand_started(self, at: int, domain: bytes, cause: bytes) -> None:
        self.lose_run(domain)
        self.state.runs[domain] = OpenRun(at, cause)

    def ondemand_ended(self, at: int, domain: bytes, delivered: int, failed: int, deferred: int) -> None:
        end_run(self.state.runs, self.found.on_demand, at, domain, (delivered, failed, deferred))

    def lose_run(self, domain: bytes) -> None:
        """A run of a domain, if it is open, was killed."""
        end_run(self.state.runs, self.found.on_demand, None, domain, (0, 0, 0))

    def count_in_run(self, domain: bytes, result: str) -> None:
        run = self.state.runs.get(domain)
        if run is None:
            run = self.state.runs[domain] = OpenRun(None, None)
        run.count(result)

    def smtp_line(self, kind: str, at: int, number: int, *values: Any) -> None:
        """A line of a session of queue-smtpd."""
        apply_line(kind, self.state.sessions, self.found.smtp, at, number, values)

    def smtp_lose(self, number: int) -> None:
        lose_session(self.state.sessions, self.found.smtp, number)

    def smtp_gone(self, at: int, number: int) -> None:
        """The process of a session has ended, and the session with it."""
        self.smtp_lose(number)

    def smtp_start(self, at: int, place: int, count: int, pid: int) -> None:
        lose_process(self.state.sessions, self.found.smtp, place, count)

    def alert(self, at: int, text: bytes) -> None:
        if text.startswith(LOST_DAEMON):
            self.state.dying = True

    def exiting(self, at: int) -> None:
        """The run ends by itself."""
        self.drop_all()
        self.end_level(at)
        self.end_run()

    def end_run(self) -> None:
        """Count the end of a run that had lost a daemon as what it is."""
        if self.state.dying:
            self.counts["died"] += 1
            self.counts["exiting"] -= 1
        self.state.dying = False

    def is_idle(self) -> bool:
        """Return whether nothing is in flight, for sure."""
        return not self.deliveries

    def idle(self, at: int, last: int | None, level: Level) -> None:
        """A status says that nothing is in flight. last: stamp of the queue's last line before; None: see state."""
        if self.deliveries:
            # It crashed, and nobody knows when; what was seen last held until its last line.
            if last is None:
                last = self.state.last_ns
            self.crash(at if last is None else last)
        self.set_level(at, level)

    def crash(self, last: int) -> None:
        self.drop_all()
        self.end_level(last)
        self.state.dying = False
        self.counts["crash"] += 1
        self.counts["status"] -= 1

    def set_level(self, at: int, level: Level) -> None:
        """A status says how many deliveries are in flight, and their limits."""
        if self.state.level is None or self.state.level[1] != level:
            self.end_level(at)
            self.state.level = (at, level)

    def end_level(self, until: int) -> None:
        if self.state.level is not None:
            self.found.intervals.append((self.state.level[0], until, self.state.level[1]))
            self.state.level = None
