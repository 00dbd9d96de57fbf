"""Carries out bounce orders: fails the recipients that are left of a message, or some; the usual bounce follows.

RECIPIENTS_MAX recipients at a time: the log has a delivery that fails at once for each; then the disk thread appends
their failures to bounce/, syncs them, and marks the recipients done. Their files are read once, piece by piece. If the
order names recipients, and others are left, the message goes on with those afterwards.
"""

import select
from collections import OrderedDict

from queue_base.errors import reason
from queue_base.queue import hold_marks as marks
from queue_send.events import Happened
from queue_send.messages.bounce_file import FailedRecipient, append_failures
from queue_send.messages.transitions import MessageEvent
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.files.hold_mark import HoldMark, HoldOrder
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import PERMANENT

# RFC 3463 has no code for this. X.0.0 is for failures of which only the class is known.
ASKED = b"The administrator has asked for this message to be returned. (#5.0.0)\n"
RECIPIENTS_MAX = 200
_CHANNELS = ("local", "remote")


class BounceOrders:
    """A part of the loop. It works on messages with nothing in flight, one after the other."""

    def __init__(self, parts: SharedParts) -> None:
        self._store, self._log, self._config, self._disk = parts.store, parts.log, parts.config, parts.disk
        self._shutdown, self._events = parts.shutdown, parts.events
        # Messages, the first one is worked on; and whether only some recipients are to fail.
        self._waiting: OrderedDict[int, bool] = OrderedDict()
        self._writing = False
        self._dropped = False  # Whether the first message is to end as soon as the disk thread has written.
        # Of the first message: the channels that are left, the recipients that were read, the offset of the next ones.
        self._kinds = list(_CHANNELS)
        self._read: list[tuple[int, bytes]] = []
        self._at: int | None = 0
        self._due = 0  # The channel's next attempt.
        # Of an order that names recipients: the order, and whether others are left.
        self._order: HoldMark | None = None
        self._others = False

    def take(self, message: int, some: bool) -> None:
        """Fail the recipients of a message, or `some`, those that its mark names.

        NONE_LEFT, RETURNED, CORRUPT or NOT_RETURNED follows. Of two orders for a message that waits
        the later one counts.
        """
        self._waiting[message] = some

    def release(self, message: int) -> bool:
        """Give up a message that is to end: it must not go on with the files of the next one of its number.

        Returns False if failures of it are being written; WRITTEN follows then.
        """
        if message in self._waiting:
            if message != next(iter(self._waiting)):
                del self._waiting[message]
            elif self._writing:
                self._dropped = True
                return False
            else:
                self._leave(message)
        return True

    @property
    def _may_go_on(self) -> bool:
        # What is left at the exit has its mark for the next run.
        return bool(self._waiting) and not (self._writing or self._shutdown.begun or self._log.full)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Do not wait while there are recipients to fail."""
        return 0.0 if self._may_go_on else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Fail the next piece of the first message."""
        if not self._may_go_on:
            return
        message, kind = next(iter(self._waiting)), self._kinds[0]
        if self._waiting[message] and self._order is None:
            try:
                self._order = self._read_order(message)
            except (FormatError, OSError) as error:
                self._stays(message, error)
                return
        if not self._read and self._at is not None:
            try:
                piece = self._store.recipients(message, kind, self._at)
            except FormatError as error:
                self._leave(message)
                self._events.append(Happened(MessageEvent.CORRUPT, message, str(error)))
                return
            except OSError as error:
                self._stays(message, error)
                return
            self._read, self._at, self._due = self._chosen(kind, piece.recipients), piece.next, piece.due
        found, self._read = self._read[:RECIPIENTS_MAX], self._read[RECIPIENTS_MAX:]
        if found:
            self._fail(message, kind, found)
        else:
            self._go_on(message)

    def _read_order(self, message: int) -> HoldMark:
        mark = marks.read_mark(self._store.layout, message)
        if mark is None or mark.order != HoldOrder.BOUNCE_SOME:
            raise FormatError("its mark in hold is another one by now")
        return mark

    def _chosen(self, kind: str, recipients: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the recipients that are to fail; note whether there are others."""
        if self._order is None:
            return recipients
        selector, config = self._order.selector, self._config.current
        found = [each for each in recipients if selector.chooses(each[1], config.shown(kind, each[1]))]
        self._others = self._others or len(found) < len(recipients)
        return found

    def _fail(self, message: int, kind: str, recipients: list[tuple[int, bytes]]) -> None:
        store = self._store
        self._log_failures(message, kind, recipients)
        config = self._config.current
        failures = [FailedRecipient(message, config.shown(kind, address), ASKED) for _, address in recipients]

        some, due = self._order is not None, self._due

        def work() -> None:
            for trouble in append_failures(store.layout, failures).values():
                raise trouble
            store.mark_done(message, kind, [offset for offset, _ in recipients])
            if some:
                store.keep_due(message, kind, due)

        def then(trouble: OSError | None) -> None:
            self._writing = False
            if self._dropped:
                self._leave(message)
                self._events.append(Happened(MessageEvent.WRITTEN, message))
            elif trouble is not None:
                self._stays(message, trouble)
            else:
                self._go_on(message)

        self._writing = True
        self._disk.submit(work, then)

    def _go_on(self, message: int) -> None:
        """Go on with the rest of a channel's recipients, or the other channel, or end the work on the message."""
        if self._read or self._at is not None:
            return
        self._at = 0
        self._kinds.pop(0)
        if not self._kinds:
            order, others = self._order, self._others
            self._leave(message)
            if order is not None and others:
                self._events.append(Happened(MessageEvent.RETURNED, message, order.held))
            else:
                self._finish(message)

    def _leave(self, message: int) -> None:
        del self._waiting[message]
        self._dropped = False
        self._kinds, self._read, self._at = list(_CHANNELS), [], 0
        self._order, self._others = None, False

    def _stays(self, message: int, trouble: OSError | FormatError) -> None:
        self._leave(message)
        why = f"{trouble.filename or message}: {reason(trouble)}" if isinstance(trouble, OSError) else str(trouble)
        self._log.warning(f"unable to bounce msg {message}: {why}; it stays on hold")
        self._events.append(Happened(MessageEvent.NOT_RETURNED, message))

    def _log_failures(self, message: int, kind: str, recipients: list[tuple[int, bytes]]) -> None:
        """Log the failures before they are written."""
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
        self._events.append(Happened(MessageEvent.NONE_LEFT, message))
