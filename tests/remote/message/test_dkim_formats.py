"""The pure parts of DKIM: the canonical body, the header's fields, whose mail it is, and the lines of control/dkim."""

from itertools import pairwise

import pytest
from dkim.canonicalization import Relaxed
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.message.dkim_keys import KeyLine, unpack_keys
from queue_remote.message.dkim_signature import RelaxedBody, wire_fields
from queue_remote.message.file import find_body
from queue_remote.message.signing import author_domain
from queue_wire.format_error import FormatError
from support.processes.refusals import value_or_refusal
from support.servers.dkim_keys import wire

# Bytes that canonicalization is about, so that random bodies are full of them.
BODIES = st.lists(st.sampled_from([b" ", b"\t", b"\r", b"\n", b"\r\n", b"a", b"\0", b"\xff", b".", b"\n\n"])).map(
    b"".join
)


def canonical(*chunks: bytes) -> bytes:
    pieces: list[bytes] = []
    body = RelaxedBody(pieces.append)
    for chunk in chunks:
        body.feed(chunk)
    body.finish()
    return b"".join(pieces)


@given(BODIES, st.lists(st.integers(0, 30), max_size=5))
def test_the_canonical_body_is_dkimpys_in_chunks_of_any_size(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(body)]
    chunks = [body[start:end] for start, end in pairwise(places)]
    assert canonical(*chunks) == canonical(body) == Relaxed.canonicalize_body(wire(body))


def test_a_body_of_nothing_but_empty_lines_is_empty() -> None:
    assert [canonical(b""), canonical(b"\n"), canonical(b" \n\t\n\r\n")] == [b"", b"", b""]


def test_many_empty_lines_are_not_held_in_memory() -> None:
    pieces: list[bytes] = []
    body = RelaxedBody(pieces.append)
    for _ in range(100):
        body.feed(b"\n" * 65536)
    body.feed(b"x")
    assert sum(map(len, pieces)) == 2 * 100 * 65536 + 1
    assert max(map(len, pieces)) < 10_000


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        (b" ann@Example.ORG\n", b"example.org"),
        (b" Ann <ann@example.org>\n", b"example.org"),
        (b' "a@b <c@d>" (e@f) <ann@example.org>, bob@other.example\n', b"example.org"),
        (b" ann@example.org (see bob@other.example), x@y\n", b"example.org"),
        (b' "very@odd"@example.org\n', b"example.org"),
        (b" Group: ann@example.org, bob@other.example;\n", b"example.org"),
        (b" =?utf-8?q?=3Cx=40y=3E?=\n <ann@example.org>\n", b"example.org"),
        (b" (((((ann@other.example))))) ann@example.org\n", b"example.org"),
        (b" ann@exam(comment)ple.org\n", b"example.org"),
        (b" <@relay.example:ann@example.org>\n", b"example.org"),
        (b" ann\n", b""),
        (b" <>\n", b""),
        (b"", b""),
    ],
)
def test_the_author_is_the_first_mailbox(value: bytes, domain: bytes) -> None:
    assert author_domain(value) == domain


@given(
    st.lists(st.sampled_from([b"(", b")", b'"', b"\\", b"<", b">", b"@", b":", b",", b" ", b"a", b"\xff"])).map(
        b"".join
    )
)
def test_no_from_field_breaks_it(value: bytes) -> None:
    assert b"@" not in author_domain(value)


def test_the_body_begins_behind_the_first_empty_line_wherever_it_was_cut() -> None:
    for message in (b"A: b\n\nbody", b"A: b\r\n\r\nbody", b"\nbody", b"\r\nbody"):
        start = message.index(b"body")
        assert find_body(message) == start
        for cut in range(len(message)):
            first = find_body(message[:cut])
            assert (find_body(message, cut) if first is None else first) == start
    assert find_body(b"A: b\n \nB: c\n") is None


def test_fields_are_those_wanted_and_garbage_is_passed_over() -> None:
    header = b"From me Mon\n stray\nTo: a\n\tb\nSubject : one\r\nno field\n of it\nX: y\nTO:c\rd\n\n"
    assert wire_fields(header, {b"to", b"subject"}) == [
        (b"To", b" a\r\n\tb\r\n"),
        (b"Subject", b" one\r\n"),
        (b"TO", b"c d\r\n"),
    ]


def test_lines_of_a_domain_are_its_signatures() -> None:
    lines = [
        b"Example.org:one:/k/a:b",
        b"example.org:two:keys/c",
        b".example.org:sub:/k/d",
        "bücher.example:s:/k".encode(),
    ]
    assert unpack_keys(b"\n".join(lines)) == {
        b"example.org": [KeyLine(b"example.org", b"one", b"/k/a:b"), KeyLine(b"example.org", b"two", b"keys/c")],
        b".example.org": [KeyLine(b"example.org", b"sub", b"/k/d")],
        b"xn--bcher-kva.example": [KeyLine(b"xn--bcher-kva.example", b"s", b"/k")],
    }


@pytest.mark.parametrize(
    "line", [b"example.org", b"a.org:s", b"a.org:s:", b":s:/k", b"a b:s:/k", b"a.org:s/t:/k", b"a.org::/k"]
)
def test_a_line_that_names_no_key_is_refused(line: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_keys(line)


@given(st.binary(max_size=40))
def test_no_line_raises_anything_but_a_format_error(line: bytes) -> None:
    value_or_refusal(unpack_keys, line)
