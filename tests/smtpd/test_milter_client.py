"""The milter protocol: what is sent for each command, and that no answer does harm."""

import asyncio
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.server_replies import ServerReply
from queue_smtpd.milter import milter_client
from queue_smtpd.milter.milter_client import (
    CLOSED,
    EDITS_MAX,
    NO_BODY,
    NO_DATA,
    PACKET_MAX,
    REJECTED,
    REJECTED_RECIPIENTS,
    SILENT_BODY,
    SILENT_HEADERS,
    UNAVAILABLE,
    AnswerKind,
    HeaderEdit,
    MilterClient,
    QuarantineEdit,
    RecipientEdit,
    SenderEdit,
    unpack_reply,
)
from queue_smtpd.milter.milter_link import MilterLink, MilterTrouble
from queue_wire.control.milters import MilterLine
from queue_wire.format_error import FormatError
from support.smtpd.milter_server import packet


async def _leave_unread(path: Path) -> None:
    """Talk to a milter that negotiates, and reads no more; close the link."""
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        writer.write(offer(steps=SILENT_BODY))

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    server = await asyncio.start_unix_server(serve, path, limit=1)
    before = descriptors()
    link = MilterLink(MilterLine("m", "", 0, str(path)))
    await link.open()
    assert descriptors() == before + 2
    with pytest.raises(MilterTrouble, match="no answer"):
        for _ in range(100):
            link.client.body(b"x" * 60_000)
            await link.exchange(time.monotonic() + 0.05)
    link.close()
    until = time.monotonic() + 10
    while descriptors() > before + 1 and time.monotonic() < until:
        await asyncio.sleep(0.01)
    assert descriptors() == before + 1
    accepted[0].transport.abort()
    server.close()


def test_a_milter_that_does_not_read_keeps_no_connection(tmp_path: Path) -> None:
    asyncio.run(_leave_unread(tmp_path / "m"))


def test_a_new_body_without_an_end_is_not_kept() -> None:
    client = begin()
    client.end_message({})
    piece = packet(b"b" + b"x" * 60_000)
    with mock.patch.object(milter_client, "NEW_BODY_MAX", 100_000):
        client.feed(piece)
        with pytest.raises(FormatError, match="new body"):
            client.feed(piece)


def offer(actions: int = 0x1FF, steps: int = 0, version: int = 6, rest: bytes = b"") -> bytes:
    return packet(b"O" + struct.pack(">III", version, actions, steps) + rest)


def begin(actions: int = 0x1FF, steps: int = 0, version: int = 6, rest: bytes = b"") -> MilterClient:
    """Return a client that has negotiated."""
    client = MilterClient()
    client.negotiate()
    assert client.data_to_send() == packet(b"O" + struct.pack(">III", 6, 0x1FF, 0x1FF7FF))
    assert client.waits
    client.feed(offer(actions, steps, version, rest))
    assert not client.waits
    return client


def test_commands_are_as_libmilter_has_them() -> None:
    client = begin()
    commands: list[tuple[Callable[[], None], list[bytes]]] = [
        (lambda: client.connect(b"mx", "192.0.2.1", 513, {b"j": b"me"}), [b"DCj\0me\0", b"Cmx\x004\2\x01192.0.2.1\0"]),
        (lambda: client.connect(b"mx", "2001:db8::1", 25, {}), [b"DC", b"Cmx\x006\0\x192001:db8::1\0"]),
        (lambda: client.connect(b"local", "", 0, {}), [b"DC", b"Clocal\0U"]),
        (lambda: client.hello(b"c.example", {}), [b"DH", b"Hc.example\0"]),
        (lambda: client.sender(b"<a@b>", [b"SIZE=7"], {b"i": b"1-2"}), [b"DMi\x001-2\0", b"M<a@b>\0SIZE=7\0"]),
        (lambda: client.recipient(b"<c@d>", {}), [b"DR", b"R<c@d>\0"]),
        (lambda: client.begin_data({}), [b"DT", b"T"]),
        (lambda: client.header(b"Subject", b" hello\0\n\tyou"), [b"LSubject\0hello\n\tyou\0"]),
        (lambda: client.end_headers({}), [b"DN", b"N"]),
        (lambda: client.body(b"text\r\n"), [b"Btext\r\n"]),
        (lambda: client.end_message({}), [b"DE", b"E"]),
    ]
    for send, sent in commands:
        send()
        assert client.data_to_send() == b"".join(map(packet, sent))
        assert client.waits
        client.feed(packet(b"c"))
        assert client.answer.kind is AnswerKind.CONTINUE and not client.waits
    client.abort()
    client.quit()
    assert client.data_to_send() == packet(b"A") + packet(b"Q") and not client.waits


