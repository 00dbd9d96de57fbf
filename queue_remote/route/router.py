"""Finds the addresses to try for a nexthop, in order: by smtproutes or ondemand, as an address literal, by MX lookup.

A nexthop with an @ is a local recipient, whose servers control/localroutes names.

A delivery uses the first address that greets it. Raises Unroutable if the mail cannot be routed. In both cases the
steps of the search are returned as `reasons`, which `queuectl route` and --trace print.
"""

import ipaddress
import os
from typing import NamedTuple

from queue_base.dns_lookups import RESOLV_CONF
from queue_remote.route.order import ADDRESSES_ENOUGH, TARGETS_MAX, Target, interleave
from queue_remote.route.resolver import EXCHANGERS_MAX, Resolver
from queue_remote.route.this_host import ThisHost
from queue_remote.route.unroutable import (
    Unroutable,
    address_trouble,
    best_preference,
    no_address,
    no_host,
    no_local_route,
    shown,
)
from queue_wire.address import ascii_domain
from queue_wire.control.hostmap import find_key
from queue_wire.control.localroutes import find_local_route
from queue_wire.control.smtproutes import LMTP, SMTP_PORT, Relay, Relays, Routes
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import MESSAGE_SCOPE, PERMANENT, TEMPORARY

# RFC 6761 section 6.3: localhost needs no lookup.
_LOCALHOST = [("127.0.0.1", False), ("::1", False)]


class Route(NamedTuple):
    """The targets to try, best first.

    `relayed` is whether smtproutes or ondemand names them; `secure` whether DNSSEC validated the MX records; `reasons`
    are the steps of the search, a line each.
    """

    targets: list[Target]
    relayed: bool
    secure: bool
    reasons: list[str]


class _OurOwn(Exception):
    """A mail exchanger is this host: `what` is its name or address, `by` how that is known."""

    def __init__(self, what: bytes, by: str) -> None:
        super().__init__(what, by)
        self.what = what
        self.by = by


class _RouteSearch:
    """The state of one search; `trouble` is the first failed lookup, reported if no target is found."""

    __slots__ = ("domain", "reasons", "secure", "targets", "trouble")

    def __init__(self, secure: bool) -> None:
        self.domain = b""
        self.secure = secure
        self.reasons: list[str] = []
        self.targets: list[Target] = []
        self.trouble: Unroutable | None = None

    def say(self, what: bytes, text: str) -> None:
        self.reasons.append(f"{what.decode('ascii', 'replace')}: {text}")

    def full(self) -> bool:
        return len(self.targets) >= ADDRESSES_ENOUGH


