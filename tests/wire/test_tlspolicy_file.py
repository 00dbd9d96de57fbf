"""control/tlspolicy: what its lines say, and which of them are mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control.hostmap import find_key
from queue_wire.control.tlspolicy import Level, Use, unpack_policies, unpack_policy
from queue_wire.format_error import FormatError


@pytest.mark.parametrize("level", list(Level))
def test_a_level_alone_leaves_mta_sts_and_dane_off(level: Level) -> None:
    policy = unpack_policy(level.value)
    assert (policy.level, policy.sts, policy.dane, policy.ca, policy.name) == (level, Use.OFF, Use.OFF, b"", b"")


def test_a_line_says_what_is_tested_and_what_is_enforced() -> None:
    policy = unpack_policy(b" may  dane=test sts=enforce ")
    assert (policy.sts, policy.dane, policy.text) == (Use.ENFORCE, Use.TEST, b"may dane=test sts=enforce")


def test_a_line_names_the_ca_and_the_name_that_the_certificate_is_for() -> None:
    policy = unpack_policy("implicit ca=our-ca.pem name=B\u00dcCHER.example.".encode())
    assert (policy.ca, policy.name) == (b"our-ca.pem", b"xn--bcher-kva.example")


def test_lines_are_found_by_nexthop_as_those_of_smtproutes_are() -> None:
    policies = unpack_policies(b"B.example:verify\n.b.example:encrypt\n:none\n[IPv6:2001:db8::1]:implicit\n")
    found = [find_key(policies, host) for host in (b"b.EXAMPLE.", b"x.b.example", b"c.example", b"[ipv6:2001:db8::1]")]
    assert [policies[key or b""].level for key in found] == [Level.VERIFY, Level.ENCRYPT, Level.NONE, Level.IMPLICIT]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "none, may, encrypt, verify, implicit"),
        (b"secure", "none, may, encrypt, verify, implicit"),
        (b"may sts", "without a value"),
        (b"may sts=", "without a value"),
        (b"may sts=yes", "off, test, enforce for sts"),
        (b"may sts=test sts=enforce", "twice"),
        (b"may colour=red", "not an option"),
        (b"none dane=enforce", "dane= does not go with none"),
        (b"encrypt ca=x", "ca= does not go with encrypt"),
        (b"implicit sts=test", "sts= does not go with implicit"),
        (b"verify sts=test name=mx.example", "do not go with sts="),
        (b"verify name=.b.example", "not a host name"),
        (b"verify name=a/b", "not a host name"),
    ],
)
def test_a_mistake_is_an_error_that_says_what_is_wrong(text: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        unpack_policy(text)


def test_a_line_without_a_colon_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"^line 2: not nexthop:level: 'b\.example verify'"):
        unpack_policies(b"# level\nb.example verify\n")


@given(st.lists(st.binary(max_size=60)))
def test_whatever_the_file_holds_it_is_read_or_an_error(lines: list[bytes]) -> None:
    try:
        policies = unpack_policies(b"\n".join(lines))
    except FormatError:
        return
    assert len(policies) <= len(lines)
