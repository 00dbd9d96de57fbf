"""Injects bounces through queue-enqueue, never waiting for it: its input is in memory files, its end comes by pidfd.

A bounce goes to the sender; a bounce of a bounce to doublebounceto, from `#@[]`; one that fails again is discarded
with a line in the log (qmail-send(8)). bounce/I goes as soon as queue-enqueue has said that the bounce is
queued; a crash between the two sends the bounce once more, and that is the only way to a second one.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from queue_base.errors import reason
from queue_base.programs import command
from queue_send.bounce import BounceFacts, compose_bounce
from queue_send.run import Run
from queue_send.store import Store
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.errors import FormatError

AT_ONCE = 4  # Processes; each syncs, and they share the disk with the mail.
AGAIN_AFTER = 123.0  # Seconds until a bounce that could not be injected is tried again.


class Bouncer:
    """Bounces to be injected, being injected, and to be tried again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._store: Store
        self._end: Callable[[int], None]
        self._park: Callable[[int, str], None]
        self._waiting: deque[int] = deque()
        self._again: list[tuple[float, int]] = []
        self._children: dict[int, tuple[int, int]] = {}  # pidfd: (message, pid)

    def attach(self, store: Store, end: Callable[[int], None], park: Callable[[int, str], None]) -> None:
        """Name the store, and what ends a message whose bounce is out, and what parks one that cannot be read."""
        self._store = store
        self._end = end
        self._park = park

    def wants(self, message: int) -> bool:
        """Take a message whose recipients are all done, if it has failures; return whether it has."""
        if not os.path.lexists(self._store.layout.bounce(message)):
            return False
        self._waiting.append(message)
        return True

    @property
    def busy(self) -> bool:
        """Whether a bounce is being injected."""
        return bool(self._children)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for children, and for the next bounce that can be started."""
        for pidfd in self._children:
            poll.register(pidfd, select.POLLIN)
        if self._run.leaving:
            return 3600.0
        if self._waiting and len(self._children) < AT_ONCE:
            return 0.0
        return max(0.0, self._again[0][0] - now) if self._again else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: children that ended, bounces to start."""
        for pidfd in [pidfd for pidfd in self._children if pidfd in ready]:
            self._reap(pidfd, now)
        while self._again and self._again[0][0] <= now:
            self._waiting.append(heappop(self._again)[1])
        if self._waiting and len(self._children) < AT_ONCE and not self._run.leaving:
            message = self._waiting.popleft()
            try:
                self._start(message, int(now))
            except OSError as error:
                self._later(message, f"{error.filename or ''} {reason(error)}".strip(), now)
            except FormatError as error:
                self._park(message, str(error))

    def _later(self, message: int, why: str, now: float) -> None:
        self._run.log.warning(f"trouble injecting bounce message of msg {message}: {why}; will try later")
        heappush(self._again, (now + AGAIN_AFTER, message))

    def _start(self, message: int, now: int) -> None:
        sender, birth = self._store.load(message)
        self._store.sync_marks(message)
        failures = self._store.failures(message)
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
            controls.me, controls.bouncefrom, recipient, sender, failures,
            self._store.header(message), birth, now, unique,
        )
        files = [_memory_file(compose_bounce(facts)), _memory_file(b"F%s\0T%s\0\0" % (bouncer, recipient))]
        try:
            pid = os.posix_spawn(
                (words := command("queue-enqueue", self._run.home))[0],
                words,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(files)],
            )
        finally:
            for handle in files:
                os.close(handle)
        self._children[os.pidfd_open(pid)] = message, pid

    def _reap(self, pidfd: int, now: float) -> None:
        message, pid = self._children.pop(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != 0:
            self._later(message, f"queue-enqueue exited {code}", now)
            return
        self._run.log.put(logline.bounce_message(message, pid))
        self._over(message)

    def _over(self, message: int) -> None:
        """The failures have been told, or never will be: the record goes, and the message ends."""
        path = self._store.layout.bounce(message)
        try:
            self._store.drop(path)
        except OSError as error:
            self._run.log.warning(f"unable to remove {path}: {reason(error)}; queue-clean will")
        self._end(message)


def _memory_file(data: bytes) -> int:
    """Return a descriptor of an anonymous file that holds `data`, at its start; above 2, so that no dup2 hits it."""
    handle = os.memfd_create("bounce")
    while data:
        data = data[os.write(handle, data) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
