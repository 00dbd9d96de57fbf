"""users/assign's lines, the keys that they become, and lookups as if each wildcard were all its addresses."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control.assign import ID_MAX, LINE_MAX, Assignment, lookup_keys, unpack_assign, unpack_record
from queue_wire.format_error import FormatError

GOOD = b"=joe:joe:507:100:/home/joe:::\n"
LOCAL = st.text("abAB-.=+", max_size=6).map(str.encode)
FIELD = st.binary(max_size=4).map(lambda data: data.translate(None, b"\n\0:"))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "line 1: the file ends without a line that begins with a dot"),
        (GOOD, "line 2: the file ends without"),
        (GOOD + b"=joe:joe:507:100:/home/joe:::", "line 2: the file ends without"),
        (GOOD + b"\n.\n", "line 2: it begins with neither = nor + nor a dot: ''"),
        (b"# joe:joe:507:100:/home/joe:::\n.\n", "line 1: it begins with neither"),
        (b"joe:joe:507:100:/home/joe:::\n.\n", "line 1: it begins with neither"),
        (GOOD + GOOD + b"=x:x:1:1:/home/x::\n.\n", "line 3: it has 6 colons and not 7: '=x:x:1:1:/home/x::'"),
        (b"=x\n.\n", "line 1: it has 0 colons"),
        (b"=x:x:1:1:/ho\0me:::\n.\n", "line 1: it holds a NUL"),
        (b"=x::1:1:/home/x:::\n.\n", "line 1: it names no user"),
        (b"=x:x::1:/home/x:::\n.\n", "line 1: the uid is not a number from 0 to 4294967294: ''"),
        (b"=x:x:-1:1:/home/x:::\n.\n", "line 1: the uid is not a number"),
        (b"=x:x:1:users:/home/x:::\n.\n", "line 1: the gid is not a number from 0 to 4294967294: 'users'"),
        (b"=x:x:4294967295:1:/home/x:::\n.\n", "line 1: the uid"),
        (b"=x:x:1:1::::\n.\n", "line 1: it names no home directory"),
        (b"=" + b"x" * LINE_MAX + b":x:1:1:/home/x:::\n.\n", "line 1: it has over 65536 bytes"),
    ],
)
def test_a_wrong_line_is_named_with_its_number_and_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match="^" + re.escape(why)):
        unpack_assign(data)


def test_the_records_are_qmail_newu_s_in_the_order_of_the_lines() -> None:
    wildcards = b"+Joe-:Joe:%d:100:/home/joe:-:Pre:rest\n+:alias:1:2:/a:-::\n+x-:x:1:1:/x:::\n" % ID_MAX
    assert unpack_assign(GOOD + wildcards + b"+y.:y:1:1:/y:::\n.end\n=") == [
        (b"!joe\0", b"joe\x00507\x00100\0/home/joe\0\0"),
        (b"!joe-", b"Joe\x004294967294\x00100\0/home/joe\0-\0Pre"),
        (b"!", b"alias\x001\x002\0/a\0-\0"),
        (b"!x-", b"x\x001\x001\0/x\0\0"),
        (b"!y.", b"y\x001\x001\0/y\0\0"),
        (b"", b"-."),
    ]


def test_a_wildcard_that_ends_in_upper_case_is_found() -> None:
    """qmail-newu lists its last byte as written, and qmail-lspawn looks for lower case only."""
    assert unpack_assign(b"+JOE:joe:1:1:/home/joe:::\n.")[-1] == (b"", b"e")


@given(st.lists(st.tuples(st.sampled_from(b"=+"), LOCAL, FIELD, FIELD), max_size=8), LOCAL)
def test_a_wildcard_means_a_simple_assignment_for_every_ext(
    entries: list[tuple[int, bytes, bytes, bytes]], local: bytes
) -> None:
    lines = [b"%c%s:u%d:%d:9:/h:%s:%s:\n" % (entry[0], entry[1], n, n, *entry[2:]) for n, entry in enumerate(entries)]
    records = unpack_assign(b"".join(lines) + b".\n")
    first = dict(reversed(records))
    found = None
    for key, rest in lookup_keys(local, first[b""]):
        if key in first:
            found = unpack_record(first[key], rest)
            break
    expected = None
    fits = [
        (kind != 0x3D, -len(loc), n)
        for n, (kind, loc, _, _) in enumerate(entries)
        if (kind == 0x2B and local.lower().startswith(loc.lower())) or local.lower() == loc.lower()
    ]
    if fits:
        number = min(fits)[2]
        _, loc, dash, ext = entries[number]
        expected = Assignment(b"u%d" % number, number, 9, b"/h", dash, ext + local[len(loc) :])
    assert found == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"joe", b"joe:507:100:/home", b":1:1:/h::", b"u:x:1:/h::", b"u:1:1:::", b"u:1:1:/h::a:b"],
)
def test_a_record_that_is_no_assignment_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_record(data.replace(b":", b"\0"), b"")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_assign_file_or_a_format_error(data: bytes) -> None:
    try:
        unpack_assign(data)
    except FormatError as error:
        assert re.match(r"line [1-9][0-9]*: ", str(error))
