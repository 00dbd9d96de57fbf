"""Delay notices: their text (RFC 3464, `Action: delayed`), and the messages that have one to be sent.

The sender of a message that is still queued gets one notice at each age in control/delaywarning. A notice becomes due
at a deferral, with an attempt or without one. The time of the last notice is the mtime of mess/B/I. It is set as soon
as queue-enqueue has queued the notice; a crash between the two repeats the notice. A notice that cannot be sent is
dropped, and the next deferral tries again, so that nothing is kept for waiting messages. For messages in flight the
texts of their deferrals are kept, at most TEXTS_MAX bytes in all.

No notice is sent for bounces (sender `<>` or `#@[]`), nor for held or parked messages.

For people the notice has the reasons of earlier attempts, too, from last/B/I (result_writer.py): the newest ones that
differ. If the message was deferred without an attempt, the newest of them is the reason, also in the fields.

The text does not begin with `Hi. This is the`: mailing list programs would take it for a bounce (QSBMF).
"""

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from queue_base.errors import reason
from queue_base.home import Home
from queue_base.reports.dsn import Dsn, Reported, compose_dsn, dsn_date, token
from queue_send.events import Happened
from queue_send.messages.transitions import MessageEvent
from queue_send.notify.notifier import Notifier, OwnMail, Steps
from queue_send.scheduler.model import Attempt
from queue_send.scheduler.retry import AGAIN_AFTER
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.control.registry import QUEUELIFETIME
from queue_wire.failures import clean_text
from queue_wire.files.last_result import LastResult, short_reason

AT_ONCE = 1  # Processes. Notices must not slow down mail and bounces.
WAITING_MAX = 1000  # Messages. A later deferral of the others tries again.
TEXTS_MAX = 4_000_000  # Bytes of texts,
TEXTS_OF_ONE = 600_000  # and of texts of one message. Its notice would hold little more.
# Of last/B/I: bytes that are read from its end, and records that are looked at in one step. Of one recipient: reasons
# of earlier attempts, and bytes of each.
RESULTS_MAX = 256 << 10
RESULTS_AT_ONCE = 50
EARLIER_MAX = 3
EARLIER_REASON_MAX = 200
_CHANNELS = ("local", "remote")

SUBJECT = b"Delayed Mail (still being retried)"  # Postfix's, which filters recognize.
_UNKNOWN = b"No delivery to it has succeeded so far."


class DelayFacts(NamedTuple):
    """The contents of a delay notice. Times are in seconds since the epoch; `until` is the end of the lifetime.

    `recipients` are those that are left, as in dsn.py: (address, text of the last attempt, lines about earlier ones),
    or None. `recipient` gets the notice; `unique` is for its Message-ID and boundary.
    """

    me: bytes
    bouncefrom: bytes
    recipient: bytes
    recipients: Iterable[Reported | None]
    header: bytes
    birth: int
    until: int
    now: int
    unique: str


def compose_notice(facts: DelayFacts) -> Iterator[bytes]:
    """Yield the notice as a message with LF line ends, in pieces, as compose_dsn does."""
    until = dsn_date(facts.until)
    report = Dsn(
        me=facts.me,
        bouncefrom=facts.bouncefrom,
        recipient=facts.recipient,
        subject=SUBJECT,
        greeting=[
            b"This is the queue-send program at %s." % token(facts.me),
            b"Your message has not been delivered to the addresses below yet. This is only a",
            b"warning: you need not send it again. It will be tried until",
            b"%s. The last reason, if it is known, stands under each address." % until,
        ],
        action=b"delayed",
        # A status that begins with 5 would be final.
        classes=b"4",
        default=b"4.0.0",
        words=_UNKNOWN,
        # RFC 3464, section 2.3.9.
        more=b"Will-Retry-Until: %s\n" % until,
        # As in bounces: an empty line in an address would begin another paragraph.
        recipients=(
            None if each is None else (each[0].replace(b"\n", b"_"), *each[1:]) for each in facts.recipients
        ),
        header=facts.header,
        birth=facts.birth,
        now=facts.now,
        unique=facts.unique,
    )
    return compose_dsn(report)


