"""Who the client behind a proxy is, by XCLIENT and by the PROXY protocol, and that other hosts cannot say so."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from queue_base.home import Home
from queue_smtp.proxy_header import ProxiedConnection
from queue_smtpd.auth.authenticator import Authenticator
from queue_smtpd.intake_links import IntakeLinks
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.proxy_reader import HEADER_SECONDS, ProxyHeaderReader, ProxyReaders
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.sessions.client_facts import ClientFacts, TlsFacts, replace_client
from queue_smtpd.smtp_connection import BegunSession, OpenConnections, SmtpConnection
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.greeting_pauses import GreetingPauses
from queue_smtpd.strangers.stranger_checks import StrangerChecks
from queue_wire.control.networks import unpack_networks
from queue_wire.control.strangers.smtpdlimits import ClientLimit
from support.inject.injectors import only, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.servers.certificate import make_certificate
from support.smtpd.milter_server import MilterServer
from support.smtpd.sessions import UNLIMITED, DrivenSession, make_session
from support.smtpd.smtpd_daemon import SmtpdDaemon, trusting
from support.smtpd.smtpd_process import GivenSession

PROXY = ClientFacts("203.0.113.9", "192.0.2.1")
GREETING = b"220 mx.example.org ESMTP\r\n"
EHLO = b"EHLO c.example\r\n"
ENVELOPE = b"MAIL FROM:<ann@example.net>\r\nRCPT TO:<joe@example.org>\r\n"
RELAYED = b"MAIL FROM:<ann@example.net>\r\nRCPT TO:<eve@example.com>\r\n"
MESSAGE = b"DATA\r\nSubject: hello\r\n\r\nHow are you?\r\n.\r\n"
DENIED = b"550 5.7.1 Relaying denied: that domain is not in the list of allowed rcpthosts"
HEADER = b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 25\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
BINARY = SIGNATURE + struct.pack("!BBH4s4sHH", 0x21, 0x11, 12, b"\xc6\x33\x64\x07", b"\xc0\0\2\1", 40000, 25)


def proxied(limits: ClientLimits | None = None, greylist: bool = False) -> DrivenSession:
    """Return a session of a host that may use XCLIENT."""
    return DrivenSession(PROXY, client_limits=limits, xclients=b"203.0.113.0/24", greylist=greylist)


# XCLIENT.


def test_only_listed_hosts_see_xclient_and_may_use_it() -> None:
    stranger = DrivenSession(xclients=b"203.0.113.0/24")
    assert b"XCLIENT" not in stranger.feed(EHLO)
    assert stranger.feed(b"XCLIENT ADDR=192.0.2.5\r\n") == b"550 5.7.0 Not authorized to use XCLIENT\r\n"
    assert stranger.clients == []
    assert stranger.feed(RELAYED).splitlines()[-1] == DENIED
    proxy = proxied()
    for attribute in (b"NAME=c.example", b"ADDR=203.0.113.10", b"ADDR=192.0.2.5"):
        assert b"250-XCLIENT NAME ADDR PORT PROTO HELO LOGIN DESTADDR DESTPORT\r\n" in proxy.feed(EHLO)
        assert proxy.feed(b"XCLIENT %s\r\n" % attribute) == GREETING
    # The client that it names, whose commands it may pass on, is not listed; as in Postfix.
    assert b"XCLIENT" not in proxy.feed(EHLO)
    assert proxy.feed(b"XCLIENT ADDR=198.51.100.7\r\n") == b"550 5.7.0 Not authorized to use XCLIENT\r\n"
    assert proxy.feed(RELAYED).endswith(b"250 2.1.5 Recipient ok\r\n")


def test_the_client_that_xclient_names_has_a_session_of_its_own() -> None:
    session = proxied()
    said = session.feed(
        EHLO + b"XCLIENT NAME=c+41.example ADDR=IPV6:2001:DB8::7 PORT=40001 HELO=h PROTO=ESMTP "
        b"DESTADDR=192.0.2.2 DESTPORT=26\r\n" + ENVELOPE + EHLO + ENVELOPE + MESSAGE
    )
    lines = said.split(GREETING)[1].splitlines()
    # As at the beginning, EHLO comes first.
    assert lines[0].startswith(b"503 5.5.1 ") and lines[-1].startswith(b"250 2.6.0 ")
    assert [(each.address, each.port, each.server_port) for each in session.clients] == [("2001:db8::7", 40001, 26)]
    text, _, _ = session.messages[0]
    assert text.startswith(b"Received: from c.example (cA.example [IPv6:2001:db8::7])\n")
    assert session.lines[:3] == [
        b"smtp 12: connect 203.0.113.9:40000 unknown to 192.0.2.1:25",
        b"smtp 12: end XCLIENT: messages 0 errors 0 seconds 1",
        b"smtp 12: connect [2001:db8::7]:40001 cA.example to 192.0.2.2:26",
    ]
    status = session.session.status("command", 26, 3.0)
    assert (status.client, status.name, status.messages) == ("2001:db8::7", "cA.example", 1)


def test_a_login_counts_until_the_next_client() -> None:
    for attributes in (b"ADDR=198.51.100.8", b"LOGIN=[UNAVAILABLE]", b"NAME=c.example"):
        session = proxied()
        session.feed(EHLO + b"XCLIENT LOGIN=jo+65\r\n")
        assert session.feed(EHLO + RELAYED).endswith(b"250 2.1.5 Recipient ok\r\n")
        assert session.lines[3] == b"smtp 12: auth joe XCLIENT"
        assert session.feed(b"XCLIENT ADDR=198.51.100.8\r\n").startswith(b"503 5.5.1 Not during")
        assert session.feed(b"RSET\r\nXCLIENT %s\r\n" % attributes).endswith(GREETING)
        assert session.feed(EHLO + RELAYED).splitlines()[-1] == DENIED


@pytest.mark.parametrize("value", [b"[UNAVAILABLE]", b"[TEMPUNAVAIL]", b"[unavailable]"])
def test_what_the_proxy_does_not_know_is_not_that_of_the_proxy(value: bytes) -> None:
    session = DrivenSession(PROXY._replace(name=b"proxy.example", relays=True), suffix=b"x", xclients=b"203.0.113.9")
    assert session.feed(EHLO + b"XCLIENT ADDR=%s NAME=%s PORT=%s LOGIN=%s\r\n" % (value, value, value, value))
    assert session.lines[-1] == b"smtp 12: connect unknown:0 unknown to 192.0.2.1:25"
    again = DrivenSession(PROXY, xclients=b"203.0.113.9")
    again.feed(EHLO + b"XCLIENT ADDR=198.51.100.8 PORT=4 DESTADDR=%s\r\n" % value)
    assert again.lines[-1] == b"smtp 12: connect 198.51.100.8:4 unknown to unknown:25"
    assert session.session.status("command", 25, 1.0).client == "unknown"
    # Neither RELAYCLIENT nor its value is for the client.
    assert session.feed(EHLO + RELAYED).splitlines()[-1] == DENIED
    session.feed(b"RCPT TO:<joe@example.org>\r\nDATA\r\n.\r\n")
    assert b" (unknown [unknown])\n" in session.messages[0][0]


def test_facts_of_another_client_and_of_the_same_one() -> None:
    client = ClientFacts("203.0.113.9", "192.0.2.1", b"p", b"h", True, TlsFacts(b"TLSv1.3", b"x"), b"u", True, b"PLAIN")
    same = replace_client(client, {b"HELO": b"c", b"PROTO": b"ESMTP"})
    assert same == ClientFacts("203.0.113.9", "192.0.2.1", b"p", b"c", True, client.tls)
    other = replace_client(client, {b"ADDR": b"::ffff:198.51.100.7", b"LOGIN": b"joe", b"PROTO": b"SMTP"})
    assert other == ClientFacts("198.51.100.7", "192.0.2.1", tls=client.tls, user=b"joe", mechanism=b"XCLIENT")


def test_limits_are_those_of_the_client_and_not_of_the_proxy() -> None:
    limits = ClientLimits(UNLIMITED._replace(connections=ClientLimit(1, 0), pause=60))
    for _ in range(3):
        # The proxy itself has none, and waits for no greeting.
        assert proxied(limits).greeting == GREETING
    session = proxied(limits)
    assert session.feed(EHLO + b"XCLIENT ADDR=198.51.100.7\r\n").endswith(GREETING)
    session = proxied(limits)
    refusal = b"\r\n421 4.7.0 Too many connections from your address\r\n"
    assert session.feed(EHLO + b"XCLIENT ADDR=198.51.100.7\r\n" + EHLO).endswith(refusal)
    assert session.session.over
    assert session.lines[-2:] == [
        b"smtp 12: refused connect: 421_4.7.0_Too_many_connections_from_your_address client 198.51.100.7",
        b"smtp 12: end refused: messages 0 errors 1 seconds 0",
    ]
    assert proxied(limits).feed(EHLO + b"XCLIENT ADDR=198.51.100.8\r\n").endswith(GREETING)


def test_the_greylist_is_asked_about_the_client() -> None:
    session = proxied(greylist=True)
    session.feed(EHLO + b"XCLIENT ADDR=198.51.100.7\r\n" + EHLO + ENVELOPE)
    assert [each.address for each in session.checks] == ["198.51.100.7"]


# The PROXY protocol, without a socket.


class Transport:
    """What the reader of a header, and then the session, have done with their connection."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.said = b""
        self.aborted = self.reading = False
        self.protocol: object = None

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        if name == "peername":
            return (self.peer, 4000) if self.peer else None
        return "192.0.2.99", 2525

    def set_protocol(self, protocol: object) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class _Lines(LogWriter):
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines


