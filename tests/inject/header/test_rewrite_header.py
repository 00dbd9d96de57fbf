"""The header reader finds where the body begins; rewriting adds, removes and completes as qmail-inject does."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_inject.header.complete_addresses import readable_addresses
from queue_inject.header.completer import FIELD_MAX, missing_fields, rewrite_header
from queue_inject.header.fields import HEADER_MAX, Field, HeaderReader, field_name
from queue_inject.header.identity import Identity, make_author, make_message_id, make_sender
from queue_wire.address import quote_address
from queue_wire.format_error import FormatError


def names(kind: str) -> bytes:
    return {"defaulthost": b"host.example", "defaultdomain": b"dom.example", "plusdomain": b"plus.example"}[kind]


def read(*pieces: bytes) -> tuple[list[bytes], bytes]:
    """Return the fields and the body of a message, and check that they do not depend on how it arrives."""
    reader = HeaderReader()
    for number, piece in enumerate(pieces):
        if reader.feed(piece):
            return [field.data for field in reader.fields], reader.body + b"".join(pieces[number + 1 :])
    reader.end()
    return [field.data for field in reader.fields], reader.body


CASES = [
    (b"", [], b""),
    (b"A: 1\n", [b"A: 1\n"], b""),
    (b"A: 1", [b"A: 1\n"], b""),
    (b"A: 1\n\nbody", [b"A: 1\n"], b"\nbody"),
    (b"A: 1\n 2\n\t3\nB: 4\n\n", [b"A: 1\n 2\n\t3\n", b"B: 4\n"], b"\n"),
    (b"A: 1\n 2", [b"A: 1\n 2\n"], b""),
    (b"A: 1\nno field\nbody", [b"A: 1\n"], b"\nno field\nbody"),
    (b"A: 1\nno field", [b"A: 1\n"], b"\nno field"),
    (b"just a body", [], b"\njust a body"),
    (b"\nbody", [], b"\nbody"),
    (b" indented\n", [], b"\n indented\n"),
    (b"From me today\nA: 1\n\n", [b"MBOX-Line: From me today\n", b"A: 1\n"], b"\n"),
    (b"From : me\n\n", [b"From : me\n"], b"\n"),
    (b"A : 1\n\n", [b"A : 1\n"], b"\n"),
    (b"A b: 1\n\n", [], b"\nA b: 1\n\n"),
    (b": 1\n\n", [], b"\n: 1\n\n"),
    (b"A: 1\r\nB: 2\r\n\r\nbody\r\n", [b"A: 1\r\n", b"B: 2\r\n"], b"\r\nbody\r\n"),
    (b"A\xff: 1\n", [], b"\nA\xff: 1\n"),
]


@pytest.mark.parametrize(("message", "fields", "body"), CASES, ids=[repr(case[0]) for case in CASES])
def test_the_header_ends_where_qmail_inject_says(message: bytes, fields: list[bytes], body: bytes) -> None:
    assert read(message) == (fields, body)
    assert read(*[message[at : at + 1] for at in range(len(message))]) == (fields, body)


@given(st.lists(st.sampled_from([b"A: 1", b"\n", b" x", b"From ", b"y", b"\r\n", b"\0", b"To: a"]), max_size=12))
def test_no_byte_of_a_message_is_lost_however_it_arrives(pieces: list[bytes]) -> None:
    message = b"".join(pieces)
    fields, body = read(message)
    assert read(*pieces) == (fields, body)

    head = b"".join(field.removeprefix(b"MBOX-Line: ") for field in fields)
    # Only an empty line before the body is added, or a newline at the end of the header.
    assert message in (head + body, head + body.removeprefix(b"\n"), (head + body).removesuffix(b"\n"))


def test_a_header_without_end_is_refused_at_its_limit() -> None:
    reader = HeaderReader()
    with pytest.raises(FormatError, match="over"):
        for _ in range(HEADER_MAX // 65536 + 1):
            reader.feed(b"A: " + b"x" * 65532 + b"\n")


@pytest.mark.parametrize("fields", [b"", b"A: 1\n", b"A: 1\n 2\n"])
@pytest.mark.parametrize(
    "line", [b"x" * 100, b"many words " * 10, b"caf\xe9" * 20, b"From" * 20], ids=["x", "words", "8-bit", "From"]
)
def test_a_body_of_one_long_line_is_no_header_however_long_it_is(fields: bytes, line: bytes) -> None:
    reader = HeaderReader()
    assert not fields or not reader.feed(fields)
    # This is known without any more bytes.
    assert reader.feed(line * 20)
    assert b"".join(field.data for field in reader.fields) == fields
    assert reader.body == b"\n" + line * 20


def test_a_body_of_one_line_of_many_megabytes_is_injected_as_it_is() -> None:
    line = b"x" * (HEADER_MAX + 1)
    assert read(b"To: a@b\n" + line) == ([b"To: a@b\n"], b"\n" + line)
    assert read(line) == ([], b"\n" + line)


@given(
    st.sampled_from([b"", b"A: 1\n"]),
    st.sampled_from(
        [b"x" * 998, b"x" * 999, b"x " * 600, b"From " + b"y" * 1100, b"x" * 990 + b" " * 1000, b" " * 1100]
    ),
    st.sampled_from([b"\n", b"", b": y\n", b" \n"]),
    st.integers(1, 1200),
)
def test_where_a_long_line_belongs_does_not_depend_on_how_it_arrives(
    fields: bytes, line: bytes, end: bytes, size: int
) -> None:
    message = fields + line + end
    assert read(*[message[at : at + size] for at in range(0, len(message), size)]) == read(message)


def parse(message: bytes) -> list[Field]:
    reader = HeaderReader()
    reader.feed(message)
    reader.end()
    return reader.fields


def rewrite(message: bytes, ignored: frozenset[bytes] = frozenset()) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of the header, the added ones first, and the recipients."""
    header = rewrite_header(parse(message), names, ignored)
    added = missing_fields(header, lambda: b"DATE", lambda: b"<ID>", lambda: b"AUTHOR")
    return [*added, *header.lines], header.recipients


