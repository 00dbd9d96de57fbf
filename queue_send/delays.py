"""Delay notices: tells a sender once, at each age in control/delaywarning, that a message is still in the queue.

A deferral is what makes a notice due, with an attempt or without one. When the sender was told stands in the mtime of
mess/B/I (docs/design/administration.md). It is set as soon as queue-enqueue has said that the notice is queued; a
crash between the two repeats the notice. What cannot be sent is dropped, and the next deferral tries again.
So nothing is kept of messages that wait; of those with an attempt some texts are, TEXTS_MOST bytes in all.

No notice about mail from `<>` or `#@[]`, which nobody waits for, nor about what is held or parked.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain

from queue_base.errors import reason
from queue_send.attempt import Attempt
from queue_send.delay_ages import is_notice_due
from queue_send.delay_notice import DelayFacts, compose_notice
from queue_send.injecting import Injecting, Mail, Steps
from queue_send.run import Run
from queue_send.store import Store
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient, strip_prepend
from queue_wire.failures import clean_text

AT_ONCE = 1  # Processes: notices must not slow down mail and bounces.
WAITING_MOST = 1000  # Messages; a later deferral brings the others back.
REST = 123.0  # Seconds after a failure in which no notice is begun: the disk is full, most likely.
TEXTS_MOST = 4_000_000  # Bytes of what attempts in flight reported,
TEXTS_OF_ONE = 600_000  # and of what those of one message did: little more would stand in its notice.
_CHANNELS = ("local", "remote")


class Delays(Injecting):
    """Notices to be injected and being injected."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, AT_ONCE)
        self._store: Store
        self._may_be_tried: Callable[[int], bool]
        self._end: Callable[[int], None]
        self._texts: dict[int, dict[bytes, bytes]] = {}
        self._sizes: dict[int, int] = {}  # Bytes of the texts of each message.
        self._room = TEXTS_MOST
        # When a message's notice was composed: what is told is what was so then.
        self._composed: dict[int, int] = {}
        # When the senders of messages were told whose mess/B/I could not be changed.
        self._unwritten: dict[int, int] = {}
        self._ended: set[int] = set()
        self._rest_until = 0.0

    def attach(self, store: Store, may_be_tried: Callable[[int], bool], end: Callable[[int], None]) -> None:
        """Name the store, what tells whether a message is neither held nor parked, and what ends one."""
        self._store = store
        self._may_be_tried = may_be_tried
        self._end = end

    def hear(self, attempt: Attempt, recipient: bytes, text: bytes, now: float) -> None:
        """Keep what was reported of a recipient that is deferred, if a notice is due."""
        held = self._sizes.get(attempt.message, 0)
        if self._room <= 0 or held >= TEXTS_OF_ONE or not self._wanted(attempt, now):
            return
        text = clean_text(text)
        self._texts.setdefault(attempt.message, {})[recipient] = text
        self._sizes[attempt.message] = held + len(recipient) + len(text)
        self._room -= len(recipient) + len(text)

    def deferred(self, attempt: Attempt, now: float) -> None:
        """A message waits for its next attempt: tell its sender, if that is due."""
        if len(self._entries) < WAITING_MOST and now >= self._rest_until and self._wanted(attempt, now):
            self._accept(attempt.message)
        if not self.holds(attempt.message):
            self.forget(attempt.message)

    def forget(self, message: int) -> None:
        """The texts of a message are not needed any more."""
        self._texts.pop(message, None)
        self._room += self._sizes.pop(message, 0)

    def lets_go(self, message: int) -> bool:
        """Return whether a message may end; if not, it ends when queue-enqueue, which has its notice, has ended."""
        if not self.drop(message):
            self._ended.add(message)
            return False
        self.forget(message)
        self._composed.pop(message, None)
        self._unwritten.pop(message, None)
        return True

    def _wanted(self, attempt: Attempt, now: float) -> bool:
        ages = self._run.controls.delaywarning
        if not ages or now < attempt.birth + ages[0] or now >= attempt.expires or self.holds(attempt.message):
            return False
        if attempt.sender in (b"", DOUBLE_BOUNCE_SENDER):
            return False
        return self._is_due(attempt.message, attempt.birth, int(now))

    def _is_due(self, message: int, birth: int, now: int) -> bool:
        try:
            told = max(self._run.clock.from_disk(self._store.told(message)), self._unwritten.get(message, 0))
        except OSError:
            return False  # It cannot be delivered either; the next attempt will say so.
        return is_notice_due(self._run.controls.delaywarning, birth, told, now)

    def _compose(self, message: int, now: float) -> Steps:
        """Return the notice, None where it is not due any more. Raises OSError, FormatError."""
        texts = self._texts.get(message, {})
        self.forget(message)
        left, first = self._left(message), None
        try:
            sender, birth = self._store.load(message)
        except FileNotFoundError:
            left = iter(())  # It has ended.
        for first in left:
            if first is not None:
                break
            yield
        clock = self._run.clock
        since = clock.from_disk(birth) if first is not None else 0
        if first is None or not self._may_be_tried(message) or not self._is_due(message, since, int(now)):
            del self._entries[message]
            return None
        yield
        controls, date = self._run.controls, clock.to_disk(int(now))
        unique = f"{date}.{message}.{os.getpid()}.delay"
        recipients = (None if each is None else (each, texts.pop(each, b"")) for each in chain([first], left))
        recipient, until = bounce_recipient(sender), birth + controls.queuelifetime
        header = self._store.header(message)
        facts = DelayFacts(
            controls.me, controls.bouncefrom, recipient, recipients, header, birth, until, date, unique
        )
        self._composed[message] = int(now)
        return Mail(compose_notice(facts), b"", recipient)

    def _left(self, message: int) -> Iterator[bytes | None]:
        """Yield the recipients that are left on both channels, as people know them; None between pieces of work."""
        for kind in _CHANNELS:
            for recipient in self._store.left(message, kind):
                if recipient is None:
                    yield None
                elif kind == "local":
                    yield strip_prepend(recipient[1], self._run.controls.virtualdomains)
                else:
                    yield recipient[1]

    def _say(self, message: int, pid: int) -> None:
        self._run.log.put(logline.delay_message(message, pid))

    def _sent(self, message: int) -> None:
        when = self._composed.pop(message)
        try:
            told = self._run.clock.to_disk(when)
            self._store.set_told(message, told)
            kept = self._store.told(message) >= told
        except OSError as error:
            path = error.filename or self._store.layout.mess(message)
            self._run.log.warning(f"unable to change {path}: {reason(error)}; after a restart the notice is repeated")
            kept = False
        if not kept:
            self._unwritten[message] = when
        self._over(message)

    def _failed(self, message: int, why: str, now: float) -> None:
        text = f"trouble injecting delay notice of msg {message}: {why}; will try after a later deferral"
        self._run.log.warning(text)
        self._rest_until = now + REST
        self._composed.pop(message, None)
        for waiting in [each for each in self._entries if each != message]:
            self.drop(waiting)
            self.forget(waiting)
        self._over(message)

    def _unreadable(self, message: int, why: str) -> None:
        self._over(message)  # Its next attempt finds out, and parks it.

    def _over(self, message: int) -> None:
        self._entries.pop(message, None)
        self.forget(message)
        if message in self._ended:
            self._ended.discard(message)
            self._end(message)
