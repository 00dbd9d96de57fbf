"""Listening TCP sockets: who may open ports below 1024 makes them, and a daemon of another account inherits them.

They are passed on as systemd passes them (sd_listen_fds(3)): descriptors from 3 on, whose number is in LISTEN_FDS, and
the pid that they are for in LISTEN_PID.
"""

import os
import socket

from queue_wire.control.networks import unpack_ip
from queue_wire.control.places import EVERYWHERE, ListeningPlace

COUNT, PID = "LISTEN_FDS", "LISTEN_PID"
FIRST = 3
BACKLOG = 512


def listen(place: ListeningPlace, *, backlog: int = BACKLOG, shared: bool = False) -> socket.socket:
    """Return a socket that listens at a place. Raises OSError.

    `shared`: other processes may listen there as well, and the kernel divides connections among them (SO_REUSEPORT).
    """
    if place.address != EVERYWHERE:
        family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
        return _listen(family, place.address, place.port, backlog, shared)
    try:
        return _listen(socket.AF_INET6, "::", place.port, backlog, shared)
    except OSError:
        # The host may have no IPv6. If the port is taken this fails as well.
        return _listen(socket.AF_INET, "0.0.0.0", place.port, backlog, shared)


def _listen(family: int, address: str, port: int, backlog: int, shared: bool) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # Connections of an earlier run may still be about to end there.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # `::` takes IPv4 connections, too.
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        found.bind((address, port))
        found.listen(backlog)
    except OSError:
        found.close()
        raise
    return found


def place_of(listener: socket.socket) -> ListeningPlace:
    """Return the place at which a socket listens. Raises OSError."""
    address, port = listener.getsockname()[:2]
    return ListeningPlace(EVERYWHERE if address in ("::", "0.0.0.0") else address, port)


def client_address(connection: socket.socket) -> str:
    """Return the address of the host at the other end, IPv4 also if it comes as IPv6. Raises OSError."""
    text = str(connection.getpeername()[0]).partition("%")[0]
    return str(unpack_ip(text) or text)


def pass_on(count: int) -> dict[str, str]:
    """Return the variables for this process, which is about to execute a daemon that inherits so many sockets."""
    return {COUNT: str(count), PID: str(os.getpid())}


def take_inherited() -> list[socket.socket]:
    """Return the listening TCP sockets that this process has inherited, and forget the variables."""
    count, pid = os.environ.pop(COUNT, ""), os.environ.pop(PID, "")
    if not count.isdigit() or len(count) > 4 or pid != str(os.getpid()):
        return []
    found = []
    for number in range(FIRST, FIRST + int(count)):
        try:
            listener = socket.socket(fileno=number)
        except OSError:
            continue
        listener.setblocking(False)
        os.set_inheritable(number, False)
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            found.append(listener)
        else:
            listener.detach()
    return found
