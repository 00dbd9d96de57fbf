"""TLS of queue-smtpd as processes: STARTTLS and implicit TLS, what is refused, certificates that change or are bad."""

import signal
import smtplib
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import is_empty, only, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon, trusting
from support.smtpd.smtpd_process import GivenSession
from support.tools import need

ANN, BOB = "ann@example.net", "bob@example.org"
TEXT = "Subject: hello\r\n\r\nHow are you?\r\n"
ENVELOPE = b"MAIL FROM:<ann@example.net>\r\nRCPT TO:<bob@example.org>\r\n"
STRANGER = {"TCPREMOTEIP": "198.51.100.7", "TCPREMOTEPORT": "4000"}


@pytest.fixture
def smtpd_home(tmp_path: Path) -> Iterator[Home]:
    """Yield a home that takes mail for example.org and has a certificate for raw.example and one for mx.example.org."""
    with shared_home(0) as home:
        Path(home.control, "rcpthosts").write_text("example.org\n")
        Path(home.control, "relayclients").write_text("127.0.0.1\n")
        certificate, key = make_certificate(tmp_path)
        other = tmp_path / "other"
        other.mkdir()
        names = make_certificate(other, "mx.example.org")
        lines = f":{certificate} {key}\nMX.example.org:{names[0]} {names[1]}\n"
        Path(home.control, "smtpdcert").write_text(lines)
        yield home


@pytest.fixture
def intake(smtpd_home: Home) -> Iterator[IntakeDaemon]:
    with IntakeDaemon(smtpd_home) as daemon:
        yield daemon


def say(connection: socket.socket, data: bytes) -> bytes:
    """Send a command; return its reply."""
    connection.sendall(data)
    return read_reply(connection)


def read_reply(connection: socket.socket) -> bytes:
    """Return one reply with all of its lines."""
    found = b""
    while not found.endswith(b"\n") or found.splitlines()[-1][3:4] == b"-":
        byte = connection.recv(1)
        assert byte, found
        found += byte
    return found


def shown_certificate(connection: ssl.SSLSocket) -> bytes:
    """Return the certificate of the server; its names stand in it as they are."""
    return connection.getpeercert(True) or b""


def test_under_starttls_mail_is_taken_with_esmtps_and_version_and_cipher_in_received_and_log(
    intake: IntakeDaemon,
) -> None:
    with GivenSession(intake.home, variables=STRANGER) as session:
        client = session.smtp()
        client.ehlo("c.example")
        assert client.has_extn("starttls")
        assert client.starttls(context=trusting())[0] == 220
        connection = client.sock
        assert isinstance(connection, ssl.SSLSocket)
        version, cipher = connection.version(), (connection.cipher() or [""])[0]
        # What was said before TLS is forgotten.
        assert client.docmd("MAIL FROM:<ann@example.net>") == (503, b"5.5.1 EHLO or HELO first")
        client.ehlo("d.example")
        assert not client.has_extn("starttls")
        assert client.docmd("STARTTLS") == (503, b"5.5.1 TLS is already active")
        client.sendmail(ANN, [BOB], TEXT)
        client.quit()
        _, log = session.wait()
    found = only(intake.home)
    received, pid = found.message, session.process.pid
    place = f"(using {version} with cipher {cipher})\n  by me.example.org with ESMTPS"
    assert f"{place} id {found.number};" in received.decode()
    assert f"smtp {pid}: tls {version} {cipher}" in log


@pytest.mark.parametrize("cut", [True, False])
def test_no_byte_that_is_pipelined_behind_starttls_in_clear_survives_into_tls(intake: IntakeDaemon, cut: bool) -> None:
    injected = b"EHLO mallory\r\n" + ENVELOPE + b"DATA\r\nSubject: forged\r\n\r\n.\r\nNO"
    with GivenSession(intake.home) as session:
        client = session.client
        assert read_reply(client).startswith(b"220")
        assert say(client, b"EHLO c\r\n").startswith(b"250")
        if cut:
            # More than is taken in one slice is read at once.
            injected = b"NOOP\r\n" * 3000 + injected
        client.sendall(b"STARTTLS\r\n" + injected)
        assert read_reply(client) == b"220 2.0.0 Ready to start TLS\r\n"
        try:
            tls = trusting().wrap_socket(client)
        except ssl.SSLError:
            # What came after the server had begun with TLS is no TLS, and ends the connection.
            assert cut
        else:
            # The first command is the client's own. A reply to what was injected would come first, and `NO` before it.
            with tls:
                assert say(tls, b"OP\r\n") == b"500 5.5.2 Command not recognized\r\n"
                assert say(tls, b"MAIL FROM:<a@example.net>\r\n") == b"503 5.5.1 EHLO or HELO first\r\n"
                assert say(tls, b"EHLO d\r\n").startswith(b"250")
    assert is_empty(intake.home)


