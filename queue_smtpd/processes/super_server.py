"""What tcpserver, tcpsvd and their like say of the connection on descriptor 0, by their environment. Pure.

    TCPREMOTEIP, TCPREMOTEPORT, TCPREMOTEHOST     the client; its name if the super-server has looked it up
    TCPLOCALIP, TCPLOCALPORT                      this side of the connection
    RELAYCLIENT                                   if set, the client may send to everybody; added to each recipient
    DATABYTES                                     in the place of control/databytes, in bytes; 0: no limit

What inetd leaves out is known from the socket itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

from queue_smtpd.sessions.client_facts import ClientFacts, plain_address
from queue_wire.format_error import FormatError, quoted

_DIGITS_MAX = 18


class Endpoint(NamedTuple):
    """An end of a connection: an IP address as text, empty on a Unix socket, and a port."""

    address: str = ""
    port: int = 0


class GivenConnection(NamedTuple):
    """A connection that a super-server has taken. `databytes` is None if it says nothing of it."""

    client: ClientFacts
    port: int
    server_port: int
    relay_suffix: bytes
    databytes: int | None


def unpack_given(environment: Mapping[bytes, bytes], peer: Endpoint, own: Endpoint) -> GivenConnection:
    """Return the connection; `peer` and `own` are the ends of the socket. Raises FormatError, naming the variable."""
    relay = environment.get(b"RELAYCLIENT")
    client, port = _endpoint(environment, b"TCPREMOTE", peer)
    server, server_port = _endpoint(environment, b"TCPLOCAL", own)
    name = environment.get(b"TCPREMOTEHOST", b"")
    return GivenConnection(
        ClientFacts(client, server, name, relays=relay is not None),
        port,
        server_port,
        relay or b"",
        _number(environment, b"DATABYTES"),
    )


def _endpoint(environment: Mapping[bytes, bytes], prefix: bytes, known: Endpoint) -> Endpoint:
    text = environment.get(prefix + b"IP")
    if text is None:
        return Endpoint(plain_address(known.address), known.port)
    address = plain_address(text.decode("ascii", "replace"))
    if text and not address:
        raise FormatError(f"{prefix.decode()}IP is not an address: {quoted(text)}")
    return Endpoint(address, _number(environment, prefix + b"PORT") or 0)


def _number(environment: Mapping[bytes, bytes], name: bytes) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        raise FormatError(f"{name.decode()} is not a number: {quoted(text)}")
    return int(text)
