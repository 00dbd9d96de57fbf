"""Content-Type and Content-Transfer-Encoding, as far as taking a message apart needs them, whatever comes."""

import email
from email.policy import compat32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_remote.message.mime import VALUE_MAX, ContentType, unpack_content_type, unpack_encoding
from queue_wire.format_error import FormatError


@pytest.mark.parametrize(
    ("value", "kind", "boundary"),
    [
        (b" text/plain", "text/plain", b""),
        (b"", "text/plain", b""),
        (b" garbage; boundary=b", "text/plain", b"b"),
        (b' Multipart/MIXED;\n\tBoundary="=_x y"\n', "multipart/mixed", b"=_x y"),
        (b" multipart/mixed; boundary=----=_Part_1.2", "multipart/mixed", b"----=_Part_1.2"),
        (b" multipart/mixed; charset=x ; boundary = b ;c=d", "multipart/mixed", b"b"),
        (b' multipart/mixed; name="a;boundary=no\\"; boundary=no"; boundary="yes"', "multipart/mixed", b"yes"),
        (b' multipart/mixed; boundary="a\\"b\\\\c"', "multipart/mixed", b'a"b\\c'),
        (b' multipart/mixed; boundary="a b  "; x', "multipart/mixed", b"a b"),
        (b" multipart/mixed (so (it\\) is)); (boundary=no;) boundary=b (yes)", "multipart/mixed", b"b"),
        (b" (comment) multipart / mixed; boundary=(x)b", "multipart/mixed", b"b"),
        (b" multipart/mixed; boundary=a; boundary=b", "multipart/mixed", b"a"),
        (b' multipart/mixed; boundary*0="a "; boundary*1=b', "multipart/mixed", b"a b"),
        (b" multipart/mixed; boundary*1=b; boundary*0=a; boundary*3=d", "multipart/mixed", b"ab"),
        (b" multipart/mixed; boundary*=us-ascii'en'a%20b", "multipart/mixed", b"a b"),
        (b" multipart/mixed; boundary*0*=us-ascii''%61; boundary*1*=%62; boundary*2=c", "multipart/mixed", b"abc"),
        (b" multipart/mixed; boundary", "multipart/mixed", b""),
        (b" multipart/mixed; boundary=", "multipart/mixed", b""),
        (b' multipart/mixed; boundary="', "multipart/mixed", b""),
        (b" multipart/mixed; boundary*x=b; boundaries=c; boundary*9999=d", "multipart/mixed", b""),
        (b" multipart/mixed; boundary=\xe9", "multipart/mixed", b"\xe9"),
        (b" multipart/mixed;;;boundary=b;", "multipart/mixed", b"b"),
        (b" multipart/mixed; boundary=b; boundary*0=c", "multipart/mixed", b"b"),
    ],
)
def test_a_content_type_says_its_type_and_its_boundary(value: bytes, kind: str, boundary: bytes) -> None:
    assert unpack_content_type(value) == ContentType(kind, boundary)


WORD = st.text("abcXYZ019-_.+='/:?", min_size=1, max_size=8)
# The package takes the quote behind an escaped backslash for an escaped one.
QUOTED = st.text("ab (),;:=?\"'", max_size=12).map(lambda text: '"' + text.replace('"', '\\"') + '"')
PARAMETER = st.tuples(
    st.sampled_from(["boundary", "Boundary", "charset", "name"]), st.one_of(WORD.filter(lambda w: "'" not in w), QUOTED)
)


@given(
    st.sampled_from(["multipart/mixed", "TEXT/plain", "nothing"]),
    st.lists(PARAMETER, max_size=5, unique_by=lambda found: found[0].lower()),
    st.sampled_from(["; ", ";", ";\n\t"]),
)
@example("multipart/mixed", [("boundary", '"\\"\\""')], ";")
def test_what_is_well_formed_means_what_the_package_email_says(
    kind: str, parameters: list[tuple[str, str]], between: str
) -> None:
    value = between.join([kind, *[f"{name}={text}" for name, text in parameters]])
    found = email.message_from_string(f"Content-Type: {value}\n\n", policy=compat32)
    # Not get_boundary, which removes quotes twice: of a boundary that is itself in quotes, too.
    boundary = str(found.get_param("boundary", ""))
    expected = ContentType(found.get_content_type(), boundary.encode().rstrip())
    assert unpack_content_type(b" " + value.encode() + b"\n") == expected


PIECES = st.sampled_from(
    [b"boundary", b"=", b";", b'"', b"\\", b"(", b")", b"*", b"0", b"%41", b"'", b" ", b"\n ", b"a/b"]
)


@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_whatever_comes_is_read_or_refused(value: bytes) -> None:
    kind, boundary = unpack_content_type(value)
    assert kind.count("/") == 1
    assert len(boundary) <= VALUE_MAX
    unpack_encoding(value)


@pytest.mark.parametrize("value", [b"a" * 2000 + b"/b", b"a " * 1100, b"a/b; boundary=" + b"b" * 1025])
def test_what_is_kept_is_bounded(value: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_content_type(value)


@pytest.mark.parametrize(
    "value", [b'a/b; x="' + b"y" * 500_000 + b'"; boundary=b', b"a/b;" + b" c=d;" * 9000 + b"boundary=b"]
)
def test_other_parameters_may_be_as_long_as_they_like(value: bytes) -> None:
    assert unpack_content_type(value) == ContentType("a/b", b"b")


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (b" 8BIT\n", "8bit"),
        (b"", ""),
        (b" 7bit (not so)", "7bit"),
        (b" (so) base64; x", "base64"),
        (b"\n quoted-printable\n", "quoted-printable"),
        (b" x\xff", "x\ufffd"),
    ],
)
def test_a_transfer_encoding_is_its_first_word(value: bytes, encoding: str) -> None:
    assert unpack_encoding(value) == encoding
