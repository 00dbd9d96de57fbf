"""A mail exchanger that turns out to be this host, behind an address that is not its own: mail loops back to me."""

import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from queue_remote.route.this_host import ThisHost, own_names
from queue_smtp.client import ClientState, Session, SmtpClient
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, TEMPORARY, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.dns_server import DnsServer
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"
# Mail exchangers are asked at port 25, and loopback addresses are this host's.
ELSEWHERE = """
import sys
from queue_remote import main
from queue_remote.route import this_host
from queue_remote.route import router
router.SMTP_PORT = int(sys.argv[1])
this_host.ThisHost.is_address = lambda self, address: False
sys.exit(main.main(["queue-remote", "--home", sys.argv[2]]))
"""
RECORDS = {
    ("b.example", "MX"): ["10 near.example."],
    ("down.example", "MX"): ["10 refusing.example.", "20 near.example."],
    ("near.example", "A"): ["127.0.0.2"],
    ("refusing.example", "A"): ["127.0.0.3"],
    ("plain.example", "A"): ["127.0.0.2"],
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[RemoteHome]:
    home = RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="20", connectionidle="0")
    with DnsServer(RECORDS) as dns:
        home.control("resolver", f"127.0.0.1:{dns.port}")
        yield home


def deliver(home: RemoteHome, greeting: bytes, hello: bytes, nexthop: bytes = b"b.example") -> Report:
    """Deliver to a server that greets and answers EHLO with these names, and takes what comes after that."""

    def script(peer: Peer) -> None:
        peer.say(b"220 " + greeting)
        peer.hear()
        peer.say(b"250-" + hello, b"250 PIPELINING")
        if peer.hear().startswith(b"MAIL"):
            peer.say(b"250 ok")
            peer.hear()
            peer.say(b"250 ok")
            peer.hear()
            peer.say(b"354 go")
            peer.hear_message()
            peer.say(b"250 done")

    with RawServer(script, "127.0.0.2") as server:
        if nexthop == b"relayed.example":
            home.control("smtproutes", f"relayed.example:127.0.0.2:{server.port}")
        with RemoteDaemon(home, [sys.executable, "-c", ELSEWHERE, str(server.port)]) as daemon:
            return daemon.deliver(home.message(TEXT), b"to@b.example", nexthop=nexthop)


@pytest.mark.parametrize("nexthop", [b"b.example", b"plain.example"])
@pytest.mark.parametrize("greeting", [b"client.example ESMTP", b"Client.Example. hi", b"ESMTP"])
def test_a_host_that_answers_by_our_name_is_us(home: RemoteHome, nexthop: bytes, greeting: bytes) -> None:
    report = deliver(home, greeting, b"CLIENT.example Hello [192.0.2.1]", nexthop)
    assert report.scope == MESSAGE_SCOPE
    [(letter, text)] = report.verdicts
    assert letter == PERMANENT
    assert b"(#5.4.6)" in text
    assert nexthop + b": mail loops back to me: 127.0.0.2 (" in text
    assert text.endswith(b"answers with my own name.\n")


def test_the_name_that_ehlo_gives_is_ours_too(home: RemoteHome) -> None:
    home.control("helohost", "out.example")
    assert deliver(home, b"out.example", b"out.example").verdicts[0][0] == PERMANENT


@pytest.mark.parametrize(
    ("greeting", "hello"),
    [
        (b"mx.b.example ESMTP", b"mx.b.example"),
        # Servers that repeat what they were told.
        (b"mx.b.example ESMTP", b"client.example pleased to meet you"),
        (b"client.example", b"mx.b.example"),
    ],
)
def test_a_host_with_a_name_of_its_own_is_not_us(home: RemoteHome, greeting: bytes, hello: bytes) -> None:
    assert deliver(home, greeting, hello).verdicts[0][0] == b"K"


@pytest.mark.parametrize("nexthop", [b"relayed.example", b"[127.0.0.2]"])
def test_a_host_that_a_person_chose_may_be_us(home: RemoteHome, nexthop: bytes) -> None:
    assert deliver(home, b"client.example", b"client.example", nexthop).verdicts[0][0] == b"K"


def test_mail_whose_better_host_is_down_waits_for_it(home: RemoteHome) -> None:
    report = deliver(home, b"client.example", b"client.example", b"down.example")
    assert report.scope == HOST_SCOPE
    [(letter, text)] = report.verdicts
    assert letter == TEMPORARY
    assert b"127.0.0.3 (refusing.example): connect: connection refused" in text


def test_names_that_many_hosts_have_are_not_ours() -> None:
    names = own_names(b"Mail.A.Example.", b"mail", b"localhost", b"localhost.localdomain")
    assert names == {b"mail.a.example"}


def test_the_state_machine_parts_from_itself_in_good_order() -> None:
    client = SmtpClient(Session(b"192.0.2.1", b"a.example", esmtp=False, ours=frozenset([b"a.example"])))
    client.feed(b"220 a.example\r\n")
    client.feed(b"250 a.example\r\n")
    assert client.data_to_send().endswith(b"\r\nQUIT\r\n")
    assert (client.state, client.looped) == (ClientState.QUIT, True)


def test_interfaces_that_the_library_cannot_read_stop_no_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EAFNOSUPPORT, "no netlink")

    monkeypatch.setattr(psutil, "net_if_addrs", fail)
    host = ThisHost(b"mx.example.org")
    assert not host.is_address("192.0.2.1")
    assert host.is_address("127.0.0.1")
