"""The pipes to the peers that send notices: queue-todo, queue-pickup and queue-intake.

A turn of the loop reads at most NOTICES_A_TURN bytes of notices, and works READING seconds on them, so that a burst of
new mail does not delay deliveries; the rest waits for the next turns, and nothing more is read until it is done.
queue-todo removes a message from todo/ only when its lines are in the log. It asks for that, and is answered as soon as
they are written.
"""

import select
import time
from collections import deque

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_send.log import Log
from queue_send.loop import Shutdown, TimeBudget
from queue_send.messages.life_cycle import Messages
from queue_wire import logline
from queue_wire.format_error import FormatError
from queue_wire.pipes.notice import (
    ANNOUNCE,
    EXIT,
    FIRST,
    REREAD,
    WRITTEN,
    Arrived,
    Ask,
    NoticeReader,
    Reread,
    pack_resubmission,
    unpack_notice,
)

NOTICES_A_TURN = 16384  # Bytes: about a hundred messages with their log lines.
READING = 0.002  # Seconds of a turn for reading them.
_ANNOUNCED = (b"A", b"K", b"M")  # Records about announced messages begin so.


class TodoCommands:
    """The pipe to queue-todo. What is sent is written by `flush`; after the end of queue-todo it is dropped.

    announces: queue-todo was told to announce messages, in this run.
    """

    def __init__(self, descriptor: int) -> None:
        self._pipe = OutPipe(descriptor)
        self._exit_sent = False
        self._rereads = 0
        self.announces = False
        self.closed = False

    def send(self, command: bytes) -> None:
        """Send a command (queue_wire.pipes.notice)."""
        self.announces = self.announces or command in (ANNOUNCE, FIRST)
        if not self.closed:
            self._pipe.put(command)

    def send_reread(self) -> int:
        """Tell queue-todo to read its control files and todo/ again; return how often it was told."""
        if not self.closed:
            self._rereads += 1
            self.send(REREAD)
        return self._rereads

    def resubmit(self, message: int) -> None:
        """Tell queue-todo to classify a message now that it could not classify; all of them if the number is 0."""
        self.send(pack_resubmission(message))

    def send_exit(self) -> None:
        """Tell queue-todo to exit, once. It sends the notices that it has before that."""
        if not self._exit_sent:
            self._exit_sent = True
            self.send(EXIT)

    def prepare(self, poll: "select.poll") -> None:
        """Wait for room in the pipe."""
        if self._pipe.unwritten and not self.closed:
            poll.register(self._pipe.descriptor, select.POLLOUT)

    def flush(self) -> None:
        """Write what the pipe takes."""
        try:
            if not self.closed:
                self._pipe.flush()
        except PeerLost:
            self.closed = True  # queue-todo has ended; the notices that it wrote before are still to be read.


class Notices:
    """The pipe from a peer that sends notices. `commands` is None if the peer takes no commands."""

    def __init__(
        self,
        peer: str,
        notices: int,
        commands: TodoCommands | None,
        messages: Messages,
        log: Log,
        budget: TimeBudget,
        shutdown: Shutdown,
    ) -> None:
        self._log = log
        self._budget = budget
        self._shutdown = shutdown
        self.peer = peer
        self._notices = notices
        self._commands = commands
        self._messages = messages
        self._reader = NoticeReader()
        self._records: deque[bytes] = deque()  # Read, but not carried out yet.
        self.rereads = 0  # Commands to reread that were answered.
        self.settings = b""  # What the peer has in force of its control files (queue_wire.admin.settings).
        self._asks: deque[int] = deque()  # For each question, the position up to which the log must be written.
        self.lost = False

    def send_reread(self) -> int:
        """Tell the peer to read its control files and todo/ again; return what `rereads` is when it has answered."""
        return 0 if self._commands is None else self._commands.send_reread()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for notices, unless the log is full: their lines would only pile up."""
        if not self.lost and not self._log.full and not self._records:
            poll.register(self._notices, select.POLLIN)
        if not self.lost and self._commands is not None:
            self._commands.prepare(poll)
        return 0.0 if not self.lost and (self._records or self._may_answer) else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: notices."""
        if self.lost:
            return
        try:
            if self._notices in ready and not self._records:
                self._records.extend(self._reader.feed(read_available(self._notices, NOTICES_A_TURN) or b""))
            until = self._budget.until(READING)
            while self._records:
                self._take(self._records.popleft(), now)
                if time.monotonic() >= until:
                    break
        except FormatError as error:
            self._reject(error, self._may_have_announced)
        except PeerLost:
            self.lost = True
            if not self._shutdown.begun:
                self._shutdown.lose(self.peer)
            return

    def write(self) -> None:
        """Answer that lines are in the log; write commands."""
        if self._commands is not None and not self.lost:
            while self._may_answer:
                self._asks.popleft()
                self._commands.send(WRITTEN)
            self._commands.flush()

    @property
    def _may_answer(self) -> bool:
        answers = bool(self._asks) and self._commands is not None and not self._commands.closed
        return answers and self._log.has_written(self._asks[0])

    @property
    def _may_have_announced(self) -> bool:
        return self._commands is not None and self._commands.announces

    def _take(self, record: bytes, now: float) -> None:
        try:
            notice = unpack_notice(record)
        except FormatError as error:
            self._reject(error, self._may_have_announced and record[:1] in _ANNOUNCED)
            return
        if isinstance(notice, bytes):
            if self._messages.injects and (pid := logline.injector(notice)) is not None:
                self._messages.announce(pid)
            self._log.put(notice)
        elif isinstance(notice, Reread):
            self.settings = notice.settings
            self.rereads += notice.asked
        elif isinstance(notice, Ask):
            if notice is Ask.PASSED:
                self._messages.none_late()
            elif self._commands is not None:
                self._asks.append(self._log.position)
        else:
            if isinstance(notice, Arrived) and notice.announced:
                self._log_arrival(notice)
            self._messages.take(notice, now)

    def _log_arrival(self, notice: Arrived) -> None:
        self._messages.announce(notice.pid)
        self._log.put(logline.new_message(notice.message))
        self._log.put(logline.info_message(notice.message, notice.size, notice.sender, notice.pid, notice.uid))

    def _reject(self, error: FormatError, announced: bool) -> None:
        """Log that something could not be read; exit if it may have been about an announced message.

        Such a message would never be delivered or classified in this run.
        """
        self._log.warning(f"internal error: {self.peer} sent something impossible: {error}")
        if announced and not self._shutdown.begun:
            self._shutdown.lose(self.peer)
