"""What a delivery's verdict does: a line in the log, a record in bounce/ for a failure, a DONE mark.

Verdicts are collected while reports are read, then applied together: first every failure of the turn is
written to bounce/ and synced, and only then are recipients marked done (DESIGN: scheduling, bounces).
A failure that cannot be written is no failure: the recipient stays, and is tried again.
"""

from queue_base.errors import reason
from queue_send.messages import Messages
from queue_send.policy import Pass, Recipient
from queue_send.run import Run
from queue_send.store import Failure
from queue_wire import logline
from queue_wire.address import strip_prepend
from queue_wire.report import PERMANENT, SUCCESS, TEMPORARY

MANGLED = b""
TOO_LONG = b"I'm not going to try again; this message has been in the queue too long.\n"


class Verdicts:
    """The verdicts of one turn of one channel."""

    def __init__(self, run: Run, messages: Messages, kind: str) -> None:
        self._run = run
        self._messages = messages
        self._kind = kind
        self._touched: dict[Pass, None] = {}
        self._done: dict[Pass, list[int]] = {}
        self._failed: list[tuple[Pass, int, Failure]] = []

    def add(
        self, attempt: Pass, recipients: list[Recipient], first: int, verdicts: list[tuple[bytes, bytes]]
    ) -> None:
        """Log the verdicts of one job and keep what they ask for. A wrong number of them is a mangled report."""
        self._touched[attempt] = None
        if len(verdicts) != len(recipients):
            verdicts = [(MANGLED, b"")] * len(recipients)
        for delivery, (offset, address), (letter, text) in zip(
            range(first, first + len(recipients)), recipients, verdicts, strict=True
        ):
            if letter == TEMPORARY and attempt.dying:
                letter = PERMANENT
                text += (b"" if text.endswith(b"\n") else b"\n") + TOO_LONG
            self._run.log.put(logline.delivery_result(delivery, letter, text))
            if letter == SUCCESS:
                self._done.setdefault(attempt, []).append(offset)
            elif letter == PERMANENT:
                shown = strip_prepend(address, self._run.controls.virtualdomains) if self._kind == "local" else address
                self._failed.append((attempt, offset, Failure(attempt.message, shown, text)))

    def apply(self, now: float) -> list[Pass]:
        """Write failures, mark what is done; return the passes that are over."""
        if self._failed:
            try:
                self._messages.store.append_failures([failure for _, _, failure in self._failed])
            except OSError as error:
                self._run.log.warning(
                    f"unable to append to {error.filename or 'bounce'}: {reason(error)}; will try again later"
                )
            else:
                for attempt, offset, _ in self._failed:
                    self._done.setdefault(attempt, []).append(offset)
            self._failed = []
        for attempt, offsets in self._done.items():
            attempt.left -= len(offsets)
            self._mark(attempt, offsets)
        self._done = {}
        touched, self._touched = self._touched, {}
        return [attempt for attempt in touched if attempt.over]

    def _mark(self, attempt: Pass, offsets: list[int]) -> None:
        try:
            self._messages.store.mark_done(attempt.message, self._kind, offsets)
        except OSError as error:
            path = error.filename or f"{self._kind}/{attempt.message}"
            self._run.log.warning(f"trouble marking {path}: {reason(error)}; message will be delivered twice!")
