"""Loopback TCP servers, or servers on a Unix socket, for what no well-behaved SMTP server does: each connection is
handed to a function.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Self


class Peer:
    """One accepted connection, for a script: `say` bytes, `hear` a line; every wait has a limit.

    `address` is the other end's.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        self.address = str((connection.getpeername() or [""])[0])
        self._connection = connection
        self._stream = connection.makefile("rb")

    def say(self, *lines: bytes) -> None:
        self._connection.sendall(b"".join(line + b"\r\n" for line in lines))

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def hear(self) -> bytes:
        """Return the next line without its CRLF; empty at the end."""
        return self._stream.readline().rstrip(b"\r\n")

    def drip(self, data: bytes, seconds: float) -> None:
        """Send bytes after a pause, which is what is tested."""
        select.select([self._connection], [], [], seconds)
        self._connection.sendall(data)

    def hear_message(self) -> bytes:
        """Return what comes up to and with the closing dot."""
        lines: list[bytes] = []
        while lines[-1:] != [b".\r\n"]:
            lines.append(self._stream.readline())
            assert lines[-1], "the connection ended in the message"
        return b"".join(lines)

    def greet(self, *extensions: bytes) -> None:
        """Say 220, hear EHLO, answer it."""
        self.say(b"220 raw.example")
        assert self.hear().startswith(b"EHLO ")
        names = [b"raw.example", *extensions]
        self.say(*[b"250%s%s" % (b" " if name is names[-1] else b"-", name) for name in names])

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Do the server's side of a TLS handshake; everything else is under TLS from here on."""
        self._stream.close()
        self._connection = context.wrap_socket(self._connection, server_side=True)
        self._stream = self._connection.makefile("rb")

    def greet_under_tls(self, context: ssl.SSLContext) -> None:
        """Greet, hear STARTTLS, do the handshake, and answer the second EHLO, with no extensions."""
        self.greet(b"STARTTLS")
        assert self.hear() == b"STARTTLS"
        self.say(b"220 go")
        self.start_tls(context)
        assert self.hear().startswith(b"EHLO ")
        self.say(b"250 raw.example")

    def take_message(self, answer: bytes = b"250 done") -> bytes:
        """Take one message, command by command, and say `answer`; return the message as it came."""
        for said in (b"250 ok", b"250 ok", b"354 go"):
            self.hear()
            self.say(said)
        content = self.hear_message()
        self.say(answer)
        return content

    def take_envelope(self) -> None:
        """Greet, and take one recipient and DATA; the message comes next."""
        self.greet()
        for answer in (b"250 ok", b"250 ok", b"354 go"):
            self.hear()
            self.say(answer)

    def wait_for_more(self) -> None:
        """Return when something comes."""
        self._stream.read(1)

    def wait_for_end(self) -> bytes:
        """Return what still comes until the other side closes."""
        return self._stream.read()

    def reset(self) -> None:
        """End the connection with a RST."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


class RawServer:
    """Runs `script` with each connection in a thread of its own; `failures` holds what the scripts raised."""

    def __init__(
        self, script: Callable[[Peer], None], address: str = "127.0.0.1", port: int = 0, path: str = ""
    ) -> None:
        """With a `path` it listens at this Unix socket."""
        self.failures: list[Exception] = []
        self.connections = 0
        self._script = script
        if path:
            self._listener = socket.create_server(path, family=socket.AF_UNIX, backlog=1024)
            self.port = 0
        else:
            self._listener = socket.create_server((address, port), backlog=1024)
            self.port = int(self._listener.getsockname()[1])
        self._wake, self._waker = socket.socketpair()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._waker.close()
        for thread in self._threads:
            thread.join(30)
        self._listener.close()
        self._wake.close()
        assert self.failures == [], [repr(failure) for failure in self.failures]

    def _accept(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, self._wake], [], [])
            if self._wake in ready:
                return
            connection, _ = self._listener.accept()
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        peer = Peer(connection)
        try:
            self._script(peer)
        except (ConnectionError, BrokenPipeError):
            pass
        except Exception as error:
            self.failures.append(error)
        finally:
            with contextlib.suppress(OSError):
                peer.close()
