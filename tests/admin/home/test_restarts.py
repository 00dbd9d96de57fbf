"""The process of queue-start that starts queue-ondemand again: it sends new pipes, waits longer each time, and ends."""

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from queue_admin import restarts

SECONDS = 20.0


class Guard:
    """A process that keeps daemons running, which end at once when a byte comes; `peer` is queue-send's end."""

    def __init__(self, start: Callable[[], tuple[int, list[int]]] | None = None) -> None:
        self.peer, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self.peer.close()
            try:
                restarts.keep_running(start or _start, theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.peer.settimeout(SECONDS)

    def pipes(self) -> list[int]:
        """Return the descriptors of the next daemon."""
        return socket.recv_fds(self.peer, 1, 2)[1]

    def has_ended(self) -> bool:
        handle = os.pidfd_open(self.pid)
        try:
            return bool(select.select([handle], [], [], SECONDS)[0])
        finally:
            os.close(handle)
            os.waitpid(self.pid, 0)


def _start() -> tuple[int, list[int]]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    return pid, [writer, os.dup(writer)]


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setattr(restarts, "PAUSE_FIRST", 0.1)
    monkeypatch.setattr(restarts, "PAUSE_MAX", 0.4)
    made = Guard()
    yield made
    made.peer.close()


def test_a_daemon_that_ends_is_started_again_after_a_pause_that_grows_up_to_a_limit(guard: Guard) -> None:
    waits = []
    ends = guard.pipes()
    for _ in range(4):
        begun = time.monotonic()
        for end in ends:
            os.close(end)
        ends = guard.pipes()
        assert len(ends) == 2
        waits.append(time.monotonic() - begun)
    for end in ends:
        os.close(end)
    for wait, least in zip(waits, (0.1, 0.2, 0.4, 0.4), strict=True):
        assert wait >= least


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_it_ends_with_queue_send_also_while_it_waits(guard: Guard, ended: bool) -> None:
    ends = guard.pipes()
    if ended:
        for end in ends:
            os.close(end)
    guard.peer.close()
    assert guard.has_ended()
    if not ended:
        for end in ends:
            os.close(end)


def test_a_daemon_that_cannot_be_started_for_now_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "PAUSE_FIRST", 0.1)
    calls = []

    def start() -> tuple[int, list[int]]:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return _start()

    guard = Guard(start)
    try:
        for _ in range(2):
            ends = guard.pipes()
            assert len(ends) == 2
            for end in ends:
                os.close(end)
    finally:
        guard.peer.close()
        assert guard.has_ended()