class Scene:
    """A connection from 203.0.113.9, or another peer, on a listener for balancers of 203.0.113.0/24.

    `headers` are those with which sessions have begun.
    """

    def __init__(self, home: Home, peer: str = PROXY.address, pause: int = 0, xclients: bytes = b"") -> None:
        self.xclients = xclients
        loop = asyncio.get_running_loop()
        self.log = _Lines()
        authenticator, checks = Authenticator(home, self.log), StrangerChecks(home, self.log)
        self.limits = limits = ClientLimits(UNLIMITED._replace(pause=pause))
        links, lookups = IntakeLinks(home, loop), MailboxLookups(home, loop)
        open_ = OpenConnections(links, lookups, self.log, authenticator, limits, GreetingPauses(loop), checks)
        self.readers = ProxyReaders(open_, lambda: 12)
        self.readers.clients = unpack_networks(b"203.0.113.0/24")
        self.headers: list[ProxiedConnection | None] = []
        self.transport = Transport(peer)
        self.reader = ProxyHeaderReader(self._begin, self.readers, 25)
        self.reader.connection_made(cast(asyncio.Transport, self.transport))

    def _begin(self, transport: asyncio.Transport, now: float, header: ProxiedConnection | None) -> BegunSession:
        self.headers.append(header)
        address = header.client if header is not None else PROXY.address
        self.limits.hold(address)
        session = make_session(ClientFacts(address), client_limits=self.limits, xclients=self.xclients)
        return BegunSession(session, 1, 2, address=address)


