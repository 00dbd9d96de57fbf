"""From a nexthop to the addresses to try, in order: smtproutes, address literals, mail exchangers.

A delivery goes to the first of them that greets it. Unroutable is raised where there is nowhere to go.
"""

import ipaddress
from typing import NamedTuple

from queue_remote.lookup import Resolver, Unroutable
from queue_remote.order import Target
from queue_remote.ourselves import Ourselves
from queue_remote.settings import Settings
from queue_wire.report import PERMANENT, TEMPORARY
from queue_wire.smtp_text import ADDRESS_TROUBLE, BEST_PREFERENCE, NO_ADDRESS, no_host
from queue_wire.smtproutes import SMTP_PORT, Relay, find_route

# RFC 6761 section 6.3: localhost needs no lookup.
_LOCALHOST = ["127.0.0.1", "::1"]
# No further exchangers are looked up once there are this many addresses to try.
ADDRESSES_ENOUGH = 8


class Route(NamedTuple):
    """What to try, best first.

    `relayed` by smtproutes; `secure`: DNSSEC vouches for the MX records; `reasons`: the steps, a line each.
    """

    targets: list[Target]
    relayed: bool
    secure: bool
    reasons: list[str]


class OurOwn(Exception):
    """A mail exchanger is this host."""


class Router:
    """Finds routes by one reading of the control files; the resolver is made when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ourselves = Ourselves(settings.me)
        self._made: Resolver | None = None

    async def find(self, nexthop: bytes) -> Route:
        """Return what to try for a nexthop. Raises Unroutable."""
        relays = find_route(self.settings.routes, nexthop)
        if relays is not None:
            # A relay was chosen by a person, who may well mean this very host.
            targets = []
            for group in relays.groups:
                for relay in group:
                    name = b"" if _as_address(relay.host) else relay.host
                    targets += [Target(name, a, relay.port, False) for a in await self._relay_addresses(relay)]
            return Route(targets, True, False, [])
        if nexthop.startswith(b"["):
            return Route([Target(b"", a, SMTP_PORT, False) for a in self._literal(nexthop)], False, False, [])
        return Route(await self._exchanger_addresses(nexthop), False, False, [])

    async def _relay_addresses(self, relay: Relay) -> list[str]:
        address = _as_address(relay.host)
        if address is not None:
            return [address]
        if relay.host.lower() == b"localhost":
            return _LOCALHOST
        addresses = await self._resolver().addresses(relay.host)
        if not addresses:
            # A wrong name in smtproutes is this host's mistake, and mistakes in control files bounce no mail.
            raise Unroutable(TEMPORARY, ADDRESS_TROUBLE)
        return addresses

    def _literal(self, nexthop: bytes) -> list[str]:
        """Return the address in `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 section 4.1.3)."""
        inner = nexthop[1:-1] if nexthop.endswith(b"]") else b""
        address = _as_address(inner[5:] if inner[:5].lower() == b"ipv6:" else inner)
        if address is None:
            raise Unroutable(PERMANENT, no_host(nexthop))
        if self._ourselves.is_address(address):
            raise Unroutable(PERMANENT, BEST_PREFERENCE)
        return [address]

    async def _exchanger_addresses(self, nexthop: bytes) -> list[Target]:
        """Return the exchangers' addresses, best preference first.

        RFC 5321 section 5.1: where this host is one of them, it and all at or beyond its preference
        are left out; where that leaves none, the mail is ours but not in control/locals.
        """
        found: list[Target] = []
        trouble: Unroutable | None = None
        for names in await self._resolver().exchangers(nexthop):
            group: list[Target] = []
            for name in names:
                try:
                    group += [Target(name, a, SMTP_PORT, False) for a in await self._foreign_addresses(name)]
                except OurOwn as error:
                    if not found:
                        raise trouble or Unroutable(PERMANENT, BEST_PREFERENCE) from error
                    return found
                except Unroutable as error:
                    trouble = error
            found += group
            if len(found) >= ADDRESSES_ENOUGH:
                break
        if not found:
            raise trouble or Unroutable(PERMANENT, NO_ADDRESS)
        return found

    async def _foreign_addresses(self, name: bytes) -> list[str]:
        """Return one exchanger's addresses. Raises OurOwn where it is this host, and Unroutable."""
        if self._ourselves.is_name(name):
            raise OurOwn
        addresses = await self._resolver().addresses(name)
        if any(self._ourselves.is_address(address) for address in addresses):
            raise OurOwn
        return addresses

    def _resolver(self) -> Resolver:
        if self._made is None:
            self._made = Resolver(self.settings.resolver)
        return self._made


def _as_address(text: bytes) -> str | None:
    try:
        return str(ipaddress.ip_address(text.decode("ascii")))
    except ValueError:
        return None
