"""queue-smtpd under a super-server and by sendmail -bs, as a process, with a real queue-intake behind it."""

import os
import re
import signal
import smtplib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import Queued, is_empty, only, queued, run, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.forked import BIN
from support.processes.suite import wait_until
from support.smtpd.smtpd_process import GivenSession
from support.tools import need

ANN, BOB = "ann@example.net", "bob@example.org"
TEXT = "Subject: hello\r\n\r\nHow are you?\r\n..\r\n"
ENVELOPE = b"EHLO c.example\r\nMAIL FROM:<ann@example.net>\r\nRCPT TO:<bob@example.org>\r\n"
STRANGER = {"TCPREMOTEIP": "198.51.100.7", "TCPREMOTEPORT": "4000", "TCPREMOTEHOST": "c.example.net"}


@pytest.fixture
def smtpd_home() -> Iterator[Home]:
    """Yield a home whose queue belongs to whoever runs the test; it takes mail for example.org."""
    with shared_home(0) as home:
        Path(home.control, "rcpthosts").write_text("example.org\n")
        yield home


@pytest.fixture
def intake(smtpd_home: Home) -> Iterator[IntakeDaemon]:
    with IntakeDaemon(smtpd_home) as daemon:
        yield daemon


def split(found: Queued) -> tuple[bytes, bytes]:
    """Return the Received field of the server, and the rest of the message."""
    received, _, rest = found.message.partition(b" -0000\n")
    return received, rest


def test_a_message_of_pythons_client_is_in_the_queue_when_it_is_answered(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, variables=STRANGER) as session:
        client = session.smtp()
        client.ehlo("c.example")
        assert {
            "pipelining",
            "size",
            "8bitmime",
            "smtputf8",
            "chunking",
            "enhancedstatuscodes",
        } <= client.esmtp_features.keys()
        assert client.mail(ANN)[0] == 250
        assert client.rcpt(BOB)[0] == 250
        assert client.rcpt("x@elsewhere.example")[0] == 550
        code, text = client.data(TEXT)
        found = only(intake.home)
        assert code == 250 and re.fullmatch(rb"2\.6\.0 ok [0-9]+ qp [0-9]+ %d-[0-9a-z]+" % found.number, text)
        assert client.quit()[0] == 221
        exit_code, log = session.wait()
    received, rest = split(found)
    assert rest == b"Subject: hello\n\nHow are you?\n..\n"
    pid = session.process.pid
    place = b"Received: from c.example (c.example.net [198.51.100.7])\n  by me.example.org with ESMTP"
    assert received.startswith(place + b" id %d;\n  " % found.number)
    assert (found.envelope.sender, found.envelope.recipients) == (ANN.encode(), [BOB.encode()])
    assert exit_code == 0
    long_id = text.decode().split()[-1]
    assert [line.replace(f"smtp {pid}: ", "") for line in log if "refused" not in line] == [
        "connect 198.51.100.7:4000 c.example.net to 127.0.0.1:" + log[0].rpartition(":")[2],
        "from <ann@example.net> bytes 0",
        "to <bob@example.org>",
        f"queued {long_id} bytes 36 recipients 1",
        "end QUIT: messages 1 errors 1 seconds 0",
    ]


def test_everything_pipelined_at_once_is_answered_in_order_also_after_the_client_has_ended_its_side(
    intake: IntakeDaemon,
) -> None:
    mail = ENVELOPE + b"DATA\r\nSubject: 1\r\n\r\n.\r\n" + b"BDAT 0 LAST\r\n"
    with GivenSession(intake.home) as session:
        session.client.sendall(mail * 40 + b"NOOP\r\n")
        session.client.shutdown(socket.SHUT_WR)
        replies = session.rest()
        codes = [line[:3] for line in replies.splitlines() if line[3:4] == b" "]
        assert codes == [b"220", *[b"250", b"250", b"250", b"354", b"250", b"503"] * 40, b"250"][: len(codes)]
        _, log = session.wait()
    # Each BDAT out of sequence is an error; the twentieth in a row would end the session, and mail begins anew.
    assert len(queued(intake.home)) == 40
    assert log[-1].split(": ")[1] == "end connection_lost"


