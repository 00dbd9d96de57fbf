"""The pipes of a queue-ondemand that is started in the place of one that was lost; queue-start's process sends them."""

import os
import select
import socket

from queue_send.delivery.channel import Channel
from queue_send.log import Log
from queue_send.loop import Shutdown


class KeeperPipes:
    """A part of the loop. `descriptor` is that of a Unix socket; `channel` gives jobs to queue-ondemand."""

    def __init__(self, descriptor: int, channel: Channel, log: Log, shutdown: Shutdown) -> None:
        """Raises OSError if the descriptor is not open."""
        self._socket: socket.socket | None = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._channel = channel
        channel.keeper_returns = True
        self._log = log
        self._shutdown = shutdown

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for descriptors."""
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        return 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """Take descriptors."""
        if self._socket is None or self._socket.fileno() not in ready:
            return
        try:
            data, ends, _, _ = socket.recv_fds(self._socket, 1, 2, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, ends = b"", []
        if data and len(ends) == 2 and not self._shutdown.begun:
            self._log.warning("queue-ondemand was started again; mail for its domains goes on")
            self._channel.renew_keeper(ends[0], ends[1], now)
            return
        for end in ends:
            os.close(end)
        if not data:
            self._socket.close()
            self._socket = None
            self._channel.lose_guard()