def test_text_in_clear_in_place_of_a_handshake_ends_the_connection_and_is_not_taken(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home) as session:
        client = session.client
        read_reply(client)
        say(client, b"EHLO c\r\n")
        assert say(client, b"STARTTLS\r\n").startswith(b"220")
        left = session.exchange(b"EHLO c\r\n" + ENVELOPE + b"DATA\r\n\r\n.\r\nQUIT\r\n")
        # At most an alert of TLS.
        assert b"250" not in left and len(left) < 10
        _, log = session.wait()
    assert "tls failed: " in log[1] and log[-1].split(": ")[1].startswith("end connection_lost")
    assert is_empty(intake.home)


def test_without_a_certificate_mx_takes_mail_and_submissions_does_not_start(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "smtpdcert").write_text(":nothing.pem\n")
    with SmtpdDaemon(intake.home, ("mx",)) as daemon, daemon.smtp() as client:
        client.ehlo("c")
        assert not client.has_extn("starttls")
        assert client.docmd("STARTTLS")[0] == 502
        client.sendmail(ANN, [BOB], TEXT)
        daemon.wait_for(b"alert: unable to use %s/nothing.pem: no such file" % intake.home.control.encode())
    daemon = SmtpdDaemon(intake.home, ("mx", "submissions"))
    daemon.ports, left_out = daemon.ports[:1], daemon.ports[1]
    with daemon:
        daemon.wait_for(b"alert: unable to serve role submissions: it needs a certificate")
        with daemon.smtp() as client:
            assert client.noop()[0] == 250
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", left_out))
    daemon = SmtpdDaemon(intake.home, ("submissions", "odmrs"))
    assert daemon.process.wait(60) == 111
    assert daemon.said(b"fatal: unable to serve role odmrs and submissions: it needs a certificate")
    with daemon:
        pass


def test_submissions_is_under_tls_from_the_first_byte(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:
        context = trusting()
        with smtplib.SMTP_SSL("127.0.0.1", daemon.ports[0], timeout=60, context=context) as client:
            client.ehlo("c")
            assert not client.has_extn("starttls")
            client.sendmail(ANN, [BOB], TEXT)
        with daemon.connect() as clear:
            clear.sendall(b"EHLO c\r\n" + ENVELOPE + b"QUIT\r\n")
            left = clear.recv(1000)
            assert b"250" not in left and len(left) < 10
    assert b"with ESMTPS id " in only(intake.home).message


@pytest.mark.parametrize("role", ["mx", "submissions"])
def test_a_client_of_old_tls_is_refused_and_one_of_tls_1_2_is_not(intake: IntakeDaemon, role: str) -> None:
    def begin(context: ssl.SSLContext) -> str | None:
        with GivenSession(intake.home, role) as session:
            if role == "mx":
                read_reply(session.client)
                say(session.client, b"EHLO c\r\n")
                say(session.client, b"STARTTLS\r\n")
            with context.wrap_socket(session.client) as tls:
                assert role == "mx" or read_reply(tls).startswith(b"220")
                return tls.version()

    old, recent = trusting(), trusting()
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    recent.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        begin(old)
    assert begin(recent) == "TLSv1.2"


def test_the_certificate_is_that_of_the_name_that_the_client_asks_for(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:
        for asked, shown in (
            ("mx.example.org", b"mx.example.org"),
            ("raw.example", b"raw.example"),
            ("other.example", b"raw.example"),
        ):
            with daemon.tls(name=asked) as client:
                assert shown in shown_certificate(client)


def test_a_certificate_is_reread_at_hup_and_a_bad_one_leaves_the_old_one(intake: IntakeDaemon, tmp_path: Path) -> None:
    with SmtpdDaemon(intake.home, ("submissions", "mx")) as daemon:
        new = tmp_path / "new"
        new.mkdir()
        certificate, key = make_certificate(new, "new.example")
        with daemon.tls() as before:
            assert b"raw.example" in shown_certificate(before)
            read_reply(before)
            key.replace(tmp_path / "key.pem")
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait_for(b"key values mismatch; the old certificate stays")
            with daemon.tls() as still:
                assert b"raw.example" in shown_certificate(still)
            certificate.replace(tmp_path / "certificate.pem")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: shows(daemon, b"new.example"), 60, "the new certificate")
            # A session goes on.
            assert say(before, b"NOOP\r\n").startswith(b"250")
        Path(intake.home.control, "smtpdcert").unlink()
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not shows(daemon, b"new.example"), 60, "no certificate")
        with daemon.smtp(1) as client:
            client.ehlo("c")
            assert not client.has_extn("starttls")


