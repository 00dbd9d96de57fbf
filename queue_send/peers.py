"""queue-todo and queue-pickup as queue-send sees them: notices and log lines in, commands out.

A turn reads at most one pipe-full of notices, so that no burst of new mail keeps the loop from deliveries. Those that
take long wait for the next turns, and nothing more is read until they are done. queue-todo asks when its lines are in
the log, since a message leaves todo/ only then; it is told as soon as they are.
"""

import select
import time
from collections import deque
from collections.abc import Callable

from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_send.run import Run
from queue_wire import logline
from queue_wire.format_error import FormatError
from queue_wire.framing import RecordReader
from queue_wire.notice import EXIT, REREAD, WRITTEN, Ask, Classified, unpack_notice

NOTICES_A_TURN = 16384  # Bytes: about a hundred messages with their log lines.
TAKING = 0.002  # Seconds of a turn for them.


class Notices:
    """A peer that sends notices; `commands` is None where it takes none."""

    def __init__(
        self,
        run: Run,
        peer: str,
        notices: int,
        commands: int | None,
        arrive: Callable[[Classified, float], None],
        announce: Callable[[int], None] | None = None,
    ) -> None:
        """Call `arrive` with each message, and `announce` with its injector's pid before its line goes into the log."""
        self._run = run
        self._peer = peer
        self._notices = notices
        self._commands = OutPipe(commands) if commands is not None else None
        self._arrive = arrive
        self._announce = announce
        self._reader = RecordReader()
        self._records: deque[bytes] = deque()  # Read, and not taken yet.
        self._told_to_leave = False
        self._asks: deque[int] = deque()  # How far the log must be written for each answer.
        self.lost = False

    def reread(self) -> None:
        """Pass HUP on."""
        if self._commands is not None:
            self._commands.put(REREAD)

    def leave(self) -> None:
        """Tell the peer to exit, once; its end will follow what it has to tell."""
        if self._commands is not None and not self._told_to_leave:
            self._told_to_leave = True
            self._commands.put(EXIT)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for notices, unless the log is so full that their lines would only pile up."""
        if not self.lost and not self._run.log.full and not self._records:
            poll.register(self._notices, select.POLLIN)
        if not self.lost and self._commands is not None and self._commands.held:
            poll.register(self._commands.descriptor, select.POLLOUT)
        return 0.0 if not self.lost and (self._records or self._may_answer) else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: notices, commands."""
        if self.lost:
            return
        try:
            if self._notices in ready and not self._records:
                self._records.extend(self._reader.feed(read_available(self._notices, NOTICES_A_TURN) or b""))
            until = self._run.until(TAKING)
            while self._records:
                self._take(self._records.popleft(), now)
                if time.monotonic() >= until:
                    break
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
        except PeerLost:
            self.lost = True
            if not self._run.leaving:
                self._run.lose(self._peer)
            return
        if self._asks:
            self._run.log.flush()
        try:
            if self._commands is not None:
                while self._may_answer:
                    self._asks.popleft()
                    self._commands.put(WRITTEN)
                self._commands.flush()
        except PeerLost:
            self._commands = None  # It is gone; what it said before that is still to be read.

    @property
    def _may_answer(self) -> bool:
        return bool(self._asks) and self._commands is not None and self._run.log.has_written(self._asks[0])

    def _take(self, record: bytes, now: float) -> None:
        try:
            notice = unpack_notice(record)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            return
        if isinstance(notice, Classified):
            self._arrive(notice, now)
        elif notice is Ask.WRITTEN:
            if self._commands is not None:
                self._asks.append(self._run.log.position)
        else:
            pid = logline.injector(notice) if self._announce is not None else None
            if self._announce is not None and pid is not None:
                self._announce(pid)
            self._run.log.put(notice)
