"""The verdicts of deliveries: a line in the log, a record in bounce/ for a failure, a DONE mark for each recipient that
is done, and a record in last/ for a deferral.

Verdicts are collected while reports are read, then applied together: all failures of a turn are appended to bounce/ and
synced in one commit by the disk thread, and only then are their recipients marked done and their entries reported to
the scheduler. If that fails, the recipients are not failed, and are tried again.

Recipients that expire without an attempt may be hundreds of thousands at once: a turn takes EXPIRED_A_TURN of them, and
none while WRITTEN_MAX failures wait for the disk, or the log is full.
"""

from collections import OrderedDict, deque
from itertools import islice

from queue_base.errors import reason
from queue_send.delivery.result_writer import ResultWriter
from queue_send.messages.bounce_file import FailedRecipient, append_failures
from queue_send.messages.transitions import MessageEvent
from queue_send.notify.delay import DelayNotifier
from queue_send.scheduler.model import Attempt, Entry
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.address import domain_of
from queue_wire.files.last_result import short_reason, suspension
from queue_wire.pipes.report import HOST_SCOPE, PERMANENT, SUCCESS, TEMPORARY, Report

MANGLED = b""
TOO_LONG = b"I'm not going to try again; this message has been in the queue too long.\n"
EXPIRED_A_TURN = 200  # Recipients; one takes some 10 microseconds.
WRITTEN_MAX = 1000  # Failures.
FAILURES_MAX = 1000  # Nexthops of which the last failure is remembered,
FAILURE_SIZE = 300  # and so many bytes of it.
NOT_TRIED = b"The destination could not be tried: it is unreachable, or its limits allow no delivery. (#4.4.7)\n"


class EntryResult:
    """An entry whose verdicts are recorded. `done`: its recipients that are marked done.

    `host_failed`: its host failed. `started`: a job was started for it; if not, it expired without one.
    """

    __slots__ = ("done", "entry", "host_failed", "started")

    def __init__(self, entry: Entry, host_failed: bool, started: bool) -> None:
        self.entry = entry
        self.host_failed = host_failed
        self.started = started
        self.done = 0


def _is_of_nexthop(entry: Entry, report: Report) -> bool:
    """Return whether a report is about the nexthop of an entry.

    The host of another route says nothing about the relays that an entry was grouped by: queue-remote may have read
    smtproutes or localroutes since, or not yet. A domain that is a nexthop itself has failed by whatever route.
    """
    if report.scope != HOST_SCOPE:
        return False
    domain = domain_of(entry.recipients[0][1])
    return report.route in (b"", entry.nexthop) or entry.nexthop == domain


# A permanent failure: its job, the offset of the recipient, and the failure.
FailedItem = tuple[EntryResult, int, FailedRecipient]


