"""The first message of each side in a TLS handshake (RFC 8446 section 4.1), read for the group of the key exchange.

    passed = reader.feed(data)      bytes of the peer in, bytes for TLS out: none of its first message before all of it

What Diffie-Hellman over a finite field costs grows faster than its size: with ffdhe8192 more than 100 ms. The peer has
a say in it: a server names the group, and a client's first share is used. FormatError means that there must be no
handshake with this peer.
"""

import struct

from queue_wire.format_error import FormatError

# Bytes of the records up to the end of the first message. One with shares for several groups has some 4,000.
HELD_MAX = 32768
_RECORD_HEADER = 5
_ALERT, _HANDSHAKE, _APPLICATION_DATA = 21, 22, 23
_LOWEST_RECORD = 20
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_MESSAGE_HEADER = 4
_VERSION_AND_RANDOM = 34
_SUPPORTED_GROUPS, _KEY_SHARE = 10, 51
# ffdhe2048 and ffdhe3072 are cheap enough; this is ffdhe4096, and those up to the last one are larger or unknown.
_FIRST_LARGE, _LAST_LARGE = 0x0102, 0x01FF
# Those that a server prefers to large ones, if the client names one of them: P-256, P-384, P-521, X25519, X448,
# ffdhe2048, ffdhe3072.
_SMALL = frozenset([0x17, 0x18, 0x19, 0x1D, 0x1E, 0x0100, 0x0101])


class HelloReader:
    """Reads what a peer says up to the end of its first message. `done`: whatever follows is passed as it is."""

    def __init__(self, of_client: bool) -> None:
        """`of_client`: the peer is the client."""
        self.done = False
        self._of_client = of_client
        self._held = b""
        # Where the next record begins in what is held, and the message as far as it has come.
        self._at = 0
        self._message = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may go to TLS. Raises FormatError."""
        if self.done:
            return data
        self._held += data
        while not self.done and self._at <= HELD_MAX and len(self._held) >= self._at + _RECORD_HEADER:
            kind = self._held[self._at]
            if not _LOWEST_RECORD <= kind <= _APPLICATION_DATA:
                # This is no TLS, or a hello of SSL 2.0, which has no groups.
                self.done = True
                break
            begin = self._at + _RECORD_HEADER
            end = begin + int.from_bytes(self._held[begin - 2 : begin], "big")
            if len(self._held) < end:
                break
            if kind == _HANDSHAKE:
                self._message += self._held[begin:end]
                self._judge()
            elif kind != _ALERT or self._message:
                # A warning may come before the first message.
                raise FormatError("a record before the end of the hello")
            self._at = end
        if self.done:
            self._at = len(self._held)
        elif len(self._held) > HELD_MAX:
            raise FormatError(f"no hello in the first {HELD_MAX} bytes")
        elif self._message:
            return b""
        passed, self._held, self._at = self._held[: self._at], self._held[self._at :], 0
        return passed

    def _judge(self) -> None:
        """Look at the first message if it is complete."""
        if len(self._message) < _MESSAGE_HEADER:
            return
        end = _MESSAGE_HEADER + int.from_bytes(self._message[1:_MESSAGE_HEADER], "big")
        if len(self._message) < end:
            return
        if self._message[0] != (_CLIENT_HELLO if self._of_client else _SERVER_HELLO):
            raise FormatError("no hello in the first message")
        try:
            large = _wants_large_group(self._message[_MESSAGE_HEADER:end], self._of_client)
        except (struct.error, IndexError) as error:
            raise FormatError("a hello with lengths that contradict each other") from error
        if large:
            raise FormatError("Diffie-Hellman over a finite field of more than 3072 bits")
        self.done = True
        self._message = b""


def _wants_large_group(hello: bytes, of_client: bool) -> bool:
    """Return whether the exchange may be made in a large group. Raises struct.error or IndexError if it is damaged."""
    at = _VERSION_AND_RANDOM
    at += 1 + hello[at]
    if of_client:
        at += 2 + _number(hello, at)
        at += 1 + hello[at]
    else:
        at += 3
    if at == len(hello):
        # Before TLS 1.2 extensions were optional.
        return False
    end = at + 2 + _number(hello, at)
    at += 2
    groups: list[int] = []
    shares: list[int] = []
    while at < end:
        kind, size = struct.unpack_from(">HH", hello, at)
        value = hello[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == _SUPPORTED_GROUPS and of_client:
            groups += [_number(value, place) for place in range(2, len(value) - 1, 2)]
        elif kind == _KEY_SHARE and of_client:
            place = 2
            while place < len(value):
                shares.append(_number(value, place))
                place += 4 + _number(value, place + 2)
        elif kind == _KEY_SHARE:
            shares.append(_number(value, 0))
    if any(_is_large(group) for group in shares):
        return True
    return any(_is_large(group) for group in groups) and _SMALL.isdisjoint(groups)


def _is_large(group: int) -> bool:
    return _FIRST_LARGE <= group <= _LAST_LARGE


def _number(data: bytes, at: int) -> int:
    """Return the number of two bytes. Raises struct.error if there are fewer."""
    found: int = struct.unpack_from(">H", data, at)[0]
    return found
