"""Rereads of the control files: by HUP, and by order of `queuectl config set`, which waits for the result.

queue-send has the new values in force at once; queue-todo and queue-intake get a command, and queue-todo answers it. An
order, for which somebody waits, goes to queue-local and the queue-remotes, too; after HUP they notice by themselves. A
reread is over when queue-todo and those have answered, or after TODO_WAIT seconds.
"""

import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queue_send.config import ConfigFiles
from queue_send.delivery.channel import Channel
from queue_send.delivery.delivery_daemon import DeliveryDaemon
from queue_send.log import Log
from queue_send.peers import Notices
from queue_wire.admin.settings import in_force, pack_in_force, unpack_in_force
from queue_wire.admin.socket import NEWS, TROUBLE, Note, Response
from queue_wire.format_error import FormatError

TODO_WAIT = 10.0
SILENT = "it has not answered yet; its log line says what it has read"


class _WaitingReread(NamedTuple):
    """A reread: the answer of queue-todo that ends it, those of delivery daemons, the latest time, our own fault, and
    what takes the response."""

    todo: int
    deliverers: list[tuple[DeliveryDaemon, int]]
    until: float
    fault: str
    answer: Callable[[Response], None] | None


class Rereads:
    """A part of the loop: rereads that queue-todo has not answered yet, oldest first."""

    def __init__(
        self,
        config: ConfigFiles,
        channels: Sequence[Channel],
        todo: Notices,
        intake: Notices | None,
        local_daemon: DeliveryDaemon,
        remote_daemons: Sequence[DeliveryDaemon],
        log: Log,
        keeper: DeliveryDaemon | None = None,
    ) -> None:
        """`keeper` is queue-ondemand, if it runs."""
        self._config = config
        self._channels = channels
        self._todo = todo
        self._intake = intake
        self._log = log
        self._local = local_daemon
        self._remotes = remote_daemons
        self._keeper = keeper
        self._workers = config.current.todoworkers  # As queue-start has read it.
        self._waiting: deque[_WaitingReread] = deque()

    def reread(self, now: float, answer: Callable[[Response], None] | None = None) -> None:
        """Reread the control files; TROUBLE notes of the response say whose files were refused, and why.

        NEWS notes say what is in force of the files of each delivery daemon.
        """
        fault = self._config.reread()
        for channel in self._channels:
            channel.apply_config()
        if (wanted := self._config.current.processesremote) != len(self._remotes):
            self._log.warning(f"control/processesremote is {wanted} now; it is used at the next start")
        if (wanted := self._config.current.todoworkers) != self._workers:
            self._log.warning(f"control/todoworkers is {wanted} now; it is used at the next start")
        if self._keeper is None and self._config.current.ondemand:
            self._log.warning("control/ondemand is used at the next start")
        if self._intake is not None:
            self._intake.send_reread()
        asked = []
        # Other daemons notice a change when they have something to do. queue-ondemand says at once what becomes of mail
        # that is stored for a domain whose line was removed.
        keepers = [] if self._keeper is None else [self._keeper]
        for daemon in (self._local, *self._remotes, *keepers) if answer is not None else keepers:
            if daemon.reread() and answer is not None:
                asked.append((daemon, daemon.asked))
        self._waiting.append(_WaitingReread(self._todo.send_reread(), asked, now + TODO_WAIT, fault, answer))

    @property
    def busy(self) -> bool:
        """Whether a reread is not over."""
        return bool(self._waiting)

    def in_force(self) -> Response:
        """Return a NEWS note for each of the daemons queue-send and queue-todo: what is in force of its files.

        Not for the delivery daemons: what they said may be old, since they notice changes by themselves.
        """
        ours = b"queue-send\n" + pack_in_force(in_force(self._config.current.contents))
        return Response(0, [Note(NEWS, ours), Note(NEWS, b"queue-todo\n" + self._todo.settings)])

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for the end of the oldest."""
        if not self._waiting:
            return 3600.0
        return 0.0 if self._is_over(now) else max(0.0, self._waiting[0].until - now)

    def run(self, ready: dict[int, int], now: float) -> None:
        """Answer those that are over."""
        while self._waiting and self._is_over(now):
            over = self._waiting.popleft()
            if over.answer is None:
                continue
            faults = {"queue-send": over.fault} if over.fault else {}
            answered = self._todo.rereads >= over.todo
            if fault := _fault_in(self._todo.settings) if answered else SILENT:
                faults["queue-todo"] = fault
            for daemon, wanted in over.deliverers:
                if fault := _fault_in(daemon.settings) if daemon.answered >= wanted else SILENT:
                    faults[daemon.name] = fault
            notes = [
                Note(TROUBLE, f"{name}: {fault}".encode("utf-8", "backslashreplace").replace(b"\0", b"_"))
                for name, fault in faults.items()
            ]
            done = int(not notes)
            notes += [Note(NEWS, each.name.encode() + b"\n" + each.settings) for each, _ in over.deliverers]
            over.answer(Response(done, notes))

    def _is_over(self, now: float) -> bool:
        first = self._waiting[0]
        if now >= first.until:
            return True
        if any(daemon.answered < wanted and not daemon.lost for daemon, wanted in first.deliverers):
            return False
        return self._todo.rereads >= first.todo or self._todo.lost


def _fault_in(settings: bytes) -> str:
    """Return why a daemon has not taken its files, empty if it has."""
    try:
        return unpack_in_force(settings).error
    except FormatError as error:
        return str(error)
