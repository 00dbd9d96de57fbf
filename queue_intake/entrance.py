"""Which queue takes a message: the only one, or of several the best that is open (queue_base.queue.spreading).

A queue that fails, because its disk is full, read-only or not there, gets nothing for a while, and the others go on;
one whose commit takes very long gets nothing while another one is open. There is one alert. The queue is tried again at
growing intervals, and a line says that it takes mail again. One whose daemons do not run gets nothing either while
another one is open, and that is no failure. A message that a queue has begun is never moved to another one: its client
is told to send it again, so it cannot be queued twice.
"""

from collections.abc import Callable

from queue_base.queue.spreading import QueueFacts, order_queues
from queue_base.queue.writer import QueueDraft
from queue_intake.acceptance import Acceptance, Refusal
from queue_wire.pipes.qmtp import TEMPORARY

# Seconds to the next try of a queue that has failed. They double up to RETRY_MAX, until it has taken a message.
RETRY_SECONDS = 2.0
RETRY_MAX = 60.0
# Seconds between looks at the disks, while messages come.
LOOK_SECONDS = 0.1
# Seconds after which a commit is taken for one of a disk that hangs.
COMMIT_SECONDS = 5.0


class Door:
    """One queue, as the entrance sees it.

    acceptance: None until it could be opened. reopen returns it anew, or the same one if nothing has changed; or why it
    cannot be opened. failing: the queue has failed, at `failed_at`, and gets nothing until `retry_at` (monotonic).
    busy_since: when the commit that runs has begun, 0.0 if none runs.
    """

    def __init__(self, name: str, reopen: Callable[[Acceptance | None], Acceptance | str]) -> None:
        self.name = name
        self.acceptance: Acceptance | None = None
        self.busy_since = 0.0
        self.failing = False
        self.retry_at = 0.0
        self.retry = RETRY_SECONDS
        self.alerted = False
        self.failed_at = 0.0
        self.facts = QueueFacts(closed=True)
        self.reopen = reopen

    def hangs(self, now: float) -> bool:
        """Return whether a commit runs that takes too long."""
        return self.busy_since > 0 and now > self.busy_since + COMMIT_SECONDS


class Entrance:
    """All queues. Alerts go to `alert`, the end of a failure to `warn`."""

    def __init__(self, doors: list[Door], warn: Callable[[str], None], alert: Callable[[str], None]) -> None:
        """With one door, its acceptance must be open."""
        self.doors = doors
        self._warn = warn
        self._alert = alert
        self._turn = 0
        self._look_at = 0.0
        self._only = doors[0].acceptance if len(doors) == 1 else None

    def delay(self, now: float) -> float:
        """Return the seconds that the next message of a connection must wait before it begins."""
        if self._only is not None:
            return self._only.delay(now)
        doors = self._open(now)
        # What queue-todo asks for holds even if another queue, which is stopped, asks for nothing.
        doors = [door for door in doors if not door.facts.closed and not door.facts.stopped] or doors
        return min([door.acceptance.delay(now) for door in doors if door.acceptance is not None], default=0.0)

    def reread(self) -> str:
        """Read the control files again; return why that failed, empty if it did not."""
        fault = ""
        for door in self.doors:
            if door.acceptance is not None:
                door.acceptance.reread()
                fault = fault or door.acceptance.fault
        return fault

    def refuse_size(self, size: int) -> Refusal | None:
        """Return the refusal of a message of so many bytes, None if it is not too large."""
        for door in self.doors:
            if door.acceptance is not None:
                return door.acceptance.refuse_size(size)
        return None

    def begin(self, uid: int, size: int, now: float, promise: int) -> tuple[QueueDraft, Acceptance] | Refusal:
        """Return a new draft and the acceptance of its queue, or why the message is refused (Acceptance.begin)."""
        if self._only is not None:
            found = self._only.begin(uid, size, now, promise)
            return found if isinstance(found, Refusal) else (found, self._only)
        refusal: Refusal | None = None
        self._turn += 1
        doors = self._open(now)
        for place in order_queues([self._facts(door, now) for door in doors], self._turn):
            door = doors[place]
            if door.acceptance is not None:
                taken = door.acceptance.begin(uid, size, now, promise)
                if not isinstance(taken, Refusal):
                    return taken, door.acceptance
                refusal = refusal or taken
                if taken.letter != TEMPORARY:
                    return taken  # The others would refuse it, too.
                self._note_failure(door, now)
        return refusal or Refusal(TEMPORARY, "no queue takes mail at the moment; try again later (#4.3.2)")

    def fail(self, acceptance: Acceptance, why: str, now: float) -> None:
        """Note that a queue has failed. With one queue there is nothing to choose, and every message is tried."""
        if self._only is None:
            for door in self.doors:
                if door.acceptance is acceptance:
                    self._fail(door, why, now)

    def succeed(self, acceptance: Acceptance, begun: float) -> None:
        """Note that a queue has taken messages, whose commit has begun then."""
        for door in self.doors:
            # A commit that began before the failure says nothing about what comes.
            if door.acceptance is acceptance and door.alerted and begun > door.failed_at:
                door.alerted = door.failing = False
                door.retry, door.retry_at = RETRY_SECONDS, 0.0
                self._warn(f"queue {door.name} takes mail again")

    def _facts(self, door: Door, now: float) -> QueueFacts:
        """Return what is known of a queue. One that hangs comes last, since the others may hang as well."""
        if door.acceptance is None:
            return door.facts
        return door.facts._replace(waiting=door.acceptance.in_hand, failed=door.hangs(now))

    def _open(self, now: float) -> list[Door]:
        """Return the queues that may get mail; look at all if that was some time ago."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            for door in self.doors:
                self._look(door, now)
        return [door for door in self.doors if not door.failing]

    def _look(self, door: Door, now: float) -> None:
        if door.hangs(now):
            self._alert_once(door, f"its disk takes more than {COMMIT_SECONDS:.0f} s for a commit")
        if now < door.retry_at:
            return
        if door.failing or door.acceptance is None:
            door.failing = False
            # Its disk may have been taken out, and brought back.
            opened = door.reopen(door.acceptance)
            if isinstance(opened, str):
                self._fail(door, opened, now)
                return
            door.acceptance = opened
        door.facts = door.acceptance.judge(now)
        self._note_failure(door, now)

    def _note_failure(self, door: Door, now: float) -> None:
        if door.acceptance is not None and door.acceptance.failed:
            why, door.acceptance.failed = door.acceptance.failed, ""
            self._fail(door, why, now)

    def _fail(self, door: Door, why: str, now: float) -> None:
        if door.failing and now < door.retry_at:
            return
        door.failing = True
        door.failed_at = now
        door.retry_at = now + door.retry
        door.retry = min(door.retry * 2, RETRY_MAX)
        self._alert_once(door, why)

    def _alert_once(self, door: Door, why: str) -> None:
        if not door.alerted:
            door.alerted = True
            self._alert(f"queue {door.name} takes no mail: {why}; the others do, and it is tried again")
