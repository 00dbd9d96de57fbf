"""Recipients of an LMTP server at RCPT: the server is asked, seldom, and nothing hangs on it."""

import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import MailHome
from support.local.recipient_client import RecipientClient
from support.processes.suite import wait_until
from support.servers.smtp.lmtp_server import LmtpServer
from support.servers.smtp.raw_server import Peer, RawServer
from support.smtpd.smtpd_daemon import SmtpdDaemon

UNKNOWN = (550, b"5.1.1 No such mailbox here")
UNDECIDED = (451, b"4.3.0 Cannot look up the recipient now")
TAKEN = (250, b"2.1.5 Recipient ok")
NO_USER = b"550 5.1.1 <x> User doesn't exist"


@pytest.fixture
def lmtp_home(mail: MailHome) -> Iterator[MailHome]:
    """Yield a home whose lmtp.example and virtual.example are those of an LMTP server, and a queue-local."""
    control = mail.path / "control"
    (control / "locals").write_text("lmtp.example\nhost.example\n")
    (control / "virtualdomains").write_text("virtual.example:virt\n")
    (control / "rcpthosts").write_text("lmtp.example\nvirtual.example\nhost.example\n")
    (control / "localroutes").write_text(
        f"lmtp.example:lmtp:{mail.path}/socket\nvirtual.example:lmtp:{mail.path}/socket\nhook@lmtp.example:\n"
    )
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        with RecipientClient(mail.home):
            yield mail


def asked(server: LmtpServer) -> list[bytes]:
    """Return the recipients that the server was asked for."""
    return [line.partition(b"<")[2].partition(b">")[0] for line in server.commands if line.startswith(b"RCPT")]


def rcpt(daemon: SmtpdDaemon, *addresses: str) -> list[tuple[int, bytes]]:
    """Return the replies to recipients, each the first one of a session."""
    found = []
    for address in addresses:
        with daemon.smtp() as client:
            client.ehlo("c")
            client.mail("a@far.example")
            found.append(client.rcpt(address))
    return found


def test_the_server_is_asked_at_rcpt_and_its_answers_are_kept(lmtp_home: MailHome) -> None:
    with LmtpServer(f"{lmtp_home.path}/socket") as server, SmtpdDaemon(lmtp_home.home) as daemon:
        server.at_rcpt[b"nobody"] = NO_USER
        for _ in range(3):
            assert rcpt(daemon, "joe@lmtp.example", "nobody@lmtp.example") == [TAKEN, UNKNOWN]
        # As the server knows them, without what virtualdomains puts before them.
        assert rcpt(daemon, "ann@virtual.example", "nobody@virtual.example") == [TAKEN, UNKNOWN]
        assert asked(server) == [
            *(b"joe@lmtp.example", b"nobody@lmtp.example", b"ann@virtual.example", b"nobody@virtual.example")
        ]
        # It is queue-local's.
        assert rcpt(daemon, "hook@lmtp.example") == [UNKNOWN]
        assert b"DATA" not in server.commands and b"MAIL FROM:<>" in server.commands
        assert server.commands.count(b"QUIT") == 4


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (b"550 no", UNKNOWN),
        (b"553 5.1.3 bad address", UNKNOWN),
        (b"550 5.2.1 mailbox disabled", UNKNOWN),
        # The delivery decides.
        (b"552 5.2.2 mailbox is full", TAKEN),
        (b"530 5.7.0 Must issue a STARTTLS command first", TAKEN),
        (b"554 5.7.1 policy", TAKEN),
        (b"451 4.3.0 internal error", UNDECIDED),
        (b"421 4.3.2 shutting down", UNDECIDED),
    ],
)
def test_only_a_reply_that_there_is_no_mailbox_refuses(
    lmtp_home: MailHome, answer: bytes, reply: tuple[int, bytes]
) -> None:
    with LmtpServer(f"{lmtp_home.path}/socket") as server, SmtpdDaemon(lmtp_home.home) as daemon:
        server.at_rcpt[b"joe"] = answer
        assert rcpt(daemon, "joe@lmtp.example") == [reply]


def test_a_server_that_refuses_the_session_for_good_tells_nothing_and_mail_is_taken(lmtp_home: MailHome) -> None:
    def script(peer: Peer) -> None:
        peer.say(b"220 x")
        assert peer.hear().startswith(b"LHLO")
        peer.say(b"250 x")
        peer.hear()
        peer.say(b"550 5.1.8 I do not like your sender")

    with RawServer(script, path=f"{lmtp_home.path}/socket"), SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "joe@lmtp.example") == [TAKEN]


