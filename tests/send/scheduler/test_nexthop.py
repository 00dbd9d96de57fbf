"""Which recipients go in one job: those whose mail goes the same way."""

from queue_send.scheduler.nexthop import NexthopChoices, group_recipients
from queue_wire.control.destinationlimits import (
    NO_LINES,
    LimitLines,
    choose_nexthop,
    join_lines,
    unpack_limits,
    unpack_rates,
)
from queue_wire.control.localroutes import unpack_local_routes
from queue_wire.control.smtproutes import unpack_routes

ROUTES = unpack_routes(
    b"a.example:one,two:26\nb.example:One , two:26\nc.example:two:26,one\nd.example:one\nRelayed.example:one\n"
)


def group(
    *addresses: bytes, sender: bytes = b"from@x.example", lines: LimitLines = NO_LINES
) -> list[tuple[bytes, list[bytes]]]:
    recipients = list(enumerate(addresses))
    groups = group_recipients("remote", sender, recipients, NexthopChoices(ROUTES, lines))
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


def test_however_a_domain_is_written_it_is_one_nexthop() -> None:
    choices = NexthopChoices({}, NO_LINES, on_demand=frozenset((b"xn--bcher-kva.example",)))
    ways = ["bücher.example", "BÜCHER。example", "xn--bcher-kva.example.", "XN--BCHER-KVA.Example"]
    assert {choices.name("remote", f"joe@{way}".encode()) for way in ways} == {b"xn--bcher-kva.example"}
    assert choices.name("remote", b"joe@.") == b"."


def test_a_domain_without_a_route_is_its_own_nexthop() -> None:
    assert choose_nexthop(ROUTES, NO_LINES, b"e.example") == (b"e.example", False, None)
    assert group(b"1@E.example") == [(b"e.example", [b"1@E.example"])]


def test_a_domain_with_a_line_is_a_group_of_its_own_beside_others_of_its_relay() -> None:
    lines = join_lines(unpack_limits(b"B.example concurrency=1\n"), unpack_rates(b".d.example:2/5\n"))
    assert group(b"1@a.example", b"2@b.Example", b"3@x.d.example", b"4@d.example", lines=lines) == [
        (b"one,two:26", [b"1@a.example"]),
        (b"b.example", [b"2@b.Example"]),
        (b"x.d.example", [b"3@x.d.example"]),
        (b"one", [b"4@d.example"]),
    ]
    assert choose_nexthop(ROUTES, lines, b"b.example") == (b"b.example", False, b"one,two:26")


def test_every_domain_below_a_line_with_a_leading_dot_is_a_group_of_its_own() -> None:
    lines = join_lines(unpack_limits(b".example concurrency=1\n"), [])
    assert [name for name, _ in group(b"1@a.example", b"2@b.example", b"3@A.example", lines=lines)] == [
        b"a.example",
        b"b.example",
    ]


def test_a_line_for_a_relay_leaves_its_mail_together() -> None:
    lines = join_lines(unpack_limits(b"one:25 concurrency=1\none,two:26 concurrency=1\n"), [])
    assert len(group(b"1@a.example", b"3@b.example", lines=lines)) == 1


def test_local_recipients_of_one_lmtp_server_are_one_nexthop_and_the_others_are_their_own() -> None:
    local = unpack_local_routes(b"b.example:lmtp:/l\nboss@b.example:\nv.example:lmtp:/l\n")
    choices = NexthopChoices(ROUTES, NO_LINES, local, {b"v.example": b"vmail"})
    addresses = [b"1@b.example", b"boss@b.example", b"vmail-2@v.example", b"3@c.example", b"4@B.example"]
    recipients = list(enumerate(addresses))
    assert group_recipients("local", b"from@x.example", recipients, choices) == [
        (b"boss@b.example", [recipients[1]]),
        (b"3@c.example", [recipients[3]]),
        (b"lmtp:/l", [recipients[0], recipients[2], recipients[4]]),
    ]
    verp = group_recipients("local", b"owner-@x.example-@[]", recipients[:1] + recipients[2:3], choices)
    assert verp == [(b"lmtp:/l", [recipients[0]]), (b"lmtp:/l", [recipients[2]])]
    assert group_recipients("local", b"from@x.example", recipients[:1], choices) == [(b"lmtp:/l", recipients[:1])]
