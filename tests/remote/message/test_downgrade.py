"""Messages made 7-bit or short-lined: a MIME reader gets the same out, and what was good already stays as it is."""

import binascii
import email
import quopri
import re
from email.policy import compat32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_remote.message import encoding
from queue_remote.message.downgrade import Downgrade
from queue_wire.format_error import FormatError

LONG = b"word " * 300 + b"\n"
RUSSIAN = "Съешь же ещё этих мягких французских булок\n".encode()


def convert(message: bytes, seven_bit: bool = True, short_lines: bool = False) -> bytes:
    pieces: list[bytes] = []
    Downgrade(message, seven_bit, short_lines, pieces.append).run()
    return b"".join(pieces)


def leaves(message: bytes) -> list[bytes]:
    """Return what a reader gets out of each part that is no container, with LF line ends."""
    parts = email.message_from_bytes(message, policy=compat32).walk()
    found = [part.get_payload(decode=True) for part in parts if not part.is_multipart()]
    return [body.replace(b"\r\n", b"\n") for body in found if isinstance(body, bytes)]


MIXED = (
    b"From: a@b\nContent-Type: multipart/mixed;\n\tboundary=\"=_x y\"\nMIME-Version: 1.0\n"
    b"Content-Transfer-Encoding: 8bit\nX-Odd:no space\n\n"
    b"This is MIME \xe9.\n--=_x y\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8BIT\n\n"
    b"caf\xc3\xa9\n.\nand = too \n--=_x y\nContent-Type: text/plain; charset=koi8-r\n\n%s\n"
    b"--=_x y\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n"
    b"--=_x y \nContent-Type: message/rfc822\n\nSubject: inner \xe9\n\ninner \xe9\n\n"
    b"--=_x y\n\nno header \xe9\n--=_x y--\nepilogue\n"
) % RUSSIAN


def test_each_part_that_needs_it_is_encoded_and_all_else_stays_byte_for_byte() -> None:
    assert convert(MIXED) == (
        b"From: a@b\nContent-Type: multipart/mixed;\n\tboundary=\"=_x y\"\nMIME-Version: 1.0\n"
        b"Content-Transfer-Encoding: 7bit\nX-Odd:no space\n\n"
        b"This is MIME ?.\n--=_x y\nContent-Type: text/plain; charset=utf-8\n"
        b"Content-Transfer-Encoding: quoted-printable\n\n"
        b"caf=C3=A9\n=2E\nand =3D too=20\n--=_x y\nContent-Type: text/plain; charset=koi8-r\n"
        b"Content-Transfer-Encoding: base64\n\n"
        b"0KHRitC10YjRjCDQttC1INC10YnRkSDRjdGC0LjRhSDQvNGP0LPQutC40YUg0YTRgNCw0L3RhtGD\n0LfRgdC60LjRhSDQsdGD0LvQvtC6DQo=\n"
        b"--=_x y\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n"
        b"--=_x y \nContent-Type: message/rfc822\n\nSubject: inner \xe9\nMIME-Version: 1.0\n"
        b"Content-Type: text/plain; charset=unknown-8bit\nContent-Transfer-Encoding: quoted-printable\n\ninner =E9\n\n"
        b"--=_x y\nContent-Type: text/plain; charset=unknown-8bit\nContent-Transfer-Encoding: quoted-printable\n\n"
        b"no header =E9\n--=_x y--\nepilogue\n"
    )
    assert leaves(convert(MIXED)) == leaves(MIXED)


@pytest.mark.parametrize("message", [b"", b"A: b\n", b"A: b\n\ntext\n", b"A: \xe9\n\ntext\n", b"\n", b"text only\n"])
def test_a_message_that_needs_nothing_stays_as_it_is(message: bytes) -> None:
    assert convert(message) == message


def test_a_message_that_is_not_mime_becomes_so_in_an_unknown_charset() -> None:
    assert convert(b"Subject: x\n\ncaf\xe9\n") == (
        b"Subject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=unknown-8bit\n"
        b"Content-Transfer-Encoding: quoted-printable\n\ncaf=E9\n"
    )


ODD_NAMES = [b"8bits", b"8-bit", b"none", b'"8bit"', b"utf-8", b"x-uuencode"]


