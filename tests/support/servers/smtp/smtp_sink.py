"""Postfix's smtp-sink(1) as receiver: takes everything, or fails as its options say, and keeps what came in files."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

from support.processes.suite import wait_until
from support.servers.ports import free_port
from support.tools import need


class Sunk(NamedTuple):
    """A message: what MAIL and RCPT said, without the verbs, and the content with LF line ends."""

    mail: bytes
    recipients: list[bytes]
    content: bytes


class SmtpSink:
    """Runs from `with` on; `port` is its port. `options` are smtp-sink's; at most `room` connections at once.

    `address` is what it listens at, empty for all addresses of the host, 127.0.0.1 among them.
    """

    def __init__(self, *options: str, keep: bool = True, room: int = 1000, address: str = "127.0.0.1") -> None:
        self._top = Path(tempfile.mkdtemp(prefix="queue-suite-sink-"))
        user: list[str] = []
        if os.geteuid() == 0:
            # It refuses to stay root, and becomes nobody, who must be able to walk there.
            shutil.chown(self._top, "nobody")
            user = ["-u", "nobody"]
        self.port = free_port()
        dump = ["-d", f"{self._top}/m."] if keep else []
        words = [need("smtp-sink"), *user, *dump, "-m", str(room), *options, f"{address}:{self.port}", str(room)]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        wait_until(self._answers, why="smtp-sink")
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._top)

    def messages(self) -> list[Sunk]:
        """Return what has come whole, in no order: also what it refused at its end."""
        return [_unpack(data) for path in self._top.iterdir() if (data := path.read_bytes())]

    def _answers(self) -> bool:
        assert self._process.poll() is None, "smtp-sink has ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=30).close()
        except ConnectionRefusedError:
            return False
        return True


def _unpack(data: bytes) -> Sunk:
    """smtp-sink puts X- lines of its own, and a Received line, before a message, and an empty line after it."""
    found = re.match(rb"((?:X-[^\n]*\n)*)Received: [^\n]*\n(?:[ \t][^\n]*\n)*", data)
    assert found is not None, data[:500]
    fields = [line.partition(b": ") for line in found[1].splitlines()]
    [mail] = [value for name, _, value in fields if name == b"X-Mail-Args"]
    recipients = [value for name, _, value in fields if name == b"X-Rcpt-Args"]
    return Sunk(mail, recipients, data[found.end() :].removesuffix(b"\n"))
