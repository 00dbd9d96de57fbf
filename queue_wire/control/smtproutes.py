"""control/smtproutes: relays for mail to a domain, in place of its mail exchangers (qmail-remote(8)).

    domain:relay[:port]     for the domain itself; keys are those of queue_wire.control.hostmap
    .domain:relay[:port]    for all names below it
    :relay[:port]           for all other names
    domain:                 no relay: mail exchangers, as if there were no routes

A relay is a host name, an IPv4 address, or an IPv6 or IPv4 address in brackets. Its mail exchangers are not looked up.
qmail allows one relay; here a route may name several:

    domain:one:2525,two     one; two if one cannot be reached or does not greet us
    domain:one+two,spare    one and two in random order, then spare

A relay may speak LMTP (RFC 2033) instead of SMTP:

    domain:lmtp:/run/dovecot/lmtp    over a Unix socket
    domain:lmtp:mailbox:24           over TCP; the port may be left out if it is 24

`lmtp:25`, where a port follows, is a host of the name lmtp, as in qmail.

Spaces are allowed only around a comma or `+`. Some patches of qmail allow a user and a password after a space or `|`,
which must not be taken for host names and sent to DNS.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import numbered_map
from queue_wire.format_error import FormatError, quoted

SMTP_PORT = 25
LMTP_PORT = 24
LMTP = b"lmtp:"
# What sockaddr_un has room for, without its final NUL.
SOCKET_MAX = 107

_SOCKET = re.compile(rb"/[!-~]+")
_RELAY = re.compile(rb"(?:\[([0-9A-Fa-f.:]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")


class Relay(NamedTuple):
    """A host, name or address without brackets, and a TCP port; or the path of a Unix socket, and port 0.

    `lmtp`: it speaks LMTP.
    """

    host: bytes
    port: int
    lmtp: bool = False


class Relays(NamedTuple):
    """The relays of a route, in groups of equal preference, best first. Equivalent routes have the same `name`."""

    name: bytes
    groups: tuple[tuple[Relay, ...], ...]


Routes = Mapping[bytes, Relays | None]


def unpack_relay(text: bytes, port: int) -> Relay:
    """Return the relay in `host`, `host:port`, `[address]` or `[address]:port`. Raises FormatError."""
    match = _RELAY.fullmatch(text)
    if match is None or (match[3] and not 0 < int(match[3]) < 65536):
        if re.search(rb"[\s|]", text):
            # The text may be a password, and errors are logged.
            raise FormatError("a route with a space or | in it; relays are divided by commas, passwords go elsewhere")
        raise FormatError(f"not a host or host:port: {quoted(text)}")
    return Relay(match[1] or match[2], int(match[3] or port))


def unpack_lmtp_relay(text: bytes) -> Relay:
    """Return the relay in what follows `lmtp:`: the path of a socket, or a relay as of SMTP. Raises FormatError."""
    if not text.startswith(b"/"):
        return unpack_relay(text, LMTP_PORT)._replace(lmtp=True)
    # An @ tells the address of a local recipient from the name of a route. The text may be a password, as above.
    if not _SOCKET.fullmatch(text) or any(byte in b"@:|" for byte in text):
        raise FormatError("not the path of a socket, of printable ASCII without a space, @, : and |")
    if len(text) > SOCKET_MAX:
        raise FormatError(f"the path of a socket has at most {SOCKET_MAX} bytes: {quoted(text)}")
    return Relay(text, 0, True)


def _unpack_any_relay(text: bytes) -> Relay:
    text = text.strip(b" \t")
    rest = text[len(LMTP) :]
    if text[: len(LMTP)].lower() == LMTP and not rest.isdigit():
        return unpack_lmtp_relay(rest)
    return unpack_relay(text, SMTP_PORT)


def unpack_relays(text: bytes) -> Relays | None:
    """Return the relays of one line, or None for mail exchangers. Raises FormatError."""
    if not text.strip(b" \t"):
        return None
    groups = tuple(tuple(_unpack_any_relay(relay) for relay in group.split(b"+")) for group in text.split(b","))
    return Relays(b",".join([b"+".join(sorted(map(_name, group))) for group in groups]), groups)


def unpack_routes(data: bytes) -> Routes:
    """Return the routes in the file. As in qmail, a line without a colon is ignored. Raises LineError."""
    return unpack_hosts(numbered_map(data), unpack_relays)


def find_route(routes: Routes, host: bytes) -> Relays | None:
    """Return the relays for a domain, or None for its mail exchangers."""
    if not routes:
        return None
    key = find_key(routes, host)
    return None if key is None else routes[key]


def is_lmtp(relays: Relays) -> bool:
    """Return whether all relays of a route speak LMTP."""
    return all(relay.lmtp for group in relays.groups for relay in group)


def find_nexthop(routes: Routes, domain: bytes) -> tuple[bytes, bool]:
    """Return the nexthop of mail for a domain, and whether it is the name of relays (else it is the domain).

    The same name may be both, a relay and a domain whose mail goes to its mail exchangers; these are two nexthops.
    """
    relays = find_route(routes, domain)
    return (domain, False) if relays is None else (relays.name, True)


def _name(relay: Relay) -> bytes:
    if relay.host.startswith(b"/"):
        return LMTP + relay.host
    host = b"[%s]" % relay.host.lower() if b":" in relay.host else relay.host.lower().removesuffix(b".")
    prefix, usual = (LMTP, LMTP_PORT) if relay.lmtp else (b"", SMTP_PORT)
    return prefix + (host if relay.port == usual else b"%s:%d" % (host, relay.port))
