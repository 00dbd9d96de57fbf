"""Bounces: the messages that have one to be sent (queue_base.reports.bounce_report has their text).

A bounce goes to the sender; a bounce of a bounce goes to doublebounceto, from `#@[]`; one that fails again is discarded
with a line in the log (qmail-send(8)). Before a bounce is injected, the disk thread syncs the DONE marks.
bounce/I is removed as soon as queue-enqueue has queued the bounce; a crash between the two sends the bounce once more,
and nothing else does.

If a file that the bounce is made of is malformed, the message is parked. If the disk refuses to read it, the bounce is
tried again. If the header of the message cannot be read, the bounce has none.
"""

import errno
import os
import select
from heapq import heappop, heappush

from queue_base.errors import reason
from queue_base.home import Home
from queue_base.reports.bounce_report import BounceFacts, compose_steps
from queue_send.events import Happened
from queue_send.messages.bounce_file import read_failures
from queue_send.messages.transitions import MessageEvent
from queue_send.notify.notifier import Notifier, OwnMail, Steps, Task
from queue_send.scheduler.retry import AGAIN_AFTER
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.format_error import FormatError

AT_ONCE = 4  # Processes. Each syncs, and they share the disk with the mail.
AGAIN_A_TURN = 200  # Bounces that one turn of the loop tries again.

# Errors that trying again does not change: the record of failures, or info/, cannot be read.
LASTING = {errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.ENXIO}
# Errors that end without anybody's help. If the header cannot be read for another reason, the bounce is sent without.
PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}


class Bouncer(Notifier):
    """A part of the loop: bounces to be injected, being injected, and to be tried again."""

    def __init__(self, home: Home, parts: SharedParts) -> None:
        super().__init__(home, parts, AT_ONCE)
        self._again: list[tuple[float, Task]] = []

    def again_at(self, message: int) -> float | None:
        """Return when a bounce that could not be injected is tried again; None for any other."""
        times = (again for again, task in self._again if task[0] == message and self._is_current(task))
        return next(times, None)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait as every Notifier does, and for the next bounce that is to be tried again."""
        wait = super().prepare(poll, now)
        return min(wait, max(0.0, self._again[0][0] - now)) if self._again and not self._shutdown.begun else wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn."""
        for _ in range(AGAIN_A_TURN):
            if not self._again or self._again[0][0] > now:
                break
            self._waiting.append(heappop(self._again)[1])
        super().run(ready, now)

    def _prepare_mail(self, task: Task) -> None:
        message = task[0]

        def synced(trouble: OSError | None) -> None:
            if trouble is not None and self._is_current(task):
                self._failed(message, f"{trouble.filename or ''} {reason(trouble)}".strip(), self._clock.now())
                self._preparing -= 1
            else:
                self._prepared(task)

        self._disk.submit(lambda: self._store.sync_marks(message), synced)

    def _failed(self, message: int, why: str, now: float) -> None:
        self._log.warning(f"trouble injecting bounce message of msg {message}: {why}; will try later")
        heappush(self._again, (now + AGAIN_AFTER, self._tasks[message]))

    def _unreadable(self, message: int, why: str) -> None:
        del self._tasks[message]
        self._events.append(Happened(MessageEvent.CORRUPT, message, why))

    def _compose(self, message: int, now: float) -> Steps:
        """Read the failures of a message, composes their bounce. Raises OSError, FormatError."""
        try:
            sender, birth = self._store.load(message)[:2]
            failures = yield from read_failures(self._store.layout, message)
        except OSError as error:
            if error.errno not in LASTING:
                raise
            raise FormatError(f"{error.filename or f'bounce/{message}'}: {reason(error)}") from error
        if failures is None:
            # After a crash it may hold only a part of a failure, which was never synced.
            self._over(message)
            return None
        if sender == DOUBLE_BOUNCE_SENDER:
            self._log.put(logline.triple_bounce(message))
            self._over(message)
            return None
        controls = self._config.current
        bouncer, recipient = b"", bounce_recipient(sender)
        if not recipient:
            bouncer, recipient = DOUBLE_BOUNCE_SENDER, controls.doublebounceto
        header, date = self._header(message), self._clock.to_disk(int(now))
        unique = f"{date}.{message}.{os.getpid()}.bounce"
        facts = BounceFacts(
            controls.me, controls.bouncefrom, recipient, sender, failures, header, birth, date, unique
        )
        return OwnMail(compose_steps(facts), bouncer, recipient)

    def _header(self, message: int) -> bytes:
        try:
            return self._store.header(message)
        except OSError as error:
            if error.errno in PASSING:
                raise
            return b""

    def _log_sent(self, message: int, pid: int) -> None:
        self._log.put(logline.bounce_message(message, pid))

    def _sent(self, message: int) -> None:
        self._over(message)

    def _over(self, message: int) -> None:
        """Remove bounce/I, because the bounce is queued or none is needed. The message ends."""
        self._tasks.pop(message, None)
        self._log.flush()
        path = self._store.layout.bounce(message)
        try:
            self._store.drop(path)
        except OSError as error:
            self._log.warning(f"unable to remove {path}: {reason(error)}; queue-clean will")
        self._events.append(Happened(MessageEvent.BOUNCED, message))
