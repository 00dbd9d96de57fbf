"""Answers of DNS that a library parses for long, and a server that gives them to whoever asks for mail exchangers."""

import struct

from support.servers.dns.dns_server import UdpServer

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


class HostileDns(UdpServer):
    """Answers each question for MX with so many records and labels, and every other one with NXDOMAIN."""

    def __init__(self, count: int, labels: int) -> None:
        super().__init__()
        self._count = count
        self._labels = labels
        self.asked = 0

    def answer(self, query: bytes) -> bytes:
        number = _HEADER.unpack_from(query)[0]
        end = query.index(b"\0", _HEADER.size) + 1
        name, kind = query[_HEADER.size : end], query[end : end + 4]
        if kind != _MX:
            return _HEADER.pack(number, 0x8183, 1, 0, 0, 0) + name + kind
        self.asked += 1
        return exchangers(self._count, self._labels, number, name)
