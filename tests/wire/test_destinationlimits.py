"""control/destinationlimits and destinationrate as formats: whom a line is for, what it sets, which one counts."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import Limits, LimitTable
from queue_wire.control.destinationlimits import (
    LimitLine,
    choose_nexthop,
    find_limits,
    join_lines,
    unpack_limits,
    unpack_rates,
    warn_of,
)
from queue_wire.control.localroutes import unpack_local_routes
from queue_wire.control.rewrite import Rules
from queue_wire.control.smtproutes import unpack_routes
from queue_wire.format_error import FormatError, LineError

RULES = Rules(b"me.example", frozenset([b"me.example"]), frozenset(), {})


def line(text: bytes) -> LimitLine:
    [found] = unpack_limits(text)
    return found


@pytest.mark.parametrize(
    ("name", "domain", "relay", "recipient"),
    [
        (b"Example.COM.", b"example.com", b"example.com", None),
        (b".Example.com", b".example.com", None, None),
        (b"relay:2525", None, b"relay:2525", None),
        (b"Relay:25", None, b"relay", None),
        (b"b+a:26,c", None, b"a:26+b,c", None),
        (b"192.0.2.1", b"192.0.2.1", b"192.0.2.1", None),
        (b"[192.0.2.1]", b"[192.0.2.1]", b"192.0.2.1", None),
        (b"[192.0.2.1]:26", None, b"192.0.2.1:26", None),
        (b"[2001:DB8::1]", b"[2001:db8::1]", b"[2001:db8::1]", None),
        (b"[IPv6:2001:db8::1]", b"[ipv6:2001:db8::1]", None, None),
        ("bücher.example".encode(), b"xn--bcher-kva.example", None, None),
        (b"Joe@Example.org", None, None, b"joe@example.org"),
    ],
)
def test_a_name_is_a_domain_a_relay_or_both_or_a_local_recipient(
    name: bytes, domain: bytes | None, relay: bytes | None, recipient: bytes | None
) -> None:
    for found in (line(name + b" rate=2/5"), unpack_rates(name + b":2/5\n")[0]):
        assert (found.domain, found.relay, found.recipient, found.rate) == (domain, relay, recipient, (2, 5.0))


def test_lmtp_servers_are_named_as_in_the_routes_and_a_route_of_local_mail_makes_them_known() -> None:
    lines = join_lines(unpack_limits(b"lmtp:/run/lmtp concurrency=5\n"), unpack_rates(b"lmtp:box:24:2/5\n"))
    assert set(lines.relays) == {b"lmtp:/run/lmtp", b"lmtp:box"}
    local = unpack_local_routes(b"me.example:lmtp:/run/lmtp\n")
    remote = unpack_routes(b"a.example:lmtp:box\n")
    assert list(warn_of(lines, remote, RULES, local)) == []
    assert len(list(warn_of(lines, {}, RULES, {}))) == 2
    table = LimitTable(lines, {}, local=True)
    assert table.limits(b"lmtp:/run/lmtp", Limits()).most == 5
    assert table.limits(b"joe@me.example", Limits()) == Limits()


def test_a_line_sets_what_it_names_in_any_order_and_nothing_else() -> None:
    found = line(b"  a.example\trate=2/5  recipients=1 concurrency=5")
    assert (found.concurrency, found.initial, found.recipients, found.rate) == (5, None, 1, (2, 5.0))
    assert found.text == "concurrency=5 recipients=1 rate=2/5" and found.places == "destinationlimits line 1"


@pytest.mark.parametrize("text", [b"\x0b\n", b"\x0c\n", b"a.example\x0b\n"])
def test_a_line_of_unusual_white_space_is_refused_with_its_number(text: bytes) -> None:
    with pytest.raises(LineError, match="not name concurrency="):
        unpack_limits(b"a.example rate=2/5\n" + text)


@pytest.mark.parametrize("name", [b".foo.example:", b".foo.example:25", b".a,.b"])
def test_a_name_that_can_be_neither_a_domain_nor_a_relay_is_refused_with_its_line(name: bytes) -> None:
    with pytest.raises(FormatError, match=r"^line 2: not the name of a domain, relay or recipient: "):
        unpack_limits(b"# a comment\n%s rate=2/5\n" % name)


def test_the_most_particular_line_counts_and_only_that_one() -> None:
    limits = unpack_limits(b".b.example concurrency=3\nx.b.example initial=1\n")
    lines = join_lines(limits, unpack_rates(b".x.b.example:1/9"))
    routes = unpack_routes(b"")

    def text(domain: bytes) -> str | None:
        found = find_limits(lines, choose_nexthop(routes, lines, domain))
        return None if found is None else found.text

    assert [text(name) for name in (b"y.b.example", b"x.b.example", b"z.x.b.example", b"b.example")] == [
        "concurrency=3", "initial=1", "rate=1/9", None,
    ]  # fmt: skip


def test_a_domain_whose_relay_has_the_same_name_is_the_relay() -> None:
    lines = join_lines(unpack_limits(b"hub.example concurrency=3\n"), [])
    routes = unpack_routes(b":hub.example\n")
    way = choose_nexthop(routes, lines, b"hub.example")
    assert way == (b"hub.example", True, None)
    assert choose_nexthop(routes, lines, b"a.example") == way


NAMES = st.sampled_from(
    [b"a.example", b".example", b"relay", b"relay:26", b"joe@me.example", b"b.a.example", b"A.Example:25"]
)
LIMITS = st.lists(st.tuples(NAMES, st.sampled_from([b"rate=1/2", b"concurrency=3", b"initial=1 rate=3/4"])), max_size=8)
RATES = st.lists(st.tuples(NAMES, st.sampled_from([b"1/9", b"2/9"])), max_size=8)


@given(LIMITS, RATES)
def test_a_line_counts_somewhere_or_is_warned_of(
    limits: list[tuple[bytes, bytes]], rates: list[tuple[bytes, bytes]]
) -> None:
    one = unpack_limits(b"".join(b"%s %s\n" % pair for pair in limits))
    two = unpack_rates(b"".join(b"%s:%s\n" % pair for pair in rates))
    lines = join_lines(one, two)
    routes = unpack_routes(b":relay:26\nc.example:relay\nd.example:a.example\n")
    counting = {where for found in lines[:3] for each in found.values() for where in each.where}
    idle = {each.where[0] for each in lines.idle}
    assert counting.isdisjoint(idle) and counting | idle == {each.where[0] for each in one + two}
    assert len(list(warn_of(lines, routes, RULES))) == len(idle)
    for found in lines[:3]:
        for each in found.values():
            assert len(each.where) <= 2 and (len(each.where) == 1 or each.where[1][0] == "destinationrate")


@given(st.binary(max_size=80), st.binary(min_size=1, max_size=30))
def test_any_bytes_are_lines_or_a_format_error(data: bytes, domain: bytes) -> None:
    for unpack in (unpack_limits, unpack_rates):
        try:
            lines = join_lines(unpack(data), [])
        except FormatError:
            continue
        routes = unpack_routes(b":relay\n")
        assert choose_nexthop(routes, lines, domain.lower()).name
        for where, why in warn_of(lines, routes, RULES):
            assert where.startswith("destination") and why.isprintable()


def test_the_lines_in_the_docs_are_lines() -> None:
    page = Path(__file__).parents[2].joinpath("docs/operating.md").read_text()
    block = page.partition("\n## Limits for one destination\n")[2].partition("\n\n    ")[2].partition("\n\n")[0]
    found = unpack_limits(block.replace("\n    ", "\n").encode())
    assert [each.text for each in found] == [
        "concurrency=5 initial=1 rate=2/5", "recipients=1", "concurrency=40 rate=100/60", "concurrency=1",
    ]  # fmt: skip


def test_what_can_match_is_found_in_the_time_of_one_look_at_each_line() -> None:
    count = 10_000
    lines = join_lines(unpack_limits(b"".join(b"d%d.example rate=1/2\n" % number for number in range(count))), [])
    exceptions = {b"x@d%d.example" % (2 * number): b"" for number in range(count)}
    rules = Rules(b"me", frozenset(), frozenset(), {b".example": b"v", **exceptions})
    began = time.process_time()
    assert len(list(warn_of(lines, {}, rules))) == count // 2
    assert time.process_time() - began < 2.0