@pytest.mark.parametrize("header", [HEADER, BINARY])
def test_a_header_may_come_byte_by_byte_and_the_greeting_is_behind_it(home: Home, header: bytes) -> None:
    async def play() -> None:
        scene = Scene(home)
        for place in range(len(header)):
            assert scene.transport.said == b"" and not scene.headers and len(scene.readers) == 1
            scene.reader.data_received(header[place : place + 1])
        assert len(scene.readers) == 0 and scene.readers.empty.is_set()
        assert [each.client for each in scene.headers if each] == ["198.51.100.7"]
        assert scene.transport.said == GREETING and scene.transport.protocol is not scene.reader
        # Only the client's connection is counted.
        assert scene.limits.hold("198.51.100.7") == 2
        scene.readers.run(10**9)
        assert not scene.transport.aborted

    asyncio.run(play())


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\0\0\0"])
def test_a_balancer_that_speaks_for_itself_is_the_client(home: Home, header: bytes) -> None:
    async def play() -> None:
        scene = Scene(home)
        scene.reader.data_received(header)
        assert scene.headers == [None]
        assert scene.transport.said == GREETING

    asyncio.run(play())


@pytest.mark.parametrize("sent", [b"", b"EHLO c\r\n"])
def test_who_speaks_behind_the_header_and_before_the_greeting_is_early(home: Home, sent: bytes) -> None:
    async def play() -> None:
        scene = Scene(home, pause=60)
        scene.reader.data_received(HEADER + sent)
        assert scene.transport.said == (b"554 5.5.1 You spoke before the greeting\r\n" if sent else b"")

    asyncio.run(play())


