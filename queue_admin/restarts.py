"""Keeps a daemon running that the others can do without: queue-ondemand.

It is started again after a pause, which doubles with each end up to PAUSE_MAX, and is short again when the daemon has
run for LONG_RUN. If it cannot be started for now, as when there is no room for a process, that is like an end.
queue-send gets the descriptors of each through a socket; its end is ours.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from queue_base.errors import complain, reason

PAUSE_FIRST = 1.0
PAUSE_MAX = 300.0
LONG_RUN = 600.0


def keep_running(start: Callable[[], tuple[int, list[int]]], peer: socket.socket) -> None:
    """Start the daemon again and again, until the other end of `peer` is closed. `start` returns its pid, and
    descriptors for the peer. Raises OSError if the first start does.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not ignored: that would pass on to the daemon.
        signal.signal(number, _note)
    pause = PAUSE_FIRST
    started = False
    while True:
        begun = time.monotonic()
        try:
            pid, ends = start()
        except OSError as error:
            if not started:
                raise
            complain("queue-start", f"warning: unable to start queue-ondemand: {reason(error)}; will try again")
        else:
            started = True
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(peer, [b"."], ends)
            for end in ends:
                os.close(end)
            if _ends_before(peer, pid):
                return
        _reap()
        pause = PAUSE_FIRST if time.monotonic() - begun >= LONG_RUN else pause
        if _is_closed(peer, pause):
            return
        pause = min(2 * pause, PAUSE_MAX)


def _ends_before(peer: socket.socket, pid: int) -> bool:
    """Wait until the peer's end is closed, or a child has ended; return whether it is the peer."""
    daemon = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(daemon, select.POLLIN)
        poll.register(peer, select.POLLIN)
        return any(descriptor == peer.fileno() for descriptor, _ in poll.poll())
    finally:
        os.close(daemon)


def _is_closed(peer: socket.socket, seconds: float) -> bool:
    """Wait for the end of the peer, for some time; return whether it has come. The peer says nothing."""
    return bool(select.select([peer], [], [], seconds)[0])


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _note(number: int, frame: object) -> None:
    """Do nothing: only the end of queue-send ends this process."""
