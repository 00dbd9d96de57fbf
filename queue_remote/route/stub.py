"""Questions to DNS servers, with dnspython's asynchronous resolver: repeats, the next server, TCP after a cut answer.

A server that is not there is known at once, since the sockets are connected. The one that answered while an earlier
one did not is asked first for a minute, so a dead server costs seconds once, and not with each question.
"""

import errno
import socket
import time
from typing import Any

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.flags
import dns.name
import dns.nameserver
import dns.resolver

from queue_wire.control.smtproutes import Relay

RESOLV_CONF = "/etc/resolv.conf"
# Seconds for one question, with its repeats at all servers.
LIFETIME = 20.0
# Seconds for one server to answer, before the next is asked.
PATIENCE = 2.0
PREFERRED_SECONDS = 60.0
# Bytes of an answer over TCP. Reading 64 kB takes 0.1 s, in which nothing else is done; 64 addresses have 1 kB.
ANSWER_MOST = 8192
_OUR_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class AnswerTooLarge(dns.exception.FormError):
    """An answer that nobody needs, and that takes long to read."""


class _Backend(type(dns.asyncbackend.get_backend("asyncio"))):  # type: ignore[misc]
    """Only a connected UDP socket hears that nobody listens, and it hears nobody but the server."""

    def datagram_connection_required(self) -> bool:
        return True

    async def make_socket(self, *arguments: Any, **options: Any) -> Any:
        made = await super().make_socket(*arguments, **options)
        if made.type == socket.SOCK_STREAM:
            receive = made.recv

            async def receive_little(size: int, timeout: float | None) -> bytes:
                # dnspython asks for all that the answer's length says.
                if size > ANSWER_MOST:
                    raise AnswerTooLarge
                return bytes(await receive(size, timeout))

            made.recv = receive_little
        return made


class Stub:
    """Asks the given servers, or those of /etc/resolv.conf; `checking`: also whether DNSSEC vouches for the answer."""

    def __init__(self, servers: list[Relay] | None, checking: bool) -> None:
        """Raises DNSException or OSError where /etc/resolv.conf is needed and cannot be read."""
        self._resolver = dns.asyncresolver.Resolver(RESOLV_CONF, configure=servers is None)
        self._resolver.lifetime = LIFETIME
        self._resolver.timeout = PATIENCE
        if checking:
            # RFC 6840 section 5.7: AD in a question asks for AD in the answer.
            self._resolver.set_flags(dns.flags.RD | dns.flags.AD)
        if servers is None:
            named = [(str(server), self._resolver.port) for server in self._resolver.nameservers]
        else:
            named = [(server.host.decode("ascii"), server.port) for server in servers]
        self._servers = [dns.nameserver.Do53Nameserver(address, port) for address, port in named]
        self._resolver.nameservers = list(self._servers)
        self._preferred_until = 0.0
        self._backend = _Backend()

    async def ask(self, name: dns.name.Name, kind: str) -> dns.resolver.Answer:
        """Return the answer, which may hold no record. Raises DNSException (NXDOMAIN is one), OSError."""
        if self._preferred_until and time.monotonic() > self._preferred_until:
            self._preferred_until = 0.0
            self._resolver.nameservers = list(self._servers)
        answer = await self._resolver.resolve(name, kind, search=False, raise_on_no_answer=False, backend=self._backend)
        first, *rest = self._resolver.nameservers
        if rest and (answer.nameserver, answer.port) != _key(first):
            self._preferred_until = time.monotonic() + PREFERRED_SECONDS
            self._resolver.nameservers = sorted(
                self._servers, key=lambda server: _key(server) != (answer.nameserver, answer.port)
            )
        return answer


def short_of_something(error: Exception) -> bool:
    """Return whether a question failed because this machine has no descriptor or memory left for it."""
    errors = getattr(error, "kwargs", {}).get("errors") or []
    problems = [error, *(problem for _, _, _, problem, _ in errors)]
    return any(isinstance(problem, OSError) and problem.errno in _OUR_SHORTAGE for problem in problems)


def said(error: Exception) -> str:
    """Return what the servers said to a question that failed, or how they did not: the last few words."""
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


def _key(server: object) -> tuple[str, int]:
    assert isinstance(server, dns.nameserver.Do53Nameserver)
    return server.answer_nameserver(), server.answer_port()
