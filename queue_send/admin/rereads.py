"""Rereads of the control files: by HUP, and by order of `queuectl config set`, which waits for the result.

queue-send has the new values in force at once; queue-todo and queue-intake get a command, and answer it. An
order, for which somebody waits, goes to queue-local and the queue-remotes, too; after HUP they notice by themselves. A
reread is over when all of them have answered, or after TODO_WAIT seconds.

Who asks what is in force is answered in the same way. queue-todo has what it said last, and all others, which notice
changes by themselves, are asked.
"""

import select
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queue_send.config import ConfigFiles
from queue_send.delivery.channel import Channel
from queue_send.delivery.delivery_daemon import DeliveryDaemon
from queue_send.log import Log
from queue_send.peers import Notices
from queue_wire.admin.settings import in_force, pack_in_force, unpack_in_force
from queue_wire.admin.socket import NEWS, TROUBLE, Note, Response
from queue_wire.control.registry import PROCESSESREMOTE
from queue_wire.format_error import FormatError

TODO_WAIT = 10.0
LOOK_WAIT = 2.0  # Seconds for the answers to who only asks; queuectl waits a little longer.
SILENT = "it has not answered yet; its log line says what it has read"


class _WaitingReread(NamedTuple):
    """A reread: the answers of queue-todo and queue-intake that end it, those of delivery daemons, the latest time, our
    own fault, and what takes the response."""

    notices: list[tuple[Notices, int]]
    deliverers: list[tuple[DeliveryDaemon, int]]
    until: float
    fault: str
    answer: Callable[[Response], None] | None


class Rereads:
    """A part of the loop: rereads that are not over yet, oldest first."""

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
        self._waiting: list[_WaitingReread] = []

    def reread(self, now: float, answer: Callable[[Response], None] | None = None) -> None:
        """Reread the control files; TROUBLE notes of the response say whose files were refused, and why.

        NEWS notes say what is in force of the files of each daemon.
        """
        fault = self._config.reread()
        for channel in self._channels:
            channel.apply_config()
        if (wanted := self._config.current.values[PROCESSESREMOTE]) != len(self._remotes):
            self._log.warning(f"control/processesremote is {wanted} now; it is used at the next start")
        if self._keeper is None and self._config.current.ondemand:
            self._log.warning("control/ondemand is used at the next start")
        # Other daemons notice a change when they have something to do. queue-ondemand says at once what becomes of mail
        # that is stored for a domain whose line was removed.
        asked = self._ask([*self._keepers] if answer is None else self._deliverers)
        notices = [(self._todo, self._todo.send_reread()), *self._ask_intake()]
        self._waiting.append(_WaitingReread(notices, asked, now + TODO_WAIT, fault, answer))

    def look(self, now: float, answer: Callable[[Response], None]) -> None:
        """Ask what is in force; NEWS notes of the response say it, for each daemon that has answered in time."""
        notices = [(self._todo, 0), *self._ask_intake()]
        self._waiting.append(_WaitingReread(notices, self._ask(self._deliverers), now + LOOK_WAIT, "", answer))

    @property
    def _keepers(self) -> list[DeliveryDaemon]:
        return [] if self._keeper is None else [self._keeper]

    @property
    def _deliverers(self) -> list[DeliveryDaemon]:
        return [self._local, *self._remotes, *self._keepers]

    def _ask(self, daemons: list[DeliveryDaemon]) -> list[tuple[DeliveryDaemon, int]]:
        return [(daemon, daemon.asked) for daemon in daemons if daemon.reread()]

    def _ask_intake(self) -> list[tuple[Notices, int]]:
        return [] if self._intake is None else [(self._intake, self._intake.send_reread())]

    @property
    def busy(self) -> bool:
        """Whether a reread is not over."""
        return bool(self._waiting)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for the end of the first that ends."""
        if any(_is_over(each, now) for each in self._waiting):
            return 0.0
        return min([max(0.0, each.until - now) for each in self._waiting], default=3600.0)

    def run(self, ready: dict[int, int], now: float) -> None:
        """Answer those that are over."""
        for over in [each for each in self._waiting if _is_over(each, now)]:
            self._waiting.remove(over)
            if over.answer is not None:
                over.answer(self._response(over))

    def _response(self, over: _WaitingReread) -> Response:
        faults = {"queue-send": over.fault} if over.fault else {}
        settings = [("queue-send", pack_in_force(in_force(self._config.current.values.contents)))]
        asked = [(each.peer, each.rereads >= wanted, each.settings) for each, wanted in over.notices]
        asked += [(each.name, each.answered >= wanted, each.settings) for each, wanted in over.deliverers]
        for name, answered, lines in asked:
            if fault := _fault_in(lines) if answered else SILENT:
                faults[name] = fault
            if answered:
                settings.append((name, lines))
        notes = [
            Note(TROUBLE, f"{name}: {fault}".encode("utf-8", "backslashreplace").replace(b"\0", b"_"))
            for name, fault in faults.items()
        ]
        done = int(not notes)
        notes += [Note(NEWS, name.encode() + b"\n" + lines) for name, lines in settings]
        return Response(done, notes)


def _is_over(reread: _WaitingReread, now: float) -> bool:
    if now >= reread.until:
        return True
    if any(daemon.answered < wanted and not daemon.lost for daemon, wanted in reread.deliverers):
        return False
    return all(peer.rereads >= wanted or peer.lost for peer, wanted in reread.notices)


def _fault_in(settings: bytes) -> str:
    """Return why a daemon has not taken its files, empty if it has."""
    try:
        return unpack_in_force(settings).error
    except FormatError as error:
        return str(error)
