"""DNS lookups for mail (RFC 5321 section 5.1) on dnspython's asynchronous resolver.

Nothing blocks: each lookup waits in the event loop. Answers are kept for as long as they say they
may be, up to CACHE_SIZE of them. A lookup that fails raises Unroutable with its verdict.
"""

import random
from typing import Any

import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, TEMPORARY
from queue_wire.smtp_text import ADDRESS_TROUBLE, NAME_TROUBLE, Verdict, no_host, null_mx
from queue_wire.smtproutes import Relay

# Seconds for one question, with its repeats at all name servers.
LIFETIME = 20.0
CACHE_SIZE = 10000
# Nobody needs more, and a hostile zone must not keep a delivery busy for days.
EXCHANGERS_MOST = 16

_HOST_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")

_NO_SUCH_NAME = (
    dns.resolver.NXDOMAIN,
    dns.resolver.YXDOMAIN,
    dns.name.EmptyLabel,
    dns.name.LabelTooLong,
    dns.name.NameTooLong,
)


class Unroutable(Exception):
    """Where the mail should go cannot be found out: the verdict on every recipient, and the report's scope."""

    def __init__(self, letter: bytes, text: bytes, scope: bytes | None = None) -> None:
        """The scope is, unless said otherwise, that of a lookup: the nexthop for now, the recipients for good."""
        super().__init__(text)
        self.verdict: Verdict = (letter, text)
        self.scope = scope or (HOST_SCOPE if letter == TEMPORARY else MESSAGE_SCOPE)


class NoSuchName(Exception):
    """The name does not exist (NXDOMAIN), or cannot be one."""


class Resolver:
    """Asks the given name servers, or those of /etc/resolv.conf where there are none given."""

    def __init__(self, servers: list[Relay] | None) -> None:
        """Read /etc/resolv.conf where it is needed. Raises Unroutable where it cannot be read."""
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=servers is None)
        except (dns.exception.DNSException, OSError) as error:
            raise Unroutable(TEMPORARY, NAME_TROUBLE) from error
        if servers is not None:
            self._resolver.nameservers = [
                dns.nameserver.Do53Nameserver(server.host.decode("ascii"), server.port) for server in servers
            ]
        self._resolver.lifetime = LIFETIME
        self._resolver.cache = dns.resolver.LRUCache(CACHE_SIZE)

    async def exchangers(self, host: bytes) -> list[list[bytes]]:
        """Return a host's mail exchangers, in groups of equal preference, best first, each in random order.

        A host without any is its own. Raises Unroutable: the name does not exist, the lookup
        failed for now, or the host says that it takes no mail (RFC 7505).
        """
        try:
            answer = await self._ask(host, "MX")
        except NoSuchName as error:
            raise Unroutable(PERMANENT, no_host(host)) from error
        records = [(record.preference, record.exchange) for record in answer]
        if not records:
            return [[host]]
        groups: dict[int, list[bytes]] = {}
        for preference, exchange in sorted(records, key=lambda pair: (pair[0], random.random()))[:EXCHANGERS_MOST]:
            if exchange != dns.name.root:
                groups.setdefault(preference, []).append(exchange.to_text(omit_final_dot=True).encode("ascii"))
        if not groups:
            raise Unroutable(PERMANENT, null_mx(host))
        return list(groups.values())

    async def addresses(self, host: bytes) -> list[str]:
        """Return a host's addresses as text, IPv4 first; none where it has none.

        Raises Unroutable where a lookup failed for now and the other found nothing.
        """
        found: list[str] = []
        trouble: Unroutable | None = None
        for kind in ("A", "AAAA"):
            try:
                found += [record.address for record in await self._ask(host, kind)]
            except NoSuchName:
                break
            except Unroutable as error:
                trouble = error
        if not found and trouble is not None:
            raise trouble
        return found

    async def _ask(self, host: bytes, kind: str) -> list[Any]:
        """Return the records, none where the name has none of that kind. Raises NoSuchName, Unroutable."""
        try:
            name = dns.name.from_text(_host_text(host))
            answer = await self._resolver.resolve(name, kind, search=False, raise_on_no_answer=False)
        except _NO_SUCH_NAME as error:
            raise NoSuchName from error
        except (dns.exception.DNSException, OSError) as error:
            raise Unroutable(TEMPORARY, NAME_TROUBLE if kind == "MX" else ADDRESS_TROUBLE) from error
        return list(answer)


def _host_text(host: bytes) -> str:
    # A name with any other byte is in no mail domain's DNS, and dnspython reads some as escapes.
    if not host or not _HOST_BYTES.issuperset(host):
        raise NoSuchName
    return host.decode("ascii").rstrip(".") + "."
