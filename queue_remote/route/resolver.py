"""DNS lookups for mail (RFC 5321 section 5.1), by queue_base.dns_lookups.

A lookup that fails (SERVFAIL, REFUSED, a timeout, no server) raises Unroutable, a deferral. That a name does not exist,
or cannot exist, is an answer.
"""

import random
from typing import NamedTuple

from queue_base.dns_lookups import RESOLV_CONF, DnsAnswer, DnsLookups, LookupFailed
from queue_base.errors import complain
from queue_remote.report_text import NO_RESOURCES
from queue_remote.route.unroutable import Unroutable, address_trouble, name_trouble, no_host, null_mx
from queue_wire.control.smtproutes import Relay
from queue_wire.pipes.report import MESSAGE_SCOPE, PERMANENT, TEMPORARY

# Mail exchangers of one domain that are tried, so that a hostile zone cannot keep a delivery busy for days.
EXCHANGERS_MAX = 16


def _warn(text: str) -> None:
    complain("queue-remote", f"warning: {text}")


class Exchangers(NamedTuple):
    """Names grouped by preference, best first; `listed` is False if there is no MX record and the host is its own."""

    groups: list[tuple[int, list[bytes]]]
    listed: bool
    secure: bool


class Addresses(NamedTuple):
    """(address as text, secure), IPv4 first; `trouble` is why the lookup of a family failed, None if none did."""

    found: list[tuple[str, bool]]
    trouble: Unroutable | None


class Resolver:
    """Looks names up at the given DNS servers, or at those of /etc/resolv.conf if `servers` is None."""

    def __init__(self, servers: list[Relay] | None) -> None:
        """Raises Unroutable if /etc/resolv.conf is needed and cannot be read."""
        try:
            self._lookups = DnsLookups(servers, warn=_warn)
        except LookupFailed as error:
            raise Unroutable(TEMPORARY, name_trouble(RESOLV_CONF.encode(), error.why)) from error

    async def exchangers(self, host: bytes, secure: bool = False) -> Exchangers:
        """Return a host's mail exchangers, in random order among equals; a host without MX records is its own.

        Raises Unroutable if the name does not exist, the lookup failed, or the host has a null MX (RFC 7505).
        """
        answer = await self.ask(host, "MX", secure)
        if not answer.exists:
            raise Unroutable(PERMANENT, no_host(host))
        if not answer.records:
            return Exchangers([(0, [host])], False, answer.secure)
        groups: dict[int, list[bytes]] = {}
        for preference, name in sorted(answer.records, key=lambda record: (record[0], random.random())):
            # RFC 7505 section 3: a null MX beside other records is an error; it is ignored.
            if name:
                groups.setdefault(preference, []).append(name)
        if not groups:
            raise Unroutable(PERMANENT, null_mx(host))
        return Exchangers(list(groups.items()), True, answer.secure)

    async def addresses(self, host: bytes, secure: bool = False) -> Addresses:
        """Return a host's addresses, and the failure of a lookup if one failed. Does not raise."""
        found: list[tuple[str, bool]] = []
        trouble: Unroutable | None = None
        for kind in ("A", "AAAA"):
            try:
                answer = await self.ask(host, kind, secure)
            except Unroutable as error:
                trouble = trouble or error
                continue
            if not answer.exists:
                break
            found += [(address, answer.secure) for address in answer.records]
        return Addresses(found, trouble)

    async def ask(self, host: bytes, kind: str, secure: bool = False) -> DnsAnswer:
        """Return the answer for a name (ASCII) and type; `secure` asks for DNSSEC validation.

        Raises Unroutable if the lookup fails.
        """
        try:
            return await self._lookups.ask(host, kind, secure)
        except LookupFailed as error:
            if error.ours:
                raise Unroutable(TEMPORARY, NO_RESOURCES, MESSAGE_SCOPE) from error
            text = name_trouble if kind == "MX" else address_trouble
            question = b"%s %s" % (host.lower().removesuffix(b"."), kind.encode())
            raise Unroutable(TEMPORARY, text(question, error.why)) from error