class Verdicts:
    """The verdicts of one channel."""

    def __init__(self, kind: str, parts: SharedParts, delays: DelayNotifier, results: ResultWriter) -> None:
        self._kind = kind
        self._store, self._log, self._config, self._disk = parts.store, parts.log, parts.config, parts.disk
        self._counters = parts.counters.channels[kind]
        self._delays = delays
        self._results = results
        # By nexthop: why it could not be reached last, for mail that is suspended while it is dead.
        self._failures: OrderedDict[bytes, bytes] = OrderedDict()
        self._reported: list[EntryResult] = []
        self._done: dict[Attempt, list[int]] = {}
        # By the first delivery of a job in flight: the recipients whose success was recorded before its end.
        self._early: dict[int, set[int]] = {}
        self._failed: list[FailedItem] = []
        self._unclassified: dict[int, list[FailedItem]] = {}  # Those of announced messages, until they are classified.
        self._expired: deque[Entry] = deque()
        self._writing = 0  # Failures that the disk thread writes.
        self._written: list[EntryResult] = []

    def add(self, entry: Entry, first: int, report: Report, now: float) -> None:
        """Log the verdicts of a job whose first delivery has the number `first`.

        If their number is not that of the recipients, the report is mangled, and all recipients are deferred.
        """
        verdicts = report.verdicts
        if len(verdicts) != len(entry.recipients):
            verdicts = [(MANGLED, b"")] * len(entry.recipients)
        host_failed = _is_of_nexthop(entry, report) and any(letter == TEMPORARY for letter, _ in verdicts)
        if host_failed:
            self._keep_failure(entry.nexthop, next(text for letter, text in verdicts if letter == TEMPORARY))
        result = EntryResult(entry, host_failed, started=True)
        self._reported.append(result)
        early = self._early.pop(first, set())
        result.done = len(early)
        expired = now > entry.attempt.expires
        deferred: list[tuple[int, bytes]] = []
        for index, (letter, text) in enumerate(verdicts):
            if index in early:
                continue
            if letter == TEMPORARY and expired:
                letter = PERMANENT
                text += (b"" if text.endswith(b"\n") else b"\n") + TOO_LONG
            self._take(result, index, first + index, letter, text)
            if letter in (TEMPORARY, MANGLED):
                offset, address = entry.recipients[index]
                deferred.append((offset, text))
                self._delays.keep_text(entry.attempt, self._config.current.shown(self._kind, address), text, now)
        if deferred and not self._store.is_lost(entry.attempt.message):
            self._results.keep(entry.attempt.message, self._kind, entry.nexthop, deferred, now)
        self._counters.end_job(now - entry.started, now - entry.attempt.birth, len(verdicts), result.done)

    def _keep_failure(self, nexthop: bytes, text: bytes) -> None:
        self._failures.pop(nexthop, None)
        self._failures[nexthop] = short_reason(text)[:FAILURE_SIZE]
        if len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)

    def failure(self, nexthop: bytes) -> bytes:
        """Return why a nexthop could not be reached last, in one line; empty if that is not known."""
        return self._failures.get(nexthop, b"")

    def forget_failure(self, nexthop: bytes) -> None:
        """Forget why a nexthop could not be reached: it is alive again."""
        self._failures.pop(nexthop, None)

    def suspend(self, entry: Entry, now: float) -> None:
        """Keep, as the last result of recipients that are deferred without an attempt, that their nexthop is dead."""
        if self._store.is_lost(entry.attempt.message):
            return
        text = suspension(entry.nexthop, self.failure(entry.nexthop))
        deferred = [(offset, text) for offset, _ in entry.recipients]
        self._results.keep(entry.attempt.message, self._kind, entry.nexthop, deferred, now, tried=False)

    def add_successes(self, entry: Entry, first: int, verdicts: list[tuple[bytes, bytes]]) -> None:
        """Log the successes of a job that goes on, and mark them: a crash before its end repeats none of them."""
        if len(verdicts) != len(entry.recipients):
            return
        early = self._early.setdefault(first, set())
        for index, (letter, text) in enumerate(verdicts):
            if letter == SUCCESS and index not in early:
                early.add(index)
                self._log.put(logline.delivery_result(first + index, letter, text))
                self._done.setdefault(entry.attempt, []).append(entry.recipients[index][0])

    def expire(self, entry: Entry) -> None:
        """Fail an entry without an attempt; the log has a delivery that ends at once for each recipient."""
        self._expired.append(entry)

    @property
    def has_results(self) -> bool:
        """Whether `apply` has results to return."""
        return bool(self._reported or self._written)

    @property
    def may_expire(self) -> bool:
        """Whether `expire_some` has something to do."""
        return bool(self._expired) and self._writing < WRITTEN_MAX and not self._log.full

    def expire_some(self) -> None:
        """Fail some of the entries for which `expire` was called."""
        room = EXPIRED_A_TURN
        while room > 0 and self.may_expire:
            entry = self._expired.popleft()
            if len(entry.recipients) > room:
                self._expired.appendleft(entry.split_off(room))
            room -= len(entry.recipients)
            self._fail(entry)

    def _fail(self, entry: Entry) -> None:
        result = EntryResult(entry, host_failed=False, started=False)
        self._reported.append(result)
        first, channel = self._log.number_deliveries(len(entry.recipients)), self._kind.encode()
        for index, (_, address) in enumerate(entry.recipients):
            self._log.put(logline.starting_delivery(first + index, entry.attempt.message, channel, address))
            self._take(result, index, first + index, PERMANENT, NOT_TRIED + TOO_LONG)

    def _take(self, result: EntryResult, index: int, delivery: int, letter: bytes, text: bytes) -> None:
        attempt = result.entry.attempt
        offset, address = result.entry.recipients[index]
        self._log.put(logline.delivery_result(delivery, letter, text))
        if letter == SUCCESS:
            result.done += 1
            self._done.setdefault(attempt, []).append(offset)
            return
        self._counters.add_trouble(letter != PERMANENT, text)
        if letter == PERMANENT:
            shown = self._config.current.shown(self._kind, address)
            self._failed.append((result, offset, FailedRecipient(attempt.message, shown, text)))

    def apply(self) -> list[EntryResult]:
        """Record the verdicts; return the entries for which that is done, also those of earlier calls."""
        written, self._written = self._written, []
        done, self._done = self._done, {}
        self._mark_all(done)
        if not self._reported:
            return written
        reported, self._reported = self._reported, []
        failed, self._failed = self._failed, []
        if not failed:
            return written + reported
        waiting = {result for result, _, _ in failed}
        self._write(failed)
        return written + [result for result in reported if result not in waiting]

    def _write(self, failed: list[FailedItem]) -> None:
        """Have the disk thread append failures to bounce/; `apply` returns their entries when they are safe."""
        failed = self._put_off(failed)
        gone = dict.fromkeys(result for result, _, failure in failed if self._store.is_lost(failure.message))
        if gone:
            self._written += gone
            failed = [item for item in failed if item[0] not in gone]
        if not failed:
            return
        self._writing += len(failed)

        troubles: dict[int, OSError] = {}

        def work() -> None:
            troubles.update(append_failures(self._store.layout, failures))

        def written(trouble: OSError | None) -> None:
            self._writing -= len(failed)
            for each in islice([trouble] if trouble is not None else troubles.values(), 1):
                name = each.filename or "bounce"
                others = f" (and {len(troubles) - 1} more)" if trouble is None and len(troubles) > 1 else ""
                self._log.warning(f"unable to append to {name}{others}: {reason(each)}; will try again later")
            done: dict[Attempt, list[int]] = {}
            for result, offset, failure in failed if trouble is None else ():
                if failure.message not in troubles:
                    result.done += 1
                    done.setdefault(result.entry.attempt, []).append(offset)
            self._mark_all(done)
            self._written += dict.fromkeys(result for result, _, _ in failed)

        failures = [failure for _, _, failure in failed]
        for failure in failures:
            self._store.records.forget(failure.message)
        self._log.flush()
        self._disk.submit(work, written)

    def _put_off(self, failed: list[FailedItem]) -> list[FailedItem]:
        """Return the failures that can be recorded now. Those of announced messages are, when these are classified.

        Those of one message stay together, so that a job that failed for several recipients ends once.
        """
        now: list[FailedItem] = []
        for item in failed:
            message = item[2].message
            if self._store.classify_first(message, MessageEvent.FAILED):
                self._unclassified.setdefault(message, []).append(item)
            else:
                now.append(item)
        return now

    def classified(self, message: int, exists: bool) -> None:
        """Record the failures of a message that has files now, or is gone."""
        failed = self._unclassified.pop(message, [])
        if exists:
            self._write(failed)
        else:
            self._written += dict.fromkeys(result for result, _, _ in failed)

    def _mark_all(self, done: dict[Attempt, list[int]]) -> None:
        for attempt, offsets in done.items():
            attempt.left -= len(offsets)
            if self._store.announced_message(attempt.message) is None:
                self._log.flush()  # The marks of announced messages are written at the end of the turn, after the log.
            try:
                self._store.mark_done(attempt.message, self._kind, offsets)
                if attempt.chosen:
                    self._store.keep_due(attempt.message, self._kind, attempt.others_due)
            except OSError as error:
                path = error.filename or f"{self._kind}/{attempt.message}"
                self._log.warning(f"trouble marking {path}: {reason(error)}; message will be delivered twice!")
                self._store.disk.note()
