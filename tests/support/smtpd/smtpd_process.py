"""queue-smtpd under a super-server: a process for each connection, with the connection on descriptors 0 and 1."""

import os
import smtplib
import socket
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType

from queue_base.home import Home
from support.processes.forked import BIN, Forked, can_fork, fork

SECONDS = 60.0


class GivenSession:
    """A connection to a queue-smtpd of its own; `client` is the client's end, blocking, with a deadline."""

    def __init__(
        self, home: Home, *words: str, variables: Mapping[str, str] | None = None, inetd: bool = False
    ) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.client = socket.create_connection(listener.getsockname())
        self.client.settimeout(SECONDS)
        server, _ = listener.accept()
        listener.close()
        reader, writer = os.pipe()
        descriptors = {0: server.fileno(), 1: server.fileno(), 2: server.fileno() if inetd else writer}
        command = [str(BIN / "queue-smtpd"), "--home", home.path, *words]
        self.process: Forked | subprocess.Popen[bytes]
        if can_fork("queue-smtpd"):
            self.process = fork("queue-smtpd", command, descriptors, variables=variables)
        else:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=descriptors[0],
                stdout=descriptors[1],
                stderr=descriptors[2],
                env={**os.environ, **(variables or {})},
            )
        server.close()
        os.close(writer)
        self._log = os.fdopen(reader, "rb")
        self._clients: list[smtplib.SMTP] = []

    def __enter__(self) -> "GivenSession":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        for each in self._clients:
            # Under TLS it has a socket of its own.
            each.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self._log.close()

    def smtp(self) -> smtplib.SMTP:
        """Return Python's client on this connection, behind the greeting."""
        client = _OnSocket(self.client)
        self._clients.append(client)
        code, _ = client.connect("127.0.0.1", 1)
        assert code == 220
        return client

    def exchange(self, data: bytes) -> bytes:
        """Send all of a dialogue at once, and return all replies, to the end of the connection."""
        self.client.sendall(data)
        return self.rest()

    def rest(self) -> bytes:
        """Return what the server says to the end of the connection."""
        found = b""
        while data := self.client.recv(65536):
            found += data
        return found

    def read_line(self) -> bytes:
        """Return one line of a reply."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self.client.recv(1)
            assert byte, line
            line += byte
        return line

    def wait(self) -> tuple[int, list[str]]:
        """Close the connection and wait for the end; return the exit code and the lines of the log."""
        # Otherwise it would wait some seconds for that.
        self.client.close()
        code = self.process.wait(SECONDS)
        return code, self._log.read().decode("ascii").splitlines()


class _OnSocket(smtplib.SMTP):
    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        # starttls() asks for this name.
        self._host = "127.0.0.1"
        self._connection = connection

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._connection
