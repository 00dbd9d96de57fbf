"""The rules for a segment whose beginning is not known: what depends on it is left to the edge, in order.

A message number is known from its first `new` or `end` on: later lines about it do not depend on the beginning. A
number whose first line is `new` is assumed not to have been open before (`assumed`). If that is wrong, as after a crash
between two segments, the segment is matched again. Likewise a delivery's number is known from its first start on
(`claimed`), and all numbers from the first status on that says that nothing is in flight.

A number of a session of SMTP is known from its first `connect` on, and a run of an on-demand domain from its first
`started` or `ended` on. A stored recipient that was stored in the segment ends before one that was stored earlier.

Left to the edge are calls of the methods of Rules, which `spark.match.edge.join` makes once the state is known.
"""

from collections import Counter
from typing import Any, TypeAlias

from spark.match.ondemand_log import StoredKey
from spark.match.rules import LOST_DAEMON, Found, Rules
from spark.match.state import Level, Message, State

Call: TypeAlias = tuple[Any, ...]  # The name of a method of Rules, and what it is called with.
LATER = "?"  # bounce_of that the edge will tell.


class Opening(Rules):
    """Rules of a segment with an unknown beginning.

    state: only what does not depend on the beginning. calls: what does. assumed: numbers of messages that were taken
    for closed at the beginning, claimed: of deliveries that were taken for none in flight then.
    level: as in state; `level_begun` False: the edge knows since when it is (and which, where level is None).
    """

    def __init__(self, state: State, found: Found, counts: Counter[str]) -> None:
        super().__init__(state, found, counts)
        self.calls: list[Call] = []
        self.assumed: list[int] = []
        self.claimed: list[int] = []
        self.level_begun = False
        self.dying_known = False
        self._known: set[int] = set()  # Numbers of messages.
        self._touched: set[int] = set()  # Of messages that may be open, by a call that is left to the edge.
        self._in_flight: set[int] = set()  # Deliveries that the edge has in flight, started in this segment.
        self._runs: set[bytes] = set()  # On-demand domains of which it is known whether there is a run.
        self._sessions: set[int] = set()  # Numbers of sessions of SMTP that began in this segment.
        self._met: set[int] | None = set()  # Deliveries that are known; None: all are.

    def _leave(self, *call: Any) -> None:
        self.calls.append(call)

    def new(self, at: int, number: int) -> None:
        if number not in self._known:
            if number in self._touched:
                self._leave("new", at, number)
                return
            self._known.add(number)
            self.assumed.append(number)
        super().new(at, number)

    def info(self, at: int, number: int, size: int, sender: bytes, qp: int, uid: int) -> None:
        if number in self._known:
            super().info(at, number, size, sender, qp, uid)
        else:
            self._touched.add(number)
            self._give_back(qp)
            self._leave("info", at, number, size, sender, qp, uid)

    def take(self, message: Message, qp: int) -> None:
        if qp in self.bounces:
            super().take(message, qp)
        else:
            message.bounce_of = LATER
            self._leave("take", message, qp)

    def show(self, message: Message, at: int, outcome: str) -> None:
        if message.bounce_of == LATER:
            self._leave("show", message, at, outcome)
        else:
            super().show(message, at, outcome)

    def start(self, at: int, delivery: int, number: int, address: bytes) -> None:
        if number in self._known:
            if delivery in self._in_flight:
                self._in_flight.remove(delivery)
                self._leave("drop", delivery)
            elif self._met is not None and delivery not in self._met:
                self.claimed.append(delivery)
                self._met.add(delivery)
            super().start(at, delivery, number, address)
            return
        super().drop(delivery)
        if self._met is not None:
            self._met.add(delivery)
        self._touched.add(number)
        self._in_flight.add(delivery)
        self._leave("start", at, delivery, number, address)

    def done(self, at: int, delivery: int, result: str, reason: bytes | None) -> None:
        if delivery in self.deliveries:
            super().done(at, delivery, result, reason)
        elif delivery in self._in_flight:
            self._in_flight.remove(delivery)
            self._leave("done", at, delivery, result, reason)
        elif self._met is not None and delivery not in self._met:
            self._met.add(delivery)
            self._leave("done", at, delivery, result, reason)

    def bounce(self, at: int, number: int, qp: int) -> None:
        if number in self._known:
            if number in self.messages:
                self._leave("forget", qp)
                super().bounce(at, number, qp)
            return
        self._give_back(qp)
        self._leave("bounce", at, number, qp)

    def _give_back(self, qp: int) -> None:
        """Leave a bounce to the edge: what is left next may take it, or replace it."""
        if qp in self.bounces:
            self._leave("remember", qp, self.bounces.pop(qp))

    def triple(self, at: int, number: int) -> None:
        if number in self._known:
            super().triple(at, number)
        else:
            self._leave("triple", at, number)

    def hold(self, at: int, number: int, why: bytes) -> None:
        if number in self._known:
            super().hold(at, number, why)
        else:
            self._leave("hold", at, number, why)

    def delete(self, at: int, number: int, why: bytes) -> None:
        if number in self._known:
            super().delete(at, number, why)
        else:
            self._leave("delete", at, number, why)

    def release(self, at: int, number: int) -> None:
        if number in self._known:
            super().release(at, number)
        else:
            self._leave("release", at, number)

    def end(self, at: int, number: int) -> None:
        if number in self._known:
            super().end(at, number)
        else:
            self._known.add(number)
            self._leave("end", at, number)

    def end_stored(self, at: int, key: StoredKey, result: str, reason: bytes) -> None:
        if key in self.state.stored:
            super().end_stored(at, key, result, reason)
        else:
            self._leave("end_stored", at, key, result, reason)

    def defer_stored(self, key: StoredKey) -> None:
        if key in self.state.stored:
            super().defer_stored(key)
        else:
            self._leave("defer_stored", key)

    def ondemand_started(self, at: int, domain: bytes, cause: bytes) -> None:
        if domain not in self._runs:
            self._runs.add(domain)
            self._leave("lose_run", domain)
        super().ondemand_started(at, domain, cause)

    def ondemand_ended(self, at: int, domain: bytes, delivered: int, failed: int, deferred: int) -> None:
        if domain in self._runs:
            super().ondemand_ended(at, domain, delivered, failed, deferred)
        else:
            self._runs.add(domain)
            self._leave("ondemand_ended", at, domain, delivered, failed, deferred)

    def count_in_run(self, domain: bytes, result: str) -> None:
        if domain in self._runs:
            super().count_in_run(domain, result)
        else:
            self._leave("count_in_run", domain, result)

    def smtp_line(self, kind: str, at: int, number: int, *values: Any) -> None:
        if number not in self._sessions:
            if kind != "smtp_connect":
                self._leave("smtp_line", kind, at, number, *values)
                return
            self._sessions.add(number)
            self._leave("smtp_lose", number)
        super().smtp_line(kind, at, number, *values)

    def smtp_gone(self, at: int, number: int) -> None:
        if number in self._sessions:
            super().smtp_gone(at, number)
        else:
            self._leave("smtp_lose", number)

    def smtp_start(self, at: int, place: int, count: int, pid: int) -> None:
        super().smtp_start(at, place, count, pid)
        self._leave("smtp_start", at, place, count, pid)

    def alert(self, at: int, text: bytes) -> None:
        super().alert(at, text)
        self.dying_known |= self.state.dying

    def drop_all(self) -> None:
        super().drop_all()
        if self._met is not None or self._in_flight:
            self._leave("drop_all")
        self._met = None
        self._in_flight.clear()

    def end_run(self) -> None:
        if self.dying_known:
            super().end_run()
        else:
            self._leave("end_run")
        self.dying_known = True

    def crash(self, last: int) -> None:
        super().crash(last)
        self.dying_known = True

    def is_idle(self) -> bool:
        return not self.deliveries and self._met is None and not self._in_flight

    def idle(self, at: int, last: int | None, level: Level) -> None:
        if self.deliveries or self.is_idle():
            super().idle(at, last, level)
            return
        # Whether something is in flight, only the edge knows.
        if self.level_begun and self.state.level is not None:
            self._leave("set_level", *self.state.level)
        if self.state.dying:
            self._leave("alert", at, LOST_DAEMON)
            self.state.dying = self.dying_known = False
        self._leave("idle", at, last, level)
        self._met = None
        self._in_flight.clear()
        self.state.level, self.level_begun = (at, level), False

    def set_level(self, at: int, level: Level) -> None:
        if self.level_begun:
            super().set_level(at, level)
        elif self.state.level is None:
            self._leave("set_level", at, level)
            self.state.level = (at, level)
        elif self.state.level[1] != level:
            self._leave("end_level", at)
            self.state.level, self.level_begun = (at, level), True

    def end_level(self, until: int) -> None:
        if self.level_begun:
            super().end_level(until)
        else:
            self._leave("end_level", until)
            self.state.level, self.level_begun = None, True
