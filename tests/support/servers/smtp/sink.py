"""A fast receiving SMTP server, which keeps every envelope and message; and a tarpit, which never says a word.

The sink takes what well-behaved clients send and nothing else: that a client behaves is tested elsewhere,
against a real server. Recipients that begin with `refused` get 550; those that begin with `later` get 451 the first
time, then 550; those that begin with `never` get 451 every time; those that begin with `soon` get it twice, then 250.
"""

import math
import socket
import threading
from collections import Counter
from typing import NamedTuple, Self

from support.servers.selector_server import SelectorServer

_REPLIES = {b"MAIL": b"250 ok", b"RSET": b"250 ok", b"NOOP": b"250 ok", b"DATA": b"354 go on", b"QUIT": b"221 bye"}

# How often those recipients are told to come again.
_LATER: dict[bytes, float] = {b"never": math.inf, b"later": 1, b"soon": 2}


class Taken(NamedTuple):
    """One message: envelope as bytes, content as a queue file would hold it, with LF line ends, dots unstuffed."""

    sender: bytes
    recipients: list[bytes]
    content: bytes


class Sink(SelectorServer["_Session"]):
    """Listens from `with` on; `port` is its port, `taken` the messages so far, `asked` how often each RCPT came."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(backlog=1024, port=port)
        self.taken: list[Taken] = []
        self.asked: Counter[bytes] = Counter()
        self._arrived = threading.Condition()
        # After so many messages the sink keeps those that come, and answers only when it is told to.
        self.hold_after: int | None = None
        self._held: list[_Session] = []
        # With it, a client may begin its next message behind one that is held, and gets its answers first.
        self.pipelining = True

    def holds(self, session: "_Session") -> bool:
        """Return whether a session whose message was taken gets no answer now."""
        with self._arrived:
            held = self.hold_after is not None and len(self.taken) > self.hold_after
            self._held += [session] * held
            return held

    def release(self) -> None:
        """Answer all that were kept waiting, and hold no more."""
        with self._arrived:
            held, self._held, self.hold_after = self._held, [], None
        for session in held:
            session.answer()

    def take(self, message: Taken) -> None:
        """Keep a message."""
        with self._arrived:
            self.taken.append(message)
            self._arrived.notify_all()

    def wait_for(self, count: int, deadline: float = 30.0) -> list[Taken]:
        """Return the messages, once there are `count`."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.taken) >= count, deadline), f"only {len(self.taken)}"
            return list(self.taken)

    def serve(self, connection: socket.socket) -> None:
        """Greet who is on a connection that this side has made, and take what comes, to its end. Raises OSError."""
        connection.sendall(b"220 sink.example\r\n")
        session = _Session(self, connection)
        while session.feed(connection.recv(65536)):
            pass

    def _begin(self, connection: socket.socket) -> "_Session":
        # Else each reply to pipelined commands waits for the client's delayed ACK, 40 ms.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"220 sink.example\r\n")
        return _Session(self, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            going_on = self._sessions[connection].feed(connection.recv(65536))
        except OSError:
            going_on = False  # The client was killed.
        if not going_on:
            self._close(connection)


class _Session:
    """One connection."""

    def __init__(self, sink: Sink, connection: socket.socket) -> None:
        self._sink = sink
        self._connection = connection
        self._buffer = b""
        self._in_data = False
        self._sender = b""
        self._recipients: list[bytes] = []
        self._over = False

    def feed(self, data: bytes) -> bool:
        """Take what the client said and answer it; return whether there is more to come. Raises OSError."""
        self._buffer += data
        self._over = not data
        while self._take_content() if self._in_data else self._take_command():
            pass
        return not self._over

    def _take_command(self) -> bool:
        line, end, rest = self._buffer.partition(b"\r\n")
        if not end:
            return False
        self._buffer = rest
        self._say(self._answer(line[:4].upper(), line))
        return True

    def _answer(self, verb: bytes, line: bytes) -> bytes:
        if verb == b"EHLO":
            more = b"\r\n250-PIPELINING" if self._sink.pipelining else b""
            return b"250-sink.example%s\r\n250 8BITMIME" % more
        address = line[line.find(b"<") + 1 : line.rfind(b">")]
        if verb == b"MAIL":
            self._sender, self._recipients = address, []
        elif verb == b"RCPT":
            self._sink.asked[address] += 1
            most = next((most for name, most in _LATER.items() if address.startswith(name)), 0)
            if self._sink.asked[address] <= most:
                return b"451 4.2.1 not now"
            if address.startswith((b"refused", b"later")):
                return b"550 5.1.1 nobody here by that name"
            self._recipients.append(address)
            return b"250 ok"
        elif verb == b"DATA" and not self._recipients:
            return b"554 no recipients"
        self._in_data = verb == b"DATA"
        return _REPLIES.get(verb, b"500 what?")

    def _take_content(self) -> bool:
        content, end, rest = (b"\r\n" + self._buffer).partition(b"\r\n.\r\n")
        if not end:
            return False
        self._buffer, self._in_data = rest, False
        stored = (content + b"\r\n").replace(b"\r\n..", b"\r\n.").replace(b"\r\n", b"\n")[1:]
        self._sink.take(Taken(self._sender, self._recipients, stored))
        if not self._sink.holds(self):
            self._say(b"250 ok")
        return True

    def answer(self) -> None:
        """Say that the message was taken. The client may be gone."""
        try:
            self._say(b"250 ok")
        except OSError:
            pass

    def _say(self, line: bytes) -> None:
        self._connection.sendall(line + b"\r\n")
        self._over = self._over or line.startswith(b"221")


class Tarpit:
    """Lets clients connect and keeps them waiting for a greeting until the end of `with`."""

    def __init__(self, room: int = 100) -> None:
        # The kernel takes connections up to the backlog by itself; nobody ever accepts one.
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=room)
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def release(self) -> None:
        """Reset every connection."""
        self._listener.close()
