"""queue-remote with servers that want AUTH: which mechanism it takes, and that a person's mistake bounces no mail."""

import os
import time
from base64 import b64decode, b64encode

import pytest
import scramp

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, SUCCESS, TEMPORARY, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"


def allow(home: RemoteHome, line: str, mode: int = 0o600) -> None:
    home.control("smtpauth", line)
    os.chmod(home.path / "control" / "smtpauth", mode)


def deliver(home: RemoteHome, port: int) -> Report:
    home.route_all_to(port)
    path = home.message(TEXT)
    with RemoteDaemon(home) as daemon:
        return daemon.deliver(path, b"to@b.example")


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
def test_a_password_goes_in_clear_to_a_server_that_may_have_it(home: RemoteHome, mechanism: str) -> None:
    allow(home, "127.0.0.1 clear:ann:se:cret")
    with SmtpServer() as server:
        server.passwords, server.mechanisms = {b"ann": b"se:cret"}, [mechanism]
        report = deliver(home, server.port)
        assert (report.scope, report.verdicts[0][0]) == (MESSAGE_SCOPE, SUCCESS)
        assert server.logins == [(mechanism, b"ann")]
        assert [message.stored for message in server.received] == [TEXT]


def test_a_password_never_goes_in_clear_where_that_was_not_said(home: RemoteHome) -> None:
    said: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.greet(b"AUTH PLAIN LOGIN")
        said.append(peer.wait_for_end())

    allow(home, ":ann:secret")
    with RawServer(script) as server:
        report = deliver(home, server.port)
    assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, TEMPORARY)
    assert b"without TLS, where passwords are not sent in clear" in report.verdicts[0][1]
    assert said == [b"QUIT\r\n"]


def test_a_wrong_password_defers_all_mail_and_says_so(home: RemoteHome) -> None:
    allow(home, " clear:ann:wrong")
    with SmtpServer() as server:
        server.passwords = {b"ann": b"secret"}
        report = deliver(home, server.port)
        assert server.received == []
    letter, text = report.verdicts[0]
    assert (report.scope, letter) == (HOST_SCOPE, TEMPORARY)
    assert b"AUTH failed; see control/smtpauth." in text
    assert b"535" in text


def scram(peer: Peer, password: str, final: bytes | None = None) -> None:
    """Play a server with SCRAM-SHA-256, up to MAIL; `final` is its signature, None for the right one."""
    mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
    server = mechanism.make_server(lambda user: mechanism.make_auth_info(password))
    peer.greet(b"AUTH PLAIN SCRAM-SHA-256 CRAM-MD5")
    command, name, initial = peer.hear().split(b" ")
    assert (command, name) == (b"AUTH", b"SCRAM-SHA-256")
    server.set_client_first(b64decode(initial).decode())
    peer.say(b"334 " + b64encode(server.get_server_first().encode()))
    answer = b64decode(peer.hear()).decode()
    try:
        server.set_client_final(answer)
    except scramp.ScramException:
        peer.say(b"535 5.7.8 no")
        return
    if final != b"":
        peer.say(b"334 " + b64encode(final or server.get_server_final().encode()))
        if peer.hear() != b"":
            return
    peer.say(b"235 in")
    assert peer.hear().startswith(b"MAIL ") is (final is None)
    peer.close()


def test_scram_goes_without_tls_and_the_server_proves_itself(home: RemoteHome) -> None:
    allow(home, ":ann:secret")
    with RawServer(lambda peer: scram(peer, "secret")) as server:
        report = deliver(home, server.port)
    assert b"At MAIL" in report.verdicts[0][1]


@pytest.mark.parametrize(
    ("password", "final", "text"),
    [
        ("other", None, b"Remote host said: 535 5.7.8 no"),
        ("secret", b"v=" + b64encode(b"x" * 32), b"signature"),
        ("secret", b"v=rubbish", b"SCRAM"),
        ("secret", b"", b"before it had proved"),
    ],
)
def test_a_server_that_does_not_know_the_password_gets_no_mail(
    home: RemoteHome, password: str, final: bytes | None, text: bytes
) -> None:
    allow(home, ":ann:secret")
    with RawServer(lambda peer: scram(peer, password, final)) as server:
        report = deliver(home, server.port)
    assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, TEMPORARY)
    assert text in report.verdicts[0][1]


@pytest.mark.parametrize("challenge", [b"", b"!", b64encode(b"\xff\xfe"), b64encode(b"r=x,s=y,i=1"), b"A" * 5000])
def test_a_challenge_of_garbage_defers(home: RemoteHome, challenge: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.greet(b"AUTH SCRAM-SHA-1")
        peer.hear()
        peer.say(b"334 " + challenge)
        peer.wait_for_end()

    allow(home, ":ann:secret")
    with RawServer(script) as server:
        report = deliver(home, server.port)
    assert (report.scope, report.verdicts[0][0]) == (HOST_SCOPE, TEMPORARY)
    assert b"its challenge makes no sense" in report.verdicts[0][1]


def test_a_file_that_others_can_read_is_an_alert_and_used_once_it_is_mended(home: RemoteHome) -> None:
    with SmtpServer() as server:
        server.passwords = {b"ann": b"secret"}
        home.route_all_to(server.port)
        allow(home, "127.0.0.1 clear:ann:secret", 0o644)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            assert b"alert: unable to use control/smtpauth: everybody" in daemon.wait_for_error(b"control/smtpauth")
            refused = daemon.deliver(path, b"to@b.example")
            os.chmod(home.path / "control" / "smtpauth", 0o600)
            # The next look at the files is at most a second away.
            deadline = time.monotonic() + 60
            while daemon.deliver(path, b"to@b.example").verdicts[0][0] != SUCCESS:
                assert time.monotonic() < deadline
    assert (refused.scope, refused.verdicts[0][0]) == (MESSAGE_SCOPE, TEMPORARY)
    assert b"control/smtpauth has for this host" in refused.verdicts[0][1]