def test_what_a_milter_does_not_want_is_not_sent_and_what_it_does_not_answer_does_not_wait() -> None:
    client = begin(steps=NO_BODY | NO_DATA | SILENT_HEADERS)
    client.begin_data({})
    assert client.data_to_send() == b"" and not client.waits and not client.wants_body
    client.header(b"A", b" b")
    assert client.data_to_send() == packet(b"LA\0b\0") and not client.waits
    old = begin(version=2)
    old.begin_data({})
    assert old.data_to_send() == b""


def test_only_the_macros_that_a_milter_names_for_a_stage_are_sent() -> None:
    client = begin(rest=struct.pack(">I", 2) + b"i {auth_type}\0")
    client.sender(b"<>", [], {b"i": b"1", b"j": b"me"})
    assert client.data_to_send() == packet(b"DMi\x001\0") + packet(b"M<>\0")
    client.feed(packet(b"c"))
    client.recipient(b"<a@b>", {b"j": b"me"})
    assert client.data_to_send().startswith(packet(b"DRj\0me\0"))


@pytest.mark.parametrize(
    ("said", "kind", "reply"),
    [
        (b"a", AnswerKind.ACCEPT, None),
        (b"d", AnswerKind.DISCARD, None),
        (b"r", AnswerKind.REFUSE, REJECTED),
        (b"t", AnswerKind.REFUSE, UNAVAILABLE),
        (b"4", AnswerKind.REFUSE, CLOSED),
        (b"y451 4.7.1 later 100%%\0", AnswerKind.REFUSE, ServerReply(451, b"4.7.1", b"later 100%")),
        (b"y550-5.7.0 a\r\n550 5.7.0 b\0", AnswerKind.REFUSE, ServerReply(550, b"5.7.0", b"a\nb")),
        (b"y554 no\0", AnswerKind.REFUSE, ServerReply(554, b"5.7.1", b"no")),
        (b"y421 4.2.1\0", AnswerKind.REFUSE, ServerReply(421, b"4.2.1", b"")),
    ],
)
def test_answers_are_understood(said: bytes, kind: AnswerKind, reply: ServerReply | None) -> None:
    client = begin()
    client.sender(b"<>", [], {})
    client.feed(packet(b"p"))
    assert client.waits and client.progress == 1
    client.feed(packet(said))
    assert client.answer == (kind, reply) and not client.waits


def test_no_more_of_a_body_is_wanted_after_skip() -> None:
    client = begin()
    client.body(b"x")
    client.feed(packet(b"s"))
    assert not client.wants_body


