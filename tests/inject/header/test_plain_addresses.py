"""plain_addresses agrees with the full parser."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_inject.header.complete_addresses import plain_addresses, rewrite_list
from queue_wire.files.envelope import ADDRESS_MAX


def names(kind: str) -> bytes:
    return {"defaulthost": b"host.example", "defaultdomain": b"dom.example", "plusdomain": b"plus.example"}[kind]


# Parts of ordinary fields, and parts that are almost ordinary.
nearly = st.lists(
    st.sampled_from(
        [
            *(b"a@b.c", b"x.y@z.w", b"<a@b.c>", b"Ann P. <a@b.c>", b'"A, (P.)" <a@b.c>', b'"Ann" <a@b.c>', b"a@b"),
            *(b"j\xc3\xb6rg@b.\xc3\xbc", b", ", b",\n\t", b",", b" ", b".", b"+", b"@", b'"', b"\\", b"<", b">", b"a"),
            *(b"a@b.c.", b"a@b.c+", b"@b.c", b"a@", b":", b";", b"\0", b"\x7f", b"\x0b", b"\r\n", b"[1.2]", b"'"),
            *(b"(c)", b"(", b")", b"[", b"]", b"@r.x:", b"b.c", b"\xff"),
        ]
    ),
    max_size=8,
).map(b"".join)


@settings(max_examples=1000)
@given(st.one_of(nearly, st.binary(max_size=40)))
def test_the_quick_way_finds_what_the_full_parser_finds_and_would_change_nothing(body: bytes) -> None:
    plain = plain_addresses(body)
    if plain is not None:
        for sender in (False, True):
            assert rewrite_list(body, names, sender=sender) == (body, plain)


@pytest.mark.parametrize(
    "body",
    [
        b" a@b.c\n",
        b" Ann Person <a@b.c>\n",
        b' "A. P." <a@b.c>, Bob <b@c.d>,\n\tc@d.e\n',
        b" <a@b.c>\r\n",
        b" J\xc3\xb6rg <j\xc3\xb6rg@b\xc3\xbc.c>\n",
        b" =?utf-8?Q?J=C3=B6rg?= <list+tag=x@b-c.d>\n",
    ],
)
def test_ordinary_fields_go_the_quick_way(body: bytes) -> None:
    assert plain_addresses(body) == rewrite_list(body, names)[1] != []


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\n", b"a", b"a@b", b"@b.c", b"a@b.c.", b"a@b.c+", b"a@b@c.d", b"a@b.c,", b",a@b.c", b"a@b.c d@e.f"),
        *(b"a\\x@b.c", b'"a"@b.c', b"a(x)@b.c", b"a@[1.2]", b"a:b@c.d", b"a;b@c.d", b"a\0@b.c", b"a@b.c\x0b"),
        *(b"a@b.c>", b"<a@b.c", b"< a@b.c>", b"<a@b.c> x", b"<<a@b.c>", b"<@r.x:a@b.c>", b"<>", b"(x) <a@b.c>"),
        *(b'"a" b <a@b.c>', b'"a <a@b.c>', b'" <a@b.c>', b'"a\\" <a@b.c>', b'"a" "b" <a@b.c>', b'"a, b" <a@b.c>'),
        *(b"g: a@b.c;", b"a\\x <a@b.c>", b"a@b <a@b.c>", b"\0 <a@b.c>"),
    ],
)
def test_anything_else_is_left_to_the_full_parser(body: bytes) -> None:
    assert plain_addresses(body) is None


def test_the_quick_way_leaves_addresses_over_the_limit_to_the_full_parser() -> None:
    longest = b"x" * (ADDRESS_MAX - 4) + b"@b.c"

    assert plain_addresses(longest) == [longest] and plain_addresses(b"x" + longest) is None