class Router:
    """Finds routes; the resolver is made when it is first needed."""

    def __init__(
        self,
        me: bytes,
        routes: Routes,
        servers: list[Relay] | None,
        local_routes: Routes | None = None,
        on_demand: Routes | None = None,
    ) -> None:
        """Take control/me, smtproutes, resolver (None: use /etc/resolv.conf), localroutes and the relays of ondemand.

        The latter are among `routes`, too.
        """
        self._this_host = ThisHost(me)
        self._routes = routes
        self._on_demand = on_demand or {}
        self._local_routes = local_routes or {}
        self._servers = servers
        self._resolver: Resolver | None = None
        self._stamp: tuple[int, int] | None = None

    async def find(self, nexthop: bytes, secure: bool = False) -> Route:
        """Return the route to a nexthop. Raises Unroutable.

        `secure` asks the resolver for DNSSEC validation; without it no answer counts as secure.
        """
        search = _RouteSearch(secure)
        try:
            return await self._find(search, nexthop)
        except Unroutable as error:
            # Deliveries that wait for the same lookup get the same exception object.
            mine = Unroutable(*error.verdict, error.scope)
            mine.reasons = search.reasons
            raise mine from error

    async def _find(self, search: _RouteSearch, nexthop: bytes) -> Route:
        if b"@" in nexthop:
            return await self._find_local(search, nexthop)
        try:
            search.domain = ascii_domain(nexthop).lower().removesuffix(b".")
        except FormatError as error:
            search.say(shown(nexthop), str(error))
            raise Unroutable(PERMANENT, no_host(nexthop)) from error
        key = find_key(self._routes, search.domain) if self._routes else None
        relays = None if key is None else self._routes[key]
        if key is None:
            search.say(b"smtproutes", "no line for it")
        elif relays is not None and key in self._on_demand:
            search.say(b"ondemand", f"{shown(key).decode()} relay {relays.name.decode()}")
        else:
            search.say(b"smtproutes", f"{shown(key).decode()}:{relays.name.decode() if relays else ''}")
        if relays is not None:
            # No loop check: the administrator may have chosen this very host as relay.
            secure = await self._find_relays(search, relays)
        elif search.domain.startswith(b"["):
            self._find_literal(search)
            secure = False
        else:
            secure = await self._find_exchangers(search)
        return Route(search.targets[:TARGETS_MAX], relays is not None, secure, search.reasons)

    async def _find_local(self, search: _RouteSearch, recipient: bytes) -> Route:
        servers = find_local_route(self._local_routes, recipient)
        if servers is None:
            # queue-send has read the file before it was changed.
            raise Unroutable(TEMPORARY, no_local_route(recipient), MESSAGE_SCOPE)
        search.say(b"localroutes", servers.name.decode("ascii"))
        await self._find_relays(search, servers)
        return Route(search.targets[:TARGETS_MAX], True, False, search.reasons)

    async def _find_relays(self, search: _RouteSearch, relays: Relays) -> bool:
        for group in relays.groups:
            if search.full():
                search.say(b"relay", "no more are looked up")
                break
            found = [await self._relay_targets(search, relay) for relay in group]
            search.targets += interleave(found, shuffled=True)
        if not search.targets:
            # A wrong name in smtproutes is an error of this host's configuration, which must not bounce mail.
            raise search.trouble or Unroutable(TEMPORARY, address_trouble(relays.name, "no relay has an address"))
        return False

    async def _relay_targets(self, search: _RouteSearch, relay: Relay) -> list[Target]:
        label = b"relay %s%s" % (LMTP if relay.lmtp else b"", relay.host)
        if relay.host.startswith(b"/"):
            search.say(label, "a Unix socket")
            return [Target(b"", relay.host.decode("ascii"), 0, False, True)]
        address = _as_address(relay.host)
        if address is not None:
            search.say(label, f"port {relay.port}")
            return [Target(b"", address, relay.port, False, relay.lmtp)]
        host = relay.host.lower().removesuffix(b".")
        found = _LOCALHOST if host == b"localhost" else await self._addresses(search, label, host)
        if found:
            search.say(label, f"{_listed(found)} port {relay.port}")
        return [Target(host, text, relay.port, secure, relay.lmtp) for text, secure in found]

    def _find_literal(self, search: _RouteSearch) -> None:
        """Add the address in `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 section 4.1.3)."""
        domain = search.domain
        inner = domain[1:-1] if domain.endswith(b"]") else b""
        address = _as_address(inner.removeprefix(b"ipv6:"))
        if address is None:
            search.say(shown(domain), "not an address literal")
            raise Unroutable(PERMANENT, no_host(domain))
        search.say(shown(domain), "an address literal: no DNS")
        if self._this_host.is_address(address):
            search.say(address.encode(), "this host")
            raise Unroutable(PERMANENT, best_preference(domain, address.encode()))
        search.targets.append(Target(b"", address, SMTP_PORT, False))

    async def _find_exchangers(self, search: _RouteSearch) -> bool:
        """Add the exchangers' addresses, best preference first; return whether DNSSEC validated the MX records.

        RFC 5321 section 5.1: if this host is one of the exchangers, it and all with the same or a worse preference are
        left out. If that leaves none, control/locals lacks the domain, and the mail fails.
        """
        domain = search.domain
        exchangers = await self.resolver().exchangers(domain, search.secure)
        if not exchangers.listed:
            search.say(b"MX", f"none for {shown(domain).decode()}: its own addresses count")
        asked: list[bytes] = []
        for preference, names in exchangers.groups:
            if search.full() or len(asked) >= EXCHANGERS_MAX:
                enough = f"{len(search.targets)} addresses of {len(asked)} hosts are enough"
                search.say(b"MX %d" % preference, f"not looked up: {enough}")
                break
            few = names[: EXCHANGERS_MAX - len(asked)]
            try:
                self._refuse_own_name(names)
                found = [await self._exchanger_targets(search, preference, name, exchangers.secure) for name in few]
            except _OurOwn as own:
                label = b"MX %d %s" % (preference, shown(own.what))
                search.say(label, f"this host ({own.by}): left out, with all at {preference} or more")
                if search.targets:
                    break
                raise search.trouble or Unroutable(PERMANENT, best_preference(domain, own.what)) from own
            if len(names) > len(few):
                search.say(b"MX %d" % preference, f"{len(names) - len(few)} more hosts are not looked up")
            asked += few
            search.targets += interleave(found)
        if not search.targets:
            raise search.trouble or Unroutable(PERMANENT, no_address(domain, asked))
        return exchangers.secure

    def _refuse_own_name(self, names: list[bytes]) -> None:
        for name in names:
            if self._this_host.is_name(name):
                raise _OurOwn(name, "control/me")

    async def _exchanger_targets(
        self, search: _RouteSearch, preference: int, name: bytes, validated: bool
    ) -> list[Target]:
        """Return one exchanger's addresses; `validated` is whether DNSSEC validated its name. Raises _OurOwn."""
        label = b"MX %d %s" % (preference, shown(name))
        # RFC 5321 section 5.1 wants a name, but some zones have an address, and qmail and Postfix use it.
        address = _as_address(name)
        found = await self._addresses(search, label, name) if address is None else [(address, False)]
        if found:
            search.say(label, _listed(found))
        for text, _ in found:
            if self._this_host.is_address(text):
                raise _OurOwn(text.encode(), "its address")
        return [Target(name, text, SMTP_PORT, secure and validated) for text, secure in found]

    async def _addresses(self, search: _RouteSearch, label: bytes, host: bytes) -> list[tuple[str, bool]]:
        """Return a host's addresses; a failed lookup is recorded in the search."""
        found, trouble = await self.resolver().addresses(host, search.secure)
        if trouble is not None:
            search.trouble = search.trouble or trouble
            search.say(label, trouble.details)
        elif not found:
            search.say(label, "no address")
        return found

    def resolver(self) -> Resolver:
        """Return the resolver, which also serves TLSA and TXT lookups. Raises Unroutable."""
        stamp = None if self._servers is not None else _stamp(RESOLV_CONF)
        if self._resolver is None or stamp != self._stamp:
            # The system's file may change, or appear, while queue-remote runs.
            self._resolver = Resolver(self._servers)
            self._stamp = stamp
        return self._resolver


def _as_address(text: bytes) -> str | None:
    try:
        address = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        return None
    # A zone identifier (fe80::1%eth0) is valid on one machine only.
    return None if "%" in str(address) else str(address)


def _listed(addresses: list[tuple[str, bool]]) -> str:
    return ", ".join(text + (" (DNSSEC)" if secure else "") for text, secure in addresses)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
