"""What a receiver sees of queue-remote is what it sees of swaks: the same commands, envelope and bytes of data."""

import subprocess
from collections.abc import Callable

import pytest

from support.processes.remote_daemon import COMMAND, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer
from support.tools import need

pytestmark = pytest.mark.home("remote")

TEXT = b"From: from@a.example\nSubject: hello\n\nA message.\n.with a dot\n..\n\nIts last line.\n"
WIRE_SIZE = len(TEXT.replace(b"\n", b"\r\n"))
SENDER = "from@a.example"
RECIPIENTS = ["one@b.example", "two@b.example"]


def swaks(port: int, *options: str) -> None:
    words = [need("swaks"), "--server", f"127.0.0.1:{port}", "--ehlo", "client.example", "--from", SENDER]
    words += ["--to", ",".join(RECIPIENTS), "--data", "-", *options]
    # It ends the data with a line end of its own.
    done = subprocess.run(words, input=TEXT.removesuffix(b"\n"), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def queue_remote(home: RemoteHome, port: int) -> None:
    home.route_all_to(port)
    words = [*COMMAND, str(home.path), "b.example", SENDER, *RECIPIENTS]
    with (home.path / "queue" / home.message(TEXT).decode()).open() as message:
        done = subprocess.run(words, stdin=message, capture_output=True, timeout=60, check=True)
    assert done.stdout.startswith(b"r\0r\0K127.0.0.1 accepted message."), done.stdout


def seen(extensions: list[bytes], client: Callable[[int], None]) -> list[bytes]:
    """Return all that a server with these extensions hears from a client, command by command."""
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.say(b"220 raw.example")
        while line := peer.hear():
            heard.append(line)
            if line.startswith(b"EHLO"):
                lines = [b"raw.example", *extensions]
                peer.say(*[b"250-" + text for text in lines[:-1]], b"250 " + lines[-1])
            elif line == b"DATA":
                peer.say(b"354 go")
                heard.append(peer.hear_message())
                peer.say(b"250 done")
            else:
                peer.say(b"221 bye" if line == b"QUIT" else b"250 ok")

    with RawServer(script) as server:
        client(server.port)
    return heard


@pytest.mark.parametrize(("extensions", "options"), [([], []), ([b"PIPELINING"], ["--pipeline"]), ([b"8BITMIME"], [])])
def test_the_dialogue_is_that_of_swaks(home: RemoteHome, extensions: list[bytes], options: list[str]) -> None:
    ours = seen(extensions, lambda port: queue_remote(home, port))
    assert ours == seen(extensions, lambda port: swaks(port, *options))
    assert [line[:4] for line in ours[:5]] == [b"EHLO", b"MAIL", b"RCPT", b"RCPT", b"DATA"]
    assert ours[5].endswith(b"\r\n.with a dot\r\n..\r\n\r\nIts last line.\r\n.\r\n".replace(b"\n.", b"\n..", 2))
    assert ours[6:] == [b"QUIT"]


def test_aiosmtpd_gets_the_same_message_from_both(home: RemoteHome) -> None:
    with SmtpServer() as server:
        queue_remote(home, server.port)
        swaks(server.port)
        ours, theirs = server.wait_for(2)
    assert ours == theirs
    assert ours.stored == TEXT
    assert server.hello_names == ["client.example"] * 2
    # swaks does not say how large its message is.
    assert server.mail_options == [[f"SIZE={WIRE_SIZE}"], []]
