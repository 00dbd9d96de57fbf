"""A server that answers MAIL with a reply that has no end: a byte now and then."""

import socket
import time

from support.servers.selector_server import SelectorServer

EVERY = 1.0  # Seconds between two bytes.
_REPLY = b"250-still thinking\r\n"


class Dripping(SelectorServer[int]):
    """Listens from `with` on; `port` is its port. It greets at once, and takes one connection for each client."""

    def __init__(self) -> None:
        super().__init__(backlog=1000)
        self._dripping: dict[socket.socket, int] = {}
        self._due = 0.0

    def _begin(self, connection: socket.socket) -> int:
        connection.sendall(b"220 drip.example\r\n")
        return 0

    def _serve(self, connection: socket.socket) -> None:
        try:
            said = connection.recv(65536)
        except OSError:
            said = b""
        if not said:
            self._dripping.pop(connection, None)
            self._close(connection)
        elif said.upper().startswith((b"EHLO", b"HELO")):
            connection.sendall(b"250 drip.example\r\n")
        else:
            self._dripping.setdefault(connection, 0)

    def _prepare(self) -> float | None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + EVERY
            for connection, place in self._dripping.items():
                try:
                    connection.sendall(_REPLY[place : place + 1])
                except OSError:
                    pass  # It is closed when it is read.
                self._dripping[connection] = (place + 1) % len(_REPLY)
        return self._due - now
