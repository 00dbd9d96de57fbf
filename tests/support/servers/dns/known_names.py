"""A resolver that needs no DNS server: every domain has an MTA-STS policy, on a web server at 127.0.0.1."""

from queue_base.dns_lookups import DnsAnswer
from queue_remote.route.resolver import Resolver
from queue_wire.control.smtproutes import Relay


class _TextRecord:
    """What dnspython returns for a TXT record."""

    strings = (b"v=STSv1; id=1;",)


class KnownNames(Resolver):
    """Answers at once."""

    def __init__(self) -> None:
        super().__init__([Relay(b"127.0.0.1", 53)])

    async def ask(self, host: bytes, kind: str, secure: bool = False) -> DnsAnswer:
        records = {"TXT": (_TextRecord(),), "A": ("127.0.0.1",)}
        return DnsAnswer(records.get(kind, ()), True, False, host)
