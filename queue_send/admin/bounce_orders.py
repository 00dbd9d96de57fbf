"""Carries out bounce orders: fails the recipients that are left of a message; the usual bounce follows.

RECIPIENTS_MOST recipients at a time: the log has a delivery that fails at once for each; then the disk thread appends
their failures to bounce/, syncs them, and marks the recipients done. Their files are read once, piece by piece.
"""

import select
from collections import deque

from queue_base.daemon.disk_thread import DiskThread
from queue_base.errors import reason
from queue_send.config import ConfigFiles
from queue_send.events import Corrupt, Events, Failed
from queue_send.log import Log
from queue_send.loop import Shutdown
from queue_send.message_files import FailedRecipient, Store
from queue_wire import logline
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import PERMANENT

# RFC 3463 has no code for this. X.0.0 is for failures of which only the class is known.
ASKED = b"The administrator has asked for this message to be returned. (#5.0.0)\n"
RECIPIENTS_MOST = 200
_CHANNELS = ("local", "remote")


class BounceOrders:
    """A part of the loop. It works on messages with nothing in flight, one after the other."""

    def __init__(
        self, store: Store, log: Log, config: ConfigFiles, disk: DiskThread, shutdown: Shutdown, events: Events
    ) -> None:
        self._store = store
        self._log = log
        self._config = config
        self._disk = disk
        self._shutdown = shutdown
        self._events = events
        self._waiting: deque[int] = deque()
        self._taken: set[int] = set()
        self._writing = False
        # Of the first message: the channels that are left, the recipients that were read, the offset of the next ones.
        self._kinds = list(_CHANNELS)
        self._read: list[tuple[int, bytes]] = []
        self._at: int | None = 0

    def holds(self, message: int) -> bool:
        """Returns whether the recipients of a message are being failed."""
        return message in self._taken

    def take(self, message: int) -> None:
        """Fails the recipients of a message. Failed or Corrupt follows, or nothing if the disk refuses."""
        if message not in self._taken:
            self._taken.add(message)
            self._waiting.append(message)

    @property
    def _may_go_on(self) -> bool:
        # What is left at the exit has its mark for the next run.
        return bool(self._waiting) and not (self._writing or self._shutdown.begun or self._log.full)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Does not wait while there are recipients to fail."""
        return 0.0 if self._may_go_on else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Fails the next piece of the first message."""
        if not self._may_go_on:
            return
        message, kind = self._waiting[0], self._kinds[0]
        if not self._read and self._at is not None:
            try:
                piece = self._store.recipients(message, kind, self._at)
            except FormatError as error:
                self._leave(message)
                self._events.append(Corrupt(message, str(error)))
                return
            except OSError as error:
                self._stays(message, error)
                return
            self._read, self._at = piece.recipients, piece.next
        found, self._read = self._read[:RECIPIENTS_MOST], self._read[RECIPIENTS_MOST:]
        if found:
            self._fail(message, kind, found)
        else:
            self._go_on(message)

    def _fail(self, message: int, kind: str, recipients: list[tuple[int, bytes]]) -> None:
        store = self._store
        self._log_failures(message, kind, recipients)
        config = self._config.current
        failures = [FailedRecipient(message, config.shown(kind, address), ASKED) for _, address in recipients]

        def work() -> None:
            store.append_failures(failures)
            store.mark_done(message, kind, [offset for offset, _ in recipients])

        def then(trouble: OSError | None) -> None:
            self._writing = False
            if trouble is not None:
                self._stays(message, trouble)
            else:
                self._go_on(message)

        self._writing = True
        self._disk.submit(work, then)

    def _go_on(self, message: int) -> None:
        """Goes on with the rest of a channel's recipients, or the other channel, or ends the work on the message."""
        if self._read or self._at is not None:
            return
        self._at = 0
        self._kinds.pop(0)
        if not self._kinds:
            self._leave(message)
            self._finish(message)

    def _leave(self, message: int) -> None:
        self._waiting.popleft()
        self._taken.discard(message)
        self._kinds, self._read, self._at = list(_CHANNELS), [], 0

    def _stays(self, message: int, trouble: OSError) -> None:
        self._leave(message)
        name = trouble.filename or message
        self._log.warning(f"unable to bounce msg {message}: {name}: {reason(trouble)}; it stays on hold")

    def _log_failures(self, message: int, kind: str, recipients: list[tuple[int, bytes]]) -> None:
        """Logs the failures before they are written."""
        first = self._log.number_deliveries(len(recipients))
        for delivery, (_, address) in enumerate(recipients, first):
            self._log.put(logline.starting_delivery(delivery, message, kind.encode(), address))
            self._log.put(logline.delivery_result(delivery, PERMANENT, ASKED))
        self._log.flush()

    def _finish(self, message: int) -> None:
        for kind in _CHANNELS:
            try:
                self._store.drop(self._store.layout.hashed(kind, message))
            except OSError as error:
                self._log.warning(f"unable to remove {error.filename}: {reason(error)}; queue-clean will")
        self._events.append(Failed(message))
