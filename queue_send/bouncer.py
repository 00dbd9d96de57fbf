"""Injects bounces through queue-enqueue, never waiting for it: its input is in memory files, its end comes by pidfd.

A bounce goes to the sender; a bounce of a bounce to doublebounceto, from `#@[]`; one that fails again is discarded
with a line in the log (qmail-send(8)). bounce/I goes as soon as queue-enqueue has said that the bounce is
queued; a crash between the two sends the bounce once more, and that is the only way to a second one.

A bounce of many failures is read and composed in steps, TURN seconds of them in a turn of the loop. One that
cannot be read is parked, not retried; a message whose header cannot be read is bounced without it.
"""

import errno
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from queue_base.durable import write_all
from queue_base.errors import reason
from queue_base.programs import command
from queue_send.bounce import BounceFacts, compose_steps
from queue_send.run import Run
from queue_send.store import Store
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.errors import FormatError

AT_ONCE = 4  # Processes; each syncs, and they share the disk with the mail.
AGAIN_AFTER = 123.0  # Seconds until a bounce that could not be injected is tried again.
TURN = 0.02  # Seconds of work on a bounce in one turn of the loop; one step of it, some milliseconds, comes on top.
LOOK_AFTER = 0.1  # Seconds between looks at children that have no pidfd.

# What passes by itself. Anything else that keeps a file from being read is there again at the next try.
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}


