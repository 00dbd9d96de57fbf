"""The server's replies to the dialogues of dialogues.txt, which come whole and byte by byte."""

import codecs
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from support.servers.session import ScriptedSession

MAIL = b"MAIL FROM:<a@example.net>\r\n"
RCPT = MAIL + b"RCPT TO:<joe@example.org>\r\n"
EHLO = b"EHLO client.example\r\n"
TLS = EHLO + b"STARTTLS\r\n"
# What brings a session to each state; after STARTTLS the client waits.
OPENINGS = {
    "new": (b"",),
    "ehlo": (EHLO,),
    "helo": (b"HELO client.example\r\n",),
    "tls": (TLS, EHLO),
    "mail": (EHLO + MAIL,),
    "rcpt": (EHLO + RCPT,),
    "data": (EHLO + RCPT + b"DATA\r\n",),
    "chunk": (EHLO + RCPT + b"BDAT 3\r\nabc",),
    "auth": (TLS, EHLO + b"AUTH PLAIN AGpvZQBzZWNyZXQ=\r\n"),
}
REPLY = re.compile(rb"(?:[0-9]{3}-[^\r\n]*\r\n)*([0-9]{3}) ?([245]\.[0-9]\.[0-9]{1,2})?[^\r\n]*\r\n")


class Dialogue(NamedTuple):
    """What a client sends in a state, in pieces between which it waits, and the replies: codes and statuses."""

    line: str
    state: str
    sent: tuple[bytes, ...]
    replies: list[bytes]


def read_dialogues() -> list[Dialogue]:
    """Return the lines of dialogues.txt."""
    found = []
    for line in (Path(__file__).parent / "dialogues.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            state, rest = line.split(" | ", 1)
            sent, _, replies = rest.rpartition("| ")
            lines = [unescape(part) for part in sent.removesuffix(" ").split(" // ")]
            found.append(Dialogue(line, state, tuple(lines), [part.encode() for part in replies.split(" // ")]))
    return found


def unescape(text: str) -> bytes:
    ended = not text.endswith("\\c")
    data = codecs.escape_decode(text.removesuffix("\\c").encode())[0]
    return data + b"\r\n" if ended else data


def parse_replies(said: bytes) -> list[bytes]:
    """Return the code and the status of each reply; everything that is said must be a reply."""
    found, at = [], 0
    while at < len(said):
        match = REPLY.match(said, at)
        assert match is not None, said[at:]
        found.append(match[1] + (b" " + match[2] if match[2] else b""))
        at = match.end()
    return found


DIALOGUES = read_dialogues()
# What comes in one piece with STARTTLS is thrown away, and SCRAM has a random nonce.
WITHOUT_WAITING = [one for one in DIALOGUES if "STARTTLS" not in one.line and "AUTH SCRAM" not in one.line]


def opened(state: str) -> ScriptedSession:
    session = ScriptedSession()
    for piece in OPENINGS[state]:
        session.feed(piece)
    return session


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue.line)
def test_the_server_gives_the_replies_of_the_dialogue_line_by_line(dialogue: Dialogue) -> None:
    session = opened(dialogue.state)
    said = b"".join([session.feed(line) for line in dialogue.sent])
    assert parse_replies(said) == dialogue.replies


@pytest.mark.parametrize("dialogue", WITHOUT_WAITING, ids=lambda dialogue: dialogue.line)
def test_the_server_gives_the_same_replies_byte_by_byte(dialogue: Dialogue) -> None:
    whole, single = opened(dialogue.state), opened(dialogue.state)
    said = b"".join([whole.feed(line) for line in dialogue.sent])
    assert b"".join([single.feed(bytes([byte])) for line in dialogue.sent for byte in line]) == said
    # As text, because tuples of different classes may be equal.
    assert [repr(event) for event in single.events] == [repr(event) for event in whole.events]
    assert single.messages == whole.messages


@pytest.mark.parametrize("dialogue", WITHOUT_WAITING, ids=lambda dialogue: dialogue.line)
def test_the_server_gives_the_same_replies_to_all_lines_at_once(dialogue: Dialogue) -> None:
    session = opened(dialogue.state)
    assert parse_replies(session.feed(b"".join(dialogue.sent))) == dialogue.replies


def test_there_are_as_many_dialogues_as_were_promised() -> None:
    assert len(DIALOGUES) > 200