@pytest.mark.parametrize("line", [b"To:\n", b"X: y\n"])
def test_a_header_of_very_many_fields_is_refused(line: bytes) -> None:
    """Each field takes one or two objects: a header of 16 MB took 1.4 GB."""
    reader = HeaderReader()
    with pytest.raises(FormatError, match="its header has over 100000 fields"):
        for _ in range(40):
            reader.feed(line * 10_000)
    assert len(reader.fields) < 120_000


def test_a_message_lacks_date_message_id_from_and_recipients() -> None:
    assert rewrite(b"Subject: x\n")[0] == [
        b"Date: DATE\n",
        b"Message-ID: <ID>\n",
        b"From: AUTHOR\n",
        b"Cc: recipient list not shown: ;\n",
        b"Subject: x\n",
    ]


def test_nothing_is_added_that_is_there_in_any_case() -> None:
    message = b"DATE: x\nmessage-id : y\nFrOm: a@b.c\ncC: d@e.f\n"

    assert rewrite(message) == (message.splitlines(keepends=True), [b"d@e.f"])


def test_recipients_are_those_of_to_cc_bcc_and_apparently_to_in_order() -> None:
    message = b"To: a\nCc: b, c\nBcc: d\nApparently-To: e\nReply-To: f\n"

    assert rewrite(message)[1] == [each + b"@host.example" for each in (b"a", b"b", b"c", b"d", b"e")]


def test_bcc_return_path_and_content_length_go() -> None:
    message = b"To: a@b.c\nBcc: b@c.d\nReturn-Path: <x@y.z>\nContent-Length: 7\nResent-Bcc: c@d.e\nX: 1\n"

    lines, _ = rewrite(message)
    assert [line for line in lines if b"DATE" not in line and b"ID" not in line and b"AUTHOR" not in line] == [
        b"Resent-Cc: recipient list not shown: ;\n",
        b"To: a@b.c\n",
        b"X: 1\n",
    ]


@pytest.mark.parametrize("field", [b"Sender", b"From", b"Reply-To", b"To", b"Cc", b"Bcc", b"Date", b"Message-ID"])
def test_any_resent_field_makes_it_resent(field: bytes) -> None:
    lines, recipients = rewrite(b"To: a@b.c\nResent-" + field + b": d@e.f\n")

    assert recipients == ([b"d@e.f"] if field in (b"To", b"Cc", b"Bcc") else [])
    assert all(line.startswith((b"Resent-", b"To:")) for line in lines)
    assert {line.partition(b":")[0] for line in lines} >= {b"Resent-Date", b"Resent-Message-ID", b"Resent-From"}


def test_a_field_that_cannot_be_parsed_stays_and_one_of_recipients_is_named() -> None:
    broken = b"Cc : (x\n y\n"
    header = rewrite_header(parse(b"X: 1\n 2\n 3\nFrom me\n" + broken + b"Reply-To: (\n"), names, frozenset())

    assert [str(error) for error in header.unread] == ["a ( without its )"]
    assert (header.unread[0].field, header.unread[0].line) == ("Cc", 5)
    assert header.unread[0].where == "the Cc field in line 5"
    assert header.lines[-2:] == [broken, b"Reply-To: (\n"]


