"""Asks the recipient checker of a running queue-local, by its protocol alone."""

import os
import socket
import time
from types import TracebackType

from queue_base.home import Home
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import RecipientQuestion, RecipientVerdict, pack_question, unpack_verdict
from support.processes.suite import wait_until

SECONDS = 60.0


class RecipientClient:
    """A connection to the checker, once that listens."""

    def __init__(self, home: Home) -> None:
        self._place = f"{home.queue}/intake"
        self._reader = NetstringReader()
        self.socket = socket.socket(socket.AF_UNIX)
        self._count = 0
        wait_until(self._connects, SECONDS, "the recipient checker")
        self.socket.settimeout(SECONDS)

    def __enter__(self) -> "RecipientClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def _connects(self) -> bool:
        # The path of a socket is short.
        try:
            directory = os.open(self._place, os.O_PATH)
        except FileNotFoundError:
            return False
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/recipients")
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        finally:
            os.close(directory)
        return True

    def send(self, *addresses: bytes) -> None:
        """Ask about addresses; their numbers are 1, 2, and so on."""
        for address in addresses:
            self._count += 1
            self.socket.sendall(pack_question(RecipientQuestion(self._count, address)))

    def next(self) -> RecipientVerdict:
        """Return the next verdict that comes."""
        deadline = time.monotonic() + SECONDS
        while (payload := self._reader.next()) is None:
            assert time.monotonic() < deadline
            data = self.socket.recv(65536)
            assert data, "the checker has closed the connection"
            self._reader.feed(data)
        return unpack_verdict(payload)

    def ask(self, address: bytes) -> tuple[bytes, bytes]:
        """Return letter and text for an address."""
        self.send(address)
        verdict = self.next()
        assert verdict.number == self._count
        return verdict.letter, verdict.text
