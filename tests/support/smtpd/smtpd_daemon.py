"""queue-smtpd as a daemon on ports of this host."""

import os
import select
import signal
import smtplib
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from queue_base.home import Home
from support.processes.forked import BIN, Forked, can_fork, fork
from support.processes.suite import wait_until

SECONDS = 60.0


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def trusting() -> ssl.SSLContext:
    """Return a client's context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class SmtpdDaemon:
    """A daemon of `home` with a listener for each role, with its options. `ports` are theirs, `log` has its lines.

    given: it gets a listening socket of ours instead of opening one. environment: variables that it has, too. shell:
    commands of the shell that starts it. strangers: the tests are strangers to it, not programs of its host, unless
    control/relayclients is there.
    """

    def __init__(
        self,
        home: Home,
        roles: Sequence[str] = ("mx",),
        given: bool = False,
        environment: Mapping[str, str] | None = None,
        shell: str = "",
        strangers: bool = True,
    ) -> None:
        self.home = home
        if strangers:
            Path(home.control, "relayclients").touch()
        self.ports = free_ports(len(roles))
        lines = [f"127.0.0.1:{port} {role}\n" for port, role in zip(self.ports, roles, strict=True)]
        Path(home.control, "smtpd").write_text("".join(lines))
        words = [role.split() for role in roles]
        silent = {"submissions", "odmrs", "qmtp", "proxy"}
        self._silent = [port for port, of in zip(self.ports, words, strict=True) if silent & set(of)]
        self.log = b""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._log = reader
        null = os.open(os.devnull, os.O_RDWR)
        descriptors = {0: null, 1: null, 2: writer}
        variables = dict(environment or {})
        listening = socket.create_server(("127.0.0.1", self.ports[0])) if given else None
        if listening is not None:
            descriptors[3] = listening.fileno()
            variables["LISTEN_FDS"] = "1"
        command = [str(BIN / "queue-smtpd"), "--home", home.path]
        self.process: Forked | subprocess.Popen[bytes]
        if can_fork("queue-smtpd") and not shell:
            self.process = fork("queue-smtpd", command, descriptors, variables=variables)
        else:
            # The shell gives it descriptor 3.
            script = f'exec 3<&{listening.fileno()}; exec "$@"' if listening is not None else 'exec "$@"'
            self.process = subprocess.Popen(
                ["/bin/bash", "-c", shell + script, "x", sys.executable, *command],
                stdin=null,
                stderr=writer,
                pass_fds=[listening.fileno()] if listening is not None else [],
                env={**os.environ, **variables},
            )
        for descriptor in (writer, null):
            os.close(descriptor)
        if listening is not None:
            listening.close()

    def __enter__(self) -> "SmtpdDaemon":
        wait_until(lambda: self._answers() or self.process.poll() is not None, SECONDS, "queue-smtpd to listen")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)
        os.close(self._log)

    def _answers(self) -> bool:
        try:
            for port in self.ports:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.settimeout(SECONDS)
                    # Under implicit TLS, by QMTP, and before a PROXY header, it says nothing.
                    assert port in self._silent or connection.recv(3) == b"220"
        except ConnectionRefusedError:
            return False
        # A greeting shows that the control files were read; it listens before.
        return len(self._silent) < len(self.ports) or self.said(b"smtp start: ")

    def connect(self, listener: int = 0) -> socket.socket:
        """Return a connection to a listener, with a deadline."""
        connection = socket.create_connection(("127.0.0.1", self.ports[listener]))
        connection.settimeout(SECONDS)
        return connection

    def tls(self, listener: int = 0, name: str = "raw.example") -> ssl.SSLSocket:
        """Return a connection with TLS from the first byte."""
        return trusting().wrap_socket(self.connect(listener), server_hostname=name)

    def smtp(self, listener: int = 0) -> smtplib.SMTP:
        """Return Python's client."""
        return smtplib.SMTP("127.0.0.1", self.ports[listener], timeout=SECONDS)

    def said(self, text: bytes) -> bool:
        """Return whether it has logged this."""
        while select.select([self._log], [], [], 0)[0] and (data := os.read(self._log, 65536)):
            self.log += data
        return text in self.log

    def wait_for(self, text: bytes) -> None:
        """Wait until it has logged this."""
        wait_until(lambda: self.said(text), SECONDS, f"a line with {text!r}")

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
