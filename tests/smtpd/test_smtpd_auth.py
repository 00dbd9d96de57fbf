"""AUTH of queue-smtpd as processes: mechanisms, refusals, files and programs that know the passwords."""

import base64
import errno
import os
import re
import smtplib
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_smtp.auth import Credentials, choose
from queue_smtp.auth_server import make_verifier
from queue_smtpd.auth.check_program import ask_program
from queue_smtpd.auth.password_file import PasswordFile
from queue_wire.control.smtpdusers import (
    Proof,
    SharedSecret,
    UserPasswords,
    pack_users,
    pack_verifier,
    unpack_submitters,
    unpack_users,
)
from queue_wire.format_error import LineError
from queue_wire.submitter import pack_submitter
from support.inject.injectors import only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon, trusting
from support.smtpd.smtpd_process import GivenSession
from support.tools import need

ANN, FAR = "ann@example.net", "x@elsewhere.example"
TEXT = "Subject: hello\r\n\r\nHow are you?\r\n"
STRANGER = {"TCPREMOTEIP": "198.51.100.7", "TCPREMOTEPORT": "4000"}
PASSWORD = "open sesame"
JOE = make_verifier(PASSWORD.encode(), b"0123456789abcdef")
WRONG = (535, b"5.7.8 Authentication credentials invalid")
NOT_NOW = (454, b"4.7.0 Temporary authentication failure")


def make_users(home: Home, data: bytes | None = None) -> Path:
    path = Path(home.control, "smtpdusers")
    path.touch(0o640)
    path.write_bytes(pack_users(UserPasswords({b"joe": JOE}, b"s" * 32)) if data is None else data)
    return path


@pytest.fixture
def smtpd_home(tmp_path: Path) -> Iterator[Home]:
    """Yield a home with a certificate and a user joe."""
    with shared_home(0) as home:
        certificate, key = make_certificate(tmp_path)
        Path(home.control, "smtpdcert").write_text(f":{certificate} {key}\n")
        make_users(home)
        yield home


@pytest.fixture
def intake(smtpd_home: Home) -> Iterator[IntakeDaemon]:
    with IntakeDaemon(smtpd_home) as daemon:
        yield daemon


def begin(session: GivenSession) -> smtplib.SMTP:
    """Return a client behind STARTTLS and EHLO."""
    client = session.smtp()
    client.ehlo("c.example")
    client.starttls(context=trusting())
    client.ehlo("c.example")
    return client


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def plain(user: str, password: str) -> str:
    return b64(f"\0{user}\0{password}".encode())


def log_in(client: smtplib.SMTP, mechanism: str, initial: bool, password: str = PASSWORD) -> tuple[int, bytes]:
    """Authenticate joe by a mechanism of ours or of smtplib's; return the last reply."""
    if mechanism != "SCRAM-SHA-256":
        client.user, client.password = "joe", password
        return client.auth(mechanism, getattr(client, f"auth_{mechanism.lower()}"), initial_response_ok=initial)
    ours = choose(b"SCRAM-SHA-256", Credentials(b"joe", password.encode(), False), True)
    assert ours is not None
    first = ours.initial() or b""
    code, text = client.docmd("AUTH", f"SCRAM-SHA-256 {b64(first)}" if initial else "SCRAM-SHA-256")
    if not initial:
        assert (code, text) == (334, b"")
        code, text = client.docmd(b64(first))
    while code == 334:
        code, text = client.docmd(b64(ours.answer(base64.b64decode(text))))
    if code == 235:
        ours.finish()
    return code, text


@pytest.mark.parametrize("initial", [True, False])
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "SCRAM-SHA-256"])
def test_a_user_authenticates_and_relays_and_the_log_says_so_and_received_where_it_may(
    intake: IntakeDaemon, mechanism: str, initial: bool
) -> None:
    # The name of a login is for the world only where the option asks for that.
    option = ["authname"] if initial else []
    with GivenSession(intake.home, "submission", *option, variables=STRANGER) as session:
        client = begin(session)
        assert client.esmtp_features["auth"].split() == ["SCRAM-SHA-256", "PLAIN", "LOGIN"]
        assert client.mail(ANN) == (530, b"5.7.0 Authentication required")
        assert log_in(client, mechanism, initial) == (235, b"2.7.0 Authentication succeeded")
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}")[0] == 503
        assert client.docmd(f"MAIL FROM:<{ANN}> AUTH=<>")[0] == client.rcpt(FAR)[0] == 250
        assert client.data(TEXT)[0] == 250
        client.quit()
        _, log = session.wait()
    pid = session.process.pid
    assert f"smtp {pid}: auth joe {mechanism}" in log
    assert not any(re.search(r"sesame|c2VzYW1l|SCRAM-SHA-256\$", line) for line in log)
    received = only(intake.home).message.replace(b"\n  ", b" ")
    assert b") by me.example.org with ESMTPSA id " in received
    assert (b"; authenticated as joe) by me.example.org" in received) == initial


