"""Recipients at RCPT: what queue-local would bounce is refused, and what is not known is neither taken nor refused."""

import asyncio
import select
import smtplib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.daemon.unix_sockets import listen_at
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_local.srs.srs_address import rewrite_sender
from queue_smtpd import recipient_lookups
from queue_smtpd.config import read_config
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.sessions import session
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import CHECK_SOCKET, RecipientVerdict, pack_verdict, unpack_question
from support.intake.intake_daemon import IntakeDaemon
from support.local.assigned import assign
from support.local.hanging_home import hanging
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, give
from support.local.recipient_client import RecipientClient
from support.smtpd.sessions import DrivenSession
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.smtpd.smtpd_process import GivenSession

UNKNOWN = (550, b"5.1.1 No such mailbox here")
UNDECIDED = (451, b"4.3.0 Cannot look up the recipient now")
TAKEN = (250, b"2.1.5 Recipient ok")


@pytest.fixture
def local_home(mail: MailHome) -> Iterator[MailHome]:
    """Yield a home with an alias, a virtual domain, and a queue-local."""
    control = mail.path / "control"
    (control / "locals").write_text("host.example\nsrs.example\n")
    (control / "virtualdomains").write_text("virtual.example:virt\n")
    (control / "percenthack").write_text("host.example\n")
    (control / "rcpthosts").write_text("host.example\nsrs.example\nvirtual.example\nrelayed.example\nother.example\n")
    (control / "relayrecipients").write_text("# those of the other host\nAnn@relayed.example\n")
    (control / "srs").write_text("srs.example\n")
    (control / "srssecrets").write_text("secret\n")
    (control / "srssecrets").chmod(0o600)
    mail.qmail(".qmail-postmaster", b"&x@far.example\n")
    mail.qmail(".qmail-virt-info", b"&x@far.example\n")
    mail.qmail(".qmail-virt-postmaster", b"&x@far.example\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        with RecipientClient(mail.home):
            yield mail


def test_rcpt_refuses_what_queue_local_would_bounce_and_says_so_in_the_log(local_home: MailHome) -> None:
    good = rewrite_sender(b"joe@example.net", b"srs.example", b"secret", time.time())
    forged = rewrite_sender(b"joe@example.net", b"srs.example", b"other", time.time())
    with SmtpdDaemon(local_home.home) as daemon, daemon.smtp() as client:
        for sender in ("a@far.example", ""):
            client.ehlo("c")
            assert client.mail(sender)[0] == 250
            for address in (
                "postmaster@host.example",
                "PostMaster@host.example",
                "info@virtual.example",
                "postmaster@virtual.example",
                # Another host's.
                "ann@relayed.example",
                "whoever@other.example",
                "ann%relayed.example@host.example",
                good.decode(),
            ):
                assert client.rcpt(address) == TAKEN, address
            client.rset()
        for address in (
            "x@host.example",
            "x@virtual.example",
            "bob@relayed.example",
            "bob%relayed.example@host.example",
            forged.decode(),
        ):
            # The first one of a session has its answer at once.
            with daemon.smtp() as other:
                other.ehlo("c")
                other.mail("a@far.example")
                assert other.rcpt(address) == UNKNOWN, address
        daemon.wait_for(b": refused RCPT <x@host.example>: 550_5.1.1_No_such_mailbox_here client 127.0.0.1\n")
        daemon.wait_for(b": refused RCPT <bob@relayed.example>: 550_5.1.1_No_such_mailbox_here client 127.0.0.1\n")


def test_under_a_super_server_it_is_the_same(local_home: MailHome) -> None:
    with GivenSession(local_home.home) as given, given.smtp() as client:
        client.ehlo("c")
        client.mail("a@far.example")
        assert client.rcpt("x@host.example") == UNKNOWN
        assert client.rcpt("postmaster@host.example") == TAKEN
        client.quit()


def test_with_checkrcpt_0_every_local_recipient_is_taken(local_home: MailHome) -> None:
    Path(local_home.home.control, "checkrcpt").write_text("0\n")
    with GivenSession(local_home.home) as given, given.smtp() as client:
        client.ehlo("c")
        client.mail("a@far.example")
        assert client.rcpt("x@host.example") == TAKEN
        assert client.rcpt("bob@relayed.example") == UNKNOWN
        client.quit()


def test_without_queue_local_a_recipient_is_undecided_and_the_log_says_why(mail: MailHome) -> None:
    with GivenSession(mail.home) as given, given.smtp() as client:
        client.ehlo("c")
        client.mail("a@far.example")
        assert client.rcpt("x@me.example.org") == UNDECIDED
        client.quit()
        _, lines = given.wait()
    [line] = [line for line in lines if "refused" in line]
    assert "RCPT <x@me.example.org>: 451_4.3.0_Unable_to_ask_the_recipient_checker_of_queue-local:" in line
    assert f"unable_to_connect_to_{mail.home.queue}/intake/recipients:_no_such_file_or_directory" in line


def test_a_damaged_users_cdb_is_undecided_and_the_log_says_why(local_home: MailHome) -> None:
    cdb = assign(local_home.home, f"=ann:ann:{UID}:{UID}:{local_home.alias}:::\n")
    cdb.write_bytes(cdb.read_bytes()[:-20])
    with GivenSession(local_home.home) as given, given.smtp() as client:
        client.ehlo("c")
        client.mail("a@far.example")
        assert client.rcpt("x@host.example") == client.rcpt("ann@host.example") == UNDECIDED
        client.quit()
        _, lines = given.wait()
    assert any("451_4.3.0_Trouble_reading_users/cdb:_it_is_damaged" in line for line in lines)


def is_answered(client: smtplib.SMTP) -> bool:
    """Return whether a client has an answer that it has not read."""
    assert client.sock is not None
    return bool(select.select([client.sock], [], [], 0)[0])


def test_a_home_that_hangs_holds_one_client_and_no_other(local_home: MailHome) -> None:
    home = local_home.path / "ann"
    home.mkdir()
    give(home)
    assign(local_home.home, f"+ann:ann:{UID}:{UID}:{home}:-::\n")
    with hanging(home), SmtpdDaemon(local_home.home) as daemon, daemon.smtp() as slow, daemon.smtp() as quick:
        for client in (slow, quick):
            client.ehlo("c")
            client.mail("a@far.example")
        slow.putcmd("rcpt TO:<ann@host.example>")
        for _ in range(20):
            assert quick.rcpt("postmaster@host.example") == TAKEN
        assert not is_answered(slow), "the one that hangs was answered first"
        assert slow.getreply() == UNDECIDED
        daemon.wait_for(b": refused RCPT <ann@host.example>: 451_4.3.0_The_lookup_takes_over_5_s:_a_home_directory")
        # A client that goes away leaves nothing behind.
        slow.putcmd("rcpt TO:<ann-2@host.example>")
        slow.close()
        daemon.wait_for(b": end connection_lost")
        assert quick.rcpt("postmaster@host.example") == TAKEN


def test_the_answer_to_each_unknown_recipient_comes_later_and_only_to_who_asks(local_home: MailHome) -> None:
    with SmtpdDaemon(local_home.home) as daemon, daemon.smtp() as prober, daemon.smtp() as other:
        for client in (prober, other):
            client.ehlo("c")
            client.mail("a@far.example")
        begun, waits = time.monotonic(), False
        assert prober.rcpt("x1@host.example") == UNKNOWN
        for number in range(2, 4):
            prober.putcmd(f"rcpt TO:<x{number}@host.example>")
            # Its answer comes after a second, and theirs before that.
            for _ in range(5):
                assert other.rcpt("postmaster@host.example") == TAKEN
            waits = waits or not is_answered(prober)
            assert prober.getreply() == UNKNOWN
        assert time.monotonic() - begun >= 3
        assert waits, "others were answered only when the prober was"


def test_the_delay_of_a_stranger_has_a_bound_and_others_have_none() -> None:
    driven = DrivenSession()
    found = [driven.session.mailbox_delay(MailboxFound.UNKNOWN) for _ in range(15)]
    assert found == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] + [session.DELAY_MAX] * 5
    assert driven.session.mailbox_delay(MailboxFound.EXISTS) == 0.0
    assert driven.session.mailbox_delay(MailboxFound.UNDECIDED) == 0.0


