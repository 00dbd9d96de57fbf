"""queue-remote's own side of a connection: the address it comes from and the name it gives, by sender and nexthop."""


import pytest

from queue_wire.pipes.report import MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer

TEXT = b"Subject: hello\n\nA message.\n"


pytestmark = pytest.mark.home(connectionidle="20")


def seen(home: RemoteHome, *mail: tuple[bytes, bytes]) -> list[tuple[str, bytes]]:
    """Deliver for each (sender, nexthop); return the address and the EHLO of each connection that it took."""
    found: list[tuple[str, bytes]] = []

    def script(peer: Peer) -> None:
        peer.say(b"220 raw.example")
        found.append((peer.address, peer.hear()))
        peer.say(b"250 raw.example")
        while peer.hear().startswith(b"MAIL"):
            peer.say(b"250 ok")
            for answer in (b"250 ok", b"354 go"):
                peer.hear()
                peer.say(answer)
            peer.hear_message()
            peer.say(b"250 done")

    with RawServer(script) as server:
        home.route_all_to(server.port)
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            for sender, nexthop in mail:
                report = daemon.deliver(path, b"to@b.example", sender=sender, nexthop=nexthop)
                assert report.verdicts[0][0] == b"K"
            daemon.end()
    return found


def test_the_sender_chooses_address_and_name_before_the_nexthop_does(home: RemoteHome) -> None:
    home.control("outgoingip", "127.0.0.2 ::1\n@news.example:127.0.0.3\nbig.example:127.0.0.4")
    home.control("helohost", "@news.example:news.out.example\nbig.example:big.out.example")
    mail = [(b"a@b", b"c.example"), (b"a@news.example", b"big.example"), (b"a@b", b"big.example")]
    assert seen(home, *mail) == [
        ("127.0.0.2", b"EHLO client.example"),
        ("127.0.0.3", b"EHLO news.out.example"),
        ("127.0.0.4", b"EHLO big.out.example"),
    ]


def test_connections_from_other_addresses_are_not_reused(home: RemoteHome) -> None:
    home.control("outgoingip", "@news.example:127.0.0.3")
    mail = [(b"a@b", b"c"), (b"a@news.example", b"c"), (b"a@b", b"c"), (b"b@news.example", b"c")]
    assert [address for address, _ in seen(home, *mail)] == ["127.0.0.1", "127.0.0.3"]


def test_an_address_of_the_other_family_leaves_the_choice_to_the_system(home: RemoteHome) -> None:
    home.control("outgoingip", "2001:db8::1")
    assert seen(home, (b"a@b", b"c")) == [("127.0.0.1", b"EHLO client.example")]


def test_an_address_that_is_not_ours_defers_and_is_not_the_hosts_trouble(home: RemoteHome) -> None:
    home.control("outgoingip", "192.0.2.7")
    with RawServer(lambda peer: None) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert report.scope == MESSAGE_SCOPE
    assert report.verdicts[0][0] == b"Z"
    assert b"outgoingip" in report.verdicts[0][1]
    assert b"192.0.2.7" in report.verdicts[0][1]
    assert server.connections == 0


@pytest.mark.parametrize("text", ["192.0.2", "192.0.2.1 192.0.2.2", "@a:here", "a:"])
def test_what_is_no_address_defers_and_names_the_file(home: RemoteHome, text: str) -> None:
    home.control("outgoingip", text)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"to@b.example")
    assert b"control/outgoingip" in report.verdicts[0][1]