@pytest.mark.parametrize("peer", ["198.51.100.7", "::ffff:198.51.100.7", "2001:db8::1"])
def test_any_other_host_is_turned_away_unheard(home: Home, peer: str) -> None:
    async def play() -> None:
        scene = Scene(home, peer)
        assert scene.transport.aborted and len(scene.readers) == 0
        scene.reader.data_received(HEADER)
        scene.reader.connection_lost(None)
        assert scene.transport.said == b"" and scene.headers == []
        assert b" to 192.0.2.99:2525" in scene.log.lines[0]
        shown = peer.removeprefix("::ffff:").encode()
        assert scene.log.lines[1:] == [
            b"smtp 12: refused PROXY: 521_5.7.0_Host_is_not_in_control/proxyclients client %s" % shown,
            b"smtp 12: end refused: messages 0 errors 1 seconds 0",
        ]
        assert scene.limits.hold(peer) == 1

    asyncio.run(play())


def test_a_peer_that_has_gone_is_no_stranger(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home, "")
        assert scene.transport.aborted and len(scene.readers) == 0
        assert scene.log.lines[1:] == [b"smtp 12: end connection_lost: messages 0 errors 0 seconds 0"]

    asyncio.run(play())


@pytest.mark.parametrize("sent", [b"EHLO c\r\n", b"PROXY TCP4 a b 1 2\r\n", b"PROXY " + b"x" * 200, b"\0"])
def test_what_is_no_header_ends_the_connection(home: Home, sent: bytes) -> None:
    async def play() -> None:
        scene = Scene(home)
        scene.reader.data_received(sent)
        assert scene.transport.aborted and scene.headers == [] and scene.transport.said == b""
        assert scene.log.lines[1].startswith(b"smtp 12: refused PROXY: 521_5.5.2_")

    asyncio.run(play())


def test_a_header_that_is_late_or_cut_ends_the_connection(home: Home) -> None:
    async def play() -> None:
        late, cut = Scene(home), Scene(home)
        late.reader.data_received(HEADER[:-1])
        begun = asyncio.get_running_loop().time()
        late.readers.run(begun + HEADER_SECONDS - 1)
        assert not late.transport.aborted
        late.readers.run(begun + HEADER_SECONDS + 1)
        assert late.transport.aborted
        text = b"421_4.4.2_PROXY_header_did_not_come_in_time client 203.0.113.9"
        assert late.log.lines[1] == b"smtp 12: refused PROXY: " + text
        cut.reader.data_received(HEADER[:5])
        cut.reader.connection_lost(None)
        assert cut.log.lines[1:] == [b"smtp 12: end connection_lost: messages 0 errors 0 seconds 0"]
        assert len(late.readers) == len(cut.readers) == 0

    asyncio.run(play())


def test_the_connection_is_counted_for_the_client_that_xclient_names_and_for_no_other(home: Home) -> None:
    def free(limits: ClientLimits, address: str) -> bool:
        limits.hold(address)
        found = limits.connect(address, 0.0)
        limits.release(address)
        return found is None

    async def play() -> None:
        scene = Scene(home, xclients=b"203.0.113.0/24")
        limits = scene.limits
        limits.configure(UNLIMITED._replace(concurrency=ClientLimit(1, 0)))
        scene.reader.data_received(b"PROXY UNKNOWN\r\n" + EHLO)
        assert not free(limits, PROXY.address)
        connection = scene.transport.protocol
        assert isinstance(connection, SmtpConnection)
        for address, before in (("203.0.113.10", PROXY.address), ("198.51.100.8", "203.0.113.10")):
            connection.data_received(b"XCLIENT ADDR=%s DESTPORT=26\r\n" % address.encode())
            assert not free(limits, address) and free(limits, before)
        status = connection.status(1.0)
        assert (status.client, status.port) == ("198.51.100.8", 26)
        connection.connection_lost(None)
        assert free(limits, "198.51.100.8") and limits.hold("") == 1

    asyncio.run(play())


# Processes.