def test_while_there_is_no_server_strangers_come_again_and_mail_of_users_is_taken(lmtp_home: MailHome) -> None:
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "joe@lmtp.example") == [UNDECIDED]
        daemon.wait_for(b"451_4.3.0_Unable_to_ask_an_LMTP_server:_%s/socket" % str(lmtp_home.path).encode())
    Path(lmtp_home.home.control, "relayclients").write_text("127.0.0.1\n")
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "joe@lmtp.example") == [TAKEN]


def test_relayrecipients_and_checkrcpt_decide_without_the_server(lmtp_home: MailHome) -> None:
    control = Path(lmtp_home.home.control)
    (control / "relayrecipients").write_text("joe@lmtp.example\n")
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "joe@lmtp.example", "ann@lmtp.example") == [TAKEN, UNKNOWN]
    (control / "relayrecipients").unlink()
    (control / "checkrcpt").write_text("0\n")
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "ann@lmtp.example") == [TAKEN]


def test_a_server_of_smtproutes_is_asked_if_it_speaks_lmtp(lmtp_home: MailHome) -> None:
    control = Path(lmtp_home.home.control)
    socket = f"lmtp:{lmtp_home.path}/socket"
    with (control / "rcpthosts").open("a") as file:
        file.write("relayed.example\n.relayed.example\nlisted.example\nsmtp.example\nboth.example\nstored.example\n")
    (control / "smtproutes").write_text(
        f".relayed.example:{socket}\nrelayed.example:{socket}\nlisted.example:{socket}\nsmtp.example:192.0.2.1\n"
        f"both.example:192.0.2.1,{socket}\nstored.example:{socket}\n"
    )
    (control / "ondemand").write_text("stored.example:etrn\n")
    (control / "relayrecipients").write_text("joe@listed.example\n")
    # These are for local recipients alone.
    (control / "localroutes").write_text(f":lmtp:{lmtp_home.path}/none\n")
    unknown = ["nobody@relayed.example", "nobody@Sub.relayed.example"]
    others = [f"nobody@{domain}.example" for domain in ("smtp", "both", "stored")]
    with LmtpServer(f"{lmtp_home.path}/socket") as server, SmtpdDaemon(lmtp_home.home) as daemon:
        server.at_rcpt[b"nobody"] = NO_USER
        for _ in range(2):
            assert rcpt(daemon, "joe@relayed.example", *unknown) == [TAKEN, UNKNOWN, UNKNOWN]
        assert rcpt(daemon, "joe@listed.example", "ann@listed.example") == [TAKEN, UNKNOWN]
        assert rcpt(daemon, *others) == [TAKEN, TAKEN, TAKEN]
        assert asked(server) == [b"joe@relayed.example", *(address.encode() for address in unknown)]
    with SmtpdDaemon(lmtp_home.home) as daemon:
        # The server's answers of a minute ago count; a recipient that nobody has asked for comes again.
        assert rcpt(daemon, "joe@relayed.example", "new@relayed.example") == [TAKEN, UNDECIDED]
    (control / "checkrcpt").write_text("0\n")
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, *unknown) == [TAKEN, TAKEN]


def test_smtproutes_that_cannot_be_used_keep_no_mail_out(lmtp_home: MailHome) -> None:
    control = Path(lmtp_home.home.control)
    with (control / "rcpthosts").open("a") as file:
        file.write("relayed.example\n")
    (control / "smtproutes").write_text("relayed.example:lmtp:a password\n")
    with SmtpdDaemon(lmtp_home.home) as daemon:
        assert rcpt(daemon, "joe@relayed.example") == [TAKEN]


def test_a_server_that_hangs_holds_each_client_for_seconds_and_no_recipient_of_queue_local(
    lmtp_home: MailHome,
) -> None:
    lmtp_home.qmail(".qmail-postmaster", b"&x@far.example\n")
    over = threading.Event()
    most: list[int] = []

    def hang(peer: Peer) -> None:
        most.append(1)
        over.wait(60)

    with RawServer(hang, path=f"{lmtp_home.path}/socket") as server, SmtpdDaemon(lmtp_home.home) as daemon:
        clients = [daemon.smtp() for _ in range(12)]
        for number, client in enumerate(clients):
            client.ehlo("c")
            client.mail("a@far.example")
            client.putcmd(f"RCPT TO:<user-{number}@lmtp.example>")
        wait_until(lambda: len(most) == 4, 60, "four sessions with the server")
        assert rcpt(daemon, "postmaster@host.example") == [TAKEN]
        # Not one more is asked at once, whatever the recipients.
        assert len(most) == 4
        for client in clients:
            assert client.sock is not None
            assert select.select([client.sock], [], [], 40)[0]
            assert client.getreply() == UNDECIDED
            client.close()
        over.set()
    del server