@pytest.mark.parametrize("role", ["submission", "odmr"])
def test_a_user_of_cram_md5_takes_scram_from_no_listener_and_may_use_it(intake: IntakeDaemon, role: str) -> None:
    users: dict[bytes, Proof] = {b"joe": SharedSecret(PASSWORD.encode()), b"ann": JOE}
    make_users(intake.home, pack_users(UserPasswords(users, b"s" * 32)))
    cram = ["CRAM-MD5"] if role == "odmr" else []
    for password, code in ((PASSWORD, 235), ("wrong", 535)):
        with GivenSession(intake.home, role, variables=STRANGER) as session:
            client = begin(session)
            assert client.esmtp_features["auth"].split() == ["SCRAM-SHA-256", "PLAIN", "LOGIN", *cram]
            assert log_in(client, "SCRAM-SHA-256", True, password)[0] == code
            client.quit()
            session.wait()


def test_before_tls_auth_is_not_offered_and_refused(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = session.smtp()
        client.ehlo("c")
        assert not client.has_extn("auth")
        refused = (538, b"5.7.11 Encryption is required for AUTH; STARTTLS first")
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}") == refused
        assert client.mail(ANN) == (530, b"5.7.0 Must issue a STARTTLS command first")


@pytest.mark.parametrize("mechanism", ["LOGIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_refused_after_a_delay_and_the_third_one_ends_the_session(
    intake: IntakeDaemon, mechanism: str
) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        for _ in range(3):
            began = time.monotonic()
            # smtplib raises; the reply is the same.
            try:
                reply = log_in(client, mechanism, True, "wrong")
            except smtplib.SMTPAuthenticationError as error:
                assert isinstance(error.smtp_error, bytes)
                reply = error.smtp_code, error.smtp_error
            assert reply == WRONG and time.monotonic() - began >= 1.9
        assert client.getreply() == (421, b"4.7.0 Too many errors; closing connection")
        client.close()  # Under TLS it has a socket of its own, for whose end the server waits some seconds.
        code, log = session.wait()
    assert code == 0
    text = "535_5.7.8_Authentication_credentials_invalid client 198.51.100.7"
    refused = f"smtp {session.process.pid}: refused AUTH joe: {text}"
    assert log.count(refused) == 3
    assert ": end too_many_AUTH_failures: " in log[-1] and not any("wrong" in line for line in log)


def test_an_unknown_user_is_refused_as_a_wrong_password_is(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.docmd("AUTH", f"PLAIN {plain('nobody', PASSWORD)}") == WRONG
        # SCRAM: the same salt each time, and as many rounds as others have.
        first = b64(b"n,,n=nobody,r=abcdefgh")
        challenges = []
        for _ in range(2):
            code, text = client.docmd("AUTH", f"SCRAM-SHA-256 {first}")
            assert code == 334
            challenges.append(base64.b64decode(text).partition(b",s=")[2])
            assert client.docmd("*") == (501, b"5.7.0 Authentication cancelled")
        assert challenges[0] == challenges[1] and challenges[0].endswith(b",i=4096")
        assert client.noop()[0] == 250


@pytest.mark.parametrize(
    ("command", "code"),
    [("PLAIN ???", 501), ("PLAIN =", 501), (f"PLAIN {b64(b'x')}", 501), ("CRAM-MD5", 504), ("", 501)],
)
def test_what_makes_no_sense_is_refused_and_the_session_goes_on(
    intake: IntakeDaemon, command: str, code: int
) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.docmd("AUTH", command)[0] == code
        assert log_in(client, "PLAIN", True)[0] == 235


def test_nobody_acts_for_another_one(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.docmd("AUTH", f"PLAIN {b64(b'ceo' + bytes(1) + b'joe' + bytes(1) + PASSWORD.encode())}") == WRONG


def test_a_file_that_cannot_be_used_is_454_and_an_alert_that_shows_nothing_of_it(intake: IntakeDaemon) -> None:
    path = Path(intake.home.control, "smtpdusers")
    path.chmod(0o644)
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.esmtp_features["auth"].split() == ["PLAIN", "LOGIN"]
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}") == NOT_NOW
        path.write_bytes(b"joe:hunter2\n")
        path.chmod(0o640)
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}") == NOT_NOW
        make_users(intake.home)
        # It is read anew.
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}")[0] == 235
        client.quit()
        _, log = session.wait()
    text = "\n".join(log)
    assert "everybody can use it (mode 0644); chmod o= takes that away; nobody can authenticate now" in text
    wrong = "neither SCRAM-SHA-256$..., CRAM-MD5$... nor a hash of crypt(5)"
    assert f"smtpdusers line 1: {wrong}; queuectl passwd writes such lines; " in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (errno.EACCES, "permission denied; chgrp queued and chmod 640 allow it"),
        (errno.ELOOP, "too many levels of symbolic links; it is a link, and must be the file itself"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int, told: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(wrong, os.strerror(wrong))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Temporary) as raised:
        PasswordFile(Home(str(tmp_path))).refresh()
    assert str(raised.value) == f"unable to read {tmp_path}/control/smtpdusers: {told}"


