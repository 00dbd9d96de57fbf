"""A loopback TCP server that has all its connections in one thread: what the receiving servers of tests share."""

import abc
import selectors
import socket
import threading
from typing import Generic, Self, TypeVar

Session = TypeVar("Session")


class SelectorServer(abc.ABC, Generic[Session]):
    """Listens at `port` from its making on, and serves in `with`; its end closes every connection.

    A subclass says how a connection begins, and what is done when it can be read. Both run in the thread.
    """

    def __init__(self, backlog: int, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=backlog)
        self.port = int(self._listener.getsockname()[1])
        self._wake, self._waker = socket.socketpair()
        self._sessions: dict[socket.socket, Session] = {}
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._waker.close()
        self._thread.join(10)

    @abc.abstractmethod
    def _begin(self, connection: socket.socket) -> Session:
        """Greet a new connection, which is registered for reading; return what is kept for it."""

    @abc.abstractmethod
    def _serve(self, connection: socket.socket) -> None:
        """Read once from a connection, and answer."""

    def _prepare(self) -> float | None:
        """Do what is due; return the seconds until the next such thing at the most, None for never."""
        return None

    def _close(self, connection: socket.socket) -> None:
        """Forget a connection that is registered for reading."""
        self._selector.unregister(connection)
        del self._sessions[connection]
        connection.close()

    def _run(self) -> None:
        for descriptor in (self._wake, self._listener):
            self._selector.register(descriptor, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._prepare()):
                if key.fileobj is self._wake:
                    self._end()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._serve(key.fileobj)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._selector.register(connection, selectors.EVENT_READ)
        self._sessions[connection] = self._begin(connection)

    def _end(self) -> None:
        for each in (*self._sessions, self._listener, self._wake):
            each.close()
        self._selector.close()