def _with_reasons(address: bytes, text: bytes, results: list[LastResult]) -> tuple[bytes, bytes, bytes]:
    """Return a recipient with the reason of its last attempt, and lines about earlier attempts, the newest first.

    `text` is the reason of the attempt that has just ended, empty if there was none; `results` are those that last/B/I
    has, the oldest first, perhaps with this one. That a nexthop is dead counts only without any attempt.
    """
    results = [result for result in results if result.tried] or results
    if not text and results:
        text = results.pop().text
    known = {short_reason(clean_text(text))}
    lines: list[bytes] = []
    while results and len(lines) < EARLIER_MAX:
        result = results.pop()
        why = short_reason(result.text)
        if why not in known:
            known.add(why)
            place = b", " + result.nexthop if result.channel == "remote" else b""
            shown = why[:EARLIER_REASON_MAX].strip()
            date = dsn_date(result.when)
            lines.append(b"Before, on %s%s: %s\n" % (date, place, shown))
    return address, text, b"".join(lines)


def is_notice_due(ages: tuple[int, ...], birth: int, last_notice: int, now: int) -> bool:
    """Return whether the message has reached an age since the last notice; times in seconds since the epoch.

    `last_notice` is the time of the last notice, not after `birth` if there was none. It counts for every age that the
    message had reached by then.
    """
    return any(last_notice < birth + age <= now for age in ages)