def test_a_nul_in_the_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "control" / "smtpdusers"
    path.parent.mkdir()
    path.write_bytes(b"# none\n# a\0b\n")
    path.chmod(0o600)
    with pytest.raises(Temporary, match="smtpdusers line 2: it holds a NUL byte"):
        PasswordFile(Home(str(tmp_path))).refresh()


@pytest.mark.parametrize("kind", ["-6", "-5"])
def test_a_hash_of_crypt_is_a_password_and_no_verifier(intake: IntakeDaemon, kind: str) -> None:
    words = [need("openssl"), "passwd", kind, "-salt", "saltstring", PASSWORD]
    made = subprocess.run(words, check=True, capture_output=True, timeout=60).stdout.strip()
    make_users(intake.home, b"ann:" + pack_verifier(JOE) + b"\njoe:" + made + b"\n")
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.esmtp_features["auth"].split() == ["PLAIN", "LOGIN"]
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD + 'x')}") == WRONG
        assert log_in(client, "LOGIN", False)[0] == 235


def test_mx_without_auth_by_option_and_without_users_offers_none(intake: IntakeDaemon) -> None:
    with GivenSession(intake.home, "mx", "noauth", variables=STRANGER) as session:
        assert not begin(session).has_extn("auth")
    Path(intake.home.control, "smtpdusers").unlink()
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert not client.has_extn("auth")
        assert client.docmd("AUTH", "PLAIN")[0] == 502


CHECKER = r"""#!/bin/bash
exec 4<&3
IFS= read -r -d '' -u 4 user; IFS= read -r -d '' -u 4 password
[ "$user" = hang ] && exec sleep 1000
[ "$user" = broken ] && exit 111
[ "$user" = joe ] && [ "$password" = 'open sesame' ] && exec "$@"
exit 1
"""


def make_checker(directory: Path) -> Path:
    path = directory / "check"
    path.write_text(CHECKER)
    path.chmod(0o755)
    return path


def test_a_checkpassword_program_knows_the_passwords(intake: IntakeDaemon, tmp_path: Path) -> None:
    Path(intake.home.control, "checkpassword").write_text(f"{make_checker(tmp_path)} /bin/true\n")
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert client.esmtp_features["auth"].split() == ["PLAIN", "LOGIN"]
        assert client.docmd("AUTH", f"PLAIN {plain('broken', PASSWORD)}") == NOT_NOW
        assert client.docmd("AUTH", f"PLAIN {plain('joe', '$(touch x)')}") == WRONG
        assert client.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}")[0] == 235
        client.quit()
        _, log = session.wait()
    assert any("ended with exit code 111; nobody can authenticate now" in line for line in log)


def test_a_program_that_hangs_is_killed_and_one_that_is_missing_is_named(tmp_path: Path) -> None:
    checker = str(make_checker(tmp_path)).encode()
    began = time.monotonic()
    with pytest.raises(Temporary, match=r"check did not end in 0\.2 seconds"):
        ask_program([checker, b"/bin/true"], b"hang", b"x", 0.2)
    assert time.monotonic() - began < 30
    with pytest.raises(Temporary, match="unable to run /nothing: no such file"):
        ask_program([b"/nothing"], b"joe", b"secret")
    assert ask_program([checker, b"/bin/true"], b"joe", PASSWORD.encode())
    assert not ask_program([checker, b"/bin/true"], b"joe", b"x")


