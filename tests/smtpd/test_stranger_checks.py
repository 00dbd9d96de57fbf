"""Strangers are looked up at RCPT: which ones, for which recipients, and what they are told."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_smtp.server_replies import GREYLISTED, LISTED
from queue_smtpd.sessions.session import StrangerWanted
from support.inject.injectors import shared_home
from support.processes.suite import wait_until
from support.servers.dns.dns_server import DnsServer
from support.smtpd.sessions import STRANGER, DrivenSession
from support.smtpd.smtpd_daemon import SmtpdDaemon

MAIL = b"EHLO c\r\nMAIL FROM:<a@example.net>\r\n"
JOE, ANN, POSTMASTER = [b"RCPT TO:<%s@example.org>\r\n" % name for name in (b"joe", b"ann", b"PostMaster")]
REFUSED = LISTED._replace(text=b"Your address 198.51.100.7 is listed by bl.example (127.0.0.2)")
SAID = b"550 5.7.1 Your address 198.51.100.7 is listed by bl.example (127.0.0.2)\r\n"


def test_a_listed_client_is_refused_at_rcpt_and_asked_about_once() -> None:
    driven = DrivenSession(dnslists=True, refusal=REFUSED)
    driven.feed(MAIL)
    assert driven.feed(JOE) == driven.feed(ANN) == SAID
    assert driven.checks == [StrangerWanted("198.51.100.7", b"a@example.net", b"joe@example.org", True, False)]
    text = b"550_5.7.1_Your_address_198.51.100.7_is_listed_by_bl.example_(127.0.0.2)"
    assert b"smtp 12: refused RCPT <joe@example.org>: " + text + b" client 198.51.100.7" in driven.lines


def test_a_listed_client_can_write_to_postmaster() -> None:
    driven = DrivenSession(dnslists=True, greylist=True, refusal=REFUSED)
    driven.feed(MAIL)
    assert driven.feed(POSTMASTER).startswith(b"250 ")
    assert driven.feed(JOE) == SAID
    assert len(driven.checks) == 1


def test_who_is_in_no_list_is_asked_about_once() -> None:
    driven = DrivenSession(dnslists=True)
    driven.feed(MAIL)
    assert driven.feed(JOE)[:4] == driven.feed(ANN)[:4] == b"250 "
    assert [(check.recipient, check.lists) for check in driven.checks] == [(b"joe@example.org", True)]


def test_the_greylist_is_asked_for_each_recipient() -> None:
    driven = DrivenSession(dnslists=True, greylist=True, refusal=GREYLISTED)
    driven.feed(MAIL)
    assert driven.feed(JOE) == driven.feed(ANN) == b"451 4.7.1 Greylisted; try again later\r\n"
    assert [(check.recipient, check.lists, check.greylist) for check in driven.checks] == [
        (b"joe@example.org", True, True),
        (b"ann@example.org", False, True),
    ]


@pytest.mark.parametrize("client", [STRANGER._replace(relays=True), STRANGER._replace(user=b"joe")])
def test_who_may_relay_is_not_looked_up(client: object) -> None:
    assert isinstance(client, type(STRANGER))
    driven = DrivenSession(client, dnslists=True, greylist=True, refusal=REFUSED)
    driven.feed(MAIL)
    assert driven.feed(JOE).startswith(b"250 ")
    assert not driven.checks


def test_recipients_that_are_refused_anyway_are_not_looked_up() -> None:
    driven = DrivenSession(dnslists=True, greylist=True)
    driven.feed(MAIL)
    assert driven.feed(b"RCPT TO:<x@elsewhere.example>\r\n").startswith(b"550 5.7.1 Relaying denied")
    assert not driven.checks


@pytest.fixture
def smtpd_home() -> Iterator[Home]:
    """Yield a home that takes mail for example.org, and does not look up recipients."""
    with shared_home(0) as home:
        Path(home.control, "rcpthosts").write_text("example.org\n")
        Path(home.control, "checkrcpt").write_text("0\n")
        yield home


def test_a_daemon_asks_the_lists_of_its_control_file(smtpd_home: Home) -> None:
    control = Path(smtpd_home.control)
    with DnsServer({("1.0.0.127.bl.example", "A"): ["127.0.0.4"]}) as server:
        control.joinpath("resolver").write_text(f"127.0.0.1:{server.port}\n")
        control.joinpath("dnslists").write_text("bl.example 127.0.0.4 Ask %IP%'s owner\n")
        with SmtpdDaemon(smtpd_home) as daemon, daemon.smtp() as client:
            client.ehlo("c")
            client.mail("a@example.net")
            told = (550, b"5.7.1 Your address 127.0.0.1 is listed by bl.example (127.0.0.4); Ask 127.0.0.1's owner")
            assert client.rcpt("joe@example.org") == told
            assert client.rcpt("postmaster@example.org")[0] == 250
            daemon.wait_for(b"refused RCPT <joe@example.org>: 550_5.7.1_Your_address_127.0.0.1_is_listed_by_bl.example")


def test_a_daemon_greylists_and_remembers_in_its_directory(smtpd_home: Home) -> None:
    control = Path(smtpd_home.control)
    control.joinpath("greylist").write_text("delay 1s\n")
    with SmtpdDaemon(smtpd_home) as daemon, daemon.smtp() as client:
        client.ehlo("c")
        client.mail("a@example.net")
        assert client.rcpt("joe@example.org") == (451, b"4.7.1 Greylisted; try again in 1 seconds")
        assert client.rcpt("postmaster@example.org")[0] == 250
        daemon.wait_for(b"refused RCPT <joe@example.org>: 451_4.7.1_Greylisted;_try_again_in_1_seconds")
        wait_until(lambda: client.rcpt("joe@example.org")[0] == 250, 60, "the delay to be over")
    assert Path(smtpd_home.greylist, "greylist.sqlite").exists()


def test_limits_change_at_hup(smtpd_home: Home) -> None:
    limits = Path(smtpd_home.control, "smtpdlimits")
    limits.write_text("connections 0\n")
    with SmtpdDaemon(smtpd_home) as daemon, daemon.connect() as held:
        assert held.recv(100).startswith(b"220 ")

        def told() -> bytes:
            with daemon.connect() as another:
                return another.recv(100)

        assert told().startswith(b"220 ")
        limits.write_text("connections 0\nconcurrency 1\n")
        daemon.process.send_signal(signal.SIGHUP)
        refusal = b"421 4.7.0 Too many connections at once from your address\r\n"
        wait_until(lambda: told() == refusal, 60, "the new limit")
        daemon.wait_for(b"refused connect: 421_4.7.0_Too_many_connections_at_once")
