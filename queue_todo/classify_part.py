"""The part of queue-todo's loop that has messages classified, as queue-send tells it to.

In a process that classifies, this is the Pipeline (pipeline.py). With several workers their parent has Workers in its
place, which hands messages on (todo_workers.py). Either takes ids from `pending`, and gives notices and log lines to
queue-send.
"""

import select
import time

from queue_base.queue.layout import Layout
from queue_todo.notices import NoticePipe
from queue_todo.pending import LowerClass, Pending
from queue_wire.control.rewrite import Rules
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    FIRST,
    LEAVE,
    PASSED,
    WRITTEN,
    ClassifyRequest,
    Gone,
    Resubmission,
)


class ClassifyPart:
    """What Pipeline and Workers have in common: queue-send's commands about messages, and the exit.

    exit_by: the latest time to exit, None before X; a disk that hangs must not prevent the exit. No group is begun
    after X.
    """

    exit_by: float | None

    def __init__(self, layout: Layout, pending: Pending, notices: NoticePipe, exit_seconds: float) -> None:
        """`exit_seconds`: how long what is unfinished may take after X."""
        self._layout = layout
        self._pending = pending
        self._notices = notices
        self._exit_seconds = exit_seconds
        self.exit_by = None
        self._mode = CLASSIFY
        self._left_until = 0.0  # Until then messages were left in todo/, and did not wait for this process.
        self._worked = False
        self._now = 0.0

    def prepare(self, poll: "select.poll", now: float, rules: Rules | None) -> float:
        """Register descriptors; return the seconds to wait at most."""
        raise NotImplementedError

    def run(self, ready: dict[int, int], now: float, rules: Rules | None) -> None:
        """Do what can be done now. Without rules no group is begun."""
        raise NotImplementedError

    def carry_out(self, command: bytes | ClassifyRequest | Gone | Resubmission, now: float) -> bool:
        """Carry out a command of queue-send about messages; return False if it is another one."""
        if isinstance(command, ClassifyRequest):
            self.request(command.message, command.done)
        elif isinstance(command, Gone):
            self.gone(command.message)
        elif isinstance(command, Resubmission):
            self.resubmit(command.message, now)
        elif command == WRITTEN:
            self.written()
        elif command == PASSED:
            self.ask_passed()
        elif command in (ANNOUNCE, LEAVE, CLASSIFY, FIRST):
            self.set_mode(command)
        else:
            return False
        return True

    def request(self, message: int, done: int) -> None:
        """Classify an announced message; `done` are the bits of its recipients that are done."""
        raise NotImplementedError

    def gone(self, message: int) -> None:
        """Note that an announced message has ended."""
        raise NotImplementedError

    def resubmit(self, message: int, now: float) -> None:
        """Classify a message now that could not be classified, or all of them if the number is 0."""
        self._pending.resubmit(message, now)

    def written(self) -> None:
        """Note that queue-send has written the lines that it was asked about first to the log."""
        raise NotImplementedError

    def ask_passed(self) -> None:
        """Answer, as soon as the messages whose lines have been sent are announced."""
        raise NotImplementedError

    def set_mode(self, mode: bytes) -> None:
        """Announce new messages (ANNOUNCE), LEAVE them in todo/, CLASSIFY them, or announce the FIRST class alone."""
        if self._mode == LEAVE:
            self._left_until = self._now
        self._mode = mode

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
        """Finish what queue-send waits for, within `exit_seconds`, and begin nothing else. Only the first call counts.
        """
        if self.exit_by is None:
            self.exit_by = now + self._exit_seconds
            self._begin_exit()

    def _begin_exit(self) -> None:
        raise NotImplementedError

    @property
    def has_unfinished(self) -> bool:
        """Whether queue-send waits for the end of something, so that an exit must wait."""
        raise NotImplementedError

    @property
    def may_exit(self) -> bool:
        """Whether an exit was begun, and nothing is unfinished, or that takes too long."""
        return self.exit_by is not None and (not self.has_unfinished or time.monotonic() >= self.exit_by)
