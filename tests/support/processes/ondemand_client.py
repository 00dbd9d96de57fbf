"""Asks a running queue-ondemand for mail, as queue-smtpd and queuectl do."""

import socket

from queue_base.daemon.unix_sockets import connect_to
from queue_base.home import Home
from queue_wire.admin.ondemand_socket import (
    FLUSH,
    REQUEST_MAX,
    SOCKET,
    RunAnswer,
    RunRequest,
    pack_run_request,
    unpack_run_answer,
)
from queue_wire.pipes.framing import NetstringReader
from support.processes.suite import wait_until


def ask(home: Home, name: bytes, command: bytes = FLUSH, client: bytes = b"") -> RunAnswer:
    """Return the answer to one request, once queue-ondemand listens."""
    found: list[socket.socket] = []

    def connects() -> bool:
        try:
            found.append(connect_to(f"{home.queue}/{SOCKET}"))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    wait_until(connects, why="the socket of queue-ondemand")
    with found[0] as connection:
        connection.setblocking(True)
        connection.settimeout(60)
        connection.sendall(pack_run_request(RunRequest(command, name, client)))
        reader = NetstringReader(REQUEST_MAX)
        while (payload := reader.next()) is None:
            data = connection.recv(REQUEST_MAX)
            assert data, "it has closed the connection"
            reader.feed(data)
        return unpack_run_answer(payload)
