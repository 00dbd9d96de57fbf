"""Address lists are completed, no recipient is lost, and nothing else is changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_inject.header.complete_addresses import complete_argument, rewrite_list, tokenize, untokenize
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import AddressTooLong, FormatError


def names(kind: str) -> bytes:
    return {"defaulthost": b"host.example", "defaultdomain": b"dom.example", "plusdomain": b"plus.example"}[kind]


CASES = [
    # body of the field, rewritten body, addresses of the envelope
    (b"a@b.c", b"a@b.c", [b"a@b.c"]),
    (b"a", b"a@host.example", [b"a@host.example"]),
    (b"a.b", b"a.b@host.example", [b"a.b@host.example"]),
    (b"a@b", b"a@b.dom.example", [b"a@b.dom.example"]),
    (b"root@localhost, b@LocalHost.", b"root@localhost, b@LocalHost", [b"root@localhost", b"b@LocalHost"]),
    (b"a@localhost2", b"a@localhost2.dom.example", [b"a@localhost2.dom.example"]),
    (b"a@b+", b"a@b.plus.example", [b"a@b.plus.example"]),
    (b"a@b.c+", b"a@b.c.plus.example", [b"a@b.c.plus.example"]),
    (b"a@+", b"a@plus.example", [b"a@plus.example"]),
    (b"a@b.c.", b"a@b.c", [b"a@b.c"]),
    (b"a@", b"a@host.example", [b"a@host.example"]),
    (b"a@[192.0.2.1]", b"a@[192.0.2.1]", [b"a@[192.0.2.1]"]),
    (b"#@[]", b"#@[]", [b"#@[]"]),
    (b"a@b.c, d@e.f", b"a@b.c, d@e.f", [b"a@b.c", b"d@e.f"]),
    (b"a,,b@c.d,", b"a@host.example,,b@c.d,", [b"a@host.example", b"b@c.d"]),
    (b"a@b.c d@e.f", b"a@b.c, d@e.f", [b"a@b.c", b"d@e.f"]),
    (b"djb fred", b"djb@host.example, fred@host.example", [b"djb@host.example", b"fred@host.example"]),
    (b"A Person <a@b.c>", b"A Person <a@b.c>", [b"a@b.c"]),
    (b"<a@b.c> <d@e.f>", b"<a@b.c>, <d@e.f>", [b"a@b.c", b"d@e.f"]),
    (b"x <a@b.c> y@z.w", b"x <a@b.c>, y@z.w", [b"a@b.c", b"y@z.w"]),
    (b"a@b.c (Some (nested) body)", b"a@b.c (Some (nested) body)", [b"a@b.c"]),
    (b"a(1)@(2)b(3)", b"a(1)@(2)b.dom.example(3)", [b"a@b.dom.example"]),
    (b'"a b, c"@d.e', b'"a b, c"@d.e', [b"a b, c@d.e"]),
    (b'"a\\"b"@d.e', b'"a\\"b"@d.e', [b'a"b@d.e']),
    (b'"Last, First" <a@b.c>', b'"Last, First" <a@b.c>', [b"a@b.c"]),
    (b"<@r1.x,@r2.x:a@b.c>", b"<a@b.c>", [b"a@b.c"]),
    (b"group: a@b.c, d;, e@f.g", b"group: a@b.c, d@host.example;, e@f.g", [b"a@b.c", b"d@host.example", b"e@f.g"]),
    (b"undisclosed recipients: ;", b"undisclosed recipients: ;", []),
    (b"a@b.c; d@e.f;", b"a@b.c, d@e.f,", [b"a@b.c", b"d@e.f"]),
    (b"J\xc3\xb6rg <j@b.c>", b"J\xc3\xb6rg <j@b.c>", [b"j@b.c"]),
    (b"=?utf-8?Q?J=C3=B6rg?= <j@b>", b"=?utf-8?Q?J=C3=B6rg?= <j@b.dom.example>", [b"j@b.dom.example"]),
    (b"J. R. Someone <j@b.c>", b"J. R. Someone <j@b.c>", [b"j@b.c"]),
    (b"a @ b . c", b"a @ b . c", [b"a@b.c"]),
    (b"a\n  @b.c\n", b"a\n  @b.c\n", [b"a@b.c"]),
    (b'"fol\n ded"@b.c', b'"fol\n ded"@b.c', [b"fol ded@b.c"]),
    (b"host!user", b"host!user@host.example", [b"host!user@host.example"]),
    (b"", b"", []),
    (b"(nobody)", b"(nobody)", []),
]


@pytest.mark.parametrize(("body", "expected", "addresses"), CASES, ids=[repr(case[0]) for case in CASES])
def test_a_list_is_completed_and_its_addresses_found(body: bytes, expected: bytes, addresses: list[bytes]) -> None:
    assert rewrite_list(body, names) == (expected, addresses)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"(a", r"a \( without its \)"),
        (b'"a', 'a " without its "'),
        (b"a@[1.2", r"a \[ without its \]"),
        (b"a)", r"a \) that nothing has opened"),
        (b"<a@b.c", "a < without its >"),
        (b"a@b.c>", "a > without its <"),
        (b"<a <b>>", "a < without its >"),
        (b"g: a@b.c", "without its semicolon"),
        (b"g: h: a;;", "a group inside a group"),
        (b"@b.c", "without a name before the @"),
        (b".", "without a name"),
        (b"<>", "an address is empty"),
        (b'""@example.org', r"name before the @ is empty \(\"\"\)"),
        (b'Ann <""@example.org>', "name before the @ is empty"),
        (b'"" (Ann) @example.org', "name before the @ is empty"),
        (b'a@b.c, ""', "name before the @ is empty"),
        (b'<@relay.example:""@example.org>', "name before the @ is empty"),
        (b'friends: ""@example.org;', "name before the @ is empty"),
        (b"a@b@c.d", "more than one @"),
        (b"a@@", "a @ at the end"),
        (b"a@b..", r"a \. at the end"),
        (b"<a@b.c, d@e.f>", "more than one @"),
        (b"<a,d@e.f>", "a , inside an address"),
        (b"<a b@c.d>", "a space inside an address"),
        (b"a\\", "a backslash at the end"),
        (b'"a\\\nb"@c.d', "a control character"),
        (b"a\0b@c.d", "a control character"),
        (b"a\xc2\xa0b@c.d", r"U\+00A0, a character that nobody sees"),
        (b"a@b.c, <a@b\xc2\xa0.c>", r"U\+00A0, a character that nobody sees"),
        (b"a\xe9b@c.d", "neither ASCII nor UTF-8"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        rewrite_list(body, names)


def test_an_empty_address_may_be_a_sender() -> None:
    assert rewrite_list(b" <>\n", names, sender=True) == (b" <>\n", [b""])


def test_an_address_over_the_limit_is_refused() -> None:
    host = b"@example.net"
    longest = b"x" * (ADDRESS_MAX - len(host)) + host

    assert rewrite_list(longest, names)[1] == [longest]
    with pytest.raises(AddressTooLong):
        rewrite_list(b"x" + longest, names)


def test_a_list_that_grows_is_folded_after_its_commas() -> None:
    body, addresses = rewrite_list(b" " + b", ".join([b"name"] * 30) + b"\n", names, len("To:"))

    assert addresses == [b"name@host.example"] * 30
    assert max(len(line) for line in (b"To:" + body).split(b"\n")) <= 78
    assert rewrite_list(body, names, len("To:")) == (body, addresses)


@pytest.mark.parametrize(
    ("argument", "address"),
    [
        (b"a@b.c", b"a@b.c"),
        (b"a", b"a@host.example"),
        (b"a@b", b"a@b.dom.example"),
        (b"a@b+", b"a@b.plus.example"),
        (b"a b,c@d.e", b"a b,c@d.e"),
        (b"a@b@c.d", b"a@b@c.d"),
        (b'"a"@b.c', b'"a"@b.c'),
        (b"a@[192.0.2.1]", b"a@[192.0.2.1]"),
        (b"j\xc3\xb6rg@b.c", b"j\xc3\xb6rg@b.c"),
    ],
)
def test_an_argument_needs_no_quoting(argument: bytes, address: bytes) -> None:
    assert complete_argument(argument, names) == address


@pytest.mark.parametrize("argument", [b"", b"@b.c", b'""', b'""@b.c', b"a\nb@c.d", b"a@b c", b"a@b,c"])
def test_an_argument_that_is_no_address_is_refused(argument: bytes) -> None:
    with pytest.raises(FormatError):
        complete_argument(argument, names)


# Parts of address fields, right and wrong ones.
pieces = st.lists(
    st.sampled_from(
        [
            *(b"a", b"b.c", b"joe", b"@", b".", b",", b"<", b">", b":", b";", b'"q q"', b"(c)", b"[1.2]", b" "),
            *(b"\n\t", b"+", b"\\x", b"\xff", b'"', b"(", b")", b"[", b"]", b"\\", b"\0", b"\r"),
        ]
    ),
    max_size=14,
).map(b"".join)
atoms = st.text("abcxyz0189-_=?!'", min_size=1, max_size=8).map(str.encode)
hosts = st.lists(atoms, min_size=1, max_size=3).map(b".".join)
locals_ = st.lists(atoms, min_size=1, max_size=2).map(b".".join)
specs = st.builds(lambda local, host: local + b"@" + host, locals_, hosts)
quotable = st.text("ab ,.;:<>()@", min_size=1, max_size=8)
quotes = st.builds(lambda text, host: b'"' + text.encode() + b'"@' + host, quotable, hosts)
addresses = st.one_of(atoms, specs, quotes)
mailboxes = st.one_of(
    addresses,
    st.builds(lambda address: b"Some Body <" + address + b">", addresses),
    st.builds(lambda address: address + b" (who, <where>)", addresses),
    st.builds(lambda address: b'"Last, F." <@r.x,@s.y:' + address + b">", addresses),
)


@given(st.one_of(st.binary(max_size=60), pieces))
def test_random_bytes_are_refused_or_rewritten_once_and_for_all(body: bytes) -> None:
    try:
        first, addresses = rewrite_list(body, names, sender=True)
    except FormatError:
        return
    assert rewrite_list(first, names, sender=True) == (first, addresses)


@given(st.one_of(st.binary(max_size=60), pieces))
def test_tokens_put_together_are_the_field_again(body: bytes) -> None:
    text = body.decode("latin-1")
    try:
        tokens, tail = tokenize(text)
    except FormatError:
        return
    assert untokenize(tokens, tail) == text


@given(st.lists(st.tuples(mailboxes, st.sampled_from([b",", b", ", b",\n ", b" , (x) "])), max_size=8), st.booleans())
def test_no_recipient_is_ever_lost(parts: list[tuple[bytes, bytes]], group: bool) -> None:
    body = b"".join(mailbox + comma for mailbox, comma in parts)
    found = rewrite_list(b"team: " + body + b";" if group else body, names)[1]
    alone = [rewrite_list(mailbox, names)[1] for mailbox, _ in parts]

    assert all(len(addresses) == 1 for addresses in alone)
    assert found == [addresses[0] for addresses in alone]


@given(st.lists(addresses, min_size=1, max_size=5))
def test_what_is_complete_stays_byte_for_byte(parts: list[bytes]) -> None:
    complete, found = rewrite_list(b", ".join(parts), names)

    assert rewrite_list(complete, names) == (complete, found)
    assert all(b"@" in address and b"." in address.rpartition(b"@")[2] for address in found)


@given(st.binary(max_size=40))
def test_any_argument_is_refused_or_made_complete(argument: bytes) -> None:
    try:
        address = complete_argument(argument, names)
    except FormatError:
        return
    assert b"@" in address and not set(address) & set(range(32))