def test_a_control_file_with_an_error_is_named(home: Home) -> None:
    for name, text, why in (
        ("relayrecipients", "ann@x.example\nann\n", "line 2: neither user@domain nor @domain: 'ann'"),
        ("checkrcpt", "2\n", "line 1: not a number from 0 to 1: '2'"),
        ("localroutes", "x.example\n", "line 1: it has no colon"),
    ):
        path = Path(home.control, name)
        path.write_text(text)
        with pytest.raises(Temporary, match=f"{name} {why}"):
            read_config(home)
        path.unlink()


class _Checker:
    """A checker that answers as a test says."""

    def __init__(self, home: Home) -> None:
        self.listening = listen_at(f"{home.queue}/{CHECK_SOCKET}", 5)
        self.reader = NetstringReader()

    async def questions(self, count: int) -> list[int]:
        """Return the numbers of the questions that come."""
        loop = asyncio.get_running_loop()
        self.connection, _ = await loop.sock_accept(self.listening)
        self.connection.setblocking(False)
        numbers: list[int] = []
        while len(numbers) < count:
            self.reader.feed(await loop.sock_recv(self.connection, 65536))
            while (payload := self.reader.next()) is not None:
                numbers.append(unpack_question(payload).number)
        return numbers


def test_answers_may_come_in_any_order_and_what_is_lost_is_undecided(home: Home) -> None:
    async def play() -> list[tuple[bytes, MailboxFound]]:
        checker = _Checker(home)
        asker = MailboxLookups(home, asyncio.get_running_loop())
        found: list[tuple[bytes, MailboxFound]] = []

        def ask(name: bytes, now: float = 0.0) -> int:
            wanted = MailboxWanted(name + b"@h", None, name + b"@h")
            return asker.ask(wanted, lambda what, why: found.append((name, what)), now)

        for name in (b"a", b"b", b"gone", b"c", b"d"):
            number = ask(name)
            if name == b"gone":
                asker.forget(number)
        one, two, gone, *_ = await checker.questions(5)
        for number, letter in ((two, b"D"), (one, b"K"), (gone, b"D"), (99, b"D")):
            checker.connection.sendall(pack_verdict(RecipientVerdict(number, letter)))
        while len(found) < 2:
            await asyncio.sleep(0)
        checker.connection.close()
        while len(found) < 4:
            await asyncio.sleep(0)
        # The next question connects anew.
        ask(b"e", 100.0)
        await checker.questions(1)
        asker.run(100.0 + recipient_lookups.ANSWER_SECONDS - 1)
        assert len(found) == 4
        asker.run(100.0 + recipient_lookups.ANSWER_SECONDS)
        ask(b"x" * 10_000)
        while len(found) < 6:
            await asyncio.sleep(0)
        ask(b"f")
        asker.close()
        checker.connection.close()
        checker.listening.close()
        await asyncio.sleep(0)
        return [(name[:1], what) for name, what in found]

    undecided = MailboxFound.UNDECIDED
    assert asyncio.run(asyncio.wait_for(play(), 60)) == [
        (b"b", MailboxFound.UNKNOWN),
        (b"a", MailboxFound.EXISTS),
        *[(name, undecided) for name in (b"c", b"d", b"e", b"x", b"f")],
    ]


def test_a_session_takes_a_message_whose_last_recipient_was_unknown(local_home: MailHome) -> None:
    with IntakeDaemon(local_home.home), SmtpdDaemon(local_home.home) as daemon, daemon.smtp() as client:
        recipients = ["postmaster@host.example", "x@host.example"]
        assert client.sendmail("a@far.example", recipients, "Subject: x\r\n\r\nx\r\n") == {recipients[1]: UNKNOWN}
        daemon.wait_for(b" recipients 1\n")
