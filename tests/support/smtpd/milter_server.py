"""A milter that is written by libmilter's protocol alone: a thread that answers each command as its script says."""

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from support.processes.suite import wait_until

SECONDS = 60.0
CONTINUE = b"c"
# Version 6, all actions; what is named here is not sent, or not answered.
OFFER = struct.pack(">III", 6, 0x1FF, 0)

# For a command's byte, the packets to answer with; a function gets the command's data.
Script = Mapping[bytes, list[bytes] | Callable[[bytes], list[bytes]]]


def packet(data: bytes) -> bytes:
    """Return a packet."""
    return struct.pack(">I", len(data)) + data


class MilterServer:
    """A milter on a Unix socket. `told` has the commands that came, with their data; `macros` all that were named.

    What the script does not name is answered with continue. An empty packet closes the connection.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[tuple[bytes, bytes]] = []
        self.macros: dict[bytes, bytes] = {}
        self.connections = 0
        self._script: Script = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen(8)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "MilterServer":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)
        self._socket.close()

    def begin(self, script: Script | None) -> None:
        """Forget what came, and answer with this script from now on."""
        self.told, self.macros, self.connections = [], {}, 0
        self._script = script or {}

    def wait_for(self, command: bytes) -> None:
        """Wait until this command has come."""
        wait_until(lambda: command in self.commands, SECONDS, f"command {command!r}")

    @property
    def commands(self) -> bytes:
        """The commands that came, a byte each."""
        return b"".join(command for command, _ in self.told)

    def data(self, command: bytes) -> list[bytes]:
        """Return what came with each command of a kind."""
        return [data for each, data in self.told if each == command]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve_one, args=(connection,)).start()

    def _serve_one(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        with connection:
            try:
                self._answer(connection)
            except OSError:
                pass  # It was closed while we wrote.

    def _answer(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while head := stream.read(4):
            (size,) = struct.unpack(">I", head)
            whole = stream.read(size)
            command, data = whole[:1], whole[1:]
            if command == b"D":
                words = data[1:].split(b"\0")
                self.macros.update(zip(words[::2], words[1::2], strict=False))
                continue
            self.told.append((command, data))
            if command == b"O":
                answers = [b"O" + OFFER]
            elif command in b"AQ":
                answers = []
            else:
                found = self._script.get(command, [CONTINUE])
                answers = found(data) if callable(found) else found
            if answers == [b""]:
                return
            for answer in answers:
                connection.sendall(packet(answer))