@pytest.mark.parametrize("encoding", [b"8bit", b"BINARY", b"7bit (not so)", *ODD_NAMES])
def test_the_transfer_encoding_is_replaced_where_it_is(encoding: bytes) -> None:
    header = b"MIME-Version: 1.0\ncontent-transfer-encoding: %s\n\t\nContent-Type: text/html\n"
    expected = b"MIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\nContent-Type: text/html\n\n=E9"
    assert convert(header % encoding + b"\n\xe9") == expected


@pytest.mark.parametrize("encoding", [b"base64", b"quoted-printable", b"8bit", b"x-odd"])
@pytest.mark.parametrize("seven_bit", [True, False])
def test_the_encoding_that_a_container_names_is_not_believed(encoding: bytes, seven_bit: bool) -> None:
    names = b"Content-Transfer-Encoding: %s\n"
    inner = b"Content-Type: message/rfc822\n%s\nSubject: x\nContent-Type: text/plain\n\n%s\n"
    whole = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n%s\n--b\n%s--b\n\nshort\n--b--\n"
    text = b"caf\xe9 " if seven_bit else b"long " * 400
    message = whole % (names % encoding, inner % (names % encoding, text))
    plain = whole % (b"", inner % (b"", text))

    converted = convert(message, seven_bit=seven_bit, short_lines=not seven_bit)

    expected = convert(plain, seven_bit=seven_bit, short_lines=not seven_bit)
    label = b"7bit" if seven_bit else b"8bit"
    assert converted.replace(names % label, b"") == expected and converted.count(names % label) == 2


@pytest.mark.parametrize("encoding", [b"", b"Content-Transfer-Encoding: quoted-printable\n"])
def test_a_status_report_within_a_message_is_not_encoded(encoding: bytes) -> None:
    header = b"MIME-Version: 1.0\nContent-Type: message/delivery-status\n%s"
    fields = b"Final-Recipient: rfc822; caf%s@x.example\nAction: failed\n"

    assert convert(header % encoding + b"\n" + fields % b"\xc3\xa9") == (
        header % b"Content-Transfer-Encoding: 7bit\n" + b"\n" + fields % b"??"
    )


@pytest.mark.parametrize(
    "header",
    [
        b'Content-Type: multipart/signed; boundary=b; protocol="x"\n',
        b"Content-Type: multipart/mixed\n",
        b"Content-Type: multipart/mixed; boundary=other\n",
        b"Content-Type: message/partial; id=1\n",
        b"Content-Transfer-Encoding: base64\n",
        b"Content-Type: multipart/mixed; boundary*%s=b\n" % (b"9" * 5000),
        b"Content-Type: multipart/mixed; boundary=%s\n" % (b"b" * 5000),
    ],
)
def test_what_cannot_be_converted_without_loss_is_refused(header: bytes) -> None:
    with pytest.raises(FormatError):
        convert(header + b"\n--b\n\ncaf\xe9\n--b--\n")


def test_a_signed_part_deep_inside_is_refused_only_where_it_would_change() -> None:
    signed = (
        b"Content-Type: multipart/mixed; boundary=a\n\n%s\n--a\n"
        b"Content-Type: multipart/signed; boundary=b\n\n--b\n\n%s\n--b--\n--a--\n"
    )
    with pytest.raises(FormatError, match="signed"):
        convert(signed % (b"ok", b"\xe9"))
    assert b"?\n--a\n" in convert(signed % (b"\xe9", b"ok"))


