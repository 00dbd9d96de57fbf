"""A program of this host that speaks SMTP may send to everybody and has no limits; no proxy makes a client one."""

from pathlib import Path

import pytest

from queue_base.home import Home
from queue_smtpd.sessions.client_facts import is_this_host
from support.intake.intake_daemon import IntakeDaemon
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = pytest.mark.home(
    # It takes mail for example.org, and its strangers have narrow limits.
    "ours",
    rcpthosts="example.org",
    smtpdlimits="connections 2\nerrors 1\npause 60",
    greylist="",
)

ANN, EVE = "ann@example.net", "eve@example.com"
EHLO = b"EHLO c.example\r\n"
RELAYED = b"MAIL FROM:<ann@example.net>\r\nRCPT TO:<eve@example.com>\r\nQUIT\r\n"
DENIED = b"550 5.7.1 Relaying denied: that domain is not in the list of allowed rcpthosts"
TAKEN = b"250 2.1.5 Recipient ok"


def said(daemon: SmtpdDaemon, sent: bytes) -> bytes:
    """Return the last reply but one, to a recipient, of a connection that sends this at once."""
    with daemon.connect() as connection:
        connection.sendall(sent)
        found = b""
        while data := connection.recv(65536):
            found += data
    return found.splitlines()[-2]


@pytest.mark.parametrize("role", ["mx", "submission"])
def test_a_program_of_this_host_sends_to_everybody_and_has_no_limits(home: Home, role: str) -> None:
    with IntakeDaemon(home), SmtpdDaemon(home, (role,), strangers=False) as daemon:
        for _ in range(5):
            with daemon.smtp() as client:
                assert client.sendmail(ANN, [EVE], "Subject: hello\r\n\r\nHow are you?\r\n") == {}


@pytest.mark.parametrize("lines", ["", "192.0.2.0/24\n"])
def test_relayclients_says_otherwise_even_if_it_is_empty(home: Home, lines: str) -> None:
    Path(home.control, "smtpdlimits").unlink()
    Path(home.control, "relayclients").write_text(lines)
    with SmtpdDaemon(home, strangers=False) as daemon:
        assert said(daemon, EHLO + RELAYED) == DENIED


@pytest.mark.parametrize(
    "sent",
    [
        b"PROXY TCP4 127.0.0.1 127.0.0.1 40000 25\r\n",
        b"PROXY TCP6 ::1 ::1 40000 25\r\n",
        b"PROXY TCP4 198.51.100.7 198.51.100.7 40000 25\r\n",
        b"PROXY UNKNOWN\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ],
)
def test_no_proxy_header_makes_a_stranger_a_program_of_this_host(home: Home, sent: bytes) -> None:
    Path(home.control, "smtpdlimits").unlink()
    Path(home.control, "proxyclients").write_text("127.0.0.1\n")
    with SmtpdDaemon(home, ("mx proxy",), strangers=False) as daemon:
        assert said(daemon, sent + EHLO + RELAYED) == DENIED


@pytest.mark.parametrize(
    "sent", [b"", *[b"XCLIENT %s\r\n" % x for x in (b"ADDR=127.0.0.1", b"ADDR=IPV6:::1 DESTADDR=IPV6:::1", b"NAME=c")]]
)
def test_the_client_of_a_proxy_with_xclient_is_a_stranger_whatever_the_proxy_says(home: Home, sent: bytes) -> None:
    Path(home.control, "smtpdlimits").unlink()
    Path(home.control, "xclients").write_text("127.0.0.1\n")
    with SmtpdDaemon(home, strangers=False) as daemon:
        assert said(daemon, EHLO + sent + EHLO + RELAYED) == DENIED


def test_a_balancer_of_this_host_is_no_program_of_it_on_a_listener_without_proxy(home: Home) -> None:
    Path(home.control, "smtpdlimits").unlink()
    Path(home.control, "proxyclients").write_text("127.0.0.1\n")
    with SmtpdDaemon(home, strangers=False) as daemon:
        assert said(daemon, b"PROXY TCP4 198.51.100.7 192.0.2.1 1 25\r\n" + EHLO + RELAYED) == DENIED


@pytest.mark.parametrize(
    ("client", "server", "own"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.2", True),
        ("::1", "::1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.2", "192.0.2.1", False),
        ("128.0.0.1", "127.0.0.1", False),
        ("::2", "::1", False),
        ("", "", False),
    ],
)
def test_this_host_is_its_loopback_and_the_address_that_was_called(client: str, server: str, own: bool) -> None:
    assert is_this_host(client, server) is own
