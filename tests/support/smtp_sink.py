"""Postfix's smtp-sink(1) as receiver: takes everything, and keeps each message in a file."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Self

from support.tools import need, need_root


class Sunk(NamedTuple):
    """A message: what MAIL and RCPT said, without the verbs, and the content with LF line ends."""

    mail: bytes
    recipients: list[bytes]
    content: bytes


class SmtpSink:
    """Runs from `with` on; `port` is its port. `options` are smtp-sink's."""

    def __init__(self, *options: str) -> None:
        need_root()
        # It becomes nobody, who must be able to walk there.
        self._top = Path(tempfile.mkdtemp(prefix="queue-suite-sink-"))
        shutil.chown(self._top, "nobody")
        self.port = _free_port()
        words = [need("smtp-sink"), "-u", "nobody", "-d", f"{self._top}/m.", *options]
        self._process = subprocess.Popen([*words, f"127.0.0.1:{self.port}", "100"])

    def __enter__(self) -> Self:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
                return self
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                assert self._process.poll() is None
                time.sleep(0.02)

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._top)

    def messages(self) -> list[Sunk]:
        """Return what it has taken, in no order."""
        return [_unpack(path.read_bytes()) for path in self._top.iterdir() if path.stat().st_size]


def _unpack(data: bytes) -> Sunk:
    head, _, content = data.partition(b"\nReceived: ")
    fields = [line.partition(b": ") for line in head.split(b"\n")]
    _, _, content = content.partition(b"\n")
    while content.startswith((b" ", b"\t")):
        _, _, content = content.partition(b"\n")
    # Each dump ends with a blank line.
    [mail] = [value for name, _, value in fields if name == b"X-Mail-Args"]
    return Sunk(mail, [value for name, _, value in fields if name == b"X-Rcpt-Args"], content.removesuffix(b"\n"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