def test_parts_within_parts_without_end_are_refused() -> None:
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(60))
    with pytest.raises(FormatError, match="too many parts"):
        convert(nested + b"\n\xe9\n")
    with pytest.raises(FormatError, match="too many parts"):
        convert(b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\n\xe9\n" * 11_000)


def test_long_lines_alone_are_encoded_and_8_bit_ones_that_are_short_stay() -> None:
    header = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
    message = header + b"--b\n\n%s--b\n\nshort \xe9\n--b--\n" % LONG
    converted = convert(message, seven_bit=False, short_lines=True)
    assert b"\n\nshort \xe9\n--b--\n" in converted
    assert max(map(len, converted.split(b"\n"))) <= 76
    assert leaves(converted) == leaves(message)


def test_a_long_header_line_is_folded_at_a_space() -> None:
    folded = convert(b"To: " + b"a@b.example, " * 200 + b"\n\ntext\n", seven_bit=False, short_lines=True)
    assert max(map(len, folded.split(b"\n"))) <= 998
    assert folded.replace(b"\n ", b" ") == b"To: " + b"a@b.example, " * 200 + b"\n\ntext\n"
    with pytest.raises(FormatError):
        convert(b"To: " + b"a" * 2000 + b"\n\ntext\n", seven_bit=False, short_lines=True)


@pytest.mark.parametrize("encoding", [b"base64", b"quoted-printable"])
def test_a_long_line_in_an_encoded_part_is_broken_and_decodes_to_the_same(encoding: bytes) -> None:
    line = {b"base64": b"aGVsbG8h" * 30_000, b"quoted-printable": b"caf=C3=A9 " * 30_000}[encoding]
    message = b"MIME-Version: 1.0\nContent-Transfer-Encoding: %s\n\n%s\n" % (encoding, line)
    converted = convert(message, seven_bit=True, short_lines=True)
    assert max(map(len, converted.split(b"\n"))) <= 998
    assert leaves(converted) == leaves(message)


def test_8_bit_bytes_in_a_quoted_printable_part_are_escaped() -> None:
    message = b"Content-Transfer-Encoding: quoted-printable\n\ncaf=C3=A9 \xc3\xa9=\n\n"
    assert convert(message).endswith(b"\n\ncaf=C3=A9 =C3=A9=\n\n")


BODY = st.lists(
    st.sampled_from(
        [b"\n", b" ", b".", b"=", b"=4", b"a", b"\xe9", b"\xff\xfe", b"\0", b"--b", b"From ", LONG, b"x" * 70_000]
    ),
    max_size=12,
).map(b"".join)


@given(BODY)
@example(b"x" * 65535 + b" \xe9")
@example(b"=" * 65536 + b"\xe9")
def test_any_body_decodes_to_itself_with_crlf_line_ends(body: bytes) -> None:
    wire = body.replace(b"\n", b"\r\n")
    quoted = b"".join(encoding.encode_quoted_printable(body))
    assert quopri.decodestring(quoted.replace(b"\n", b"\r\n")) == wire
    assert max(map(len, quoted.split(b"\n"))) <= 76
    base64 = b"".join(encoding.encode_base64(body))
    assert binascii.a2b_base64(base64) == wire
    assert max(map(len, base64.split(b"\n"))) <= 76
    assert (quoted + base64).isascii()


@given(BODY)
@example(b"=4" * 32767 + b"===41\xe9")
def test_a_mended_quoted_printable_body_decodes_to_the_same(body: bytes) -> None:
    body = re.sub(rb"[ \t]+\n", b"\n", body)
    mended = b"".join(encoding.repair_quoted_printable(body))
    assert mended.isascii()
    assert max(map(len, mended.split(b"\n"))) <= 998
    # The decoder takes an `=` that escapes nothing for itself, so a break behind one says something else.
    if not re.search(rb"=(?![0-9A-F]{2})", body):
        assert quopri.decodestring(mended) == quopri.decodestring(body)


PIECES = st.sampled_from([
    *(b"Content-Type: multipart/mixed; boundary=b\n", b"Content-Type: message/rfc822\n", b"MIME-Version: 1.0\n"),
    *(b'Content-Type: multipart/digest; boundary="c"\n', b"Content-Type: text/plain; charset=\xe9; boundary=\n"),
    *(b"Content-Transfer-Encoding: 8bit\n", b"Content-Transfer-Encoding: base64\n", b"X: y\n", b"\xe9: \xe9\n"),
    *(b"\n--b\n", b"--b--\n", b"\n--c\n", b"--c--\n", b"--b \n", b"\n", b"caf\xe9\n", b"text", b"\xe9", LONG, b" \n"),
])


@given(st.lists(PIECES, max_size=20).map(b"".join), st.booleans())
def test_any_message_is_refused_or_converted_and_then_needs_nothing_more(message: bytes, short_lines: bool) -> None:
    try:
        converted = convert(message, True, short_lines)
    except FormatError:
        return
    # 8-bit bytes stay in headers only, which are followed by what converts nothing more.
    assert convert(converted, True, short_lines) == converted
    if short_lines:
        assert max(map(len, converted.split(b"\n"))) <= 998
