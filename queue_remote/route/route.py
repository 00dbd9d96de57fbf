"""From a nexthop to the addresses to try, in order: smtproutes, address literals, mail exchangers.

A delivery goes to the first of them that greets it. Unroutable is raised where there is nowhere to go. Either way
the steps are told, as `queuectl route` prints them: what is tried and what is left out is decided here only.
"""

import ipaddress
import os
from typing import NamedTuple

from queue_remote.route.lookup import EXCHANGERS_MOST, Resolver, Unroutable
from queue_remote.route.order import ADDRESSES_ENOUGH, TARGETS_MOST, Target, in_turn
from queue_remote.route.ourselves import Ourselves
from queue_remote.route.stub import RESOLV_CONF
from queue_remote.route.text import address_trouble, best_preference, no_address, no_host, shown
from queue_remote.settings import Settings
from queue_wire.address import ascii_domain
from queue_wire.control.hostmap import find_key
from queue_wire.control.smtproutes import SMTP_PORT, Relay, Relays
from queue_wire.format_error import FormatError
from queue_wire.report import PERMANENT, TEMPORARY

# RFC 6761 section 6.3: localhost needs no lookup.
_LOCALHOST = [("127.0.0.1", False), ("::1", False)]


class Route(NamedTuple):
    """What to try, best first.

    `relayed` by smtproutes; `secure`: DNSSEC vouches for the MX records; `reasons`: the steps, a line each.
    """

    targets: list[Target]
    relayed: bool
    secure: bool
    reasons: list[str]


class OurOwn(Exception):
    """A mail exchanger is this host: `what`, a name or address, is known for it `by` that."""

    def __init__(self, what: bytes, by: str) -> None:
        super().__init__(what, by)
        self.what = what
        self.by = by


