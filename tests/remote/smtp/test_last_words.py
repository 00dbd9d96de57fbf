"""What a server says before it closes the connection in the middle of a message is the verdict."""

import pytest

from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.certificate import server_context
from support.servers.smtp.raw_server import Peer, RawServer

LARGE = b"Subject: large\n\n" + (b"x" * 70 + b"\n") * 60_000
TIMES = 12


def refuse(peer: Peer) -> None:
    """Refuse a message after its first bytes, and close with the others unread: the peer gets a RST."""
    peer.wait_for_more()
    peer.say(b"552 5.3.4 too big for us")
    peer.close()


@pytest.mark.parametrize("secure", [False, True], ids=["in clear", "under TLS"])
def test_a_refusal_in_the_middle_of_a_message_is_the_verdict(home: RemoteHome, secure: bool) -> None:
    def script(peer: Peer) -> None:
        if secure:
            peer.greet_under_tls(context)
        else:
            peer.greet()
        for answer in (b"250 ok", b"250 ok", b"354 go"):
            peer.hear()
            peer.say(answer)
        refuse(peer)

    context = server_context()
    with RawServer(script) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            path = home.message(LARGE)
            verdicts = [daemon.deliver(path, b"to@b.example").verdicts[0] for _ in range(TIMES)]
    said = b"127.0.0.1 failed after I sent the message.\nRemote host said: 552 5.3.4 too big for us\n"
    assert verdicts == [(b"D", said)] * TIMES
