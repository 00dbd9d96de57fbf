"""A worker of queue-todo: classifies the messages of its share, as its parent hands them on (todo_workers.py).

It is a fork of queue-todo. Its commands and its notices are pipes to the parent (worker_records.py). It looks for no
mail by itself: new names, what a scan has found, and the rules come from the parent, in order. What it defers it keeps.

After X it ends as queue-todo does with one process: no group is begun, and what is in the log, or announced, is
finished within FINISHING seconds (pipeline.py). The end of its commands means that the parent has ended: then it ends
at once.
"""

import select
import time

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.queue.layout import Layout
from queue_todo.hold_watch import StandingHolds
from queue_todo.notices import NoticePipe
from queue_todo.pending import Pending
from queue_todo.pipeline import UNWRITTEN_MAX, Pipeline
from queue_todo.worker_records import (
    INSTRUCTION_MAX,
    ClassOrder,
    Named,
    SharedAlert,
    Taken,
    pack_shared_alert,
    pack_taken,
    unpack_instruction,
)
from queue_wire.control.rewrite import Rules
from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.notice import EXIT

HOLDS_RETRY = 60.0  # Seconds between attempts to read queue/holds for the first time.


class WorkerNotices(NoticePipe):
    """The pipe to the parent, which makes one alert of those of all workers."""

    def alert_of_queue(self, text: str) -> None:
        """Send an alert about a file that all workers read."""
        self.put(pack_shared_alert(SharedAlert(text)))


class TodoWorker:
    """The parts of a worker's loop. `count` workers share the limits of announced messages."""

    def __init__(self, layout: Layout, commands: int, notices: int, count: int) -> None:
        self._layout = layout
        self._commands = commands
        self._reader = NetstringReader(INSTRUCTION_MAX)
        self._notices = WorkerNotices(notices)
        self._pending = Pending(layout, scans=False)
        self._holds = StandingHolds(layout.queue)
        self._pipeline = Pipeline(layout, self._pending, self._notices, self._holds, count)
        self._rules: Rules | None = None
        self._next_holds = 0.0
        self._got_first = self._got_lower = 0
        self._told = Taken(0, 0)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register the descriptors; return the seconds to wait at most."""
        poll.register(self._commands, select.POLLIN)
        poll.register(self._notices.descriptor, select.POLLOUT if self._notices.unwritten else 0)
        rules = self._rules_in_force
        wait = self._pipeline.prepare(poll, now, rules)
        if self._pipeline.exit_by is not None:
            return min(wait, max(0.0, self._pipeline.exit_by - now))
        if self._rules is not None and rules is None:
            return min(wait, max(0.0, self._next_holds - now))
        if rules is not None and self._notices.unwritten <= UNWRITTEN_MAX:
            wait = min(wait, self._pending.wait(now))
        return wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: instructions, deferred messages that are due, groups, notices. Raises PeerLost, FormatError."""
        if ready.get(self._notices.descriptor, 0) & (select.POLLERR | select.POLLHUP):
            raise PeerLost("queue-todo does not read the notices")
        if self._commands in ready:
            self._obey(now)
        if self._rules is not None and not self._holds.known and now >= self._next_holds:
            self._look_at_holds(now)
        rules = self._rules_in_force
        if rules is not None and self._notices.unwritten <= UNWRITTEN_MAX:
            self._pending.run(now)
        self._pipeline.run(ready, now, rules)
        taken = Taken(self._got_first - len(self._pending), self._got_lower - self._pending.lower_waiting)
        if taken != self._told:
            self._told = taken
            self._notices.put(pack_taken(taken))
        self._notices.flush()

    @property
    def finished(self) -> bool:
        """Whether X was received, and nothing is unfinished or announced."""
        return self._pipeline.may_exit

    def finish(self) -> None:
        """Write all notices. Raises PeerLost."""
        self._notices.end()

    @property
    def _rules_in_force(self) -> Rules | None:
        """The rules; None if no group may be begun."""
        return self._rules if self._pipeline.exit_by is None and self._holds.known else None

    def _look_at_holds(self, now: float) -> None:
        self._holds.current()
        trouble = self._holds.take_trouble()
        if trouble is not None:
            self._next_holds = now + HOLDS_RETRY
            self._notices.alert_of_queue(trouble)

    def _obey(self, now: float) -> None:
        self._reader.feed(read_available(self._commands) or b"")
        while (record := self._reader.next()) is not None:
            self._carry_out(record, now)

    def _carry_out(self, record: bytes, now: float) -> None:
        found = unpack_instruction(record)
        if isinstance(found, Named):
            if found.priority:
                self._got_lower += len(found.messages)
            else:
                self._got_first += len(found.messages)
            if found.scanned:
                self._pending.add_scanned(found.messages, found.priority)
            else:
                self._pending.add(found.messages, now, found.priority)
        elif isinstance(found, Rules):
            self._rules = found
            self._next_holds = 0.0
        elif isinstance(found, ClassOrder):
            self._pending.set_classes(self._layout, found.names)
        elif found == EXIT:
            self._pipeline.begin_exit(now)
        elif not self._pipeline.carry_out(found, now):
            raise FormatError(f"instruction: unknown command: {quoted(record)}")


def work(worker: TodoWorker) -> None:
    """Turn until X is done. Raises PeerLost if the parent has ended."""
    while not worker.finished:
        poll = select.poll()
        wait = worker.prepare(poll, time.monotonic())
        worker.run(dict(poll.poll(wait * 1000)), time.monotonic())
    worker.finish()
