"""Whatever the input is, the result is a header: reading it gives the same fields, and rewriting changes nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_inject.header.completer import missing_fields, rewrite_header
from queue_inject.header.fields import Field, HeaderReader

REMOVED = {b"bcc", b"resent-bcc", b"return-path", b"content-length", b"notice-requested-upon-delivery-to"}
HIDDEN = {b"bcc", b"resent-bcc"}
NAMES = b"To Cc Bcc From Sender Reply-To Resent-To Resent-Cc Resent-Bcc Return-Path Content-Length Subject X".split()


def names(kind: str) -> bytes:
    return {"defaulthost": b"host.example", "defaultdomain": b"dom.example", "plusdomain": b"plus.example"}[kind]


words = st.sampled_from(
    [
        *(b"a", b"b.c", b"a@b", b"a@b.c", b"<a@b.c>", b"<a>", b"<@r.x:a@b>", b"Ann", b'"A, B"', b"(c (d))", b"a@b+"),
        *(b",", b", ", b" ", b"\n ", b"\n\t", b"\n \n ", b"\r\n ", b"g:", b";", b"[1.2]", b"j\xc3\xb6rg", b"\xff"),
        *(b"x" * 70 + b"@y.z", b'"', b"(", b"\\", b"\0", b"\r", b"@", b"."),
    ]
)
bodies = st.lists(words, max_size=8).map(b"".join)
spaces = st.sampled_from([b":", b": ", b" :", b"\t: "])
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])
lines = st.tuples(st.sampled_from(NAMES), spaces, bodies, ends).map(b"".join)


def read(header: bytes) -> list[Field] | None:
    """Return the fields of a header, or None if a part of it is a body."""
    reader = HeaderReader()
    ended = reader.feed(header)
    reader.end()
    return None if ended or reader.body else reader.fields


@settings(max_examples=300)
@given(st.lists(lines, max_size=4).map(b"".join))
def test_what_goes_out_is_a_whole_header_and_complete(message: bytes) -> None:
    fields = read(message)
    assert fields is not None
    assert b"".join(field.data for field in fields) == message
    header = rewrite_header(fields, names, frozenset())
    for error in header.unread:
        assert message.split(b"\n")[error.line - 1].startswith(error.field.encode())
    added = missing_fields(header, lambda: b"DATE", lambda: b"<ID>", lambda: b"me@host.example")

    again = read(b"".join(added + header.lines))
    assert again is not None
    kept = [field.name for field in fields if field.name not in REMOVED]
    assert [field.name for field in again][len(added) :] == kept
    untouched = {b"subject", b"x"}
    pairs = zip([field for field in fields if field.name not in REMOVED], again[len(added) :], strict=True)
    assert all(before.data == after.data for before, after in pairs if before.name in untouched)

    second = rewrite_header(again, names, frozenset())
    assert second.lines == added + header.lines
    if not any(field.name in HIDDEN for field in fields):
        assert second.recipients == header.recipients
