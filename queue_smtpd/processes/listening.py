"""The sockets that the daemon listens on: those that its supervisor has opened, or those of control/smtpd.

A supervisor that opens sockets (systemd.socket(5), LISTEN_FDS) gives them as descriptors from 3 on. Each gets the role
of the line of control/smtpd with its port. Otherwise a socket is opened for each line; each process has one of its own
for the same address, and the kernel divides connections among them (SO_REUSEPORT).
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from queue_base.daemon.inherited_sockets import listen
from queue_base.errors import Permanent, Temporary, reason
from queue_wire.control.listeners import Listener
from queue_wire.control.places import ListeningPlace

BACKLOG = 1024
_FIRST = 3
_DESCRIPTORS_MAX = 100


class ListeningSocket(NamedTuple):
    """A socket, and the line of control/smtpd that it is for."""

    socket: socket.socket
    listener: Listener


def given_sockets(environment: Mapping[str, str], listeners: list[Listener]) -> list[ListeningSocket]:
    """Return the sockets that the supervisor has opened; none if it has opened none. Raises Permanent."""
    number = environment.get("LISTEN_FDS", "")
    if not number or environment.get("LISTEN_PID", str(os.getpid())) != str(os.getpid()):
        return []
    if not number.isdigit() or int(number) > _DESCRIPTORS_MAX:
        raise Permanent(f"unable to use LISTEN_FDS: not a number of descriptors: {number}")
    found = []
    for descriptor in range(_FIRST, _FIRST + int(number)):
        try:
            os.set_inheritable(descriptor, False)
            given = socket.socket(fileno=descriptor)
            name = given.getsockname()
        except OSError as error:
            raise Permanent(f"unable to use descriptor {descriptor} of LISTEN_FDS: {reason(error)}") from error
        if not isinstance(name, tuple):
            raise Permanent(f"unable to use descriptor {descriptor} of LISTEN_FDS: it is no internet socket")
        listener = next((each for each in listeners if each.port == name[1]), None)
        if listener is None:
            raise Permanent(f"unable to use descriptor {descriptor} of LISTEN_FDS: control/smtpd has no port {name[1]}")
        given.setblocking(False)
        found.append(ListeningSocket(given, listener))
    return found


def open_sockets(listeners: list[Listener]) -> list[ListeningSocket]:
    """Return a listening socket for each listener. Raises Temporary, naming the address."""
    found: list[ListeningSocket] = []
    try:
        for listener in listeners:
            place = ListeningPlace(listener.address, listener.port)
            found.append(ListeningSocket(listen(place, backlog=BACKLOG, shared=True), listener))
    except OSError as error:
        for each in found:
            each.socket.close()
        advice = "; root may" if isinstance(error, PermissionError) else ""
        raise Temporary(f"unable to listen on {place.address}:{place.port}: {reason(error)}{advice}") from error
    return found


def stop_listening(sockets: list[ListeningSocket]) -> None:
    """End listening on sockets in all processes that have them open."""
    for each in sockets:
        # It may be closed, or not listen any more.
        with suppress(OSError):
            each.socket.shutdown(socket.SHUT_RDWR)
