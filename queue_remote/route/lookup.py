"""DNS lookups for mail (RFC 5321 section 5.1).

Nothing blocks: each lookup waits in the event loop, and a question that is being asked already is not asked again.
What is no answer (SERVFAIL, REFUSED, a timeout, nobody there) raises Unroutable, a deferral; that a name does not
exist, or cannot, is an answer.
"""

import asyncio
import random
from typing import Any, NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.resolver

from queue_remote.report_text import NO_RESOURCES, Verdict
from queue_remote.route.answers import RECORDS_MOST, Answer, AnswerCache, Key
from queue_remote.route.stub import Stub, said, short_of_something
from queue_remote.route.text import address_trouble, name_trouble, no_host, null_mx
from queue_wire.control.smtproutes import Relay
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, TEMPORARY

# Nobody needs more, and a hostile zone must not keep a delivery busy for days.
EXCHANGERS_MOST = 16
# Asked at once. More would keep the event loop from their answers until they count as lost, and are asked again.
QUESTIONS_MOST = 500

_HOST_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_NOT_A_NAME = (dns.name.EmptyLabel, dns.name.LabelTooLong, dns.name.NameTooLong)


class Unroutable(Exception):
    """Where the mail should go cannot be found out: the verdict on every recipient, and the report's scope.

    `reasons` are the steps that led there, as in Route, where a router knows them.
    """

    def __init__(self, letter: bytes, text: bytes, scope: bytes | None = None) -> None:
        """The scope is, unless said otherwise, that of a lookup: the nexthop for now, the recipients for good."""
        super().__init__(text)
        self.verdict: Verdict = (letter, text)
        self.scope = scope or (HOST_SCOPE if letter == TEMPORARY else MESSAGE_SCOPE)
        self.reasons: list[str] = []


class Exchangers(NamedTuple):
    """Names in groups of equal preference, best first; `listed` is False where there is no MX record but the host."""

    groups: list[tuple[int, list[bytes]]]
    listed: bool
    secure: bool


class Addresses(NamedTuple):
    """(address as text, secure), IPv4 first; `trouble` where one kind of them could not be found out."""

    found: list[tuple[str, bool]]
    trouble: Unroutable | None


class Resolver:
    """Asks the given DNS servers, or those of /etc/resolv.conf where there are none given."""

    def __init__(self, servers: list[Relay] | None) -> None:
        """Read /etc/resolv.conf where it is needed. Raises Unroutable where it cannot be read."""
        try:
            # Ordinary questions stay plain.
            self._stubs = {secure: Stub(servers, secure) for secure in (False, True)}
        except (dns.exception.DNSException, OSError) as error:
            raise Unroutable(TEMPORARY, name_trouble(b"/etc/resolv.conf", "it names no DNS server")) from error
        self._cache = AnswerCache()
        self._room = asyncio.Semaphore(QUESTIONS_MOST)
        self._asking: dict[Key, asyncio.Task[Answer]] = {}

    async def exchangers(self, host: bytes, secure: bool = False) -> Exchangers:
        """Return a host's mail exchangers, in random order among equals; a host without any is its own.

        Raises Unroutable: the name does not exist, the lookup failed for now, or the host says that it takes no
        mail (RFC 7505).
        """
        answer = await self.ask(host, "MX", secure)
        if not answer.exists:
            raise Unroutable(PERMANENT, no_host(host))
        if not answer.records:
            return Exchangers([(0, [host])], False, answer.secure)
        groups: dict[int, list[bytes]] = {}
        for preference, name in sorted(answer.records, key=lambda record: (record[0], random.random())):
            # RFC 7505 section 3: the root means nothing but beside other records, and there it is a mistake.
            if name:
                groups.setdefault(preference, []).append(name)
        if not groups:
            raise Unroutable(PERMANENT, null_mx(host))
        return Exchangers(list(groups.items()), True, answer.secure)

    async def addresses(self, host: bytes, secure: bool = False) -> Addresses:
        """Return a host's addresses, and what kept us from finding others. Does not raise."""
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

    async def ask(self, host: bytes, kind: str, secure: bool = False) -> Answer:
        """Return the answer for a name (ASCII) and type; `secure` asks whether DNSSEC vouches for it.

        Raises Unroutable where there is none for now.
        """
        key = (host.lower().removesuffix(b"."), kind, secure)
        known = self._cache.get(key)
        if known is not None:
            return known
        task = self._asking.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(key))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key))
        # Others may wait for it as well.
        return await asyncio.shield(task)

    async def _ask(self, key: Key) -> Answer:
        host, kind, secure = key
        try:
            name = _name(host)
            async with self._room:
                answer = await self._stubs[secure].ask(name, kind)
        except (*_NOT_A_NAME, dns.resolver.YXDOMAIN):
            return Answer((), False, False, host)
        except dns.resolver.NXDOMAIN as error:
            response: Any = error.response(name)  # type: ignore[no-untyped-call]
            found = Answer((), False, _secure(response), host)
        except (dns.exception.DNSException, OSError) as error:
            if short_of_something(error):
                raise Unroutable(TEMPORARY, NO_RESOURCES, MESSAGE_SCOPE) from error
            text = name_trouble if kind == "MX" else address_trouble
            raise Unroutable(TEMPORARY, text(b"%s %s" % (host, kind.encode()), said(error))) from error
        else:
            response = answer.response
            found = Answer(_records(kind, answer), True, _secure(response), _text(answer.canonical_name))
        self._cache.put(key, found, response.resolve_chaining().minimum_ttl)
        return found


def _name(host: bytes) -> dns.name.Name:
    # A name with any other byte is in no mail domain's DNS, and dnspython reads some as escapes.
    if not host or not _HOST_BYTES.issuperset(host):
        raise dns.name.EmptyLabel
    return dns.name.from_text(host.decode("ascii") + ".")


def _records(kind: str, answer: dns.resolver.Answer) -> tuple[Any, ...]:
    if kind == "MX":
        # Cut at random among equals, as they are tried.
        records = [(record.preference, _text(record.exchange)) for record in answer]
        return tuple(sorted(records, key=lambda record: (record[0], random.random()))[:RECORDS_MOST])
    if kind in ("A", "AAAA"):
        return tuple(record.address for record in answer)[:RECORDS_MOST]
    return tuple(answer)[:RECORDS_MOST]


def _text(name: dns.name.Name) -> bytes:
    """Return a name in lower case without final dot; the root is empty."""
    return b"" if name == dns.name.root else name.to_text(omit_final_dot=True).encode("ascii").lower()


def _secure(response: dns.message.Message) -> bool:
    return bool(response.flags & dns.flags.AD)
