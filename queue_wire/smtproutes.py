"""control/smtproutes: which host takes the mail for a nexthop, in place of its mail exchangers (qmail-remote(8)).

    domain:relay[:port]     for the domain itself
    .domain:relay[:port]    for every name below it
    :relay[:port]           for everything else
    domain:                 no relay: mail exchangers, as if there were no routes

The relay is a host name, an IPv4 address, or an IPv6 (or IPv4) address in brackets, and is used as it
is, without a look at its mail exchangers.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.errors import FormatError, quoted

SMTP_PORT = 25

_RELAY = re.compile(rb"(?:\[([0-9A-Fa-f.:]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")


class Relay(NamedTuple):
    """A host, name or address without brackets, and a TCP port."""

    host: bytes
    port: int


Routes = dict[bytes, Relay | None]


def unpack_relay(text: bytes, port: int) -> Relay:
    """Return the relay in `host`, `host:port`, `[address]` or `[address]:port`. Raises FormatError."""
    match = _RELAY.fullmatch(text)
    if match is None or (match[3] and not 0 < int(match[3]) < 65536):
        raise FormatError(f"not a host or host:port: {quoted(text)}")
    return Relay(match[1] or match[2], int(match[3] or port))


def unpack_routes(entries: Mapping[bytes, bytes]) -> Routes:
    """Return the routes in the map of a control file (queue_wire.control.unpack_map). Raises FormatError."""
    return {key: unpack_relay(value, SMTP_PORT) if value else None for key, value in entries.items()}


def find_route(routes: Routes, host: bytes) -> Relay | None:
    """Return the relay for a nexthop, None for its mail exchangers: the name itself, then what follows each dot."""
    if not routes:
        return None
    host = host.lower()
    start = 0
    while start >= 0:
        if host[start:] in routes:
            return routes[host[start:]]
        start = host.find(b".", start + 1)
    return routes.get(b"")
