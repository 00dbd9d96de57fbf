"""SMTP smuggling: whatever stands in the place of the end of a message, one message comes in or none, never two.

A sender that smuggles relies on a server that takes another sequence than CRLF.CRLF for the end. All sequences of CR,
LF, CRLF and nothing around one or two dots are tried, by DATA and by BDAT, in each place and however they are cut.
"""

from itertools import product

import pytest

from queue_smtp.incoming import MessageLimits
from queue_smtp.path import pack_path
from queue_smtp.server_events import SenderGiven
from queue_smtp.server_session import ServerSettings
from support.servers.session import SETTINGS, ScriptedSession

ENVELOPE = b"EHLO c\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<joe@example.org>\r\n"
SMUGGLED = b"MAIL FROM:<admin@example.org>\r\nRCPT TO:<jane@example.org>\r\nDATA\r\nsecond\r\n.\r\n"
ENDS = (b"", b"\r", b"\n", b"\r\n", b"\n\r", b"\r\r\n", b"\n\n", b"\r\n\r", b"\0\r\n", b"\r\0\n", b"\x0b", b"\x85")
DOTS = (b".", b"..", b"\0.", b".\0")
# What lies between the two messages; the true end is left out.
FALSE_ENDS = [
    before + dot + after
    for before, dot, after in product(ENDS, DOTS, ENDS)
    if b"\r\n.\r\n" not in b"x" + before + dot + after + b"M"
]
LENIENT = SETTINGS._replace(message=MessageLimits(bare_line_ends=True))


def commands(session: ScriptedSession) -> list[bytes]:
    return [event.address for event in session.events if isinstance(event, SenderGiven)]


@pytest.mark.parametrize("settings", [SETTINGS, LENIENT], ids=["strict", "lenient"])
def test_no_false_end_ends_a_message(settings: ServerSettings) -> None:
    assert len(FALSE_ENDS) > 500
    for end in FALSE_ENDS:
        session = ScriptedSession(settings)
        session.feed(ENVELOPE + b"DATA\r\nfirst" + end + SMUGGLED + b"QUIT\r\n")
        assert commands(session) == [b"a@example.net"], end
        assert len(session.messages) <= 1, end
        for message in session.messages:
            assert message.sender == b"a@example.net"
            assert b"second" in message.content


def test_a_false_end_with_a_bare_cr_or_lf_is_refused_wherever_it_is_cut() -> None:
    for end in FALSE_ENDS:
        wire = b"first" + end + b"second\r\n.\r\n"
        bare = b"\r" in wire.replace(b"\r\n", b"") or b"\n" in wire.replace(b"\r\n", b"")
        for cut in range(4, 14):
            session = ScriptedSession()
            said = session.feed(ENVELOPE + b"DATA\r\n" + wire[:cut]) + session.feed(wire[cut:])
            assert (b"550 5.6.11" in said) == bare, end
            assert len(session.messages) == (not bare), end


@pytest.mark.parametrize("begin", [b"", b"x\r\n"])
def test_the_true_end_is_found_wherever_it_is_cut(begin: bytes) -> None:
    wire = ENVELOPE + b"DATA\r\n" + begin + b".\r\n" + SMUGGLED
    for first in range(len(wire) - 90, len(wire)):
        session = ScriptedSession()
        session.feed(wire[:first])
        session.feed(wire[first:])
        assert commands(session) == [b"a@example.net", b"admin@example.org"]
        assert [message.content for message in session.messages] == [begin.replace(b"\r\n", b"\n"), b"second\n"]


def test_an_end_in_a_chunk_is_text() -> None:
    content = b"first\r\n.\r\n" + SMUGGLED
    session = ScriptedSession()
    session.feed(ENVELOPE + b"BDAT %d LAST\r\n" % len(content) + content)
    assert commands(session) == [b"a@example.net"]
    assert [message.content for message in session.messages] == [content.replace(b"\r\n", b"\n")]


def test_the_size_of_a_refused_chunk_is_kept() -> None:
    """Otherwise what the chunk holds would be taken for commands."""
    for before in (b"EHLO c\r\n", b"EHLO c\r\nMAIL FROM:<a@example.net>\r\n"):
        session = ScriptedSession()
        session.feed(before)
        known = len(commands(session))
        session.feed(b"BDAT %d LAST\r\n" % len(SMUGGLED) + SMUGGLED)
        assert len(commands(session)) == known
        assert session.messages == []


def test_what_a_chunk_whose_size_is_not_known_holds_is_never_a_command() -> None:
    for size in (b"x", b"-5", b"5x", b"0x10", b"+5", b"5 FIRST", b"99999999999999999999", b"", b"5 LAST LAST"):
        session = ScriptedSession()
        session.feed(ENVELOPE + b"BDAT " + size + b"\r\n" + SMUGGLED)
        assert commands(session) == [b"a@example.net"]
        assert session.messages == []


def test_commands_behind_a_bare_line_end_are_not_taken() -> None:
    for end in (b"\n", b"\r", b"\r\r\n", b"\n\r\n"):
        session = ScriptedSession()
        session.feed(b"EHLO c" + end + b"MAIL FROM:<a@example.net>" + end + b"RCPT TO:<joe@example.org>" + end)
        assert commands(session) == []


def test_an_address_that_is_taken_goes_out_as_one_command() -> None:
    """The client of the suite can send on whatever its server takes."""
    for path in (b'<"a b"@x.example>', b'<"a\\"b\\\\"@x.example>', b"<a%b@x.example>", b'<"a@b"@x.example>'):
        session = ScriptedSession()
        session.feed(b"EHLO c\r\nMAIL FROM:" + path + b"\r\n")
        (address,) = commands(session)
        packed = pack_path(address)
        assert b"\r" not in packed and b"\n" not in packed
        assert packed in (path, b"<a%b@x.example>")
