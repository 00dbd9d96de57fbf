"""The form in which mail goes to a server: 8-bit where it takes that, 7-bit where it does not, and long lines."""

import email
from email.policy import compat32

import pytest

from queue_wire.pipes.report import MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dkim_keys import DkimZone, put_key
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer
from support.servers.smtp.smtp_sink import SmtpSink

HEADER = b"From: Ann <ann@example.org>\nSubject: hello\n\n"
EIGHT_BIT = HEADER + "Zwölf Boxkämpfer\n.\n".encode()
SIGNED = HEADER.replace(b"\n\n", b'\nContent-Type: multipart/signed; boundary="b"\n\n') + b"--b\n\n\xe9\n--b--\n"
LONG = HEADER + b"many words " * 200 + b"\n"


pytestmark = pytest.mark.home(timeoutremote="60")


def wire_size(message: bytes) -> int:
    """The size of a message as RFC 1870 counts it."""
    lines = message.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return len(lines) + (0 if lines.endswith(b"\r\n") else 2)


def body(content: bytes) -> bytes:
    """What a reader of the message sees, with LF line ends."""
    found = email.message_from_bytes(content, policy=compat32).get_payload(decode=True)
    assert isinstance(found, bytes)
    return found.replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (HEADER + b"text\n", []),
        (EIGHT_BIT, ["BODY=8BITMIME"]),
        (HEADER.replace(b"hello", b"h\xe9llo"), ["BODY=8BITMIME"]),
        (HEADER + b"x\n" * 500_000 + b"\xe9", ["BODY=8BITMIME"]),
        (HEADER + b"x\n" * 500_000, []),
    ],
    ids=["7-bit", "8-bit", "in the header", "at the end of much", "much"],
)
def test_8_bit_mail_is_announced_and_arrives_as_it_is(home: RemoteHome, message: bytes, options: list[str]) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(message), b"to@b.example").verdicts[0][0] == b"K"
        assert server.mail_options == [[f"SIZE={wire_size(message)}", *options]]
        assert server.received[0].stored.rstrip(b"\n") == message.rstrip(b"\n")


@pytest.mark.parametrize("filler", [0, 500_000], ids=["small", "large"])
def test_smtputf8_is_asked_for_where_the_header_is_utf8(home: RemoteHome, filler: int) -> None:
    utf8 = HEADER.replace(b"hello", "héllo".encode()) + b"x\n" * filler
    messages = [utf8, utf8, HEADER.replace(b"hello", b"h\xe9llo"), EIGHT_BIT]
    asked: list[bytes] = []

    def serve(peer: Peer) -> None:
        peer.greet(b"8BITMIME", b"SMTPUTF8")
        for _ in messages:
            asked.append(peer.hear())
            for _ in ("RCPT", "DATA"):
                peer.say(b"250 ok")
                peer.hear()
            peer.say(b"354 go")
            peer.hear_message()
            peer.say(b"250 done")

    with RawServer(serve) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for message in messages:
                assert daemon.deliver(home.message(message), b"to@b.example").verdicts[0][0] == b"K"
    assert [b"SMTPUTF8" in line.split() for line in asked] == [True, True, False, False]


