"""DNS lookups that do not block the event loop, with a bounded cache.

Concurrent lookups of the same question share one query. A lookup that fails (SERVFAIL, REFUSED, a timeout, no server)
raises LookupFailed. That a name does not exist, or cannot exist, is an answer.

A line of /etc/resolv.conf that cannot be used is passed by, with a warning. Whatever dnspython raises is a failed
lookup: it raises more than it declares.

An answer is cached for as long as its TTL says (RFC 1035 section 3.2.1, RFC 2308 section 5), at most an hour, and at
most five minutes if it has no records, so that a corrected zone takes effect soon. The cache keeps only what its users
need, about 0.5 kB an answer; dnspython's own cache keeps the parsed reply, 4 kB and more.
"""

import asyncio
import random
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.nameserver
import dns.resolver

from queue_base.dns_answer_cost import is_costly
from queue_base.durable import read_file
from queue_base.errors import reason
from queue_base.socket_errors import OF_THIS_HOST
from queue_wire.control.nameservers import DNS_PORT
from queue_wire.control.smtproutes import Relay
from queue_wire.resolv_conf import unpack_resolv_conf

RESOLV_CONF = "/etc/resolv.conf"
# Seconds for one question, with its retries at all servers.
LIFETIME = 20.0
# Seconds to wait for one server before the next is asked.
PATIENCE = 2.0
PREFERRED_SECONDS = 60.0
# Bytes of an answer; 64 addresses take 1 kB. What an answer of this size costs to parse has a limit, too.
ANSWER_MAX = 8192
# Questions in flight. With more, the event loop reads answers so late that they count as lost and are asked again.
QUESTIONS_MAX = 500
# Records of one name and type, so that a hostile zone cannot fill the memory.
RECORDS_MAX = 64
CACHE_SIZE = 10000
FOUND_SECONDS = 3600.0
NOTHING_SECONDS = 300.0

_HOST_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")
_NOT_A_NAME = (dns.name.EmptyLabel, dns.name.LabelTooLong, dns.name.NameTooLong)

# Name in lower case without final dot, type, whether DNSSEC validation was asked for.
Question = tuple[bytes, str, bool]


class DnsAnswer(NamedTuple):
    """The answer for a name and type.

    `records`: MX as (preference, name as bytes), A and AAAA as text, other types as dnspython's rdata. `exists` is
    False if the name does not exist (NXDOMAIN). `secure`: the resolver validated the answer with DNSSEC (the AD bit;
    False if validation was not asked for). `canonical` is the name at the end of the CNAME chain.
    """

    records: tuple[Any, ...]
    exists: bool
    secure: bool
    canonical: bytes


