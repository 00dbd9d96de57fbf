"""What a delivery's verdict does: a line in the log, a record in bounce/ for a failure, a DONE mark.

Verdicts are collected while reports are read, then applied together: first every failure of the turn is
written to bounce/ and synced, and only then are recipients marked done, and the scheduler is told
(docs/design/durability.md). A failure that cannot be written is no failure: the recipient stays, and is tried again.

Recipients that fail without an attempt may be hundreds of thousands at once: a turn takes EXPIRED_A_TURN of them, and
none while WRITTEN_MOST failures wait for the disk or the logger is behind.
"""

from collections import deque
from collections.abc import Callable

from queue_base.errors import reason
from queue_send.attempt import Attempt, Group
from queue_send.delays import Delays
from queue_send.run import Run
from queue_send.store import Failure, Store
from queue_wire import logline
from queue_wire.address import strip_prepend
from queue_wire.report import HOST_SCOPE, PERMANENT, SUCCESS, TEMPORARY, Report

MANGLED = b""
TOO_LONG = b"I'm not going to try again; this message has been in the queue too long.\n"
EXPIRED_A_TURN = 200  # Recipients; one takes some 10 microseconds.
WRITTEN_MOST = 1000  # Failures.
NOT_TRIED = b"The destination could not be tried: it is dead, takes no more, or its rate allows no more. (#4.4.7)\n"


class Landed:
    """A group with its verdicts: how many of its recipients are done, and whether its host was not there."""

    __slots__ = ("done", "group", "host_failed", "started")

    def __init__(self, group: Group, host_failed: bool, started: bool) -> None:
        self.group = group
        self.host_failed = host_failed
        self.started = started
        self.done = 0


class Verdicts:
    """The verdicts of one turn of one channel."""

    def __init__(self, run: Run, store: Store, delays: Delays, kind: str) -> None:
        self._run = run
        self._store = store
        self._delays = delays
        self._kind = kind
        self._landed: list[Landed] = []
        self._done: dict[Attempt, list[int]] = {}
        self._failed: list[tuple[Landed, int, Failure]] = []
        self._expired: deque[Group] = deque()
        self._writing = 0  # Failures that the thread is at.

    def add(self, group: Group, first: int, report: Report, now: float) -> None:
        """Log the verdicts of one job and keep what they ask for. A wrong number of them is a mangled report."""
        verdicts = report.verdicts
        if len(verdicts) != len(group.recipients):
            verdicts = [(MANGLED, b"")] * len(group.recipients)
        host_failed = report.scope == HOST_SCOPE and any(letter == TEMPORARY for letter, _ in verdicts)
        landed = Landed(group, host_failed, started=True)
        self._landed.append(landed)
        expired = now > group.attempt.expires
        for number, (letter, text) in enumerate(verdicts):
            if letter == TEMPORARY and expired:
                letter = PERMANENT
                text += (b"" if text.endswith(b"\n") else b"\n") + TOO_LONG
            self._take(landed, number, first + number, letter, text)
            if letter == TEMPORARY:
                self._delays.hear(group.attempt, self._shown(group.recipients[number][1]), text, now)

    def expire(self, group: Group) -> None:
        """Fail a group that cannot be tried before it is too late; in the log each is a delivery that ends at once."""
        self._expired.append(group)

    @property
    def may_go_on(self) -> bool:
        """Whether there are recipients that `apply` would fail now."""
        return bool(self._expired) and self._writing < WRITTEN_MOST and not self._run.log.full

    def _expire_some(self) -> None:
        room = EXPIRED_A_TURN
        while room > 0 and self.may_go_on:
            group = self._expired.popleft()
            if len(group.recipients) > room:
                self._expired.appendleft(Group(group.attempt, group.nexthop, group.recipients[room:]))
                group = Group(group.attempt, group.nexthop, group.recipients[:room])
            room -= len(group.recipients)
            self._fail(group)

    def _fail(self, group: Group) -> None:
        landed = Landed(group, host_failed=False, started=False)
        self._landed.append(landed)
        first = self._run.number_deliveries(len(group.recipients))
        for number, (_, address) in enumerate(group.recipients):
            channel = self._kind.encode()
            self._run.log.put(logline.starting_delivery(first + number, group.attempt.message, channel, address))
            self._take(landed, number, first + number, PERMANENT, NOT_TRIED + TOO_LONG)

    def _take(self, landed: Landed, number: int, delivery: int, letter: bytes, text: bytes) -> None:
        attempt = landed.group.attempt
        offset, address = landed.group.recipients[number]
        self._run.log.put(logline.delivery_result(delivery, letter, text))
        if letter == SUCCESS:
            landed.done += 1
            self._done.setdefault(attempt, []).append(offset)
        elif letter == PERMANENT:
            self._failed.append((landed, offset, Failure(attempt.message, self._shown(address), text)))

    def _shown(self, address: bytes) -> bytes:
        return strip_prepend(address, self._run.controls.virtualdomains) if self._kind == "local" else address

    def apply(self, tell: Callable[[Landed], None]) -> None:
        """Mark what is done and tell of each group; of one with failures once those are safe on the disk.

        `tell` may make groups expire: some of those too, and the others in the next turns.
        """
        if self._landed:
            self._apply(tell)
        self._expire_some()
        if self._landed:
            self._apply(tell)

    def _apply(self, tell: Callable[[Landed], None]) -> None:
        self._run.log.flush()
        landed, self._landed = self._landed, []
        failed, self._failed = self._failed, []
        done, self._done = self._done, {}
        waiting = {each for each, _, _ in failed}
        self._settle(done, [each for each in landed if each not in waiting], tell)
        if failed:
            self._write(failed, tell)

    def _settle(self, done: dict[Attempt, list[int]], landed: list[Landed], tell: Callable[[Landed], None]) -> None:
        for attempt, offsets in done.items():
            attempt.left -= len(offsets)
            self._mark(attempt, offsets)
        for each in landed:
            tell(each)

    def _write(self, failed: list[tuple[Landed, int, Failure]], tell: Callable[[Landed], None]) -> None:
        """Write failures to bounce/ in the thread that may wait for the disk; go on when they are safe."""
        landed = list(dict.fromkeys(each for each, _, _ in failed))

        self._writing += len(failed)

        def written(trouble: OSError | None) -> None:
            self._writing -= len(failed)
            done: dict[Attempt, list[int]] = {}
            if trouble is not None:
                name = trouble.filename or "bounce"
                self._run.log.warning(f"unable to append to {name}: {reason(trouble)}; will try again later")
            else:
                for each, offset, _ in failed:
                    each.done += 1
                    done.setdefault(each.group.attempt, []).append(offset)
            self._settle(done, landed, tell)

        failures = [failure for _, _, failure in failed]
        self._run.syncing.submit(lambda: self._store.append_failures(failures), written)

    def _mark(self, attempt: Attempt, offsets: list[int]) -> None:
        try:
            self._store.mark_done(attempt.message, self._kind, offsets)
        except OSError as error:
            path = error.filename or f"{self._kind}/{attempt.message}"
            self._run.log.warning(f"trouble marking {path}: {reason(error)}; message will be delivered twice!")