def test_changes_are_those_of_the_end_of_a_message() -> None:
    client = begin()
    client.end_message({})
    changes = [
        b"hX-A\0one\0", b"i\0\0\0\1X-B\0two\n three\0", b"m\0\0\0\2Subject\0\0", b"bbody", b"e<x@y>\0SIZE=1\0",
        b"+<r@s>\0", b"2<t@u>\0NOTIFY=NEVER\0", b"-<c@d>\0", b"qspam\0", b"c",
    ]  # fmt: skip
    client.feed(b"".join(map(packet, changes)))
    assert client.take_edits() == [
        HeaderEdit(b"X-A", b" one"), HeaderEdit(b"X-B", b" two\n three", 1),
        HeaderEdit(b"Subject", b"", 2, True), SenderEdit(b"<x@y>"),
        RecipientEdit(b"<r@s>", True), RecipientEdit(b"<t@u>", True), RecipientEdit(b"<c@d>", False),
        QuarantineEdit(b"spam"),
    ]  # fmt: skip
    assert client.take_edits() == [] and not client.waits
    assert client.replaces_body and client.take_body() == [b"body"] and client.take_body() == []
    client.end_message({})
    assert not client.replaces_body


@pytest.mark.parametrize(
    "said",
    [
        packet(b""), packet(b"?"), packet(b"s"), packet(b"O"), packet(b"hA\0b\0"), packet(b"y250 ok\0"),
        packet(b"y550 5.7.1 a\n451 b\0"), struct.pack(">I", PACKET_MAX + 1), packet(b"c") + packet(b"c"),
    ],
)  # fmt: skip
def test_what_is_no_answer_to_a_command_is_an_error(said: bytes) -> None:
    client = begin()
    client.sender(b"<>", [], {})
    with pytest.raises(FormatError):
        client.feed(said)


@pytest.mark.parametrize(
    "said",
    [
        b"hA b\0x\0", b"hA\0b", b"h\0b\0", b"hA\nB: c\0b\0", b"i\0\0", b"m\0\0\0\1A\0b\0c\0", b"+\0", b"-x", b"q",
    ],
)  # fmt: skip
def test_what_is_no_change_is_an_error(said: bytes) -> None:
    client = begin()
    client.end_message({})
    with pytest.raises(FormatError):
        client.feed(packet(said))


def test_changes_that_were_not_negotiated_or_are_too_many_are_errors() -> None:
    client = begin(actions=0)
    client.end_message({})
    with pytest.raises(FormatError, match="not negotiated"):
        client.feed(packet(b"hA\0b\0"))
    client = begin()
    client.end_message({})
    client.feed(packet(b"hA\0b\0") * EDITS_MAX)
    with pytest.raises(FormatError, match="too many changes"):
        client.feed(packet(b"hA\0b\0"))


@pytest.mark.parametrize(
    "said",
    [
        packet(b"c"), packet(b"O123"), offer(version=7), offer(version=1), offer(actions=0x200),
        offer(steps=REJECTED_RECIPIENTS), offer(rest=b"\0\0\0\x09x\0"), offer(rest=b"\0\0\0\1x"),
    ],
)  # fmt: skip
def test_what_is_no_negotiation_is_an_error(said: bytes) -> None:
    client = MilterClient()
    client.negotiate()
    with pytest.raises(FormatError):
        client.feed(said)


def _hello(client: MilterClient) -> None:
    client.hello(b"x", {})


@given(
    st.sampled_from([MilterClient.negotiate, _hello, lambda client: client.end_message({}), lambda c: c.body(b"x")]),
    st.lists(st.binary(max_size=30) | st.binary(max_size=12).map(lambda data: packet(b"p" + data))),
)
def test_whatever_a_milter_sends_it_is_an_answer_or_an_error(
    ask: Callable[[MilterClient], None], pieces: list[bytes]
) -> None:
    client = begin()
    ask(client)
    try:
        for piece in pieces:
            client.feed(piece)
    except FormatError:
        return
    assert client.waits or client.answer is not None


@given(st.binary(max_size=60))
def test_a_reply_is_one_of_4xx_or_5xx_or_an_error(data: bytes) -> None:
    try:
        reply = unpack_reply(data)
    except FormatError:
        return
    assert 400 <= reply.code < 600 and reply.status[:1] == b"%d" % (reply.code // 100)
    assert all(byte == 10 or 32 <= byte < 127 for byte in reply.text)
