"""MTA-STS: TXT records, policy files, and the names that they allow (RFC 8461)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.tls import mta_sts
from queue_remote.tls.certificates import matches
from queue_remote.tls.mta_sts import MAX_AGE_MAX, Mode, unpack_policy, unpack_record
from queue_wire.format_error import FormatError

POLICY = b"version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\n"


@pytest.mark.parametrize(
    "record",
    [b"v=STSv1; id=20160831085700Z;", b"v=STSv1;id=20160831085700Z", b"v=STSv1 ; new=x ; id=20160831085700Z ; a=b"],
)
def test_the_id_is_found_among_other_records(record: bytes) -> None:
    assert unpack_record([b"v=spf1 -all", record, b"v=STSv1000; id=1"]) == b"20160831085700Z"


def test_records_of_others_are_none() -> None:
    assert unpack_record([b"v=spf1 -all", b"", b"v=STSv1"]) is None


@pytest.mark.parametrize(
    "records",
    [
        [b"v=STSv1; id=1", b"v=STSv1; id=1"],
        [b"v=STSv1;"],
        [b"v=STSv1; id="],
        [b"v=STSv1; id=" + b"1" * 33],
        [b"v=STSv1; id=2026-01"],
    ],
)
def test_two_records_or_one_without_an_id_are_an_error(records: list[bytes]) -> None:
    with pytest.raises(FormatError):
        unpack_record(records)


def test_a_policy_has_a_mode_an_age_and_names() -> None:
    policy = unpack_policy(POLICY)
    assert (policy.mode, policy.max_age) == (Mode.ENFORCE, 604800)
    assert policy.patterns == (b"mail.example.com", b"*.example.net")
    assert [policy.allows(host) for host in (b"MAIL.example.com", b"mx.example.net", b"mx.example.com")] == [
        *(True, True, False)
    ]


def test_lf_ends_lines_too_the_first_of_equal_keys_counts_and_unknown_keys_do_not() -> None:
    text = b"version:STSv1\nmode: testing\nmode: enforce\nx: y\nnonsense\nmx:a.example\nmax_age:99999999999"
    with pytest.raises(FormatError, match="max_age"):
        unpack_policy(text)
    policy = unpack_policy(text[:-2])
    assert (policy.mode, policy.max_age) == (Mode.TESTING, MAX_AGE_MAX)


def test_a_policy_of_mode_none_needs_no_names() -> None:
    assert unpack_policy(b"version: STSv1\nmode: none\nmax_age: 0").mode is Mode.NONE


@pytest.mark.parametrize("line", [b"version: STSv1", b"mode: enforce", b"max_age: 604800"])
def test_a_policy_that_lacks_a_line_is_an_error(line: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_policy(POLICY.replace(line + b"\r\n", b""))


@pytest.mark.parametrize("name", [b"", b"*", b"a b", b"a.*.example", b"*.*.example", "b\u00fccher.example".encode()])
def test_a_name_that_no_exchanger_can_have_is_an_error(name: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_policy(POLICY + b"mx: " + name)


def test_no_names_are_an_error() -> None:
    with pytest.raises(FormatError, match="no mx"):
        unpack_policy(b"version: STSv1\nmode: enforce\nmax_age: 1")


@given(st.binary())
def test_whatever_a_server_sends_it_is_a_policy_or_an_error(text: bytes) -> None:
    for data in (text, POLICY + text):
        try:
            assert unpack_policy(data).max_age >= 0
        except FormatError:
            continue


@pytest.mark.parametrize(
    ("pattern", "host", "same"),
    [
        (b"mx.example.net", b"MX.Example.NET.", True),
        (b"*.example.net", b"mx.example.net", True),
        (b"*.example.net", b"a.mx.example.net", False),
        (b"*.example.net", b"example.net", False),
        (b"*.example.net", b".example.net", False),
        (b"*.net", b"example.net", True),
        (b"m*.example.net", b"mx.example.net", False),
        (b"", b"", False),
    ],
)
def test_a_wildcard_stands_for_one_label(pattern: bytes, host: bytes, same: bool) -> None:
    assert matches(pattern, host) is same


def test_a_host_is_looked_up_in_a_policy_and_not_compared_with_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    many = b"".join(b"mx: *.%d.example\nmx: mx.%d.EXAMPLE.\n" % (number, number) for number in range(1200))
    policy = unpack_policy(POLICY + many)
    monkeypatch.setattr(mta_sts, "matches", pytest.fail, raising=False)
    assert policy.allows(b"a.7.Example.")
    assert policy.allows(b"mx.7.example")
    assert not policy.allows(b"mx.a.7.example")
    assert not policy.allows(b"other.example")


@given(
    st.lists(st.sampled_from([b"*.a", b"*.a.b", b"a.b", b"B.a.", b"*.B", b"b"]), min_size=1),
    st.sampled_from([b"a", b"b", b"a.b", b"A.B.", b"b.a", b".a", b"", b"*.a", b"x.a.b", b"*.b"]),
)
def test_a_policy_allows_what_one_of_its_patterns_matches(patterns: list[bytes], host: bytes) -> None:
    policy = unpack_policy(POLICY.replace(b"mx:", b"x:") + b"".join(b"mx: %s\n" % pattern for pattern in patterns))
    assert policy.allows(host) is any(matches(pattern, host) for pattern in patterns)
