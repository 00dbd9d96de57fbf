"""A message sent to Postfix and read back from its Maildir is the message that was queued, however difficult.

What is changed, on purpose: a bare CR is a space, CRLF in the file is a line end as LF is, and the last line gets its
line end.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_remote.message.file import CHUNK
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.postfix import Postfix

pytestmark = pytest.mark.together  # They share a Postfix.
HEADER = b"From: a@a.example\nTo: to@b.example\nSubject: hello\nMIME-Version: 1.0\n\n"
EIGHT_BIT = bytes(range(128, 256)) * 3 + b"\n"

SAME = {
    "no body": HEADER,
    "header alone": HEADER[:-1],
    "dots": HEADER + b".\n..\n...\n. \n.x\n\n.\n",
    "ends with a dot line": HEADER + b"text\n.\n",
    "dots at chunk borders": HEADER + b".\n" * 70_000,
    "a dot behind a chunk border": HEADER + b"x" * (CHUNK - len(HEADER) - 1) + b"\n.\n..\n",
    "a line of 998": HEADER + b"x" * 998 + b"\n",
    "a line of 999": HEADER + b"x" * 999 + b"\n",
    "a line of 100,000": HEADER + b"y" * 100_000 + b"\nshort\n",
    "a long line of dots": HEADER + b"." * 10_000 + b"\n",
    "8-bit": HEADER + EIGHT_BIT,
    "UTF-8": HEADER + "Zwölf Boxkämpfer 日本語 🙂\n".encode() * 5000,
    "8-bit header": HEADER.replace(b"hello", b"h\xe9llo") + b"text\n",
    "NUL": HEADER + b"a\0b\n\0\n.\0\n\0.\n",
    "control characters": HEADER + bytes(byte for byte in range(1, 32) if byte not in (10, 13)) + b"\x7f\n",
    "blank lines": HEADER + b"\n\n\n  \n\t\n\n",
    "From lines": HEADER + b"From me\n>From you\nFrom: x\n",
    "folded header": b"Subject: a\n b\n\tc\nX-Empty:\nX-Odd:no space\n\ntext\n",
    "two megabytes": HEADER + b"The quick brown fox jumps over the lazy dog.\n" * 45_000,
}
CHANGED = {
    "no final newline": (HEADER + b"text", HEADER + b"text\n"),
    "a lone dot at the end": (HEADER + b"text\n.", HEADER + b"text\n.\n"),
    "bare CR": (HEADER + b"a\rb\n\r.\rc\r\r\n\r", HEADER + b"a b\n . c \n \n"),
    "CRLF": ((HEADER + b"a\n.\n\nb").replace(b"\n", b"\r\n"), HEADER + b"a\n.\n\nb\n"),
    "CR, then the border, then LF": (
        HEADER + b"x" * (CHUNK - len(HEADER) - 1) + b"\r\n.\r\nb\n",
        HEADER + b"x" * (CHUNK - len(HEADER) - 1) + b"\n.\nb\n",
    ),
}
CORPUS = [*[(name, message, message) for name, message in SAME.items()], *[(n, *pair) for n, pair in CHANGED.items()]]


@pytest.fixture(scope="module")
def postfix() -> Iterator[Postfix]:
    with Postfix() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, postfix: Postfix) -> RemoteHome:
    made = RemoteHome(tmp_path)
    made.route_all_to(postfix.port)
    postfix.clear()
    return made


@pytest.mark.parametrize(("name", "message", "expected"), CORPUS, ids=[name for name, _, _ in CORPUS])
def test_what_postfix_stores_is_what_was_queued(
    home: RemoteHome, postfix: Postfix, name: str, message: bytes, expected: bytes
) -> None:
    with RemoteDaemon(home) as daemon:
        assert daemon.deliver(home.message(message), b"to@b.example").verdicts[0][0] == b"K"
    [stored] = postfix.wait_for(1)
    assert (stored.sender, stored.recipient) == (b"from@a.example", b"to@b.example")
    assert stored.content == expected


@pytest.mark.parametrize(
    ("sender", "recipient", "stored_sender", "stored_recipient"),
    [
        ("jörg@a.example", "日本@b.example", "jörg@a.example", "日本@b.example"),
        ("from@bücher.example", "to@bücher.example", "from@xn--bcher-kva.example", "to@xn--bcher-kva.example"),
        ("", "two words@b.example", "", '"two words"@b.example'),
        ("#@[]", 'a"b\\c@b.example', "", '"a\\"b\\\\c"@b.example'),
        ("owner-list=x@a.example", "a+b=c/d@b.example", "owner-list=x@a.example", "a+b=c/d@b.example"),
    ],
)
def test_postfix_gets_the_addresses_of_the_envelope(
    home: RemoteHome, postfix: Postfix, sender: str, recipient: str, stored_sender: str, stored_recipient: str
) -> None:
    with RemoteDaemon(home) as daemon:
        path = home.message(HEADER)
        report = daemon.deliver(path, recipient.encode(), sender=sender.encode(), nexthop=b"b.example")
        assert report.verdicts[0][0] == b"K", report.verdicts
    [stored] = postfix.wait_for(1)
    assert (stored.sender.decode(), stored.recipient.decode()) == (stored_sender, stored_recipient)
    assert stored.content == HEADER
