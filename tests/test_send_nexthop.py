"""Which recipients go in one job: those whose mail goes the same way."""

from queue_send.nexthop import group_recipients, name_nexthop
from queue_wire.control import unpack_map
from queue_wire.smtproutes import unpack_routes

ROUTES = unpack_routes(
    unpack_map(
        b"a.example:one,two:26\nb.example:One , two:26\nc.example:two:26,one\nd.example:one\nRelayed.example:one\n"
    )
)


def group(*addresses: bytes, sender: bytes = b"from@x.example") -> list[tuple[bytes, list[bytes]]]:
    recipients = list(enumerate(addresses))
    groups = group_recipients("remote", sender, recipients, ROUTES)
    return [(nexthop, [address for _, address in members]) for nexthop, members in groups]


def test_domains_with_the_same_relays_in_the_same_order_are_one_nexthop() -> None:
    assert group(b"1@a.example", b"2@c.example", b"3@B.example") == [
        (b"one,two:26", [b"1@a.example", b"3@B.example"]),
        (b"two:26,one", [b"2@c.example"]),
    ]


def test_mail_for_the_relay_itself_is_not_mixed_with_mail_through_it() -> None:
    # The domain `one` has no route: its mail goes to its mail exchangers, which need not be its address.
    assert group(b"1@d.example", b"2@one", b"3@relayed.example") == [
        (b"one", [b"1@d.example", b"3@relayed.example"]),
        (b"one", [b"2@one"]),
    ]


def test_a_verp_sender_makes_each_recipient_a_group() -> None:
    groups = group(b"1@a.example", b"2@b.example", sender=b"owner-@x.example-@[]")
    assert groups == [(b"one,two:26", [b"1@a.example"]), (b"one,two:26", [b"2@b.example"])]


def test_a_domain_without_a_route_is_its_own_nexthop() -> None:
    assert name_nexthop(b"e.example", ROUTES) == b"e.example"
