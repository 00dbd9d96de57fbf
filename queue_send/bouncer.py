"""Bounces: which messages have one coming, what it says, and what follows when it is queued.

A bounce goes to the sender; a bounce of a bounce to doublebounceto, from `#@[]`; one that fails again is discarded
with a line in the log (qmail-send(8)). Before a bounce goes out, the thread that may wait for the disk makes the DONE
marks of its message safe. bounce/I goes as soon as queue-enqueue has said that the bounce is queued; a crash between
the two sends the bounce once more, and that is the only way to a second one.

One that makes no sense is parked, not retried; one that the disk refuses is tried again; a message whose header cannot
be read is bounced without it.
"""

import errno
import os
import select
from collections.abc import Callable
from heapq import heappop, heappush

from queue_base.errors import reason
from queue_base.states import is_there
from queue_send.bounce import BounceFacts, compose_steps
from queue_send.injecting import Entry, Injecting, Mail, Steps
from queue_send.run import Run
from queue_send.store import Store
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.format_error import FormatError

AT_ONCE = 4  # Processes; each syncs, and they share the disk with the mail.
AGAIN_AFTER = 123.0  # Seconds until a bounce that could not be injected is tried again.
AGAIN_A_TURN = 200  # Of those, taken up in one turn of the loop.

# What makes a record of failures, or an info file, one that cannot be read: no try will change it.
STAYING = {errno.ENOENT, errno.EFBIG, errno.EISDIR, errno.ELOOP, errno.ENXIO}
# For a header alone a bounce does not wait, but where the trouble is ours and passes by itself.
PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}


class Bouncer(Injecting):
    """Bounces to be injected, being injected, and to be tried again."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, AT_ONCE)
        self._store: Store
        self._end: Callable[[int], None]
        self._park: Callable[[int, str], None]
        self._again: list[tuple[float, Entry]] = []

    def attach(self, store: Store, end: Callable[[int], None], park: Callable[[int, str], None]) -> None:
        """Name the store, and what ends a message whose bounce is out, and what parks one that cannot be read."""
        self._store = store
        self._end = end
        self._park = park

    def wants(self, message: int) -> bool:
        """Take a message whose recipients are all done, if it has failures; return whether it has. Raises OSError."""
        if not is_there(self._store.layout.bounce(message)):
            return False
        self._accept(message)
        return True

    def again_at(self, message: int) -> float | None:
        """Return when a bounce that could not be injected is tried again; None where it is not that."""
        entries = (again for again, entry in self._again if entry[0] == message and self._is_current(entry))
        return next(entries, None)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait as every Injecting does, and for the next bounce that is to be tried again."""
        wait = super().prepare(poll, now)
        return min(wait, max(0.0, self._again[0][0] - now)) if self._again and not self._run.leaving else wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn."""
        for _ in range(AGAIN_A_TURN):
            if self._again and self._again[0][0] <= now:
                self._waiting.append(heappop(self._again)[1])
        super().run(ready, now)

    def _make_ready(self, entry: Entry) -> None:
        message = entry[0]

        def synced(trouble: OSError | None) -> None:
            if trouble is not None and self._is_current(entry):
                self._failed(message, f"{trouble.filename or ''} {reason(trouble)}".strip(), self._run.clock.now())
                self._readying -= 1
            else:
                self._is_ready(entry)

        self._run.syncing.submit(lambda: self._store.sync_marks(message), synced)

    def _failed(self, message: int, why: str, now: float) -> None:
        self._run.log.warning(f"trouble injecting bounce message of msg {message}: {why}; will try later")
        heappush(self._again, (now + AGAIN_AFTER, self._entries[message]))

    def _unreadable(self, message: int, why: str) -> None:
        del self._entries[message]
        self._park(message, why)

    def _compose(self, message: int, now: float) -> Steps:
        """Read the failures of a message, compose their bounce. Raises OSError, FormatError."""
        try:
            sender, birth = self._store.load(message)
            failures = yield from self._store.failures(message)
        except OSError as error:
            if error.errno not in STAYING:
                raise
            raise FormatError(f"{error.filename or f'bounce/{message}'}: {reason(error)}") from error
        if failures is None:
            # All that a crash left there is a piece of a failure that never counted.
            self._over(message)
            return None
        if sender == DOUBLE_BOUNCE_SENDER:
            self._run.log.put(logline.triple_bounce(message))
            self._over(message)
            return None
        controls = self._run.controls
        bouncer, recipient = b"", bounce_recipient(sender)
        if not recipient:
            bouncer, recipient = DOUBLE_BOUNCE_SENDER, controls.doublebounceto
        header, date = self._header(message), self._run.clock.to_disk(int(now))
        unique = f"{date}.{message}.{os.getpid()}.bounce"
        facts = BounceFacts(
            controls.me, controls.bouncefrom, recipient, sender, failures, header, birth, date, unique
        )
        return Mail(compose_steps(facts), bouncer, recipient)

    def _header(self, message: int) -> bytes:
        try:
            return self._store.header(message)
        except OSError as error:
            if error.errno in PASSING:
                raise
            return b""

    def _say(self, message: int, pid: int) -> None:
        self._run.log.put(logline.bounce_message(message, pid))

    def _sent(self, message: int) -> None:
        self._over(message)

    def _over(self, message: int) -> None:
        """The failures have been told, or never will be: the record goes, and the message ends."""
        self._entries.pop(message, None)
        self._run.log.flush()
        path = self._store.layout.bounce(message)
        try:
            self._store.drop(path)
        except OSError as error:
            self._run.log.warning(f"unable to remove {path}: {reason(error)}; queue-clean will")
        self._end(message)