def test_a_large_message_passes_through_in_pieces_and_takes_no_memory(intake: IntakeDaemon) -> None:
    line = b"x" * 70 + b"\r\n"
    with GivenSession(intake.home) as session:
        session.client.sendall(ENVELOPE + b"DATA\r\n\r\n")
        wait_until(lambda: session.read_line().startswith(b"354"), 60, "DATA to be answered")
        before = memory(session.process.pid)
        for _ in range(300):
            session.client.sendall(line * 400)
        session.client.sendall(b".\r\n")
        assert session.read_line().startswith(b"250 2.6.0 ok ")
        assert memory(session.process.pid) - before < 4 << 20
    assert split(only(intake.home))[1] == b"\n" + (b"x" * 70 + b"\n") * 120_000


def memory(pid: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def test_relayclient_and_databytes_of_the_super_server_count(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "databytes").write_text("1000\n")
    friend = {**STRANGER, "RELAYCLIENT": "", "DATABYTES": "40"}
    with GivenSession(intake.home, variables=friend) as session:
        client = session.smtp()
        client.ehlo()
        assert client.esmtp_features["size"] == "40"
        client.sendmail(ANN, ["x@elsewhere.example"], "Subject: y\r\n\r\n")
        with pytest.raises(smtplib.SMTPSenderRefused, match="Message is too large"):
            client.sendmail(ANN, ["x@elsewhere.example"], TEXT * 3)
    assert only(intake.home).envelope.recipients == [b"x@elsewhere.example"]


def test_a_client_of_relayclients_may_relay_and_a_sender_of_badmailfrom_may_nothing(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "relayclients").write_text("198.51.100.0/24\n")
    Path(intake.home.control, "badmailfrom").write_text("@bad.example\n")
    with GivenSession(intake.home, variables=STRANGER) as session:
        client = session.smtp()
        client.sendmail(ANN, ["x@elsewhere.example"], TEXT)
        with pytest.raises(smtplib.SMTPSenderRefused, match="badmailfrom"):
            client.sendmail("y@bad.example", [BOB], TEXT)


def test_without_queue_intake_data_is_refused_for_now_and_mail_goes_on_when_it_is_back(smtpd_home: Home) -> None:
    with GivenSession(smtpd_home) as session:
        client = session.smtp()
        with pytest.raises(smtplib.SMTPDataError, match="451"):
            client.sendmail(ANN, [BOB], TEXT)
        with IntakeDaemon(smtpd_home):
            client.sendmail(ANN, [BOB], TEXT)
        assert len(queued(smtpd_home)) == 1


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_queue_intake_that_is_killed_before_its_answer_gets_451_and_no_250(smtpd_home: Home, size: int) -> None:
    with IntakeDaemon(smtpd_home) as intake, GivenSession(smtpd_home) as session:
        client = session.smtp()
        client.ehlo()
        client.mail(ANN)
        client.rcpt(BOB)
        assert client.docmd("DATA")[0] == 354
        session.client.sendall(b"Subject: x\r\n\r\n" + b"y" * size)
        intake.process.send_signal(signal.SIGSTOP)
        session.client.sendall(b"\r\n.\r\n")
        intake.process.kill()
        assert client.getreply()[0] == 451
        assert client.noop()[0] == 250
    assert is_empty(smtpd_home)


def test_a_client_that_is_gone_in_its_message_has_sent_nothing(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home) as session:
        session.client.sendall(ENVELOPE + b"DATA\r\nSubject: x\r\n\r\n" + b"y\r\n" * 100_000)
        session.client.shutdown(socket.SHUT_WR)
        replies = session.rest()
        code, log = session.wait()
    assert replies.splitlines()[-1].startswith(b"354") and code == 0
    assert [line.split(": ", 1)[1] for line in log[-2:]] == [
        "dropped",
        "end connection_lost: messages 0 errors 0 seconds 0",
    ]
    assert is_empty(intake.home)


def test_what_looks_like_the_end_of_data_and_is_not_queues_nothing(intake: IntakeDaemon) -> None:
    for end in (b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\n", b"\r\n.\r", b"\r.\r\n", b"\r\n\0.\r\n"):
        with GivenSession(intake.home) as session:
            second = b"MAIL FROM:<ceo@example.org>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\nforged\r\n.\r\nQUIT\r\n"
            session.exchange(ENVELOPE + b"DATA\r\nSubject: x\r\n\r\nbody" + end + second)
    # A NUL is a byte like others, so that one is a message; with the commands in it.
    (found,) = queued(intake.home)
    assert b"\0.\nMAIL FROM:<ceo@example.org>" in found.message


def test_under_inetd_the_log_is_not_in_the_dialogue(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, inetd=True) as session:
        replies = session.exchange(b"EHLO c\r\nQUIT\r\n")
        assert session.wait() == (0, [])
    assert b"smtp " not in replies and replies.endswith(b"221 2.0.0 Bye\r\n")


def test_control_files_that_cannot_be_used_turn_the_client_away_for_now(smtpd_home: Home) -> None:
    Path(smtpd_home.control, "relayclients").write_text("everybody\n")
    with GivenSession(smtpd_home) as session:
        assert session.rest() == b"421 4.3.5 Cannot read the rules of this server now\r\n"
        code, log = session.wait()
    assert code == 111 and "relayclients line 1: not an address or network: 'everybody'" in log[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mta"], "'mta' is not a role; it is one of mx, submission, submissions, qmtp, odmr, odmrs; usage: "),
        (
            ["mx", "open"],
            "'open' is not an option of a role; it is one of bare, proxy, noauth, authname, priority=CLASS; usage: ",
        ),
        (["odmr", "noauth"], "odmr takes no mail, and needs AUTH: it has no option but proxy; usage: "),
        (["--x"], "--x is not an option; usage: "),
        (["mx"], "descriptor 0 is no connection, and a daemon listens where control/smtpd says; usage: "),
    ],
)
def test_wrong_usage_is_100(smtpd_home: Home, words: list[str], said: str) -> None:
    command = [sys.executable, str(BIN / "queue-smtpd"), "--home", smtpd_home.path, *words]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 100 and ran.stderr.startswith(f"queue-smtpd: fatal: {said}")


def test_a_connection_whose_client_has_reset_it_is_none_to_serve_and_no_daemon_begins(smtpd_home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        # With this, close() resets the connection.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        # The daemon would find its port in use.
        Path(smtpd_home.control, "smtpd").write_text(f"127.0.0.1:{listener.getsockname()[1]} mx\n")
        with server:
            command = [sys.executable, str(BIN / "queue-smtpd"), "--home", smtpd_home.path]
            ran = subprocess.run(command, stdin=server.fileno(), capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_variable_that_makes_no_sense_turns_the_client_away(smtpd_home: Home) -> None:
    with GivenSession(smtpd_home, variables={"DATABYTES": "many"}) as session:
        assert session.rest().startswith(b"421 ")
        assert session.wait()[0] == 111


def test_a_submission_without_tls_and_auth_needs_a_friend(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = session.smtp()
        with pytest.raises(smtplib.SMTPSenderRefused, match="STARTTLS"):
            client.sendmail(ANN, [BOB], TEXT)
    with GivenSession(intake.home, "submission", variables={**STRANGER, "RELAYCLIENT": ""}) as session:
        session.smtp().sendmail(ANN, [BOB], TEXT)


def test_swaks_under_tcpserver_hands_in_a_message(intake: IntakeDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [need("tcpserver"), "-RHl0", "127.0.0.1", port, sys.executable, str(BIN / "queue-smtpd")]
    server = subprocess.Popen([*words, "--home", intake.home.path], stderr=subprocess.DEVNULL)
    try:
        swaks = [need("swaks"), "--server", "127.0.0.1", "--port", port, "--from", ANN, "--to", BOB]
        wait_until(
            lambda: subprocess.run(swaks, capture_output=True, check=False).returncode == 0, 60, "swaks to succeed"
        )
    finally:
        server.kill()
        server.wait(60)
    assert b"This is a test mailing" in only(intake.home).message


def dialogue(home: Home, said: bytes) -> list[bytes]:
    """Return the replies of sendmail -bs."""
    done = run([sys.executable, str(BIN / "sendmail"), "--home", home.path, "-bs"], said, RELAYCLIENT="@x")
    assert (done.code, done.error) == (0, b""), done
    return done.output.splitlines()


def test_sendmail_bs_lets_a_program_of_a_user_send_to_everybody(intake: IntakeDaemon) -> None:
    # Nobody can be asked who exists, and no milter: it is as with sendmail.
    Path(intake.home.control, "locals").write_text("example.org\n")
    Path(intake.home.control, "milters").write_text("unix:/nowhere\n")
    text = b"Authentication-Results: me.example.org; spf=pass\r\nSubject: x\r\n\r\nhello\r\n.\r\nQUIT\r\n"
    replies = dialogue(intake.home, ENVELOPE + b"RCPT TO:<joe@elsewhere.example>\r\nDATA\r\n" + text)
    assert replies[0].startswith(b"220 ") and not [each for each in replies if b"STARTTLS" in each]
    assert [each[:3] for each in replies[-6:]] == [b"250", b"250", b"250", b"354", b"250", b"221"], replies
    found = only(intake.home)
    assert found.envelope.recipients == [BOB.encode(), b"joe@elsewhere.example"]
    assert found.envelope.uid == os.geteuid()
    received, rest = split(found)
    # A user's own results are no filter's.
    assert b"[local])" in received and rest == b"Subject: x\n\nhello\n"


def test_sendmail_bs_without_queue_intake_defers(smtpd_home: Home) -> None:
    replies = dialogue(smtpd_home, ENVELOPE + b"DATA\r\nQUIT\r\n")
    assert [each[:3] for each in replies[-2:]] == [b"451", b"221"], replies


def test_a_client_of_the_network_is_a_stranger_to_sendmail_bs(intake: IntakeDaemon) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            words = [sys.executable, str(BIN / "sendmail"), "--home", intake.home.path, "-bs"]
            process = subprocess.Popen(words, stdin=server.fileno(), stdout=server.fileno(), stderr=server.fileno())
        client.settimeout(60)
        client.sendall(b"EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<joe@elsewhere.example>\r\nQUIT\r\n")
        with client.makefile("rb") as stream:
            replies = stream.read().splitlines()
        assert process.wait(60) == 0
    assert replies[-2].startswith(b"550 5.7.1 Relaying denied") and replies[-1].startswith(b"221 "), replies


def test_a_connection_of_the_network_cannot_be_local(smtpd_home: Home) -> None:
    with GivenSession(smtpd_home, "--local") as session:
        code, log = session.wait()
    assert code == 100 and "--local is for a Unix socket" in log[0]


@pytest.mark.parametrize(("options", "reply"), [([], b"550 5.6.11 "), (["bare"], b"250 2.6.0 ")])
def test_bare_line_ends_are_taken_where_the_listener_says_so(
    intake: IntakeDaemon, options: list[str], reply: bytes
) -> None:
    with GivenSession(intake.home, "mx", *options, variables=STRANGER) as session:
        session.client.sendall(ENVELOPE + b"DATA\r\nSubject: x\r\n\r\na\nb\n.\nc\r\n.\r\nQUIT\r\n")
        assert session.rest().splitlines()[-2].startswith(reply)
    found = queued(intake.home)
    assert [split(each)[1] for each in found] == [b"Subject: x\n\na\nb\n.\nc\n"] * bool(options)


def test_morercpthosts_cdb_has_more_domains_and_a_damaged_one_defers(smtpd_home: Home) -> None:
    Path(smtpd_home.control, "rcpthosts").write_text("example.org\n")
    more = Path(smtpd_home.control, "morercpthosts.cdb")

    def answers(client: smtplib.SMTP) -> list[int]:
        return [client.rcpt(f"joe@{domain}")[0] for domain in ("More.Example", "x.below.example", "other.example")]

    with GivenSession(smtpd_home, variables=STRANGER) as session:
        client = session.smtp()
        client.ehlo("c.example")
        client.mail(ANN)
        assert answers(client) == [550, 550, 550]
        # What qmail-newmrh makes: each domain, with no data.
        lines = b"+12,0:more.example->\n+14,0:.below.example->\n\n"
        subprocess.run([need("cdb"), "-c", str(more)], input=lines, check=True)
        assert answers(client) == [250, 250, 550]
        more.write_bytes(more.read_bytes()[:1000])
        assert answers(client) == [451, 451, 451]
