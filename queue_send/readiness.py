"""Tells the supervisor when the daemons are up, when a reload begins and ends, what is in flight, and when it stops."""

import select
import time
from collections.abc import Sequence

from queue_base.daemon.supervisor import Supervisor
from queue_send.admin.rereads import Rereads
from queue_send.delivery.channel import Channel
from queue_send.loop import Shutdown
from queue_send.peers import Notices

STATUS_APART = 5.0  # Seconds between two messages about what is in flight.


class Readiness:
    """A part of the loop. Ready: every delivery daemon takes jobs, and queue-todo has read its control files."""

    def __init__(
        self, supervisor: Supervisor, channels: Sequence[Channel], todo: Notices, rereads: Rereads, shutdown: Shutdown
    ) -> None:
        self._supervisor = supervisor
        self._channels = channels
        self._todo = todo
        self._rereads = rereads
        self._shutdown = shutdown
        self._is_ready = False
        self._is_reloading = False
        self._is_stopping = False
        self._status = ""
        self._next_status = 0.0  # On the monotonic clock.

    def reload(self) -> None:
        """Tell that a reload has begun; `run` tells its end."""
        self._supervisor.reloading()
        self._is_reloading = True

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the next message about what is in flight may be sent, if there is one."""
        if not self._supervisor.wants_status or self._status == self._text():
            return 3600.0
        return max(0.0, self._next_status - time.monotonic())

    def run(self, ready: dict[int, int], now: float) -> None:
        """Tell what has changed."""
        if self._shutdown.begun:
            if not self._is_stopping:
                self._is_stopping = True
                self._supervisor.stopping("finishes the deliveries in flight")
            return
        if not self._is_ready:
            if not (self._todo.settings and all(channel.greeted for channel in self._channels)):
                return
            self._is_ready = True
            self._tell_ready()
        if self._is_reloading and not self._rereads.busy:
            self._is_reloading = False
            self._tell_ready()
        text = self._text()
        if self._supervisor.wants_status and text != self._status and time.monotonic() >= self._next_status:
            self._remember(text)
            self._supervisor.status(text)

    def _tell_ready(self) -> None:
        self._remember(self._text())
        self._supervisor.ready(self._status)

    def _remember(self, text: str) -> None:
        self._status = text
        self._next_status = time.monotonic() + STATUS_APART

    def _text(self) -> str:
        counts = [f"{channel.kind} {channel.scheduler.in_flight}" for channel in self._channels]
        return f"in flight: {', '.join(counts)}"
