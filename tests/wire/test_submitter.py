"""The submitter of mail that a daemon injects: a host, or a user who has authenticated."""

from queue_wire.files.envelope import is_submitter
from queue_wire.submitter import pack_submitter


def test_a_host_is_one_submitter_and_so_is_an_ipv6_network() -> None:
    assert pack_submitter("192.0.2.1") != pack_submitter("192.0.2.2")
    assert pack_submitter("2001:db8::1") == pack_submitter("2001:db8::ffff:1") != pack_submitter("2001:db8:0:1::1")


def test_a_user_is_one_submitter_from_every_host_and_in_every_case_and_is_no_host() -> None:
    assert pack_submitter("192.0.2.1", b"Ann") == pack_submitter("2001:db8::1", b"ann")
    assert pack_submitter("192.0.2.1", b"ann") != pack_submitter("192.0.2.1", b"bob")
    assert pack_submitter("192.0.2.1", b"192.0.2.1/32") != pack_submitter("192.0.2.1")


def test_whatever_the_name_is_the_submitter_is_short_digits() -> None:
    for user in (b"x" * 100_000, b"a\0Tb\n", b"\xff", b"u 1"):
        assert is_submitter(pack_submitter("", user))
    assert is_submitter(pack_submitter("unknown"))
