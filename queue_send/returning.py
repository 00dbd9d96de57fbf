"""Fails the recipients that are left of messages that the administrator wants bounced; the usual bounce follows.

A piece of RECIPIENTS_MOST recipients at a time: the thread writes their failures to bounce/, safely, and marks
them done; then the loop logs each as a delivery that fails at once.
"""

from collections import deque
from typing import TYPE_CHECKING

from queue_base.errors import reason
from queue_send.run import Run
from queue_send.store import Failure
from queue_wire import logline
from queue_wire.address import strip_prepend
from queue_wire.errors import FormatError
from queue_wire.report import PERMANENT

if TYPE_CHECKING:
    from queue_send.messages import Messages

# RFC 3463 has no code for this; X.0.0 is for when only the class is known.
ASKED = b"The administrator has asked for this message to be returned. (#5.0.0)\n"
RECIPIENTS_MOST = 1000
_CHANNELS = ("local", "remote")


class Returning:
    """Messages with nothing in flight, one after the other."""

    def __init__(self, run: Run, messages: "Messages") -> None:
        self._run = run
        self._messages = messages
        self._waiting: deque[int] = deque()
        self._taken: set[int] = set()

    def holds(self, message: int) -> bool:
        """Return whether a message is being returned."""
        return message in self._taken

    def take(self, message: int) -> None:
        """Return a message."""
        if message in self._taken:
            return
        self._taken.add(message)
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._next()

    def _next(self) -> None:
        """Fail the next piece of the first message."""
        if self._run.leaving or not self._waiting:
            return  # Its mark is there for the next run.
        message, store = self._waiting[0], self._messages.store
        failed: list[tuple[str, int, bytes]] = []
        unreadable: list[FormatError] = []

        def work() -> None:
            try:
                for kind in _CHANNELS:
                    failed.extend((kind, *recipient) for recipient in store.pending(message, kind)[1])
            except FormatError as error:
                unreadable.append(error)
                return
            del failed[RECIPIENTS_MOST:]
            if failed:
                failures = [Failure(message, self._shown(kind, address), ASKED) for kind, _, address in failed]
                store.append_failures(failures)
            for kind in _CHANNELS:
                offsets = [offset for each, offset, _ in failed if each == kind]
                if offsets:
                    store.mark_done(message, kind, offsets)

        def then(trouble: OSError | None) -> None:
            if trouble is None and not unreadable:
                self._log(message, failed)
                if len(failed) == RECIPIENTS_MOST:
                    self._next()
                    return
            self._waiting.popleft()
            self._taken.discard(message)
            if unreadable:
                self._messages.park(message, str(unreadable[0]))
            elif trouble is not None:
                name = trouble.filename or message
                self._run.log.warning(f"unable to bounce msg {message}: {name}: {reason(trouble)}; it stays on hold")
            else:
                self._finish(message)
            self._next()

        self._run.syncing.submit(work, then)

    def _shown(self, kind: str, address: bytes) -> bytes:
        return strip_prepend(address, self._run.controls.virtualdomains) if kind == "local" else address

    def _log(self, message: int, failed: list[tuple[str, int, bytes]]) -> None:
        first = self._run.number_deliveries(len(failed))
        for delivery, (kind, _, address) in enumerate(failed, first):
            self._run.log.put(logline.starting_delivery(delivery, message, kind.encode(), address))
            self._run.log.put(logline.delivery_result(delivery, PERMANENT, ASKED))

    def _finish(self, message: int) -> None:
        for kind in _CHANNELS:
            try:
                self._messages.store.drop(self._messages.store.layout.hashed(kind, message))
            except OSError as error:
                self._run.log.warning(f"unable to remove {error.filename}: {reason(error)}; queue-clean will")
        self._messages.finish(message)
