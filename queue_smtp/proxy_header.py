"""The PROXY protocol, versions 1 and 2 (haproxy, proxy-protocol.txt): who the client of a load balancer is. Pure.

The header comes before everything else, also before TLS. It is believed only if the connection is from a host that is
listed. It must be read to its last byte and no further: what follows is the client's.
"""

import ipaddress
import re
import struct
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# The longest header of version 1, with CRLF.
_TEXT_MAX = 107
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = struct.Struct("!12sBBH")
# TLVs behind the addresses are skipped. Balancers send some hundred bytes of them, with a certificate some thousand.
_BINARY_MAX = 16384
_TEXT = re.compile(rb"PROXY TCP([46]) ([0-9A-Fa-f:.]{2,39}) ([0-9A-Fa-f:.]{2,39}) (\d{1,5}) (\d{1,5})")
_IPV4 = struct.Struct("!4s4sHH")
_IPV6 = struct.Struct("!16s16sHH")
_LOCAL, _PROXY = 0x20, 0x21


class ProxiedConnection(NamedTuple):
    """The client and the server of the connection that the balancer took: addresses as text, and ports."""

    client: str
    client_port: int
    server: str
    server_port: int


def unpack_proxy_header(data: bytes) -> tuple[int, ProxiedConnection | None] | None:
    """Return (length of the header, connection) of bytes that begin with it; None if more bytes are needed.

    The connection is None if the balancer speaks for itself (LOCAL), or does not know the client (UNKNOWN), or the
    client is no internet host. Raises FormatError at the first byte that cannot be of a header.
    """
    if data[:1] == b"P":
        return _unpack_text(data)
    if not _SIGNATURE.startswith(data[:12]):
        raise FormatError(f"no PROXY header: {quoted(data)}")
    return _unpack_binary(data) if len(data) >= _FIXED.size else None


def _unpack_text(data: bytes) -> tuple[int, ProxiedConnection | None] | None:
    head = data[:_TEXT_MAX]
    end = head.find(b"\r\n")
    if end < 0:
        if not b"PROXY ".startswith(head[:6]) or len(head) == _TEXT_MAX or b"\n" in head:
            raise FormatError(f"no PROXY header: {quoted(data)}")
        return None
    line = head[:end]
    if line == b"PROXY UNKNOWN" or line.startswith(b"PROXY UNKNOWN "):
        return end + 2, None
    match = _TEXT.fullmatch(line)
    if match is None:
        raise FormatError(f"not a PROXY header: {quoted(line)}")
    family, client, server, client_port, server_port = match.groups()
    try:
        addresses = ipaddress.ip_address(client.decode()), ipaddress.ip_address(server.decode())
    except ValueError as error:
        raise FormatError(f"not a PROXY header: {quoted(line)}") from error
    ports = int(client_port), int(server_port)
    if {address.version for address in addresses} != {int(family)} or max(ports) > 65535:
        raise FormatError(f"not a PROXY header: {quoted(line)}")
    return end + 2, ProxiedConnection(str(addresses[0]), ports[0], str(addresses[1]), ports[1])


def _unpack_binary(data: bytes) -> tuple[int, ProxiedConnection | None] | None:
    _, command, family, length = _FIXED.unpack_from(data)
    if command not in (_LOCAL, _PROXY):
        raise FormatError(f"PROXY header of another version or command: {command:#x}")
    if length > _BINARY_MAX:
        raise FormatError(f"PROXY header of {length} bytes, limit {_BINARY_MAX}")
    end = _FIXED.size + length
    if len(data) < end:
        return None
    # The lower four bits are the transport, of which TCP is 1.
    layout = {0x11: _IPV4, 0x21: _IPV6}.get(family)
    if command == _LOCAL or layout is None:
        return end, None
    if length < layout.size:
        raise FormatError(f"PROXY header without room for its addresses: {length} bytes")
    client, server, client_port, server_port = layout.unpack_from(data, _FIXED.size)
    addresses = str(ipaddress.ip_address(client)), str(ipaddress.ip_address(server))
    return end, ProxiedConnection(addresses[0], client_port, addresses[1], server_port)
