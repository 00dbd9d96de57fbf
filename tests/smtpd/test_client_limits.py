"""Limits on what a client may do: token buckets, connections at once, for addresses and networks, in all processes."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp import server_replies as replies
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.connection_counts import ConnectionCounts
from queue_smtpd.strangers.token_bucket import TokenBuckets
from queue_wire.control.networks import counted_networks, unpack_networks
from queue_wire.control.strangers.smtpdlimits import ClientLimit, SmtpdLimits, unpack_smtpd_limits
from queue_wire.format_error import LineError
from support.smtpd.sessions import UNLIMITED


def test_a_key_may_do_a_burst_at_once_and_the_rate_afterwards() -> None:
    buckets = TokenBuckets(3)
    assert [buckets.take("a", 0) for _ in range(4)] == [True, True, True, False]
    assert buckets.empty("a", 0)
    assert not buckets.take("a", 19.9)
    assert not buckets.empty("a", 20)
    assert buckets.take("a", 20)
    assert not buckets.take("a", 20)
    assert buckets.take("b", 20)


@given(st.lists(st.tuples(st.floats(0, 600), st.integers(1, 3)), max_size=100))
def test_no_one_does_more_than_the_burst_and_the_rate_allow(steps: list[tuple[float, int]]) -> None:
    buckets, now, done = TokenBuckets(5, sets=1), 0.0, 0
    for wait, amount in steps:
        now += wait
        done += amount * buckets.take("a", now, amount)
        assert done <= 5 + now * 5 / 60 + 1e-6


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    buckets = TokenBuckets(2)
    assert buckets.take("a", 1000)
    assert buckets.take("a", 0)


def test_when_all_places_are_taken_those_who_did_most_are_remembered() -> None:
    buckets = TokenBuckets(2, sets=1)
    assert buckets.take("busy", 0, 2)
    for number in range(1000):
        assert buckets.take(str(number), number / 1000)
    assert not buckets.take("busy", 1)


def test_without_a_burst_there_is_no_limit() -> None:
    buckets = TokenBuckets(0)
    assert all(buckets.take("a", 0) for _ in range(1000))
    assert not buckets.empty("a", 0)
    buckets.burst = 1
    assert [buckets.take("a", 0) for _ in range(2)] == [True, False]


def test_each_kind_has_its_limit_and_its_reply() -> None:
    one = ClientLimit(1, 0)
    limits = ClientLimits(SmtpdLimits(one, one, one, one))
    for count, reply in (
        (limits.connect, replies.TOO_MANY_CONNECTIONS),
        (limits.begin_message, replies.TOO_MANY_MESSAGES),
        (limits.add_recipient, replies.TOO_FAST_RECIPIENTS),
        (limits.add_error, replies.TOO_MANY_ERRORS),
    ):
        assert count("192.0.2.1", 0) is None
        assert count("192.0.2.1", 0) == reply
        assert count("192.0.2.2", 0) is None
        assert count("192.0.2.1", 60) is None


def test_a_network_has_a_limit_of_its_own() -> None:
    limits = ClientLimits(SmtpdLimits(connections=ClientLimit(1, 3)))
    assert [limits.connect(f"192.0.2.{host}", 0) is None for host in range(5)] == [True, True, True, False, False]
    assert limits.connect("192.0.3.1", 0) is None


def test_connections_at_once_are_counted_until_they_end() -> None:
    limits = ClientLimits(UNLIMITED._replace(concurrency=ClientLimit(2, 3)))
    for total in (1, 2):
        assert limits.hold("192.0.2.1") == total
        assert limits.connect("192.0.2.1", 0) is None
    assert limits.hold("192.0.2.1") == 3
    assert limits.connect("192.0.2.1", 0) == replies.TOO_MANY_AT_ONCE
    # It is one too many for the network, too, until it has ended.
    limits.hold("192.0.2.2")
    assert limits.connect("192.0.2.2", 0) == replies.TOO_MANY_AT_ONCE
    limits.release("192.0.2.1")
    assert limits.connect("192.0.2.2", 0) is None
    assert limits.connect("192.0.2.1", 0) is None


def test_an_address_with_too_many_errors_does_not_get_in() -> None:
    limits = ClientLimits(UNLIMITED._replace(errors=ClientLimit(1, 0)))
    assert limits.add_error("192.0.2.1", 0) is None
    assert limits.connect("192.0.2.1", 0) == replies.TOO_MANY_ERRORS
    assert limits.connect("192.0.2.2", 0) is limits.connect("192.0.2.1", 60) is None


def test_processes_that_share_a_port_share_what_they_count() -> None:
    limits = ClientLimits(UNLIMITED._replace(messages=ClientLimit(2, 0), concurrency=ClientLimit(2, 0)), 2)
    limits.begin(0)
    limits.hold("192.0.2.1")
    pid = os.fork()
    if not pid:
        limits.begin(1)
        limits.hold("192.0.2.1")
        limits.hold("192.0.2.9")
        os._exit(limits.begin_message("192.0.2.1", 0) is not None)
    assert os.waitpid(pid, 0)[1] == 0
    assert [limits.begin_message("192.0.2.1", 0) is None for _ in range(2)] == [True, False]
    assert limits.connect("192.0.2.1", 0) is None
    assert limits.hold("192.0.2.1") == 4
    assert limits.connect("192.0.2.1", 0) == replies.TOO_MANY_AT_ONCE
    # The other one has died, and begins again.
    limits.begin(1)
    limits.begin(0)
    assert limits.hold("192.0.2.1") == 1


def test_counts_of_other_processes_are_hardly_ever_too_large() -> None:
    counts = ConnectionCounts(2)
    counts.begin(1)
    for number in range(2000):
        counts.add((str(number),))
    counts.begin(0)
    assert all(counts.count(str(number)) >= 1 for number in range(2000))
    assert sum(counts.count(str(number)) > 0 for number in range(10_000, 20_000)) < 200


def test_the_lines_of_smtpdlimits() -> None:
    limits = unpack_smtpd_limits(
        b"# ours\nmessages 10\nerrors 5 0\nreserve 25\nexempt 192.0.2.0/24\npause 3\nexempt 2001:db8::1\n"
    )
    assert limits == SmtpdLimits(
        messages=ClientLimit(10, 40),
        errors=ClientLimit(5, 0),
        reserve=25,
        pause=3,
        exempt=unpack_networks(b"192.0.2.0/24\n2001:db8::1"),
    )
    assert unpack_smtpd_limits(b"") == SmtpdLimits()
    exempting = ClientLimits(limits)
    assert exempting.exempts("192.0.2.77") and not exempting.exempts("192.0.3.1") and not exempting.exempts("")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"message 1", "not one of connections, messages"),
        (b"messages", "not a name and one or two numbers"),
        (b"messages 1 2 3", "not a name and one or two numbers"),
        (b"messages many", "not a number from 0 to 1000000: 'many'"),
        (b"errors 1 -1", "not a number from 0 to 1000000"),
        (b"reserve 91", "not a number from 0 to 90"),
        (b"pause 61", "not a number from 0 to 60"),
        (b"pause 1 2", "not a name and one value"),
        (b"exempt 192.0.2.1/24", "not an address or network"),
        (b"recipients 1", "a second line for recipients"),
    ],
)
def test_a_line_of_smtpdlimits_that_cannot_be_used_is_named(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=f"line 2: {why}"):
        unpack_smtpd_limits(b"recipients 7\n" + line + b"\n")


@pytest.mark.parametrize(
    ("address", "networks"),
    [
        ("192.0.2.200", ("192.0.2.200/32", "192.0.2.0/24")),
        ("::ffff:192.0.2.200", ("192.0.2.200/32", "192.0.2.0/24")),
        ("2001:db8:1:2:3:4:5:6", ("2001:db8:1:2::/64", "2001:db8:1::/48")),
        ("", ("", "")),
    ],
)
def test_the_networks_that_limits_count_by(address: str, networks: tuple[str, str]) -> None:
    assert counted_networks(address) == networks


@pytest.mark.parametrize("line", [b"192.0.2.1/24", b"example.org", b"192.0.2", b"\xff", b"192.0.2.0/33"])
def test_a_line_that_is_no_network_is_named(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2"):
        unpack_networks(b"192.0.2.1\n" + line + b"\n")