def shows(daemon: SmtpdDaemon, name: bytes) -> bool:
    try:
        with daemon.tls() as client:
            return name in shown_certificate(client)
    except (ssl.SSLError, ConnectionError):
        return False


def test_clients_that_never_shake_hands_stall_nobody_and_are_ended(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:
        silent = [daemon.connect() for _ in range(50)]
        # The first bytes of a ClientHello.
        for each in silent:
            each.sendall(b"\x16\x03\x01\x02\x00\x01")
        with smtplib.SMTP_SSL("127.0.0.1", daemon.ports[0], timeout=60, context=trusting()) as client:
            client.sendmail(ANN, [BOB], TEXT)
        daemon.process.send_signal(signal.SIGTERM)
        for each in silent:
            with each:
                assert each.recv(10) == b""
        assert daemon.process.wait(60) == 0


def test_a_large_message_comes_through_tls_whole(intake: IntakeDaemon) -> None:
    lines = b"".join(b"%d %s\r\n" % (number, b"x" * (number % 900)) for number in range(6000))
    with GivenSession(intake.home) as session:
        client = session.smtp()
        client.ehlo()
        client.starttls(context=trusting())
        client.sendmail(ANN, [BOB], b"Subject: x\r\n\r\n" + lines)
        client.quit()
    assert only(intake.home).message.endswith(lines.replace(b"\r\n", b"\n"))


def test_many_replies_at_once_come_in_order_under_tls(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "submissions") as session, trusting().wrap_socket(session.client) as tls:
        read_reply(tls)
        tls.sendall(b"EHLO c\r\n" + b"RSET\r\nVRFY x\r\n" * 40 + b"QUIT\r\n")
        codes = [read_reply(tls)[:3] for _ in range(82)]
        assert codes == [b"250", *[b"250", b"252"] * 40, b"221"]
        # With close_notify: nobody in between has cut the dialogue.
        assert tls.recv(10) == b""


def test_openssl_and_curl_talk_to_it(intake: IntakeDaemon, tmp_path: Path) -> None:
    mail = tmp_path / "mail"
    mail.write_text(TEXT)
    with SmtpdDaemon(intake.home, ("mx", "submissions")) as daemon:
        words = [need("openssl"), "s_client", "-connect", f"127.0.0.1:{daemon.ports[0]}", "-starttls", "smtp"]
        words += ["-quiet", "-crlf"]
        said = subprocess.run(words, input=b"QUIT\n", capture_output=True, timeout=60, check=False)
        assert said.stdout.endswith(b"221 2.0.0 Bye\r\n"), said
        for url in (f"smtp://127.0.0.1:{daemon.ports[0]}", f"smtps://127.0.0.1:{daemon.ports[1]}"):
            words = [need("curl"), "--silent", "--show-error", "--ssl-reqd", "--insecure", "--mail-from", ANN]
            ran = subprocess.run([*words, "--mail-rcpt", BOB, "--upload-file", str(mail), url], timeout=60, check=False)
            assert ran.returncode == 0
            assert b"with ESMTPS id" in take(intake.home)


def test_a_client_that_wants_a_large_finite_field_is_refused_and_one_that_only_can_is_not(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home) as daemon:
        words = [need("openssl"), "s_client", "-connect", f"127.0.0.1:{daemon.ports[0]}", "-starttls", "smtp", "-crlf"]
        for number, groups in enumerate(("ffdhe8192", "ffdhe4096:X25519", "X25519:ffdhe8192")):
            asking = [*words, "-quiet", "-groups", groups]
            said = subprocess.run(asking, input=b"QUIT\n", capture_output=True, timeout=60, check=False)
            if number < 2:
                assert b"handshake failure" in said.stderr, said
                daemon.wait_for(b"diffie-hellman_over_a_finite_field")
                daemon.log = b""
            else:
                assert said.stdout.endswith(b"221 2.0.0 Bye\r\n"), said


def take(home: Home) -> bytes:
    """Remove the one message from the queue and return it."""
    found = only(home).message
    for path in Path(home.queue, "todo").rglob("[0-9]*"):
        if path.is_file():
            path.unlink()
    return found