@pytest.mark.parametrize(("room", "letter"), [(0, b"K"), (-1, b"D")], ids=["at the limit", "over it"])
@pytest.mark.parametrize("ending", [b"\n", b"", b"\r\n", b"\r"], ids=["LF", "none", "CRLF", "CR"])
def test_a_message_at_the_limit_is_sent_and_one_over_it_is_refused_before_it_is_sent(
    home: RemoteHome, ending: bytes, room: int, letter: bytes
) -> None:
    message = HEADER + b".\n" * 40_000 + b"last" + ending
    size = wire_size(message)
    heard: list[bytes] = []

    def serve(peer: Peer) -> None:
        peer.greet(b"SIZE %d" % (size + room))
        if letter == b"K":
            heard.append(peer.take_message())

    with RawServer(serve) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            [verdict] = daemon.deliver(home.message(message), b"to@b.example").verdicts
    assert verdict[0] == letter, verdict
    # As RFC 1870 counts: with CRLF, without the closing dot and the dots that were doubled.
    assert [len(text.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")) for text in heard] == [size] * (room + 1)
    assert letter == b"K" or b"takes no message over %d bytes; this one has %d." % (size - 1, size) in verdict[1]


@pytest.mark.parametrize("options", [("-8",), ("-e",)], ids=["without 8BITMIME", "without EHLO"])
def test_8_bit_mail_becomes_7_bit_mime_for_a_server_that_takes_no_other(
    home: RemoteHome, options: tuple[str, ...]
) -> None:
    with SmtpSink(*options) as sink:
        home.route_all_to(sink.port)
        with RemoteDaemon(home) as daemon:
            path = home.message(EIGHT_BIT)
            assert daemon.deliver(path, b"to@b.example").verdicts[0][0] == b"K"
        [taken] = sink.messages()
    assert taken.content.isascii()
    added = b"MIME-Version: 1.0\nContent-Type: text/plain; charset=unknown-8bit\n"
    assert taken.content.startswith(HEADER[:-1] + added)
    assert body(taken.content) == EIGHT_BIT.removeprefix(HEADER)
    assert (home.path / "queue" / "mess" / "0" / "23").read_bytes() == EIGHT_BIT


def test_8_bit_bytes_in_the_header_alone_stay_as_they_are(home: RemoteHome) -> None:
    message = HEADER.replace(b"hello", b"h\xe9llo") + b"text\n"
    with SmtpSink("-8") as sink:
        home.route_all_to(sink.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(message), b"to@b.example").verdicts[0][0] == b"K"
        [taken] = sink.messages()
    assert taken.content == message
    assert taken.mail == b"<from@a.example>"


def test_signed_mail_is_not_changed_but_fails_and_the_connection_goes_on(home: RemoteHome) -> None:
    heard: list[bytes] = []

    def serve(peer: Peer) -> None:
        peer.greet()
        heard.append(peer.take_message())

    with RawServer(serve) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(SIGNED), b"to@b.example")
            assert daemon.deliver(home.message(HEADER, 24), b"to@b.example").verdicts[0][0] == b"K"
        assert server.connections == 1
    assert report.scope == MESSAGE_SCOPE
    assert report.verdicts == [
        (
            b"D",
            b"Sorry, 127.0.0.1 does not take 8-bit mail, and this message cannot be made 7-bit: "
            b"it is signed or encrypted, and would not be any more. (#5.6.3)\n",
        )
    ]
    assert heard == [HEADER.replace(b"\n", b"\r\n") + b".\r\n"]


def test_a_message_too_large_to_convert_fails_and_says_so(home: RemoteHome) -> None:
    with SmtpSink("-8") as sink:
        home.route_all_to(sink.port)
        with RemoteDaemon(home) as daemon:
            [(letter, text)] = daemon.deliver(home.message(HEADER + b"\xe9" * 33_600_000), b"to@b.example").verdicts
        assert sink.messages() == []
    assert (letter, text.partition(b": ")[2]) == (
        b"D",
        b"it has %d bytes, and only 33554432 are worked on. (#5.6.3)\n" % (len(HEADER) + 33_600_000),
    )


def test_a_server_that_goes_away_during_a_conversion_is_tried_again(home: RemoteHome) -> None:
    def serve(peer: Peer) -> None:
        peer.greet()
        if server.connections > 1:
            peer.take_message()

    with RawServer(serve) as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            path = home.message(HEADER + b"\xe9=\n" * 5_000_000)
            first = daemon.deliver(path, b"to@b.example")
            second = daemon.deliver(path, b"to@b.example")
    assert (first.verdicts[0][0], second.verdicts[0][0]) == (b"Z", b"K")
    assert b"connection died" in first.verdicts[0][1]


def test_what_was_made_7_bit_is_signed_as_it_goes_out(home: RemoteHome) -> None:
    zone = DkimZone()
    put_key(home.path / "control", "rsa.pem", zone.rsa("one@example.org"))
    home.control("dkim", "example.org:one:rsa.pem")
    heard: list[bytes] = []

    def serve(peer: Peer) -> None:
        peer.greet(b"SIZE")
        heard.append(peer.take_message())

    with RawServer(serve) as server, SmtpServer() as modern:
        home.control("smtproutes", f"old.example:127.0.0.1:{server.port}\n:127.0.0.1:{modern.port}")
        with RemoteDaemon(home) as daemon:
            path = home.message(EIGHT_BIT)
            for nexthop in (b"old.example", b"new.example"):
                assert daemon.deliver(path, b"to@b.example", nexthop=nexthop).verdicts[0][0] == b"K"
        [received] = modern.received
    [content] = [wire.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.") for wire in heard]
    assert content.isascii()
    assert content != received.content
    assert zone.judge(content) == zone.judge(received.content) == [True]


@pytest.mark.parametrize(("word", "letter"), [("send", b"K"), ("encode", b"K"), ("fail", b"D"), (None, b"K")])
def test_longlines_says_what_becomes_of_lines_that_are_too_long(
    home: RemoteHome, word: str | None, letter: bytes
) -> None:
    if word is not None:
        home.control("longlines", word)
    with SmtpSink() as sink:
        home.route_all_to(sink.port)
        with RemoteDaemon(home) as daemon:
            [verdict] = daemon.deliver(home.message(LONG), b"to@b.example").verdicts
            assert daemon.deliver(home.message(HEADER + b"x" * 998, 24), b"to@b.example").verdicts[0][0] == b"K"
        taken = [message.content for message in sink.messages() if b"words" in message.content]
    assert verdict[0] == letter
    if word == "fail":
        assert verdict[1] == b"Sorry, this message has a line of more than 998 bytes, too long for SMTP. (#5.6.0)\n"
        assert taken == []
    elif word == "encode":
        assert max(map(len, taken[0].splitlines())) <= 76
        assert body(taken[0]) == body(LONG)
    else:
        assert taken == [LONG]


def test_another_word_in_longlines_defers_and_is_named(home: RemoteHome) -> None:
    home.control("longlines", "bounce")
    with RemoteDaemon(home) as daemon:
        [(letter, text)] = daemon.deliver(home.message(LONG), b"to@b.example").verdicts
    assert letter == b"Z"
    assert b"control/longlines line 1: not send, encode or fail" in text
