"""control/smtproutes: which hosts take the mail for a nexthop, in place of its mail exchangers (qmail-remote(8)).

    domain:relay[:port]     for the domain itself; keys are queue_wire.control.hostmap's
    .domain:relay[:port]    for every name below it
    :relay[:port]           for everything else
    domain:                 no relay: mail exchangers, as if there were no routes

A relay is a host name, an IPv4 address, or an IPv6 (or IPv4) address in brackets, and is used as it is, without a
look at its mail exchangers. qmail takes one; here a route may name several:

    domain:one:2525,two     one, and where that does not greet us, two
    domain:one+two,spare    one or two, by lot, then the other, then spare

Spaces may stand around a comma or `+`, and nowhere else: some patches of qmail have a user and a password behind
a space or `|`, and those are no hosts to ask DNS about.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import numbered_map
from queue_wire.format_error import FormatError, quoted

SMTP_PORT = 25

_RELAY = re.compile(rb"(?:\[([0-9A-Fa-f.:]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")


class Relay(NamedTuple):
    """A host, name or address without brackets, and a TCP port."""

    host: bytes
    port: int


class Relays(NamedTuple):
    """The relays of a route, in groups of equals, best first; `name` is the same for routes that mean the same."""

    name: bytes
    groups: tuple[tuple[Relay, ...], ...]


Routes = Mapping[bytes, Relays | None]


def unpack_relay(text: bytes, port: int) -> Relay:
    """Return the relay in `host`, `host:port`, `[address]` or `[address]:port`. Raises FormatError."""
    match = _RELAY.fullmatch(text)
    if match is None or (match[3] and not 0 < int(match[3]) < 65536):
        if re.search(rb"[\s|]", text):
            # What stands there may be a secret, and errors are logged.
            raise FormatError("a route with a space or | in it; relays are divided by commas, passwords go elsewhere")
        raise FormatError(f"not a host or host:port: {quoted(text)}")
    return Relay(match[1] or match[2], int(match[3] or port))


def unpack_relays(text: bytes) -> Relays | None:
    """Return the relays of one line, None for mail exchangers. Raises FormatError."""
    if not text.strip(b" \t"):
        return None
    groups = tuple(
        tuple(unpack_relay(relay.strip(b" \t"), SMTP_PORT) for relay in group.split(b"+")) for group in text.split(b",")
    )
    return Relays(b",".join([b"+".join(sorted(map(_name, group))) for group in groups]), groups)


def unpack_routes(data: bytes) -> Routes:
    """Return the routes in the file. As in qmail a line without a colon does not count. Raises LineError."""
    return unpack_hosts(numbered_map(data), unpack_relays)


def find_route(routes: Routes, host: bytes) -> Relays | None:
    """Return the relays for a nexthop, None for its mail exchangers."""
    if not routes:
        return None
    key = find_key(routes, host)
    return None if key is None else routes[key]


def find_nexthop(routes: Routes, domain: bytes) -> tuple[bytes, bool]:
    """Return what recipients have in common that go the same way: their relays' name, or their domain, and which it is.

    A relay may be a domain as well: mail for that domain by its mail exchangers goes another way.
    """
    relays = find_route(routes, domain)
    return (domain, False) if relays is None else (relays.name, True)


def _name(relay: Relay) -> bytes:
    host = b"[%s]" % relay.host.lower() if b":" in relay.host else relay.host.lower().removesuffix(b".")
    return host if relay.port == SMTP_PORT else b"%s:%d" % (host, relay.port)