def test_the_recipients_of_a_field_over_the_limit_of_the_parser_are_found() -> None:
    """The parser takes up to 250 bytes of memory for each byte; plain addresses take almost none."""
    plain, parsed = b"ann@example.org, ", b"(x) ann@example.org, "
    lines, recipients = rewrite(b"To: " + plain * (FIELD_MAX // len(plain) + 1) + b"bob@example.org\n")
    assert len(recipients) > 60_000 and len(lines[-1]) > FIELD_MAX
    long = b"To: " + parsed * (FIELD_MAX // len(parsed) + 1) + b"bob@example.org\n"
    lines, recipients = rewrite(long)
    assert lines[-1] == long and recipients == [b"ann@example.org"] * (len(recipients) - 1) + [b"bob@example.org"]
    assert len(recipients) > 49_000


# Fields that strangers write: a body, and the addresses that can be read of it.
ODD = [
    (b"undisclosed-recipients:", []),
    (b"Ann <ann@x.y", [b"ann@x.y"]),
    (b"Ann <ann@x.y, Bob <bob@x.y>", [b"ann@x.y", b"bob@x.y"]),
    (b"Re: the plan <a@b.c>, d@e.f", [b"a@b.c", b"d@e.f"]),
    (b"Sales: East: a@b.c", [b"a@b.c"]),
    (b"<a@b.c>>", [b"a@b.c"]),
    (b'"Doe, John <a@b.c>, "Ann" <d@e.f>', [b"d@e.f"]),
    (b'"Doe <a@b.c>', [b"a@b.c"]),
    (b"a@b.c, (d@e.f", [b"a@b.c"]),
    (b"a@b.c) <d@e.f>", [b"d@e.f"]),
    (b"x" * 2000 + b"@b.c, d@e.f", [b"d@e.f"]),
    (b"fred, a@@b.c, <@r.x,@s.x:d@e.f>", [b"d@e.f"]),
    (b"a b@c.d, e@f.g, <", [b"e@f.g"]),
    (b"<>, a@b.c, d@e.f\\", [b"a@b.c"]),
]


@pytest.mark.parametrize(("body", "addresses"), ODD)
def test_what_can_be_read_of_a_broken_field_of_recipients_counts(body: bytes, addresses: list[bytes]) -> None:
    field = b"To: " + body + b"\n"
    lines, recipients = rewrite(field)

    assert recipients == addresses and lines[-1] == field


@pytest.mark.parametrize(
    "field",
    [
        *(b"To: " + body + b"\n" for body, _ in ODD),
        b"Reply-To: <a@b.c>>\n",
        b"From: <@r.x:a@b.c>\n",
        b"Cc: a@b.c d@e.f\n",
        b"To: a@b.c; d@e.f.\n",
        b"To: " + b"(x) ann@example.org, " * 60_000 + b"bob\n",
    ],
)
def test_with_recipients_as_arguments_a_field_stays_byte_for_byte(field: bytes) -> None:
    header = rewrite_header(parse(field), names, frozenset(), keeps=True)

    assert header.lines == [field] and header.unread == []


def test_with_recipients_as_arguments_an_incomplete_address_is_completed() -> None:
    header = rewrite_header(parse(b"From: ann, <@r.x:b@c+>\nTo: d@e.f.\n"), names, frozenset(), keeps=True)

    assert header.lines[0].startswith(b"From: ann@host.example, <b@c.") and header.lines[1:] == [b"To: d@e.f.\n"]


@pytest.mark.parametrize("part", [b"(", b'"', b"[", b"<", b")", b":", b"a ", b"\\", b"@", b",", b"(x) a@b.c "])
def test_a_broken_field_is_read_in_linear_time(part: bytes) -> None:
    begin = time.process_time()
    readable_addresses(part * (300_000 // len(part)), names)

    assert time.process_time() - begin < 10


def test_a_field_knows_the_line_that_it_begins_in() -> None:
    message = b"From me\nA: 1\n 2\n\t3\nB: 4\nC: 5"
    for pieces in ([message], [message[at : at + 1] for at in range(len(message))]):
        reader = HeaderReader()
        for piece in pieces:
            reader.feed(piece)
        reader.end()
        places = [(field.name, field.line) for field in reader.fields]
        assert places == [(b"mbox-line", 1), (b"a", 2), (b"b", 5), (b"c", 6)]


def test_fields_to_be_ignored_are_removed_unread() -> None:
    lines, _ = rewrite(b"From: (broken\nMessage-ID: <old>\n", frozenset((b"from", b"message-id")))

    assert b"From: AUTHOR\n" in lines and b"Message-ID: <ID>\n" in lines and len(lines) == 4


@given(st.binary(max_size=200))
def test_random_bytes_as_a_message_never_crash(message: bytes) -> None:
    rewrite(b"To: " + message)
    rewrite(b"Subject: " + message.replace(b"\n", b""))


def test_a_field_name_is_printable_and_before_a_colon() -> None:
    assert field_name(b"Resent-To \t: x\n") == b"resent-to"
    assert [field_name(line) for line in (b"x", b":", b" a: b", b"a b: c", b"\x7f: x", b"")] == [None] * 6


@pytest.mark.parametrize(
    ("environment", "author", "sender"),
    [
        ({}, b"anonymous@host.example", b"anonymous@host.example"),
        ({b"LOGNAME": b"l", b"USER": b"u"}, b"u@host.example", b"u@host.example"),
        ({b"USER": b"u", b"MAILUSER": b"m"}, b"m@host.example", b"m@host.example"),
        ({b"MAILUSER": b"m", b"QMAILUSER": b"q"}, b"q@host.example", b"q@host.example"),
        ({b"USER": b"u", b"MAILHOST": b"h.x"}, b"u@h.x", b"u@h.x"),
        ({b"USER": b"u", b"MAILHOST": b"h.x", b"QMAILHOST": b"q"}, b"u@q.dom.example", b"u@q.dom.example"),
        ({b"USER": b"u", b"QMAILSUSER": b"s", b"QMAILSHOST": b"s.x"}, b"u@host.example", b"s@s.x"),
        ({b"USER": b"u", b"NAME": b"N", b"MAILNAME": b"A (B)"}, b'"A (B)" <u@host.example>', b"u@host.example"),
        ({b"USER": b"u", b"NAME": b'A "B"\nTo: x'}, b'"A \\"B\\" To: x" <u@host.example>', b"u@host.example"),
        ({b"USER": b"u", b"NAME": b"A (B)", b"QMAILINJECT": b"c"}, b"u@host.example (A \\(B\\))", b"u@host.example"),
        ({b"QMAILUSER": b"q", b"QUEUE_USER": b"o", b"USER": b"u"}, b"o@host.example", b"o@host.example"),
        ({b"USER": b"u", b"QUEUE_HOST": b"o.x", b"QMAILHOST": b"q.x", b"MAILHOST": b"m.x"}, b"u@o.x", b"u@o.x"),
        ({b"USER": b"u", b"QUEUE_HOST": b"", b"MAILHOST": b"m.x"}, b"u@host.example", b"u@host.example"),
        ({b"USER": b"u", b"QUEUE_NAME": b"O", b"QMAILNAME": b"Q"}, b'"O" <u@host.example>', b"u@host.example"),
        ({b"USER": b"u", b"QUEUE_NAME": b"", b"NAME": b"N"}, b"u@host.example", b"u@host.example"),
        ({b"USER": b"u", b"QUEUE_SUSER": b"o", b"QMAILSUSER": b"q"}, b"u@host.example", b"o@host.example"),
        ({b"USER": b"u", b"QUEUE_SHOST": b"o.x", b"QMAILSHOST": b"q.x"}, b"u@host.example", b"u@o.x"),
        ({b"USER": b"u", b"QUEUE_SHOST": b"", b"MAILHOST": b"m.x"}, b"u@m.x", b"u@host.example"),
        ({b"USER": b"u", b"QUEUE_INJECT": b"", b"QMAILINJECT": b"r"}, b"u@host.example", b"u@host.example"),
        ({b"USER": b"u v"}, b'"u v"@host.example', b"u v@host.example"),
        ({b"USER": b"u", b"QMAILINJECT": b"r"}, b"u@host.example", b"u-@host.example-@[]"),
        ({b"USER": b"u", b"QMAILINJECT": b"m"}, b"u@host.example", b"u-1000.77@host.example"),
        ({b"USER": b"u", b"QMAILINJECT": b"rm"}, b"u@host.example", b"u-1000.77-@host.example-@[]"),
    ],
)
def test_the_environment_says_who_sends(environment: dict[bytes, bytes], author: bytes, sender: bytes) -> None:
    identity = Identity(environment)

    assert make_author(identity, names) == author
    assert make_sender(identity, names, 1000, 77) == sender


def test_a_message_id_has_time_process_and_host() -> None:
    assert make_message_id("20261120124500.000001", 77, b"id.example") == b"<20261120124500.000001.77.qmail@id.example>"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (b"", b""),
        (b"a", b"a"),
        (b"a@b.c", b"a@b.c"),
        (b"a b@c.d", b'"a b"@c.d'),
        (b'a"@b.c', b'"a\\""@b.c'),
        (b".a@b", b'".a"@b'),
    ],
)
def test_an_envelope_address_is_shown_as_a_header_has_it(address: bytes, shown: bytes) -> None:
    assert quote_address(address) == shown
