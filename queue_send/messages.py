"""The life of classified messages: waiting, open, finished, bounced, handed to queue-clean.

Each message that is known has an entry in `_left`: its channels with recipients left. When the last one
is gone, its failures, if any, become a bounce, and then its files go. Nothing here waits; what the disk
refuses is tried again later.
"""

from queue_base.errors import reason
from queue_base.layout import Layout
from queue_send.bouncer import Bouncer
from queue_send.cleaner import Cleaner
from queue_send.policy import LONG_AGO, Pass, Policy, Recipient
from queue_send.retry import SKIP_LOCAL, SKIP_REMOTE, is_expired, next_attempt
from queue_send.run import Run
from queue_send.store import Store
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, is_verp, split_address
from queue_wire.errors import FormatError
from queue_wire.notice import Classified

TROUBLE_AFTER = 123  # Seconds until something that the disk refused is tried again (qmail's SLEEP_SYSFAIL).
CHANNELS = ("local", "remote")
_BITS = {"local": 1, "remote": 2}
_SKIPS = {"local": SKIP_LOCAL, "remote": SKIP_REMOTE}


class Messages:
    """All classified messages of the queue that this run knows of."""

    def __init__(self, run: Run, layout: Layout, bouncer: Bouncer, cleaner: Cleaner) -> None:
        self._run = run
        self.store = Store(layout)
        self._split = layout.split
        self._left: dict[int, int] = {}
        self._bouncer = bouncer
        self._cleaner = cleaner
        self._all_due = False
        bouncer.attach(self.store, self.end, self._park)
        cleaner.attach(self.arrive)
        self.policies = {
            "local": Policy(run.controls.concurrencylocal),
            "remote": Policy(run.controls.concurrencyremote),
        }

    def apply_limits(self) -> None:
        """Take the concurrency limits from the controls."""
        self.policies["local"].limit = self._run.controls.concurrencylocal
        self.policies["remote"].limit = self._run.controls.concurrencyremote

    def flush(self) -> None:
        """ALRM: everything is due now, also what the backlog has yet to find."""
        self._all_due = True
        for policy in self.policies.values():
            policy.flush()

    def status(self) -> bytes:
        """Return the status line as of now."""
        local, remote = self.policies["local"], self.policies["remote"]
        return logline.status(local.running, local.limit, remote.running, remote.limit, self._run.leaving)

    def job_path(self, message: int) -> bytes:
        """Return mess/B/I, relative to queue/."""
        return b"mess/%d/%d" % (message % self._split, message)

    def arrive(self, notice: Classified, now: float) -> None:
        """queue-todo has classified a message. A notice that is late, or about one that is known, changes nothing.

        What the notice says of channels is not believed: it may be about an earlier message of this number, which was
        found at start and is gone by now. The disk knows.
        """
        message = notice.message
        if self._cleaner.defer(notice):
            return  # The old message of this number is being removed; the notice comes back after that.
        if message in self._left or not self.store.is_classified(message):
            return  # Found at start already; gone; or a new message of this number, whose own notice will come.
        self._add(message, {kind: now for kind in CHANNELS if self.store.due(message, kind) is not None})

    def discover(self, message: int) -> None:
        """Found at start, with its info file: take it on as the last run left it, if it is whole and classified."""
        if message in self._left or self._cleaner.holds(message) or not self.store.is_classified(message):
            return
        dues = {kind: due for kind in CHANNELS if (due := self.store.due(message, kind)) is not None}
        if self._all_due:
            dues = {kind: due - LONG_AGO for kind, due in dues.items()}
        self._add(message, dues)

    def _add(self, message: int, dues: dict[str, float]) -> None:
        self._left[message] = sum(_BITS[kind] for kind in dues)
        for kind, due in dues.items():
            self.policies[kind].wait(message, due)
        if not dues:
            self._finish(message)

    def open(self, message: int, kind: str, now: int) -> None:
        """Load a message that is due and give the policy its pass; park one that cannot be read."""
        if message not in self._left:
            return  # Its other channel could not be read, and it is parked.
        try:
            sender, birth = self.store.load(message)
            recipients = self.store.pending(message, kind)
        except FormatError as error:
            self._park(message, str(error))
            return
        except FileNotFoundError:
            self._left.pop(message, None)  # A late notice of a message that is gone.
            return
        except OSError as error:
            self._run.log.warning(f"unable to open {error.filename or message}: {reason(error)}; will try again later")
            self.policies[kind].wait(message, now + TROUBLE_AFTER)
            return
        bounce = sender in (b"", DOUBLE_BOUNCE_SENDER)
        lifetime = self._run.controls.bouncelifetime if bounce else self._run.controls.queuelifetime
        attempt = Pass(message, sender, birth, is_expired(birth, now, lifetime))
        for nexthop, group in _groups(kind, sender, recipients):
            attempt.add_group(nexthop, group)
        if attempt.left:
            self.policies[kind].open(attempt)
        else:
            self.close(attempt, kind, now)

    def _park(self, message: int, why: str) -> None:
        self._left.pop(message, None)
        self._run.log.put(logline.corrupt_message(message, why))
        try:
            self.store.park(message, why)
        except OSError as error:
            why += f"; unable to write {error.filename or 'corrupt'}: {reason(error)}"
        self._run.log.alert(f"msg {message} cannot be read and is parked in corrupt: {why}")

    def close(self, attempt: Pass, kind: str, now: int) -> None:
        """A pass is over: the channel is done, or it waits for its next attempt."""
        message = attempt.message
        try:
            if attempt.left:
                due = next_attempt(attempt.birth, now, _SKIPS[kind])
                self.policies[kind].wait(message, due)
                self.store.set_due(message, kind, due)
                return
            self.store.drop(self.store.layout.hashed(kind, message))
        except OSError as error:
            self._run.log.warning(f"unable to change {error.filename or message}: {reason(error)}; mail goes on")
            if attempt.left:
                return
        left = self._left.get(message, 0) & ~_BITS[kind]
        if message in self._left:
            self._left[message] = left
            if not left:
                self._finish(message)

    def _finish(self, message: int) -> None:
        """No recipient is left: bounce what failed, then end."""
        if not self._bouncer.wants(message):
            self.end(message)

    def end(self, message: int) -> None:
        """Nothing is left to do: the files go to queue-clean."""
        self._left.pop(message, None)
        self._run.log.put(logline.end_message(message))
        self._cleaner.remove(message)


def _groups(kind: str, sender: bytes, recipients: list[Recipient]) -> list[tuple[bytes, list[Recipient]]]:
    """Return (nexthop, recipients) for each job: remote ones by domain, local ones and VERP senders' one by one."""
    if kind == "local":
        return [(recipient[1], [recipient]) for recipient in recipients]
    nexthops = [split_address(address)[1].lower() for _, address in recipients]
    if is_verp(sender):
        return [(nexthop, [recipient]) for nexthop, recipient in zip(nexthops, recipients, strict=True)]
    groups: dict[bytes, list[Recipient]] = {}
    for nexthop, recipient in zip(nexthops, recipients, strict=True):
        groups.setdefault(nexthop, []).append(recipient)
    return list(groups.items())
