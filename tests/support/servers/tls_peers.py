"""Scripts for support.servers.smtp.raw_server: SMTP servers with TLS, and with what can go wrong in its place."""

from collections.abc import Callable

from support.servers.dns.authority import Certificate
from support.servers.smtp.raw_server import Peer

Script = Callable[[Peer], None]


def talk(peer: Peer) -> None:
    peer.take_message()
    peer.hear()


def starttls(certificate: Certificate) -> Script:
    """Return a script that offers STARTTLS, shows a certificate, and takes a message where it may."""

    def script(peer: Peer) -> None:
        peer.greet(b"STARTTLS")
        if peer.hear() != b"STARTTLS":
            return
        peer.say(b"220 go ahead")
        try:
            peer.start_tls(certificate.server_context())
        except OSError:
            return  # What the client thinks of it is in its report.
        peer.hear()
        peer.say(b"250 raw.example")
        talk(peer)

    return script


def in_clear(peer: Peer) -> None:
    peer.greet()
    talk(peer)


def offers_no_tls(peer: Peer) -> None:
    peer.greet()
    assert peer.hear() == b"QUIT"


def has_no_tls_today(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    peer.hear()
    peer.say(b"454 4.7.0 no TLS today")
    assert peer.hear() in (b"QUIT", b"")


def speaks_garbage(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    peer.hear()
    peer.say(b"220 go ahead")
    peer.wait_for_more()  # Else it may come with the answer, before the client begins TLS.
    peer.say(b"what is this?" * 100)
    peer.wait_for_end()


def resets(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    peer.hear()
    peer.say(b"220 go ahead")
    peer.reset()


def injects(peer: Peer) -> None:
    peer.greet(b"STARTTLS")
    peer.hear()
    peer.say(b"220 go ahead", b"250 come in")
    peer.wait_for_end()