def test_a_password_that_takes_long_to_check_stalls_nobody(intake: IntakeDaemon, tmp_path: Path) -> None:
    Path(intake.home.control, "checkpassword").write_text(f"{make_checker(tmp_path)} /bin/true\n")
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:

        def connect() -> smtplib.SMTP_SSL:
            client = smtplib.SMTP_SSL("127.0.0.1", daemon.ports[0], timeout=60, context=trusting())
            client.ehlo("c")
            return client

        with connect() as slow, connect() as other:
            slow.putcmd("AUTH", f"PLAIN {plain('hang', 'x')}")
            assert other.docmd("AUTH", f"PLAIN {plain('joe', PASSWORD)}")[0] == 235
            other.sendmail(ANN, [FAR], TEXT)
            assert isinstance(slow.sock, ssl.SSLSocket)
            slow.sock.close()
            slow.sock = None
    assert only(intake.home)


def rest(connection: socket.socket) -> bytes:
    """Return what comes to the end of a connection."""
    found = b""
    while data := connection.recv(65536):
        found += data
    return found


def test_wrong_passwords_count_as_errors_of_the_address(intake: IntakeDaemon) -> None:
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:
        # 90 wrong ones in 6 seconds, of which 60 a minute are heard.
        with ExitStack() as open_:
            clients = [open_.enter_context(daemon.tls()) for _ in range(30)]
            began = time.monotonic()
            for client in clients:
                client.sendall(b"EHLO c\r\n" + f"AUTH PLAIN {plain('joe', 'x')}\r\n".encode() * 3)
            said = [rest(client) for client in clients]
            took = time.monotonic() - began
        heard = [each.count(b"\r\n535 ") for each in said]
        assert 60 <= sum(heard) <= 62 + took and min(heard) < max(heard) == 3
        assert all(each.endswith(b"421 4.7.0 Too many errors; closing connection\r\n") for each in said)


def test_an_unknown_user_takes_as_long_as_a_known_one(home: Home) -> None:
    verifier = make_verifier(PASSWORD.encode(), b"0123456789abcdef", 60_000)
    path = make_users(home, pack_users(UserPasswords({b"joe": verifier}, b"s" * 32)))
    assert path.stat().st_mode & 0o777 == 0o640
    file = PasswordFile(home)
    assert file.refresh() and not file.refresh()

    def seconds(user: bytes) -> float:
        def once() -> float:
            began = time.process_time()
            assert not file.is_right(user, b"wrong")
            return time.process_time() - began

        return min(once() for _ in range(5))

    known, unknown = seconds(b"joe"), seconds(b"nobody")
    assert 0.5 < unknown / known < 2
    # Not even with the password of the one whose verifier is tried.
    assert file.is_right(b"joe", PASSWORD.encode()) and not file.is_right(b"nobody", PASSWORD.encode())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"joe\n", "line 1: not USER:HASH"),
        (b"joe:hunter2\n", "line 1: neither SCRAM"),
        (b"joe:$1$\n", "line 1: neither SCRAM"),
        (b"joe:SCRAM-SHA-256$1:aa$bb:cc\n", "line 1: not SCRAM-SHA-256"),
        (b"joe:SCRAM-SHA-256$9999999:aa==$bb==:cc==\n", "line 1: not SCRAM-SHA-256"),
        (b"joe:SCRAM-SHA-256$4096:YWE=$YmI=:Y2M=\n", "line 1: a key of SCRAM-SHA-256 that has not 32 bytes"),
        (b"joe:SCRAM-SHA-256$4096:a$bb:cc\n", "line 1: not base64"),
        (b"a b:" + pack_verifier(JOE) + b"\n", "line 1: not a user"),
        (b":secret!\n", "line 1: not base64"),
        (b"# x\njoe:%b\njoe:%b\n" % ((pack_verifier(JOE),) * 2), "line 3: a second line for user 'joe'"),
    ],
)
def test_a_line_that_is_no_user_is_refused_and_its_hash_not_shown(data: bytes, why: str) -> None:
    with pytest.raises(LineError, match=re.escape(why)) as raised:
        unpack_users(data)
    assert "hunter2" not in str(raised.value)


