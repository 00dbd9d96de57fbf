"""A host that takes its mail with ATRN: a client under TLS up to the reply, then a server on the same connection."""

import socket
from pathlib import Path
from typing import Self

from queue_smtp.auth_server import make_verifier
from queue_wire.control.smtpdusers import Proof, UserPasswords, pack_users
from support.local.good_mail import GoodMail
from support.servers.certificate import make_certificate
from support.servers.smtp.sink import Sink
from support.smtpd.smtpd_daemon import SmtpdDaemon, trusting

PASSWORD = "open sesame"
# The domains that are fetched with ATRN; the first two are those of the user `customer`, the last of `another`.
DOMAINS = ("customer.example", "branch.example", "other.example")


def make_provider(mail: GoodMail, path: Path) -> None:
    """Make a site one with three domains of two users. `path` is a directory for its certificate."""
    certificate, key = make_certificate(path)
    mail.control("smtpdcert", f":{certificate} {key}\n")
    mail.control("ondemand", "".join(f"{domain}:atrn\n" for domain in DOMAINS))
    mail.control("ondemandusers", "customer:customer.example,branch.example\nanother:other.example\n")
    verifier = make_verifier(PASSWORD.encode(), b"0123456789abcdef")
    give_users(mail, customer=verifier, another=verifier, nobody=verifier)


def give_users(mail: GoodMail, **users: Proof) -> None:
    """Give queue-smtpd the users."""
    path = Path(mail.home.control, "smtpdusers")
    path.touch(0o640)
    path.write_bytes(pack_users(UserPasswords({name.encode(): proof for name, proof in users.items()}, b"s" * 32)))


class OdmrHost:
    """A connection to the role odmr, with STARTTLS; `user` has authenticated, unless it is empty."""

    def __init__(self, smtpd: SmtpdDaemon, user: str = "customer", listener: int = 0) -> None:
        self.client = smtpd.smtp(listener)
        self.client.ehlo("host.example")
        self.client.starttls(context=trusting())
        self.client.ehlo("host.example")
        if user:
            self.client.login(user, PASSWORD)
        # Else each reply to pipelined commands waits for a delayed ACK, 40 ms.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()

    def ask(self, domains: str = "") -> int:
        """Return the code of the reply to ATRN."""
        return self.client.docmd("ATRN", domains)[0]

    def ask_again(self) -> int:
        """Return the code of the reply to ATRN, once the end of a connection before, which was cut, is noticed."""
        while (code := self.ask()) == 450:
            pass
        return code

    @property
    def connection(self) -> socket.socket:
        """The connection, for what comes after the reply."""
        found = self.client.sock
        assert found is not None
        return found

    def take(self, sink: Sink) -> None:
        """Take what comes, up to QUIT, as a sink takes it."""
        sink.serve(self.connection)


def fetch(smtpd: SmtpdDaemon, sink: Sink, domains: str = "") -> int:
    """Take all that there is; return the code of the reply to ATRN."""
    with OdmrHost(smtpd) as host:
        code = host.ask(domains)
        if code == 250:
            host.take(sink)
        return code


