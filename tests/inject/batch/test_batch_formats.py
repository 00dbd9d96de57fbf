"""The readers of batches return what was packed, however the input is cut, and garbage never breaks them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_inject.batch.bsmtp_reader import BsmtpReader
from queue_inject.batch.mbox_reader import LINE_MAX, MBOXO, MboxReader
from queue_inject.batch.netstring_reader import NetstringBatchReader
from queue_inject.batch.pieces import BatchReader, EndOfMessage, Piece, Unreadable
from support.inject.packing import pack_bsmtp, pack_pair, quote_mbox
from support.plugins.strategies import arrivals, garbage

FORMATS: dict[str, Callable[[], BatchReader]] = {
    "mbox": MboxReader,
    "mboxo": lambda: MboxReader(MBOXO),
    "bsmtp": BsmtpReader,
    "netstring": NetstringBatchReader,
}
# The words of messages: each matters to one of the formats.
_words = st.sampled_from(
    [b"From ", b">From ", b">>From ", b"from", b">", b".", b"..", b"\n", b"\n\n", b"\r\n", b"x", b"5:", b"\0", b"\xff:"]
)
messages = st.one_of(st.binary(max_size=80), st.lists(_words, max_size=30).map(b"".join))
commands = st.lists(
    st.sampled_from(
        [
            *(b"HELO x", b"EHLO x", b"MAIL FROM:<a@b>", b"MAIL FROM:<> SIZE=5 BODY=8BITMIME", b"RCPT TO:<c@d>"),
            *(b"DATA", b"RSET", b"QUIT", b"NOOP", b"MAIL FROM:<", b'RCPT TO:<"\\', b".", b"..", b"text", b""),
            *(b"BDAT 4", b"\xff\0"),
        ]
    ),
    max_size=12,
).map(b"\r\n".join)
# A final dot is not part of an address.
hosts = st.text("abcdefgh-0123456789.", min_size=1, max_size=10).map(lambda text: text.rstrip(".").encode())
locals_ = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20).map(str.encode)
addresses = st.builds(lambda local, host: local + b"@a" + host, locals_, hosts)


def read_all(reader: BatchReader, data: list[bytes]) -> list[tuple[bytes, EndOfMessage | Unreadable]]:
    """Return the bytes of each message, and the piece that ended it."""
    pieces: list[Piece] = [piece for part in data for piece in reader.feed(part)] + reader.finish()
    found = []
    text = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            assert piece, "an empty piece"
            text += piece
        else:
            found.append((b"" if isinstance(piece, Unreadable) or piece.error else text, piece))
            text = b""
    assert text == b"", "bytes that no EndOfMessage follows"
    return found


def check(make: Callable[[], BatchReader], data: bytes, expected: list[tuple[bytes, EndOfMessage]]) -> None:
    for pieces in arrivals(data):
        assert read_all(make(), pieces) == expected


def with_end(message: bytes) -> bytes:
    """Return the message as formats that consist of lines have it."""
    return message if not message or message.endswith(b"\n") else message + b"\n"


@given(st.lists(messages, max_size=5))
def test_an_mbox_gives_back_its_messages_whatever_is_in_them(texts: list[bytes]) -> None:
    # A CR before the line that mbox adds would become part of that line's end.
    texts = [text if text.endswith(b"\n") else text.rstrip(b"\r") for text in texts]
    check(MboxReader, b"".join(map(quote_mbox, texts)), [(with_end(text), EndOfMessage()) for text in texts])


@given(st.lists(messages, max_size=5))
def test_an_mboxo_gives_back_what_has_no_quoted_line_of_its_own(texts: list[bytes]) -> None:
    texts = [text.replace(b">From ", b"-From ").rstrip(b"\r") for text in texts]
    data = b"".join(quote_mbox(text, rd=False) for text in texts)

    check(FORMATS["mboxo"], data, [(with_end(text), EndOfMessage()) for text in texts])


@given(st.lists(st.tuples(addresses, st.lists(addresses, min_size=1, max_size=3), messages), max_size=4))
def test_batch_smtp_gives_back_its_messages_and_their_envelopes(found: list[tuple[bytes, list[bytes], bytes]]) -> None:
    # SMTP consists of lines: CRLF is LF, and no other CR is in a message.
    batch = [(sender, recipients, with_end(text.replace(b"\r", b""))) for sender, recipients, text in found]
    data = b"HELO x\r\n" + b"".join(pack_bsmtp(*each) for each in batch) + b"QUIT\r\n"
    expected = [(text, EndOfMessage(sender, recipients)) for sender, recipients, text in batch]

    check(BsmtpReader, data, expected)
    check(BsmtpReader, data.replace(b"\r\n", b"\n"), expected)


@given(st.lists(st.tuples(addresses, st.lists(addresses, min_size=1, max_size=3), messages), max_size=4))
def test_pairs_of_netstrings_give_back_every_byte(batch: list[tuple[bytes, list[bytes], bytes]]) -> None:
    data = b"\n".join(pack_pair(*each) for each in batch)

    check(NetstringBatchReader, data, [(text, EndOfMessage(sender, recipients)) for sender, recipients, text in batch])


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.one_of(garbage, messages, commands))
def test_garbage_gives_the_same_however_it_is_cut_and_never_breaks_a_reader(name: str, data: bytes) -> None:
    whole = read_all(FORMATS[name](), [data])

    for pieces in arrivals(data):
        assert read_all(FORMATS[name](), pieces) == whole


@pytest.mark.parametrize("name", FORMATS)
def test_a_line_without_end_is_not_kept(name: str) -> None:
    reader, kept = FORMATS[name](), 0
    for data in (b"From x\n", b"MAIL FROM:<a@b>\nRCPT TO:<c@d>\nDATA\n", b"9000000:", *[b"x" * 50_000] * 40):
        pieces = reader.feed(data)
        kept += len(data) - sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    assert len(getattr(reader, "_rest", b"")) <= LINE_MAX + 50_000


def test_a_first_line_that_is_no_from_line_is_a_bad_message_and_the_next_is_good() -> None:
    ((_, bad), good) = read_all(MboxReader(), [b"\nhello\nthere\n\nFrom x\nSubject: y\n\n"])

    assert isinstance(bad, EndOfMessage) and "'hello'" in bad.error
    assert good == (b"Subject: y\n", EndOfMessage())


@pytest.mark.parametrize(
    ("lines", "errors"),
    [
        ("MAIL FROM:<a@b>,RCPT TO:<c@d>,DATA,x", ["the input ends before the dot that ends it"]),
        ("MAIL FROM:<a@b>,RCPT TO:<c@d>", ["the input ends before its DATA"]),
        ("RCPT TO:<c@d>,DATA,x,.", ["RCPT without MAIL"]),
        ("DATA,x,.", ["DATA without MAIL"]),
        ("MAIL FROM:<a@b>,DATA,x,.", ["DATA without RCPT"]),
        ("MAIL FROM:<a@b>,MAIL FROM:<a@b>,RCPT TO:<c@d>,DATA,.", ["MAIL comes before its DATA", ""]),
        ("MAIL FROM:<a@b>,RCPT TO:<c@d>,QUIT", ["QUIT comes before its DATA"]),
        ("MAIL FROM:<a@b>,RCPT TO:<c@d>,RSET", []),
        ("MAIL FROM:<a@b>,RCPT TO:<c d>,RCPT TO:<c@d>,DATA,.", ["not an address in angle brackets: 'RCPT TO:<c d>'"]),
        ("MAIL FROM:<a@b> FOO=1,RCPT TO:<c@d>,DATA,.", ["not a parameter of MAIL: 'FOO=1'"]),
        ("MAIL FROM:<a@b> SIZE=x,RCPT TO:<c@d>,DATA,.", ["not a size: 'SIZE=x'"]),
        ("MAIL FROM:<a@b>,RCPT TO:<>,DATA,.", ["a recipient is empty: 'RCPT TO:<>'"]),
        ('MAIL FROM:<a@b>,RCPT TO:<""@d>,DATA,.', ["no name before the @: 'RCPT TO:<\"\"@d>'"]),
        ('MAIL FROM:<a@b>,RCPT TO:<"">,DATA,.', ["no name before the @: 'RCPT TO:<\"\">'"]),
        ('MAIL FROM:<""@b>,RCPT TO:<c@d>,DATA,.', ["no name before the @: 'MAIL FROM:<\"\"@b>'"]),
        ('MAIL FROM:<"">,RCPT TO:<c@d>,DATA,.', ["no name before the @: 'MAIL FROM:<\"\">'"]),
        ("HALLO,MAIL FROM:<a@b>,RCPT TO:<c@d>,DATA,.", ["not a command: 'HALLO'"]),
        ("hello world", ["not a command: 'hello world'"]),
        ("NOOP,VRFY x,EHLO y,EXPN z,HELP,QUIT", []),
    ],
)
def test_a_wrong_dialogue_spoils_the_message_that_it_belongs_to(lines: str, errors: list[str]) -> None:
    good = "MAIL FROM:<a@b>,RCPT TO:<c@d>,DATA,y,."
    found = read_all(BsmtpReader(), [lines.replace(",", "\n").encode() + b"\n"])
    assert [end.error for _, end in found] == errors

    if not lines.endswith(("x", "<c@d>", "world")):
        after = read_all(BsmtpReader(), [f"{lines},{good}".replace(",", "\r\n").encode() + b"\r\n"])
        assert [end.error for _, end in after] == [*errors, ""] and after[-1][0] == b"y\n"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (b"<a@b>", b"a@b"),
        (b" <a@b>  SIZE=10 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=x AUTH=<>", b"a@b"),
        (b"a@b BODY=7bit", b"a@b"),
        (b"<@x,@y:a@b>", b"a@b"),
        (b'<"a b"@c>', b"a b@c"),
        (b'<"a>\\"b\\\\"@c>', b'a>"b\\@c'),
        (b"<a\\@b@c>", b"a@b@c"),
        (b"<postmaster>", b"postmaster"),
        (b"<>", b""),
        (b"<\xc3\xa9@b> SMTPUTF8", b"\xc3\xa9@b"),
    ],
)
def test_a_path_becomes_an_address(path: bytes, address: bytes) -> None:
    data = b"mail from:" + path + b"\nRcpt To:<c@d>\ndata\n.\n"

    assert read_all(BsmtpReader(), [data]) == [(b"", EndOfMessage(address, [b"c@d"]))]


@pytest.mark.parametrize(
    "data",
    [b"x", b"1:a;", b"1:a,", b"1:a,3:Fab", b"01:a,", b"1:a,2:F", b"9999999999999999999:", b"-1:", b":,", b"BDAT"],
)
def test_where_netstrings_break_off_the_rest_is_lost(data: bytes) -> None:
    good = pack_pair(b"a@b", [b"c@d"], b"x")
    found = read_all(NetstringBatchReader(), [good + data])

    assert (
        found[0] == (b"x", EndOfMessage(b"a@b", [b"c@d"])) and len(found) == 2 and isinstance(found[1][1], Unreadable)
    )


@pytest.mark.parametrize(
    "envelope", [b"", b"Fa@b\0", b"Fa@b\0\0", b"Ta\0\0", b"Fa\0Tb\0\0x", b"Fa\0T" + b"x" * 2000 + b"\0\0"]
)
def test_a_wrong_envelope_spoils_one_pair(envelope: bytes) -> None:
    good = pack_pair(b"a@b", [b"c@d"], b"x")
    (_, bad), after = read_all(NetstringBatchReader(), [b"1:x,%d:%s," % (len(envelope), envelope) + good])

    assert isinstance(bad, EndOfMessage) and bad.error and after == (b"x", EndOfMessage(b"a@b", [b"c@d"]))