@pytest.fixture(scope="module")
def intake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IntakeDaemon]:
    """Yield the intake of a home with a certificate and a milter, whose proxies are on this host."""
    with shared_home(0) as home:
        control = Path(home.control)
        certificate, key = make_certificate(tmp_path_factory.mktemp("certificate"))
        for name, text in (
            ("rcpthosts", "example.org"), ("checkrcpt", "0"), ("relayclients", "192.0.2.5"),
            ("proxyclients", "127.0.0.0/8"), ("xclients", "127.0.0.1\n192.0.2.5"),
            ("smtpdcert", f":{certificate} {key}"), ("smtpdlimits", "connections 0\nconcurrency 1"),
        ):  # fmt: skip
            control.joinpath(name).write_text(text + "\n")
        with IntakeDaemon(home) as daemon:
            yield daemon


def say(connection: socket.socket, data: bytes, end: bytes) -> bytes:
    """Send bytes; return the replies until one ends so."""
    connection.sendall(data)
    found = b""
    while not found.endswith(end):
        data = connection.recv(65536)
        assert data, found
        found += data
    return found


def test_a_daemon_behind_a_balancer_and_a_proxy(intake: IntakeDaemon) -> None:
    milters = Path(intake.home.control, "milters")
    with MilterServer(Path(intake.home.path, "milter")) as milter:
        milters.write_text(f"unix:{milter.path}\n")
        milter.begin(None)
        with SmtpdDaemon(intake.home, ["mx proxy", "submissions proxy", "mx"]) as daemon:
            milters.unlink()
            with daemon.connect() as client, daemon.connect() as second, daemon.connect(2) as third:
                assert say(client, HEADER, b"ESMTP\r\n").startswith(b"220 ")
                # A connection of the same client is one too many, and one of the balancer's is not.
                assert say(second, BINARY, b"\r\n").startswith(b"421 4.7.0 Too many connections at once")
                say(third, EHLO, b"CHUNKING\r\n")
                taken = say(third, b"XCLIENT ADDR=198.51.100.7\r\n", b"\r\n")
                assert taken.startswith(b"421 4.7.0 Too many connections at once")
                assert b"550 5.7.1 " in say(client, EHLO + RELAYED + b"RSET\r\n" + ENVELOPE, b"Recipient ok\r\n")
                assert milter.macros[b"{client_addr}"] == b"198.51.100.7"
                assert milter.macros[b"{client_port}"] == b"40000"
                client.sendall(MESSAGE)
                daemon.wait_for(b"queued ")
            assert b"(unknown [198.51.100.7])" in only(intake.home).message
            assert daemon.said(b"connect 198.51.100.7:40000 unknown to 192.0.2.1:25")
            with daemon.connect(1) as client:
                client.sendall(HEADER.replace(b"100.7", b"100.8"))
                with trusting().wrap_socket(client, server_hostname="raw.example") as secured:
                    assert secured.recv(4) == b"220 "
            with daemon.connect(2) as client:
                say(client, EHLO, b"CHUNKING\r\n")
                say(client, b"XCLIENT ADDR=192.0.2.5 PORT=41\r\n", b"ESMTP\r\n")
                say(client, EHLO + RELAYED, b"Recipient ok\r\n")
                assert milter.macros[b"{client_addr}"] == b"192.0.2.5" and milter.macros[b"{client_port}"] == b"41"
                # What a milter knows of a client is not for the next one.
                known = milter.connections
                say(client, b"RSET\r\nXCLIENT ADDR=192.0.2.5 PORT=42\r\n", b"ESMTP\r\n")
                say(client, EHLO + RELAYED, b"Recipient ok\r\n")
                assert milter.macros[b"{client_port}"] == b"42" and milter.connections == known + 1
            daemon.wait_for(b"connect 192.0.2.5:41 unknown to 127.0.0.1:")


def test_under_tcpserver_relayclient_of_the_balancer_is_not_for_its_clients(intake: IntakeDaemon) -> None:
    balancer = {"TCPREMOTEIP": "127.0.0.1", "TCPREMOTEPORT": "4000", "RELAYCLIENT": ""}
    with GivenSession(intake.home, "mx", "proxy", variables=balancer) as session:
        said = session.exchange(HEADER + b"EHLO c\r\n" + RELAYED + b"QUIT\r\n")
        assert DENIED in said
    with GivenSession(intake.home, "mx", "proxy", variables=balancer) as session:
        assert b"Recipient ok" in session.exchange(b"PROXY UNKNOWN\r\nEHLO c\r\n" + RELAYED + b"QUIT\r\n")
