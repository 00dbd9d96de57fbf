"""ATRN (RFC 2645): mail of a domain is stored at once, and goes to the host that asks for it on its own connection."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_smtp.auth_server import make_verifier
from queue_wire.control.smtpdusers import Proof, SharedSecret, UserPasswords, pack_users
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.home import make_several
from support.queues.letters import letter_text, token_of
from support.servers.certificate import make_certificate
from support.servers.smtp.sink import Sink
from support.smtpd.odmr_host import PASSWORD, OdmrHost, fetch
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

STORED = r"^delivery \d+: success: stored_for_(customer|branch|other)\.example/Its_host_asks_for_it_with_ATRN"
ENDED = r"^ondemand customer\.example ended: "
DOMAINS = ("customer.example", "branch.example", "other.example")


@pytest.fixture
def provider(mail: GoodMail, tmp_path: Path) -> GoodMail:
    """Give a site with three domains of two users."""
    certificate, key = make_certificate(tmp_path)
    mail.control("smtpdcert", f":{certificate} {key}\n")
    mail.control("ondemand", "".join(f"{domain}:atrn\n" for domain in DOMAINS))
    mail.control("ondemandusers", "customer:customer.example,branch.example\nanother:other.example\n")
    verifier = make_verifier(PASSWORD.encode(), b"0123456789abcdef")
    give_users(mail, customer=verifier, another=verifier, nobody=verifier)
    return mail


def give_users(mail: GoodMail, **users: Proof) -> None:
    path = Path(mail.home.control, "smtpdusers")
    path.touch(0o640)
    path.write_bytes(pack_users(UserPasswords({name.encode(): proof for name, proof in users.items()}, b"s" * 32)))


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as found:
        yield found


def send(mail: GoodMail, suite: Suite, *tokens: str, domain: str = "customer.example", user: str = "ann") -> None:
    """Send messages, and wait until they are stored."""
    before = suite.count(STORED)
    for token in tokens:
        done = enqueue(mail.home, b"joe@me.example.org", [f"{user}@{domain}".encode()], letter_text(token))
        assert done.returncode == 0, done.stderr
    suite.wait_for(STORED, times=before + len(tokens))


def tokens(sink: Sink) -> list[str]:
    return [token_of(taken.content) for taken in list(sink.taken)]


def test_a_host_gets_the_mail_of_its_domains_in_order_on_its_own_connection(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "c1", "c2")
        send(provider, suite, "b1", domain="branch.example")
        send(provider, suite, "o1", domain="other.example")
        send(provider, suite, "c3")
        assert fetch(smtpd, sink) == 250
        assert tokens(sink) == ["c1", "c2", "c3", "b1"]
        suite.wait_for(r"^ondemand customer\.example started: atrn")
        suite.wait_for(r"^ondemand customer\.example done \S+: to ann@customer\.example success: 127\.0\.0\.1_accepted")
        suite.wait_for(r"^ondemand branch\.example ended: delivered 1 failed 0 deferred 0")
        assert fetch(smtpd, sink) == 453
        assert fetch(smtpd, sink, "branch.example,customer.example") == 453
        smtpd.wait_for(b": atrn customer.example,branch.example: 250")
        smtpd.wait_for(b": end ATRN: messages 0 errors 0 ")
        smtpd.wait_for(b": refused ATRN customer.example,branch.example: 453_4.2.0_You_have_no_mail")
    assert not provider.sink.taken, "nothing was tried by ordinary routing"


def test_one_of_the_domains_may_be_asked_for_and_no_other_users(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr", "mx"]) as smtpd:
        send(provider, suite, "c1")
        send(provider, suite, "b1", domain="branch.example")
        send(provider, suite, "o1", domain="other.example")
        for domains in ("other.example", "customer.example,other.example", "nowhere.example"):
            assert fetch(smtpd, sink, domains) == 450
        with OdmrHost(smtpd, "nobody") as host:
            assert host.ask() == 450
        assert fetch(smtpd, sink, "Branch.Example") == 250
        assert tokens(sink) == ["b1"]
        with OdmrHost(smtpd, "") as host:
            assert host.ask() == host.client.docmd("MAIL FROM:<>")[0] == 530
        with OdmrHost(smtpd) as host:
            assert host.ask("a..b") == 501
            assert host.client.docmd("MAIL FROM:<>")[0] == 502
        with smtpd.smtp(1) as stranger:
            stranger.ehlo()
            assert stranger.docmd("ATRN")[0] == 502
            assert stranger.docmd("ETRN", "customer.example")[0] == 459, "nobody but its host knows where it is"


def test_without_queue_ondemand_or_a_line_the_host_is_told_to_come_again(provider: GoodMail, sink: Sink) -> None:
    with SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        assert fetch(smtpd, sink) == 451
        provider.control("ondemand", "customer.example:etrn\nbranch.example:atrn\n")
        with Suite(provider.home):
            assert fetch(smtpd, sink) == 451


def test_while_a_host_takes_its_mail_another_one_of_the_user_is_busy_and_other_users_are_not(
    provider: GoodMail, sink: Sink
) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "c1")
        send(provider, suite, "o1", domain="other.example")
        with OdmrHost(smtpd) as stalled:
            assert stalled.ask() == 250
            assert fetch(smtpd, sink) == 450
            assert fetch(smtpd, sink, "customer.example") == 450
            with OdmrHost(smtpd, "another") as host:
                assert host.ask() == 250
                host.take(sink)
            assert tokens(sink) == ["o1"]
        suite.wait_for(r"^ondemand customer\.example ended: delivered 0 failed 0 deferred 1")
        assert fetch(smtpd, sink) == 250
        assert tokens(sink) == ["o1", "c1"]


def test_what_the_host_refuses_is_returned_and_what_it_defers_stays(provider: GoodMail, sink: Sink) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd:
        send(provider, suite, "refused", user="refused")
        send(provider, suite, "never", user="never")
        send(provider, suite, "good")
        assert fetch(smtpd, sink) == 250
        assert tokens(sink) == ["good"]
        suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 1 deferred 1")
        suite.wait_for(r"^ondemand customer\.example bounced ")
        wait_until(lambda: len(provider.site.delivered()) == 1, why="the bounce")
        assert fetch(smtpd, sink) == 250, "what was deferred is there still"


def test_fetchmail_takes_mail_in_its_odmr_mode(provider: GoodMail, sink: Sink, tmp_path: Path) -> None:
    give_users(provider, customer=SharedSecret(PASSWORD.encode()))
    rc = tmp_path / "fetchmailrc"
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmrs"]) as smtpd:
        send(provider, suite, "f1", "f2")
        rc.touch(0o600)
        rc.write_text(
            f"poll 127.0.0.1 protocol ODMR service {smtpd.ports[0]} timeout 20\n"
            f'plugin "{need("openssl")} s_client -quiet -connect %h:%p"\n'
            f'user customer password "{PASSWORD}"\n'
            f"smtphost 127.0.0.1/{sink.port} fetchdomains customer.example branch.example\n"
        )
        command = [need("fetchmail"), "-f", str(rc), "-v"]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
        assert tokens(sink) == ["f1", "f2"], done.stdout + done.stderr
        suite.wait_for(r"^ondemand customer\.example ended: delivered 2 failed 0 deferred 0")
        smtpd.wait_for(b": auth customer CRAM-MD5")


def test_the_administrator_is_told_that_the_host_has_to_ask(provider: GoodMail) -> None:
    with Suite(provider.home) as suite:
        send(provider, suite, "c1")
        suite.wait_for("^end msg ")
        command = [*program("queuectl"), "--home", provider.home.path, "flush", "--domain", "customer.example"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "customer.example: its host has to ask for what is stored, with ATRN\n" in done.stdout, done.stderr
        assert done.returncode == 1
        assert suite.count("^ondemand .* started: ") == 0


def test_mail_over_the_size_of_its_domain_stays_in_the_queue_and_is_not_tried(provider: GoodMail) -> None:
    provider.control("ondemand", "customer.example:atrn size 1\n")
    with Suite(provider.home) as suite:
        done = enqueue(provider.home, b"joe@me.example.org", [b"ann@customer.example"], letter_text("large"))
        assert done.returncode == 0, done.stderr
        line = suite.wait_for(r"^delivery 1: ")
        assert re.search(r"deferral: Its_host_asks_for_it_with_ATRN\./unable_to_store_it:_disk_quota_exceeded/", line)
    assert not provider.sink.taken


def test_with_several_queues_each_delivers_on_the_same_connection(
    provider: GoodMail, sink: Sink, tmp_path: Path
) -> None:
    home = make_several(tmp_path / "home", "a", "b", "c", split=3)
    for name in ("me", "ondemand", "ondemandusers", "smtpdcert", "smtpdusers"):
        Path(home.control, name).write_bytes(Path(provider.home.control, name).read_bytes())
    Path(home.control, "smtpdusers").chmod(0o640)
    with ExitStack() as stack:
        sets = [stack.enter_context(Suite(home, options=("--queue", name))) for name in home.queues]
        words = [*program("queue-inject"), "--home", home.path, "-fjoe@me.example.org", "ann@customer.example"]
        for number in range(12):
            done = subprocess.run(words, input=letter_text(f"m{number}"), capture_output=True, timeout=60)
            assert done.returncode == 0, done.stderr
        wait_until(lambda: sum(suite.count(STORED) for suite in sets) == 12, why="the storing")
        assert sum(suite.count(STORED) > 0 for suite in sets) > 1, "the mail is in more than one queue"
        with SmtpdDaemon(home, ["odmr"]) as smtpd:
            assert fetch(smtpd, sink) == 250
            assert sorted(tokens(sink)) == sorted(f"m{number}" for number in range(12))
            smtpd.wait_for(b": end ATRN: ")
            assert fetch(smtpd, sink) == 453


class CutSink(Sink):
    """A sink that closes a connection for good after so many bytes have come."""

    left = 0

    def cut(self, connection: "OdmrHost", left: int) -> None:
        """Take mail until so many bytes have come. What is answered to them may be lost."""
        self.left = left
        try:
            self.serve(_CutConnection(self, connection))  # type: ignore[arg-type]
        except OSError:
            pass


class _CutConnection:
    def __init__(self, sink: CutSink, host: OdmrHost) -> None:
        self._sink = sink
        self._host = host

    def recv(self, most: int) -> bytes:
        if not self._sink.left:
            return b""
        data = self._host.connection.recv(min(most, self._sink.left))
        self._sink.left -= len(data)
        return data

    def sendall(self, data: bytes) -> None:
        self._host.connection.sendall(data)


@pytest.mark.parametrize(("count", "cuts"), [(4, 6), pytest.param(500, 40, marks=pytest.mark.exhaustive)])
def test_cut_at_any_place_nothing_is_lost_and_little_comes_twice(provider: GoodMail, count: int, cuts: int) -> None:
    with Suite(provider.home) as suite, SmtpdDaemon(provider.home, ["odmr"]) as smtpd, CutSink() as sink:
        names = [f"m{number}" for number in range(count)]
        send(provider, suite, *names)
        # EHLO, then an envelope, a message, and so on; later cuts are behind some messages.
        step = (len(letter_text(names[0])) + 150) * max(1, count // cuts) // 2
        for place in range(cuts):
            with OdmrHost(smtpd) as host:
                assert host.ask() == 250
                sink.cut(host, 20 + place * step // 3)
            suite.wait_for(ENDED, times=place + 1)
        assert fetch(smtpd, sink) == 250
        suite.wait_for(ENDED, times=cuts + 1)
        assert fetch(smtpd, sink) == 453
        came = tokens(sink)
    assert set(came) == set(names)
    assert len(came) <= count + cuts, "a cut repeats one message at most"