class DelayNotifier(Notifier):
    """A part of the loop: notices to be injected and being injected."""

    def __init__(self, home: Home, parts: SharedParts) -> None:
        super().__init__(home, parts, AT_ONCE)
        # Of messages in flight: by recipient, the text of its deferral.
        self._texts: dict[int, dict[bytes, bytes]] = {}
        self._sizes: dict[int, int] = {}  # Bytes of the texts of each message.
        self._room = TEXTS_MAX
        # When the notice of a message was composed.
        self._composed: dict[int, int] = {}
        # The time of the last notice of messages whose mess/B/I could not be changed.
        self._unwritten: dict[int, int] = {}
        self._rest_until = 0.0

    def keep_text(self, attempt: Attempt, recipient: bytes, text: bytes, now: float) -> None:
        """Keep the text of a deferral, if a notice about the message is due."""
        held = self._sizes.get(attempt.message, 0)
        if self._room <= 0 or held >= TEXTS_OF_ONE or not self._wanted(attempt, now):
            return
        text = clean_text(text)
        self._texts.setdefault(attempt.message, {})[recipient] = text
        self._sizes[attempt.message] = held + len(recipient) + len(text)
        self._room -= len(recipient) + len(text)

    def deferred(self, attempt: Attempt, now: float) -> None:
        """A message waits for its next attempt: has a notice injected if one is due."""
        if len(self._tasks) < WAITING_MAX and now >= self._rest_until and self._wanted(attempt, now):
            self.accept(attempt.message)
        if not self.holds(attempt.message):
            self.forget(attempt.message)

    def forget(self, message: int) -> None:
        """Remove the texts of a message."""
        self._texts.pop(message, None)
        self._room += self._sizes.pop(message, 0)

    def release(self, message: int) -> bool:
        """Cancel the notice of a message that ends; return False if queue-enqueue has it: then WRITTEN follows."""
        if not (self._tasks or self._children or self._sizes or self._composed or self._unwritten):
            return True  # The usual case: there is nothing about any message.
        if not self.drop(message):
            return False
        self.forget(message)
        self._composed.pop(message, None)
        self._unwritten.pop(message, None)
        return True

    def _wanted(self, attempt: Attempt, now: float) -> bool:
        ages = self._config.current.delaywarning
        if not ages or now < attempt.birth + ages[0] or now >= attempt.expires or self.holds(attempt.message):
            return False
        if attempt.sender in (b"", DOUBLE_BOUNCE_SENDER):
            return False
        return self._is_due(attempt.message, attempt.birth, int(now))

    def _is_due(self, message: int, birth: int, now: int) -> bool:
        try:
            last_notice = max(self._clock.from_disk(self._store.last_notice(message)), self._unwritten.get(message, 0))
        except OSError:
            return False  # Its next attempt will log the error.
        return is_notice_due(self._config.current.delaywarning, birth, last_notice, now)

    def _compose(self, message: int, now: float) -> Steps:
        """Return the notice; None if it is not due any more. Raises OSError, FormatError."""
        texts = self._texts.get(message, {})
        self.forget(message)
        left, first = self._left(message), None
        earlier: dict[tuple[str, int], list[LastResult]] = {}
        try:
            sender, birth = self._store.load(message)[:2]
        except FileNotFoundError:
            left = iter(())  # It has ended.
        for first in left:
            if first is not None:
                break
            yield
        clock = self._clock
        since = clock.birth_from_disk(birth) if first is not None else 0
        if first is None or not self._store.may_be_tried(message) or not self._is_due(message, since, int(now)):
            del self._tasks[message]
            return None
        for number, result in enumerate(self._store.results(message, RESULTS_MAX)):
            earlier.setdefault((result.channel, result.offset), []).append(result)
            if number % RESULTS_AT_ONCE == 0:
                yield
        yield
        controls, date = self._config.current, clock.to_disk(int(now))
        unique = f"{date}.{message}.{os.getpid()}.delay"
        recipients = (
            None if each is None else _with_reasons(each[2], texts.pop(each[2], b""), earlier.pop(each[:2], []))
            for each in chain([first], left)
        )
        recipient, until = bounce_recipient(sender), birth + controls.values[QUEUELIFETIME]
        header = self._store.header(message)
        facts = DelayFacts(
            controls.me, controls.bouncefrom, recipient, recipients, header, birth, until, date, unique
        )
        self._composed[message] = int(now)
        return OwnMail(compose_notice(facts), b"", recipient)

    def _left(self, message: int) -> Iterator[tuple[str, int, bytes] | None]:
        """Yield the recipients that are left: channel, offset, and the address as people know it; None between pieces
        of work.
        """
        for kind in _CHANNELS:
            for recipient in self._store.left(message, kind):
                if recipient is None:
                    yield None
                else:
                    yield kind, recipient[0], self._config.current.shown(kind, recipient[1])

    def _log_sent(self, message: int, pid: int) -> None:
        self._log.put(logline.delay_message(message, pid))

    def _sent(self, message: int) -> None:
        when = self._composed.pop(message)
        try:
            last_notice = self._clock.to_disk(when)
            self._store.set_last_notice(message, last_notice)
            kept = self._store.last_notice(message) >= last_notice
        except OSError as error:
            path = error.filename or self._store.layout.mess(message)
            self._log.warning(f"unable to change {path}: {reason(error)}; after a restart the notice is repeated")
            kept = False
        if not kept:
            self._unwritten[message] = when
        self._over(message)

    def _failed(self, message: int, why: str, now: float) -> None:
        text = f"trouble injecting delay notice of msg {message}: {why}; will try after a later deferral"
        self._log.warning(text)
        self._rest_until = now + AGAIN_AFTER  # Most likely the disk is full.
        self._composed.pop(message, None)
        for waiting in [each for each in self._tasks if each != message]:
            self.drop(waiting)
            self.forget(waiting)
        self._over(message)

    def _unreadable(self, message: int, why: str) -> None:
        self._over(message)  # Its next attempt parks it.

    def _over(self, message: int) -> None:
        self._tasks.pop(message, None)
        self.forget(message)
        self._events.append(Happened(MessageEvent.WRITTEN, message))
