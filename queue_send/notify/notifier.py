"""Injects mail that queue-send itself sends, by queue-enqueue. The loop does not wait for it: the input of
queue-enqueue is in memory files, and a pidfd reports its end.

One mail about a message at a time. It is composed in steps, COMPOSING seconds of them in a turn of the loop; then
queue-enqueue runs, `at_once` processes at most. The subclasses (bounce.py, delay.py) compose the mail, and do what
follows when it is queued.
"""

import os
import select
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

from queue_base.daemon.processes import command
from queue_base.durable import write_all
from queue_base.errors import reason
from queue_base.home import Home
from queue_send.shared_parts import SharedParts
from queue_wire.files.envelope import pack_enqueue
from queue_wire.format_error import FormatError

COMPOSING = 0.003  # Seconds of work on a mail in one turn of the loop, and one more step of about a millisecond.
POLL_EVERY = 0.1  # Seconds between checks of children that have no pidfd.


class OwnMail(NamedTuple):
    """The input of queue-enqueue: the message in pieces, some of them empty, and its envelope."""

    pieces: Iterator[bytes]
    sender: bytes
    recipient: bytes


# A message that a mail is about, and the number of the request for it.
Task = tuple[int, int]
Steps = Generator[None, None, OwnMail | None]


class EnqueueProcess:
    """A queue-enqueue that runs for a message. `pidfd` is None if the system gave none.

    `logged`: it is logged that its mail is queued.
    """

    __slots__ = ("logged", "message", "pid", "pidfd")

    def __init__(self, message: int, pid: int) -> None:
        self.message = message
        self.pid = pid
        self.logged = False
        try:
            self.pidfd: int | None = os.pidfd_open(pid)
        except OSError:
            # The process runs, and will queue the mail: if it were forgotten, a second mail would be sent.
            self.pidfd = None

    def ended(self) -> int | None:
        """Return its exit code; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        if self.pidfd is not None:
            os.close(self.pidfd)
        return os.waitstatus_to_exitcode(status)


class Notifier(ABC):
    """A part of the loop: mail to be composed, and being injected."""

    def __init__(self, home: Home, parts: SharedParts, at_once: int) -> None:
        self._home = home
        self._store, self._log, self._clock, self._config = parts.store, parts.log, parts.clock, parts.config
        self._budget, self._shutdown, self._events, self._disk = parts.budget, parts.shutdown, parts.events, parts.disk
        self._at_once = at_once
        self._waiting: deque[Task] = deque()
        self._preparing = 0
        self._ready: deque[Task] = deque()
        # The valid task of each message. Dropped tasks stay in the queues, and are skipped.
        self._tasks: dict[int, Task] = {}
        self._count = 0
        self._composing: tuple[int, Iterator[None]] | None = None
        self._children: list[EnqueueProcess] = []

    @abstractmethod
    def _compose(self, message: int, now: float) -> Steps:
        """Return the mail, None for no mail; yield between pieces of work. Raises FormatError, OSError."""

    @abstractmethod
    def _log_sent(self, message: int, pid: int) -> None:
        """Log that queue-enqueue, process `pid`, has queued the mail."""

    @abstractmethod
    def _sent(self, message: int) -> None:
        """Called when the mail is queued and that is logged."""

    @abstractmethod
    def _failed(self, message: int, why: str, now: float) -> None:
        """Called when the mail could not be composed or injected."""

    @abstractmethod
    def _unreadable(self, message: int, why: str) -> None:
        """Called when a file of the message is malformed."""

    def _prepare_mail(self, task: Task) -> None:
        """Do what must be done before the mail is composed, then call `_prepared`, perhaps later."""
        self._prepared(task)

    def _prepared(self, task: Task) -> None:
        self._preparing -= 1
        if self._is_current(task):
            self._ready.append(task)

    def _is_current(self, task: Task) -> bool:
        return self._tasks.get(task[0]) == task

    def accept(self, message: int) -> None:
        """Have a mail about a message composed and injected, if there is none yet."""
        if message not in self._tasks:
            self._count += 1
            self._tasks[message] = message, self._count
            self._waiting.append(self._tasks[message])

    def __len__(self) -> int:
        """Return the number of messages whose mail is not queued yet."""
        return len(self._tasks)

    def holds(self, message: int) -> bool:
        """Return whether a mail about a message waits or is being injected."""
        return message in self._tasks

    def drop(self, message: int) -> bool:
        """Cancel the mail about a message; return False if queue-enqueue has it already."""
        if self._children and any(child.message == message for child in self._children):
            return False
        self._tasks.pop(message, None)
        if self._composing and self._composing[0] == message:
            self._composing = None
        return True

    def announce(self, pid: int) -> None:
        """Log that a mail is queued, if process `pid`, whose mail queue-todo has classified, is one of ours.

        So that line comes before the lines about the mail itself, although queue-enqueue may not have ended yet.
        """
        for child in self._children:
            if child.pid == pid:
                self._log_once(child)

    def _log_once(self, child: EnqueueProcess) -> None:
        if not child.logged:
            child.logged = True
            self._log_sent(child.message, child.pid)

    @property
    def busy(self) -> bool:
        """Whether a mail is being injected."""
        return bool(self._children)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for processes, and for the next mail that can be started."""
        wait = 3600.0
        for child in self._children:
            if child.pidfd is None:
                wait = POLL_EVERY
            else:
                poll.register(child.pidfd, select.POLLIN)
        if self._shutdown.begun:
            return wait
        startable = self._ready and len(self._children) < self._at_once
        return 0.0 if self._composing or startable or self._may_prepare else wait

    @property
    def _may_prepare(self) -> bool:
        return bool(self._waiting) and self._preparing + len(self._ready) < self._at_once

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: processes that ended, work on a mail."""
        for child in [child for child in self._children if child.pidfd is None or child.pidfd in ready]:
            self._reap(child, now)
        if self._shutdown.begun:
            self._composing = None  # Its steps close what they opened. The next run finds the message on the disk.
            return
        while self._may_prepare:
            task = self._waiting.popleft()
            if self._is_current(task):
                self._preparing += 1
                self._prepare_mail(task)
        while self._ready and not self._composing and len(self._children) < self._at_once:
            task = self._ready.popleft()
            if self._is_current(task):
                self._composing = task[0], self._steps(task[0], now)
        if self._composing:
            self._work(*self._composing, now)

    def _work(self, message: int, steps: Iterator[None], now: float) -> None:
        """Do steps of a mail until the time is over, or queue-enqueue runs."""
        until = self._budget.until(COMPOSING)
        try:
            for _ in steps:
                if time.monotonic() >= until:
                    return
        except OSError as error:
            self._failed(message, f"{error.filename or ''} {reason(error)}".strip(), now)
        except FormatError as error:
            self._unreadable(message, str(error))
        self._composing = None

    def _steps(self, message: int, now: float) -> Iterator[None]:
        """Compose the mail about a message, starts queue-enqueue. Raises OSError, FormatError."""
        mail = yield from self._compose(message, now)
        if mail is None:
            return
        files: list[int] = []
        try:
            for pieces in mail.pieces, [pack_enqueue(mail.sender, [mail.recipient])]:
                files.append(os.memfd_create("mail"))
                for piece in pieces:
                    write_all(files[-1], piece)
                    yield
                os.lseek(files[-1], 0, os.SEEK_SET)
            self._children.append(EnqueueProcess(message, self._spawn(files)))
        finally:
            for handle in files:
                os.close(handle)

    def _spawn(self, files: list[int]) -> int:
        words = command("queue-enqueue", self._home)
        # 0 and 1 are open in every daemon, so the files have other numbers, and no dup2 closes one of them.
        actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(files)]
        return os.posix_spawn(words[0], words, os.environ, file_actions=actions)

    def _reap(self, child: EnqueueProcess, now: float) -> None:
        code = child.ended()
        if code is None:
            return
        self._children.remove(child)
        if code == 0:
            self._log_once(child)
            self._sent(child.message)
        else:
            self._failed(child.message, f"queue-enqueue exited {code}", now)