class _Search:
    """One search: its steps so far, and the trouble that a later exchanger or relay may make up for."""

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
    """Finds routes by one reading of the control files; the resolver is made when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ourselves = Ourselves(settings.me)
        self._made: Resolver | None = None
        self._stamp: tuple[int, int] | None = None

    async def find(self, nexthop: bytes, secure: bool = False) -> Route:
        """Return what to try for a nexthop. Raises Unroutable.

        `secure` asks the resolver whether DNSSEC vouches for its answers; without it none counts as secure.
        """
        search = _Search(secure)
        try:
            return await self._find(search, nexthop)
        except Unroutable as error:
            # Deliveries that wait for the same question get the same exception from it.
            mine = Unroutable(*error.verdict, error.scope)
            mine.reasons = search.reasons
            raise mine from error

    async def _find(self, search: _Search, nexthop: bytes) -> Route:
        try:
            search.domain = ascii_domain(nexthop).lower().removesuffix(b".")
        except FormatError as error:
            search.say(shown(nexthop), str(error))
            raise Unroutable(PERMANENT, no_host(nexthop)) from error
        routes = self.settings.routes
        key = find_key(routes, search.domain) if routes else None
        relays = None if key is None else routes[key]
        if key is None:
            search.say(b"smtproutes", "no line for it")
        else:
            search.say(b"smtproutes", f"{shown(key).decode()}:{relays.name.decode() if relays else ''}")
        if relays is not None:
            # Relays were chosen by a person, who may well mean this very host.
            secure = await self._find_relays(search, relays)
        elif search.domain.startswith(b"["):
            self._find_literal(search)
            secure = False
        else:
            secure = await self._find_exchangers(search)
        return Route(search.targets[:TARGETS_MOST], relays is not None, secure, search.reasons)

    async def _find_relays(self, search: _Search, relays: Relays) -> bool:
        for group in relays.groups:
            if search.full():
                search.say(b"relay", "no more are looked up")
                break
            found = [await self._relay_targets(search, relay) for relay in group]
            search.targets += in_turn(found, by_lot=True)
        if not search.targets:
            # A wrong name in smtproutes is this host's mistake, and mistakes in control files bounce no mail.
            raise search.trouble or Unroutable(TEMPORARY, address_trouble(relays.name, "no relay has an address"))
        return False

    async def _relay_targets(self, search: _Search, relay: Relay) -> list[Target]:
        label = b"relay %s" % relay.host
        address = _as_address(relay.host)
        if address is not None:
            search.say(label, f"port {relay.port}")
            return [Target(b"", address, relay.port, False)]
        host = relay.host.lower().removesuffix(b".")
        found = _LOCALHOST if host == b"localhost" else await self._addresses(search, label, host)
        if found:
            search.say(label, f"{_listed(found)} port {relay.port}")
        return [Target(host, text, relay.port, secure) for text, secure in found]

    def _find_literal(self, search: _Search) -> None:
        """Take the address in `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 section 4.1.3)."""
        domain = search.domain
        inner = domain[1:-1] if domain.endswith(b"]") else b""
        address = _as_address(inner.removeprefix(b"ipv6:"))
        if address is None:
            search.say(shown(domain), "not an address literal")
            raise Unroutable(PERMANENT, no_host(domain))
        search.say(shown(domain), "an address literal: no DNS")
        if self._ourselves.is_address(address):
            search.say(address.encode(), "this host")
            raise Unroutable(PERMANENT, best_preference(domain, address.encode()))
        search.targets.append(Target(b"", address, SMTP_PORT, False))

    async def _find_exchangers(self, search: _Search) -> bool:
        """Take the exchangers' addresses, best preference first; return whether DNSSEC vouches for the MX records.

        RFC 5321 section 5.1: where this host is one of them, it and all at or beyond its preference are left out;
        where that leaves none, the mail is ours but not in control/locals.
        """
        domain = search.domain
        exchangers = await self.resolver().exchangers(domain, search.secure)
        if not exchangers.listed:
            search.say(b"MX", f"none for {shown(domain).decode()}: its own addresses count")
        asked: list[bytes] = []
        for preference, names in exchangers.groups:
            if search.full() or len(asked) >= EXCHANGERS_MOST:
                enough = f"{len(search.targets)} addresses of {len(asked)} hosts are enough"
                search.say(b"MX %d" % preference, f"not looked up: {enough}")
                break
            few = names[: EXCHANGERS_MOST - len(asked)]
            try:
                self._refuse_own_name(names)
                found = [await self._exchanger_targets(search, preference, name, exchangers.secure) for name in few]
            except OurOwn as own:
                label = b"MX %d %s" % (preference, shown(own.what))
                search.say(label, f"this host ({own.by}): left out, with all at {preference} or more")
                if search.targets:
                    break
                raise search.trouble or Unroutable(PERMANENT, best_preference(domain, own.what)) from own
            if len(names) > len(few):
                search.say(b"MX %d" % preference, f"{len(names) - len(few)} more hosts are not looked up")
            asked += few
            search.targets += in_turn(found)
        if not search.targets:
            raise search.trouble or Unroutable(PERMANENT, no_address(domain, asked))
        return exchangers.secure

    def _refuse_own_name(self, names: list[bytes]) -> None:
        for name in names:
            if self._ourselves.is_name(name):
                raise OurOwn(name, "control/me")

    async def _exchanger_targets(self, search: _Search, preference: int, name: bytes, vouched: bool) -> list[Target]:
        """Return one exchanger's addresses; `vouched`: DNSSEC does so for its name. Raises OurOwn."""
        label = b"MX %d %s" % (preference, shown(name))
        found = await self._addresses(search, label, name)
        if found:
            search.say(label, _listed(found))
        for text, _ in found:
            if self._ourselves.is_address(text):
                raise OurOwn(text.encode(), "its address")
        return [Target(name, text, SMTP_PORT, secure and vouched) for text, secure in found]

    async def _addresses(self, search: _Search, label: bytes, host: bytes) -> list[tuple[str, bool]]:
        """Return a host's addresses; where some could not be found out, that is told and kept."""
        found, trouble = await self.resolver().addresses(host, search.secure)
        if trouble is not None:
            search.trouble = search.trouble or trouble
            search.say(label, _particulars(trouble))
        elif not found:
            search.say(label, "no address")
        return found

    def resolver(self) -> Resolver:
        """Return who asks DNS, also for what is not a route (TLSA, TXT). Raises Unroutable."""
        servers = self.settings.resolver
        stamp = None if servers is not None else _stamp(RESOLV_CONF)
        if self._made is None or stamp != self._stamp:
            # The system's file may be written anew while we run, or only then be written at all.
            self._made = Resolver(servers)
            self._stamp = stamp
        return self._made


def _as_address(text: bytes) -> str | None:
    try:
        address = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        return None
    # A zone (fe80::1%eth0) means something on one machine only.
    return None if "%" in str(address) else str(address)


def _listed(addresses: list[tuple[str, bool]]) -> str:
    return ", ".join(text + (" (DNSSEC)" if secure else "") for text, secure in addresses)


def _particulars(error: Unroutable) -> str:
    """Return the last line of a verdict's text, without its full stop."""
    return error.verdict[1].decode("ascii", "replace").splitlines()[-1].removesuffix(".")


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