class LookupFailed(Exception):
    """A lookup failed. `why` says how; `ours`: this machine has no descriptor or memory left."""

    def __init__(self, why: str, ours: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.ours = ours


class AnswerCache:
    """The most recently used answers."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._kept: OrderedDict[Question, tuple[float, DnsAnswer]] = OrderedDict()

    def get(self, question: Question) -> DnsAnswer | None:
        """Return the cached answer, None if there is none or it has expired."""
        found = self._kept.pop(question, None)
        if found is None or found[0] <= time.monotonic():
            return None
        # Inserted again at the end: the first entry is the least recently used one.
        self._kept[question] = found
        return found[1]

    def put(self, question: Question, answer: DnsAnswer, ttl: float) -> None:
        """Keep an answer for at most `ttl` seconds."""
        seconds = min(ttl, FOUND_SECONDS if answer.records else NOTHING_SECONDS)
        if seconds <= 0:
            return
        while len(self._kept) >= self._size:
            self._kept.popitem(last=False)
        self._kept[question] = time.monotonic() + seconds, answer


class DnsLookups:
    """Looks names up at the given DNS servers, or at those of /etc/resolv.conf if `servers` is None."""

    def __init__(
        self,
        servers: list[Relay] | None,
        lifetime: float | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`lifetime` is for one question, in seconds; None: LIFETIME. `warn` gets the lines that cannot be used.

        Raises LookupFailed if /etc/resolv.conf is needed and cannot be read, or has no server.
        """
        options: frozenset[bytes] = frozenset()
        if servers is None:
            servers, options = _read_resolv_conf(warn)
        try:
            # Two, so that ordinary questions do not ask for validation.
            self._stubs = {secure: StubResolver(servers, options, secure, lifetime) for secure in (False, True)}
        except (dns.exception.DNSException, ValueError) as error:
            # dnspython makes a domain of the host's name, which nobody needs.
            raise LookupFailed(f"the host name is not a name of DNS: {error}") from error
        self._cache = AnswerCache()
        self._in_flight = asyncio.Semaphore(QUESTIONS_MAX)
        self._asking: dict[Question, asyncio.Task[DnsAnswer]] = {}

    async def ask(self, host: bytes, kind: str, secure: bool = False) -> DnsAnswer:
        """Return the answer for a name (ASCII) and type; `secure` asks for DNSSEC validation.

        Raises LookupFailed.
        """
        question = (host.lower().removesuffix(b"."), kind, secure)
        known = self._cache.get(question)
        if known is not None:
            return known
        task = self._asking.get(question)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(question))
            self._asking[question] = task
            task.add_done_callback(lambda _: self._asking.pop(question))
        # Others may wait for the same task.
        return await asyncio.shield(task)

    async def _ask(self, question: Question) -> DnsAnswer:
        host, kind, secure = question
        try:
            name = _name(host)
            async with self._in_flight:
                answer = await self._stubs[secure].ask(name, kind)
        except (*_NOT_A_NAME, dns.resolver.YXDOMAIN):
            return DnsAnswer((), False, False, host)
        except dns.resolver.NXDOMAIN as error:
            response: Any = error.response(name)  # type: ignore[no-untyped-call]
            found = DnsAnswer((), False, _is_secure(response), host)
        except Exception as error:
            raise LookupFailed(_failure(error), _is_our_shortage(error)) from error
        else:
            response = answer.response
            found = DnsAnswer(_records(kind, answer), True, _is_secure(response), _text(answer.canonical_name))
        self._cache.put(question, found, response.resolve_chaining().minimum_ttl)
        return found


def _read_resolv_conf(warn: Callable[[str], None] | None) -> tuple[list[Relay], frozenset[bytes]]:
    """Return the servers and options of /etc/resolv.conf. Raises LookupFailed."""
    try:
        found = unpack_resolv_conf(read_file(RESOLV_CONF))
    except OSError as error:
        raise LookupFailed(f"it cannot be read: {reason(error)}") from error
    if not found.servers:
        raise LookupFailed("; ".join(["it names no DNS server", *found.faults[:1]]))
    if warn is not None:
        for fault in found.faults:
            warn(f"unable to use {RESOLV_CONF} {fault}; the line is ignored")
    return [Relay(server.encode("ascii"), DNS_PORT) for server in found.servers], found.options


class StubResolver:
    """dnspython's asynchronous resolver: retries, the next server, TCP after a truncated answer.

    Sockets are connected, so that a server that does not listen is noticed at once. If an earlier server did not
    answer, the one that did is asked first for a minute: a dead server costs seconds once, not at each question.
    """

    def __init__(
        self, servers: list[Relay], options: frozenset[bytes], validated: bool, lifetime: float | None = None
    ) -> None:
        """`options` are those of resolv.conf(5). `validated` asks for DNSSEC validation.

        `lifetime` is for one question, in seconds; None: LIFETIME. Raises DNSException, ValueError.
        """
        self._resolver = dns.asyncresolver.Resolver(configure=False)
        self._resolver.rotate = b"rotate" in options
        if b"edns0" in options:
            self._resolver.use_edns()
        self._resolver.lifetime = LIFETIME if lifetime is None else lifetime
        self._resolver.timeout = PATIENCE
        if validated:
            # RFC 6840 section 5.7: AD in a question asks for AD in the answer.
            self._resolver.set_flags(dns.flags.RD | dns.flags.AD)
        self._servers = [dns.nameserver.Do53Nameserver(server.host.decode("ascii"), server.port) for server in servers]
        self._resolver.nameservers = list(self._servers)
        self._preferred_until = 0.0
        self._backend = _Backend()

    async def ask(self, name: dns.name.Name, kind: str) -> dns.resolver.Answer:
        """Return the answer, which may have no record. Raises DNSException (NXDOMAIN is one), OSError."""
        if self._preferred_until and time.monotonic() > self._preferred_until:
            self._preferred_until = 0.0
            self._resolver.nameservers = list(self._servers)
        answer = await self._resolver.resolve(name, kind, search=False, raise_on_no_answer=False, backend=self._backend)
        first, *rest = self._resolver.nameservers
        if rest and (answer.nameserver, answer.port) != _server_address(first):
            self._preferred_until = time.monotonic() + PREFERRED_SECONDS
            self._resolver.nameservers = sorted(
                self._servers, key=lambda server: _server_address(server) != (answer.nameserver, answer.port)
            )
        return answer