class _Child:
    """A queue-enqueue that runs for a message; `pidfd` is None where the system gave none."""

    __slots__ = ("message", "pid", "pidfd")

    def __init__(self, message: int, pid: int) -> None:
        self.message = message
        self.pid = pid
        try:
            self.pidfd: int | None = os.pidfd_open(pid)
        except OSError:
            # It runs, and will queue the bounce: it must not be forgotten, or there will be a second one.
            self.pidfd = None

    def ended(self) -> int | None:
        """Return its exit code, None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        if self.pidfd is not None:
            os.close(self.pidfd)
        return os.waitstatus_to_exitcode(status)


class Bouncer:
    """Bounces to be injected, being injected, and to be tried again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._store: Store
        self._end: Callable[[int], None]
        self._park: Callable[[int, str], None]
        self._waiting: deque[int] = deque()
        self._taken: set[int] = set()
        self._again: list[tuple[float, int]] = []
        self._composing: tuple[int, Iterator[None]] | None = None  # A message, and the steps of its bounce.
        self._children: list[_Child] = []

    def attach(self, store: Store, end: Callable[[int], None], park: Callable[[int, str], None]) -> None:
        """Name the store, and what ends a message whose bounce is out, and what parks one that cannot be read."""
        self._store = store
        self._end = end
        self._park = park

    def wants(self, message: int) -> bool:
        """Take a message whose recipients are all done, if it has failures; return whether it has."""
        if not os.path.lexists(self._store.layout.bounce(message)):
            return False
        if message not in self._taken:
            self._taken.add(message)
            self._waiting.append(message)
        return True

    def holds(self, message: int) -> bool:
        """Return whether a message's bounce waits or is on its way."""
        return message in self._taken

    def drop(self, message: int) -> bool:
        """Make no bounce of a message; return False where queue-enqueue has it already."""
        if any(child.message == message for child in self._children):
            return False
        self._taken.discard(message)
        if self._composing and self._composing[0] == message:
            self._composing = None
        return True

    @property
    def busy(self) -> bool:
        """Whether a bounce is being injected."""
        return bool(self._children)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for children, and for the next bounce that can be started."""
        wait = 3600.0
        for child in self._children:
            if child.pidfd is None:
                wait = LOOK_AFTER
            else:
                poll.register(child.pidfd, select.POLLIN)
        if self._run.leaving:
            return wait
        if self._composing or (self._waiting and len(self._children) < AT_ONCE):
            return 0.0
        return min(wait, max(0.0, self._again[0][0] - now)) if self._again else wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: children that ended, work on a bounce."""
        for child in [child for child in self._children if child.pidfd is None or child.pidfd in ready]:
            self._reap(child, now)
        if self._run.leaving:
            self._composing = None  # Its steps close what they opened. bounce/I is there for the next run.
            return
        while self._again and self._again[0][0] <= now:
            self._waiting.append(heappop(self._again)[1])
        if not self._composing and self._waiting and len(self._children) < AT_ONCE:
            message = self._waiting.popleft()
            if message not in self._taken:
                return  # It was dropped.
            self._composing = message, self._steps(message, int(now))
        if self._composing:
            self._work(*self._composing, now)

    def _work(self, message: int, steps: Iterator[None], now: float) -> None:
        """Do steps of a bounce until the turn's time is over, or the bounce is on its way."""
        until = time.monotonic() + TURN
        try:
            for _ in steps:
                if time.monotonic() >= until:
                    return
        except OSError as error:
            self._later(message, f"{error.filename or ''} {reason(error)}".strip(), now)
        except FormatError as error:
            self._taken.discard(message)
            self._park(message, str(error))
        self._composing = None

    def _later(self, message: int, why: str, now: float) -> None:
        self._run.log.warning(f"trouble injecting bounce message of msg {message}: {why}; will try later")
        heappush(self._again, (now + AGAIN_AFTER, message))

    def _steps(self, message: int, now: int) -> Iterator[None]:
        """Read the failures of a message, compose their bounce, start queue-enqueue. Raises OSError, FormatError."""
        try:
            sender, birth = self._store.load(message)
            failures = yield from self._store.failures(message)
        except OSError as error:
            if error.errno in _PASSING:
                raise
            raise FormatError(f"{error.filename or f'bounce/{message}'}: {reason(error)}") from error
        self._store.sync_marks(message)
        if not failures:
            # All that a crash left there is a piece of a failure that never counted.
            self._over(message)
            return
        if sender == DOUBLE_BOUNCE_SENDER:
            self._run.log.put(logline.triple_bounce(message))
            self._over(message)
            return
        controls = self._run.controls
        bouncer, recipient = b"", bounce_recipient(sender)
        if not recipient:
            bouncer, recipient = DOUBLE_BOUNCE_SENDER, controls.doublebounceto
        unique = f"{now}.{message}.{os.getpid()}.bounce"
        facts = BounceFacts(
            controls.me, controls.bouncefrom, recipient, sender, failures, self._header(message), birth, now, unique
        )
        files: list[int] = []
        try:
            for pieces in compose_steps(facts), [b"F%s\0T%s\0\0" % (bouncer, recipient)]:
                files.append(os.memfd_create("bounce"))
                for piece in pieces:
                    write_all(files[-1], piece)
                    yield
                os.lseek(files[-1], 0, os.SEEK_SET)
            self._children.append(_Child(message, self._spawn(files)))
        finally:
            for handle in files:
                os.close(handle)

    def _header(self, message: int) -> bytes:
        try:
            return self._store.header(message)
        except OSError as error:
            if error.errno in _PASSING:
                raise
            return b""

    def _spawn(self, files: list[int]) -> int:
        words = command("queue-enqueue", self._run.home)
        # The files' numbers are above 1, as 0 and 1 are open in every daemon: no dup2 hits what a later one needs.
        actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(files)]
        return os.posix_spawn(words[0], words, os.environ, file_actions=actions)

    def _reap(self, child: _Child, now: float) -> None:
        code = child.ended()
        if code is None:
            return
        self._children.remove(child)
        if code != 0:
            self._later(child.message, f"queue-enqueue exited {code}", now)
            return
        self._run.log.put(logline.bounce_message(child.message, child.pid))
        self._over(child.message)

    def _over(self, message: int) -> None:
        """The failures have been told, or never will be: the record goes, and the message ends."""
        self._taken.discard(message)
        path = self._store.layout.bounce(message)
        try:
            self._store.drop(path)
        except OSError as error:
            self._run.log.warning(f"unable to remove {path}: {reason(error)}; queue-clean will")
        self._end(message)
