"""Limits on what a client may do in a time: token buckets, for addresses and networks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp import server_replies as replies
from queue_smtpd.client_limits import NETWORK_SHARE, ClientLimits, ClientRates
from queue_smtpd.token_bucket import Rate, TokenBuckets
from queue_wire.control.networks import counted_networks, unpack_networks
from queue_wire.format_error import LineError


def test_a_key_may_do_a_burst_at_once_and_the_rate_afterwards() -> None:
    buckets = TokenBuckets(Rate(3, 60))
    assert [buckets.take("a", 0) for _ in range(4)] == [True, True, True, False]
    assert not buckets.take("a", 19.9)
    assert buckets.take("a", 20)
    assert not buckets.take("a", 20)
    assert buckets.take("b", 20)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 3)), max_size=100))
def test_no_one_does_more_than_the_burst_and_the_rate_allow(steps: list[tuple[float, int]]) -> None:
    buckets, now, done = TokenBuckets(Rate(5, 10)), 0.0, 0
    for wait, amount in steps:
        now += wait
        done += amount * buckets.take("a", now, amount)
        assert done <= 5 + now * 0.5 + 1e-6


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    buckets = TokenBuckets(Rate(2, 60))
    assert buckets.take("a", 1000)
    assert buckets.take("a", 0)


def test_what_is_kept_is_bounded() -> None:
    buckets = TokenBuckets(Rate(2, 60), most=100)
    buckets.take("busy", 0, 2)
    for number in range(1000):
        buckets.take(str(number), number / 1000)
        assert len(buckets) <= 101
    assert not buckets.take("busy", 1)


def test_without_a_burst_there_is_no_limit() -> None:
    buckets = TokenBuckets(Rate(0, 60))
    assert all(buckets.take("a", 0) for _ in range(1000))
    assert len(buckets) == 0


def test_each_kind_has_its_limit_and_its_reply() -> None:
    limits = ClientLimits(ClientRates(1, 1, 1, 1))
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


def test_a_network_may_do_some_times_as_much_as_an_address() -> None:
    limits = ClientLimits(ClientRates(connections=1))
    allowed = [limits.connect(f"192.0.2.{host}", 0) is None for host in range(20)]
    assert allowed == [host < NETWORK_SHARE for host in range(20)]
    assert limits.connect("192.0.3.1", 0) is None


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
