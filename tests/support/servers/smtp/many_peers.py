"""A receiving server for very many connections in one thread: it counts what it gets, and hangs where a test says."""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable

from support.servers.selector_server import SelectorServer

# How a connection is treated: the command that it hangs at (CONNECT, EHLO, MAIL ...), or one of these.
FAST = b""
SLOW = b"slow"
# It answers DATA and reads nothing of the message.
MESSAGE = b"message"
_CHUNK = 1 << 20
_SLOW_CHUNK = 16384
_REST_SECONDS = 0.02
_REPLIES = {b"EHLO": b"250 many.example", b"DATA": b"354 go", b"QUIT": b"221 bye"}
_END = b"\r\n.\r\n"


class ManyPeers(SelectorServer["_Peer"]):
    """Listens from `with` on; `treat` says how the connection with a number, from 0, is treated.

    `hanging` counts those that hang, by where; `taken` has the size of each message that came whole, as it was sent.
    """

    def __init__(self, treat: Callable[[int], bytes]) -> None:
        super().__init__(backlog=4096)
        self.hanging: Counter[bytes] = Counter()
        self.taken: list[int] = []
        self._treat = treat
        self._accepted = 0
        # Connections inherit it: what nobody reads stays with the sender.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._resting: list[tuple[float, socket.socket]] = []

    def _prepare(self) -> float | None:
        while self._resting and self._resting[0][0] <= time.monotonic():
            self._selector.register(self._resting.pop(0)[1], selectors.EVENT_READ)
        return _REST_SECONDS if self._resting else None

    def _begin(self, connection: socket.socket) -> "_Peer":
        peer = _Peer(self, connection, self._treat(self._accepted))
        self._accepted += 1
        if peer.treatment == b"CONNECT":
            self.hang(connection, b"CONNECT")
        else:
            connection.sendall(b"220 many.example\r\n")
        return peer

    def _serve(self, connection: socket.socket) -> None:
        peer = self._sessions[connection]
        try:
            data = connection.recv(_SLOW_CHUNK if peer.slow else _CHUNK)
            if data:
                peer.feed(data)
        except OSError:
            data = b""  # The client was killed.
        if not data:
            self._close(connection)
        elif peer.slow:
            self._selector.unregister(connection)
            self._resting.append((time.monotonic() + _REST_SECONDS, connection))

    def hang(self, connection: socket.socket, where: bytes) -> None:
        """Neither read from a connection nor answer it, ever."""
        self.hanging[where] += 1
        self._selector.unregister(connection)


class _Peer:
    """One connection."""

    def __init__(self, server: ManyPeers, connection: socket.socket, treatment: bytes) -> None:
        self.treatment = treatment
        self.slow = False
        self._server = server
        self._connection = connection
        self._buffer = b""
        self._size = -1

    def feed(self, data: bytes) -> None:
        """Take what came, and answer it. Raises OSError."""
        if self._size < 0:
            line, end, self._buffer = (self._buffer + data).partition(b"\r\n")
            if end:
                self._command(line)
            else:
                self._buffer = line
            return
        self._size += len(data)
        self._buffer = (self._buffer + data)[-len(_END) :] if len(data) < len(_END) else data[-len(_END) :]
        if self._buffer == _END:
            self._server.taken.append(self._size)
            self._size, self._buffer, self.slow = -1, b"", False
            self._connection.sendall(b"250 taken\r\n")

    def _command(self, line: bytes) -> None:
        verb = line[:4].upper()
        if self.treatment == verb:
            self._server.hang(self._connection, verb)
            return
        self._connection.sendall(_REPLIES.get(verb, b"250 ok") + b"\r\n")
        if verb == b"DATA":
            self._size = 0
            self.slow = self.treatment == SLOW
            if self.treatment == MESSAGE:
                self._server.hang(self._connection, MESSAGE)
