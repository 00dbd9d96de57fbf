"""The link to queue-remote: a connection that is passed comes with the bytes that announce it, and no others."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.daemon.unix_sockets import receive_with_descriptors
from queue_ondemand.remote_link import RemoteLink
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import ReversedHost, unpack_reversed
from queue_wire.pipes.report import Ready, unpack_report
from support.processes.suite import program
from support.queues.home import make_home

# As queue-start gives it its descriptors, in a process that may have few files open.
START = """
import os, resource, sys
descriptor, *words = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (550, 550))
os.dup2(int(descriptor), 3)
os.dup2(os.open(os.devnull, os.O_RDONLY), 4)
os.set_inheritable(3, True)
os.set_inheritable(4, True)
os.execv(words[0], words)
"""


class Link:
    """A link, and what queue-remote gets of it."""

    def __init__(self, stack: ExitStack) -> None:
        ours, self.theirs = map(stack.enter_context, socket.socketpair())
        reports, _ = pipe = os.pipe()
        for descriptor in pipe:
            stack.callback(os.close, descriptor)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.theirs.setblocking(False)
        self.link = RemoteLink(ours.fileno(), reports)
        stack.enter_context(self.link._socket)
        self._stack = stack
        self._reader = NetstringReader()
        self._passed: list[int] = []

    def pass_on(self, domain: bytes) -> int:
        """Have it pass a connection; return the inode number of its socket."""
        one, other = socket.socketpair()
        self._stack.enter_context(other)
        inode = os.fstat(one.fileno()).st_ino
        self.link.reverse(ReversedHost(b"192.0.2.7", [domain]), one.detach())
        return inode

    def receive(self) -> list[tuple[bytes, int]]:
        """Return the domains that are announced, each with the inode number of the descriptor that came for it."""
        found: list[tuple[bytes, int]] = []
        while True:
            self.link.flush()
            try:
                data, descriptors = receive_with_descriptors(self.theirs, 65536)
            except BlockingIOError:
                return found
            for descriptor in descriptors:
                self._stack.callback(os.close, descriptor)
            self._passed += descriptors
            self._reader.feed(data)
            while (payload := self._reader.next()) is not None:
                host = unpack_reversed(payload)
                if host is not None:
                    inode = os.fstat(self._passed.pop(0)).st_ino
                    assert inode == host.inode
                    found.append((host.domains[0], inode))


@pytest.fixture
def link() -> Iterator[Link]:
    with ExitStack() as stack:
        yield Link(stack)


def test_connections_that_are_passed_at_once_come_each_with_its_own_domain(link: Link) -> None:
    wanted = []
    for round_ in range(3):
        for number in range(4):
            domain = b"d%d-%d.example" % (round_, number)
            wanted.append((domain, link.pass_on(domain)))
            if number % 2:
                link.link.probe(b"other.example")
    assert link.receive() == wanted


def test_they_do_so_behind_jobs_that_the_socket_does_not_take_at_once(link: Link) -> None:
    recipients = [b"%0900d@a.example" % number for number in range(100)]
    wanted = []
    for number in range(3):
        link.link.start(b"mess/1/24", b"", b"a.example", recipients)
        domain = b"d%d.example" % number
        wanted.append((domain, link.pass_on(domain)))
    link.link.flush()
    assert link.receive() == wanted


def test_queue_ondemand_takes_no_more_jobs_at_once_than_its_queue_remote_can_deliver(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, "-c", START, str(theirs.fileno()), *program("queue-ondemand"), "--home", home.path]
        daemon = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()]
        )  # fmt: skip
        said, _ = daemon.communicate(timeout=60)
    reader = NetstringReader()
    reader.feed(said)
    payload = reader.next()
    # Each delivery has two files open.
    assert payload is not None and unpack_report(payload) == Ready(250)