def test_users_are_the_same_after_packing_and_are_not_shown() -> None:
    users = UserPasswords({b"joe": JOE, b"ann@example.org": b"$6$salt$abcdefgh"}, b"s" * 32)
    assert unpack_users(pack_users(users)) == users
    assert "abcdefgh" not in repr(users) and repr(JOE) == "Verifier(***)"


def test_curl_authenticates(intake: IntakeDaemon, tmp_path: Path) -> None:
    mail = tmp_path / "mail"
    mail.write_text(TEXT)
    with SmtpdDaemon(intake.home, ("submission",)) as daemon:
        words = [need("curl"), "--silent", "--show-error", "--ssl-reqd", "--insecure", "--mail-from", ANN]
        words += ["--mail-rcpt", FAR, "--upload-file", str(mail), f"smtp://127.0.0.1:{daemon.ports[0]}"]
        wrong = subprocess.run([*words, "--user", "joe:x"], capture_output=True, timeout=60, check=False)
        assert wrong.returncode == 67
        assert subprocess.run([*words, "--user", f"joe:{PASSWORD}"], timeout=60, check=False).returncode == 0
        with socket.create_connection(("127.0.0.1", daemon.ports[0])):
            pass
    assert b"ESMTPSA" in only(intake.home).message


def test_a_user_may_have_the_senders_of_its_line_in_submitters_and_no_others(intake: IntakeDaemon) -> None:
    Path(intake.home.control, "submitters").write_text("joe:Joe@example.org @joe.example\n")
    with GivenSession(intake.home, "submission", variables=STRANGER) as session:
        client = begin(session)
        assert log_in(client, "PLAIN", True)[0] == 235
        refused = (553, b"5.7.1 Sender address does not belong to the authenticated user")
        assert client.mail("jane@example.org") == refused
        for sender in ("joe@example.org", "x@JOE.example", ""):
            assert client.mail(sender)[0] == client.rset()[0] == 250
        client.quit()
        _, log = session.wait()
    assert any("refused MAIL <jane@example.org>: 553_5.7.1_" in line for line in log)


def test_the_submitter_in_the_envelope_is_the_user_or_else_the_host_whatever_the_sender_is(
    intake: IntakeDaemon,
) -> None:
    for address, log_ins in (("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.1", 0)):
        variables = {**STRANGER, "TCPREMOTEIP": address} | ({} if log_ins else {"RELAYCLIENT": ""})
        with GivenSession(intake.home, "submission", variables=variables) as session:
            client = begin(session)
            if log_ins:
                assert log_in(client, "PLAIN", True)[0] == 235
            for sender in (ANN, "x@other.example"):
                client.sendmail(sender, FAR, TEXT)
            client.sendmail("large@other.example", FAR, TEXT + "x\r\n" * 40_000)
            client.quit()
            session.wait()
    found = sorted(each.envelope.submitter for each in queued(intake.home))
    assert found == sorted([pack_submitter("", b"joe")] * 6 + [pack_submitter("192.0.2.1")] * 3)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"joe\n", "line 1: not USER:SENDER..."),
        (b"joe:\n", "line 1: not USER:SENDER..."),
        (b"j e:@\n", "line 1: not a user"),
        (b"joe:example.org\n", "line 1: a sender without `@`: 'example.org'"),
    ],
)
def test_a_line_of_submitters_that_allows_nothing_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(LineError, match=re.escape(why)):
        unpack_submitters(data)


def test_lines_of_submitters_for_one_user_are_joined_and_the_case_of_users_counts() -> None:
    found = unpack_submitters(b"# ours\njoe:A@example.org\njoe:@b.example\nJoe:@\n")
    assert found == {b"joe": frozenset((b"a@example.org", b"@b.example")), b"Joe": frozenset((b"@",))}


def test_auth_is_offered_when_there_are_users_without_a_signal(intake: IntakeDaemon) -> None:
    users = Path(intake.home.control, "smtpdusers")
    users.unlink()
    with SmtpdDaemon(intake.home, ("submissions",)) as daemon:

        def offered() -> bytes:
            with daemon.tls() as client:
                client.sendall(b"EHLO c\r\nQUIT\r\n")
                return b"".join(re.findall(rb"250-AUTH (.*)\r\n", rest(client)))

        assert offered() == b""
        make_users(intake.home)
        wait_until(lambda: offered() == b"SCRAM-SHA-256 PLAIN LOGIN", 60, "AUTH to be offered")
