"""Where clients connect: intake/socket, a Unix socket that every user of this host may use, and TCP sockets.

The latter are for the hosts that control/intake lists; queue-start opens them, because an ordinary account may not
listen on their ports.
"""

import socket
import time
from typing import NamedTuple

from queue_base.accounts import Owner, trusted_users
from queue_base.daemon.inherited_sockets import client_address, place_of
from queue_base.daemon.unix_sockets import accept_with_uid, listen_at
from queue_base.home import Home
from queue_base.queue.writer import mail_date
from queue_intake.client_connection import IntakeClient
from queue_wire.control.intake_hosts import QMTP, IntakeListener
from queue_wire.control.networks import counted_networks, is_listed
from queue_wire.pipes.package_reader import Protocol
from queue_wire.pipes.qmtp import SOCKET
from queue_wire.submitter import pack_submitter

BACKLOG = 4096  # Connections that wait to be accepted, if net.core.somaxconn allows so many.


class Accepted(NamedTuple):
    """A new connection and its client. protocol: None if the first bytes show it."""

    socket: socket.socket
    client: IntakeClient
    protocol: Protocol | None = None


class NotAllowed(Exception):
    """A host has connected that may not; the text says which. The connection was closed."""


class UnixListener:
    """The Unix socket. `accept` returns new connections with their clients."""

    def __init__(self, home: Home, owner: Owner) -> None:
        """Listen. Raises OSError."""
        self._trusted = trusted_users(owner)
        self.socket = listen_at(f"{home.run}/{SOCKET}", BACKLOG)

    def accept(self) -> Accepted:
        """Return a new connection. Raises OSError; BlockingIOError if there is none."""
        connection, uid = accept_with_uid(self.socket)
        return Accepted(connection, IntakeClient(f"uid {uid}", uid, uid in self._trusted))

    def close(self) -> None:
        """Stop listening. The name stays: a new queue-intake may have made it anew already."""
        self.socket.close()


class TcpListener:
    """A TCP socket. `accept` returns new connections of the hosts that `line`, that of control/intake, allows."""

    def __init__(self, listener: socket.socket, uid: int) -> None:
        """uid: that of the messages which come here. Raises OSError."""
        self.socket = listener
        self.place = place_of(listener)
        self.line: IntakeListener | None = None
        self.me = b""
        self._uid = uid

    def accept(self) -> Accepted:
        """Return a new connection. Raises OSError, BlockingIOError if there is none, and NotAllowed."""
        connection, _ = self.socket.accept()
        try:
            address = client_address(connection)
            if self.line is None or not is_listed(address, self.line.networks):
                raise NotAllowed(f"{address} connected to {self.place}: control/intake does not allow it")
            # Answers are small, and a client may wait for each.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, NotAllowed):
            connection.close()
            raise
        protocol = Protocol.QMTP if self.line.protocol == QMTP else Protocol.QMQP
        name = f"host {counted_networks(address)[0]}"
        received = NetworkOrigin(address, self.me, protocol)
        client = IntakeClient(name, self._uid, received=received, submitter=pack_submitter(address))
        return Accepted(connection, client, protocol)

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


class NetworkOrigin:
    """From which host of the network messages come; called for each, it returns the Received line."""

    def __init__(self, address: str, me: bytes, protocol: Protocol) -> None:
        literal = f"IPv6:{address}" if ":" in address else address
        self._begin = b"Received: from [%s]\n  by %s with %s; " % (literal.encode(), me, protocol.value.encode())

    def __call__(self) -> bytes:
        return self._begin + mail_date(time.time()).encode() + b"\n"
