"""Injects mail of our own through queue-enqueue, never waiting for it: its input is in memory files, its end a pidfd.

One mail about a message at a time. It is composed in steps, TURN seconds of them in a turn of the loop; then
queue-enqueue runs, `at_once` processes at the most. What is said, and what follows, is the business of the two kinds:
bouncer.py and delays.py.
"""

import os
import select
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

from queue_base.durable import write_all
from queue_base.errors import reason
from queue_base.programs import command
from queue_send.run import Run
from queue_wire.format_error import FormatError

TURN = 0.003  # Seconds of work on a mail in one turn of the loop; one step of it, a millisecond or so, comes on top.
LOOK_AFTER = 0.1  # Seconds between looks at children that have no pidfd.


class Mail(NamedTuple):
    """What queue-enqueue is given: the message in pieces, some of them empty, and its envelope."""

    pieces: Iterator[bytes]
    sender: bytes
    recipient: bytes


# A message that a mail is to be about, and which of the calls of `_accept` for it this is.
Entry = tuple[int, int]
Steps = Generator[None, None, Mail | None]


class Child:
    """A queue-enqueue that runs for a message; `pidfd` is None where the system gave none.

    `told`: the log says that its mail is queued.
    """

    __slots__ = ("message", "pid", "pidfd", "told")

    def __init__(self, message: int, pid: int) -> None:
        self.message = message
        self.pid = pid
        self.told = False
        try:
            self.pidfd: int | None = os.pidfd_open(pid)
        except OSError:
            # It runs, and will queue the mail: it must not be forgotten, or there will be a second one.
            self.pidfd = None

    def ended(self) -> int | None:
        """Return its exit code, None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        if self.pidfd is not None:
            os.close(self.pidfd)
        return os.waitstatus_to_exitcode(status)


class Injecting(ABC):
    """A part of the loop: mails to be composed, and being injected."""

    def __init__(self, run: Run, at_once: int) -> None:
        self._run = run
        self._at_once = at_once
        self._waiting: deque[Entry] = deque()
        self._readying = 0
        self._ready: deque[Entry] = deque()
        # The entry of each message that counts; what was dropped stays in the queues, and is passed over.
        self._entries: dict[int, Entry] = {}
        self._count = 0
        self._composing: tuple[int, Iterator[None]] | None = None
        self._children: list[Child] = []

    @abstractmethod
    def _compose(self, message: int, now: float) -> Steps:
        """Return the mail, None where there is to be none; yield between pieces of work. FormatError, OSError."""

    @abstractmethod
    def _say(self, message: int, pid: int) -> None:
        """Put into the log that queue-enqueue, process `pid`, has queued the mail."""

    @abstractmethod
    def _sent(self, message: int) -> None:
        """queue-enqueue has said that the mail is queued, and the log says so."""

    @abstractmethod
    def _failed(self, message: int, why: str, now: float) -> None:
        """The mail could not be composed or injected."""

    @abstractmethod
    def _unreadable(self, message: int, why: str) -> None:
        """Files of the message cannot be understood."""

    def _make_ready(self, entry: Entry) -> None:
        """Do what must come before a mail, then call `_is_ready`, perhaps later."""
        self._is_ready(entry)

    def _is_ready(self, entry: Entry) -> None:
        self._readying -= 1
        if self._is_current(entry):
            self._ready.append(entry)

    def _is_current(self, entry: Entry) -> bool:
        return self._entries.get(entry[0]) == entry

    def _accept(self, message: int) -> None:
        """Have a mail about a message composed and injected, if none is on its way."""
        if message not in self._entries:
            self._count += 1
            self._entries[message] = message, self._count
            self._waiting.append(self._entries[message])

    def holds(self, message: int) -> bool:
        """Return whether a mail about a message waits or is on its way."""
        return message in self._entries

    def drop(self, message: int) -> bool:
        """Make no mail about a message; return False where queue-enqueue has it already."""
        if any(child.message == message for child in self._children):
            return False
        self._entries.pop(message, None)
        if self._composing and self._composing[0] == message:
            self._composing = None
        return True

    def announce(self, pid: int) -> None:
        """Say, if it is one of ours, that the mail of process `pid` is queued: queue-todo has it.

        So the log says so before the mail's own lines, although queue-enqueue may not have ended yet.
        """
        for child in self._children:
            if child.pid == pid:
                self._tell(child)

    def _tell(self, child: Child) -> None:
        if not child.told:
            child.told = True
            self._say(child.message, child.pid)

    @property
    def busy(self) -> bool:
        """Whether a mail is being injected."""
        return bool(self._children)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for children, and for the next mail that can be started."""
        wait = 3600.0
        for child in self._children:
            if child.pidfd is None:
                wait = LOOK_AFTER
            else:
                poll.register(child.pidfd, select.POLLIN)
        if self._run.leaving:
            return wait
        startable = self._ready and len(self._children) < self._at_once
        return 0.0 if self._composing or startable or self._may_ready else wait

    @property
    def _may_ready(self) -> bool:
        return bool(self._waiting) and self._readying + len(self._ready) < self._at_once

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: children that ended, work on a mail."""
        for child in [child for child in self._children if child.pidfd is None or child.pidfd in ready]:
            self._reap(child, now)
        if self._run.leaving:
            self._composing = None  # Its steps close what they opened. The disk still says what is to be told.
            return
        while self._may_ready:
            entry = self._waiting.popleft()
            if self._is_current(entry):
                self._readying += 1
                self._make_ready(entry)
        while self._ready and not self._composing and len(self._children) < self._at_once:
            entry = self._ready.popleft()
            if self._is_current(entry):
                self._composing = entry[0], self._steps(entry[0], now)
        if self._composing:
            self._work(*self._composing, now)

    def _work(self, message: int, steps: Iterator[None], now: float) -> None:
        """Do steps of a mail until the turn's time is over, or the mail is on its way."""
        until = self._run.until(TURN)
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
        """Compose the mail about a message, start queue-enqueue. Raises OSError, FormatError."""
        mail = yield from self._compose(message, now)
        if mail is None:
            return
        files: list[int] = []
        try:
            for pieces in mail.pieces, [b"F%s\0T%s\0\0" % (mail.sender, mail.recipient)]:
                files.append(os.memfd_create("mail"))
                for piece in pieces:
                    write_all(files[-1], piece)
                    yield
                os.lseek(files[-1], 0, os.SEEK_SET)
            self._children.append(Child(message, self._spawn(files)))
        finally:
            for handle in files:
                os.close(handle)

    def _spawn(self, files: list[int]) -> int:
        words = command("queue-enqueue", self._run.home)
        # The files' numbers are above 1, as 0 and 1 are open in every daemon: no dup2 hits what a later one needs.
        actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(files)]
        return os.posix_spawn(words[0], words, os.environ, file_actions=actions)

    def _reap(self, child: Child, now: float) -> None:
        code = child.ended()
        if code is None:
            return
        self._children.remove(child)
        if code == 0:
            self._tell(child)
            self._sent(child.message)
        else:
            self._failed(child.message, f"queue-enqueue exited {code}", now)