class AnswerTooLarge(dns.exception.FormError):
    """An answer is longer than ANSWER_MAX, or would take long to parse."""


class _Backend(type(dns.asyncbackend.get_backend("asyncio"))):  # type: ignore[misc]
    """Connects UDP sockets, so that they report a closed port and accept packets from the server only."""

    def datagram_connection_required(self) -> bool:
        return True

    async def make_socket(self, *arguments: Any, **options: Any) -> Any:
        made = await super().make_socket(*arguments, **options)
        if made.type == socket.SOCK_STREAM:
            receive = made.recv
            received = bytearray()

            async def receive_little(size: int, timeout: float | None) -> bytes:
                # dnspython asks for two bytes, and then for the length that they announce, or for the rest of it.
                if size > ANSWER_MAX:
                    raise AnswerTooLarge
                data = bytes(await receive(size, timeout))
                received.extend(data)
                if len(data) == size and is_costly(bytes(received[2:])):
                    raise AnswerTooLarge
                return data

            made.recv = receive_little
        else:
            receive_from = made.recvfrom

            async def receive_packet(size: int, timeout: float | None) -> tuple[bytes, Any]:
                data, sender = await receive_from(size, timeout)
                # A server could send as much without being asked for it.
                if len(data) > ANSWER_MAX or is_costly(data):
                    raise AnswerTooLarge
                return data, sender

            made.recvfrom = receive_packet
        return made


def _is_our_shortage(error: Exception) -> bool:
    """Return whether a question failed because this machine has no descriptor or memory left."""
    errors = getattr(error, "kwargs", {}).get("errors") or []
    problems = [error, *(problem for _, _, _, problem, _ in errors)]
    return any(isinstance(problem, OSError) and problem.errno in OF_THIS_HOST for problem in problems)


def _failure(error: Exception) -> str:
    """Return why a question failed: the last three servers, each with its answer or error."""
    errors = getattr(error, "kwargs", {}).get("errors") or []
    found: dict[str, None] = {}
    for server, _, _, problem, _ in errors:
        if isinstance(problem, dns.exception.Timeout):
            problem = "no answer in time"
        elif isinstance(problem, OSError):
            problem = (problem.strerror or type(problem).__name__).lower()
        elif isinstance(problem, Exception):
            problem = type(problem).__name__
        found[f"{str(server).removeprefix('Do53:')} {problem}"] = None
    return ", ".join(list(found)[-3:]) or type(error).__name__


def _server_address(server: object) -> tuple[str, int]:
    assert isinstance(server, dns.nameserver.Do53Nameserver)
    return server.answer_nameserver(), server.answer_port()


def _name(host: bytes) -> dns.name.Name:
    # No mail domain has other bytes, and dnspython would read some of them as escapes.
    if not host or not _HOST_BYTES.issuperset(host):
        raise dns.name.EmptyLabel
    return dns.name.from_text(host.decode("ascii") + ".")


def _records(kind: str, answer: dns.resolver.Answer) -> tuple[Any, ...]:
    if kind == "MX":
        # If there are too many, which of the equally preferred ones are kept is random, as is their order.
        records = [(record.preference, _text(record.exchange)) for record in answer]
        return tuple(sorted(records, key=lambda record: (record[0], random.random()))[:RECORDS_MAX])
    if kind in ("A", "AAAA"):
        return tuple(record.address for record in answer)[:RECORDS_MAX]
    return tuple(answer)[:RECORDS_MAX]


def _text(name: dns.name.Name) -> bytes:
    """Return a name in lower case without final dot; the root is empty."""
    return b"" if name == dns.name.root else name.to_text(omit_final_dot=True).encode("ascii").lower()


def _is_secure(response: dns.message.Message) -> bool:
    return bool(response.flags & dns.flags.AD)
