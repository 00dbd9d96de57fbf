"""Answers of DNS that a library parses for long, and a server that gives them to whoever asks for mail exchangers."""

import socket
import struct
import threading
from typing import Self

_HEADER = struct.Struct("!6H")
_MX = struct.pack("!HH", 15, 1)


def exchangers(count: int, labels: int, number: int = 1, name: bytes = b"\1a\7example\0") -> bytes:
    """Return an answer with `count` MX records whose names share `labels` labels, as a hostile zone can make it.

    `number` and `name` are those of the question.
    """
    answer = _HEADER.pack(number, 0x8180, 1, count, 0, 0) + name + _MX
    shared = 0
    for each in range(count):
        if shared:
            host = b"\3%03d" % each + struct.pack("!H", 0xC000 | shared)
        else:
            shared = len(answer) + 14
            host = b"\1x" * labels + b"\xc0\x0c"
        answer += b"\xc0\x0c" + struct.pack("!HHIHH", 15, 1, 0, 2 + len(host), 10) + host
    return answer


class HostileDns:
    """Answers each question for MX with so many records and labels, and every other one with NXDOMAIN."""

    def __init__(self, count: int, labels: int) -> None:
        self._count = count
        self._labels = labels
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.asked = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        while True:
            query, client = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        number = _HEADER.unpack_from(query)[0]
        end = query.index(b"\0", _HEADER.size) + 1
        name, kind = query[_HEADER.size : end], query[end : end + 4]
        if kind != _MX:
            return _HEADER.pack(number, 0x8183, 1, 0, 0, 0) + name + kind
        self.asked += 1
        return exchangers(self._count, self._labels, number, name)
