"""A small real DNS server on a loopback UDP port, with a zone given as a dict."""

import socket
import threading
from abc import ABC, abstractmethod
from typing import Self

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset


class UdpServer(ABC):
    """A thread that answers each query to a loopback UDP port."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        while True:
            query, client = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self.answer(query), client)

    @abstractmethod
    def answer(self, query: bytes) -> bytes:
        """Return the answer to a query."""


class DnsServer(UdpServer):
    """Answers from `records`: {(name, type): [record text]}; a name in `broken` gets SERVFAIL.

    A name that is nowhere gets NXDOMAIN; one without the type asked for gets no answer. `questions`
    are those asked so far, as (name, type). Answers about names in `signed` have the AD bit, where the question
    asks for it as RFC 6840 section 5.7 says. `ttl` is that of all records, in seconds.
    """

    def __init__(
        self,
        records: dict[tuple[str, str], list[str]],
        broken: frozenset[str] = frozenset(),
        signed: frozenset[str] = frozenset(),
        ttl: int = 60,
    ) -> None:
        super().__init__()
        self.records = records
        self.signed = signed
        self.ttl = ttl
        self.broken = broken
        self.questions: list[tuple[str, str]] = []

    def answer(self, query: bytes) -> bytes:
        return self._answer(dns.message.from_wire(query)).to_wire(want_shuffle=False)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.questions.append((name, kind))
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if name in self.signed and query.flags & dns.flags.AD:
            response.flags |= dns.flags.AD
        target = name
        while (target, "CNAME") in self.records:
            response.answer.append(self._records(target, "CNAME", self.records[target, "CNAME"]))
            target = self.records[target, "CNAME"][0].rstrip(".")
        if target in self.broken:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif (target, kind) in self.records:
            response.answer.append(self._records(target, kind, self.records[target, kind]))
        elif all(known != target for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response

    def _records(self, name: str, kind: str, texts: list[str]) -> dns.rrset.RRset:
        return dns.rrset.from_text(name + ".", self.ttl, "IN", kind, *texts)
