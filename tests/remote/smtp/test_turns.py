"""What a message or a peer makes queue-remote do in one turn of its event loop is bounded, whatever they are like."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_remote.message import signing
from queue_remote.message.dkim_keys import read_keyring
from queue_remote.message.file import CHUNK, Message, open_message
from queue_remote.message.signing import AUTHOR_MAX, Signing, find_author
from queue_remote.smtp.connection import TURN_MAX, Connection
from queue_smtp.client import ClientState
from queue_smtp.reply import LINES_MAX
from support.processes.remote_daemon import RemoteHome
from support.servers.dkim_keys import DkimZone, put_key
from support.servers.smtp.smtp_script import ready, run, transaction

ZONE = DkimZone()
KEY = ZONE.rsa("one@example.org")


class FastPeer(asyncio.Transport):
    """A transport that takes all at once; `taken` has how many bytes, for each turn that has been counted."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.taken += len(data)
        self.data = self.data[-10:] + bytes(data)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("line", [b"x" * 63 + b"\n", b"\n", b".\n"], ids=["text", "empty lines", "dots"])
def test_a_peer_that_takes_all_gets_a_share_of_the_message_in_each_turn(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "message"
    path.write_bytes(line * (8_000_000 // len(line)))

    async def send() -> list[int]:
        peer = FastPeer()
        connection = Connection(ready().protocol, 60)
        connection.connection_made(peer)
        message = open_message(str(path))
        sending = asyncio.create_task(connection.transact(transaction(), message))
        await asyncio.sleep(0)
        connection.data_received(b"250 ok\r\n250 ok\r\n")
        peer.taken = 0
        connection.data_received(b"354 go\r\n")
        shares = [peer.taken]
        # A peer that pauses and goes on at once must not make it two turns in one.
        connection.pause_writing()
        connection.resume_writing()
        while connection.client.state is ClientState.MESSAGE:
            shares[-1:] = [peer.taken]
            peer.taken = 0
            shares.append(0)
            await asyncio.sleep(0)
        shares[-1] = peer.taken
        assert peer.data.endswith(b"\r\n.\r\n")
        connection.data_received(b"250 done\r\n")
        await sending
        message.close()
        connection.abort()
        return shares

    shares = asyncio.run(send())
    assert sum(shares) > 8_000_000
    # The last piece of a turn may double: dots and line ends.
    assert max(shares) <= TURN_MAX + 3 * CHUNK
    assert len(shares) > 10


@pytest.mark.parametrize(
    "value",
    [
        b"Ann <ann@example.org>, " + b"(" * 240_000,
        b"ann@example.org, " + b"x@y, " * 50_000,
        b'"' + b"\\" * 240_000,
        b"(" * 120_000 + b")" * 120_000 + b" ann@example.org",
        b"a\n " * 80_000 + b"<ann@example.org>",
    ],
    ids=["comments", "mailboxes", "a quoted string", "an author behind much", "folded"],
)
def test_of_a_long_from_field_the_event_loop_looks_at_a_little_and_once(
    tmp_path: Path, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    plain = signing.plain_text

    def look(text: bytes) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        looked.append(len(text))
        return plain(text)

    monkeypatch.setattr(signing, "plain_text", look)
    home = RemoteHome(tmp_path, dkim="other.example:one:rsa.pem")
    put_key(tmp_path / "control", "rsa.pem", KEY)
    path = tmp_path / "message"
    path.write_bytes(b"Subject: x\nFrom: " + value + b"\n\nx\n")

    async def sign() -> None:
        signing = Signing(read_keyring(Home(str(home.path))))
        messages = [Message(os.open(path, os.O_RDONLY)) for _ in range(50)]
        assert await asyncio.gather(*[signing.sign(message, b"ann@example.net") for message in messages]) == [0] * 50
        assert await signing.sign(messages[0], b"ann@example.net") == 0
        for message in messages:
            message.close()

    asyncio.run(sign())
    assert len(looked) == 1
    assert looked[0] <= AUTHOR_MAX


@pytest.mark.parametrize(
    ("header", "author"),
    [
        (b"From: a@b.example\n", b"b.example"),
        (b"From: a@b.exam", b"b.exam"),
        (b"To: x\n", b""),
        (b"X: y\nfrom : A <a@b.example>\n z\nTo: c@d\n", b"b.example"),
        (b"From: A <a@b.example>, " + b"x" * AUTHOR_MAX, b"b.example"),
        (b"From: a@b.example, " + b"x" * AUTHOR_MAX, b"b.example"),
        (b"From: a@" + b"x" * AUTHOR_MAX, b""),
        (b"From: A <a@" + b"x" * AUTHOR_MAX + b">\n", b""),
        (b"From: a@b.example (" + b"x" * AUTHOR_MAX + b")\n", b""),
    ],
)
def test_the_author_is_the_first_mailbox_that_ends_in_the_first_bytes_of_the_field(
    header: bytes, author: bytes
) -> None:
    assert find_author(header) == author


def test_an_author_behind_a_long_header_is_found_and_signed_for(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path, dkim="example.org:one:rsa.pem")
    put_key(tmp_path / "control", "rsa.pem", KEY)
    path = tmp_path / "message"
    path.write_bytes(b"Received: x\n" * 10_000 + b"From: Ann <ann@example.org>\n\nx\n")

    async def sign() -> int:
        message = Message(os.open(path, os.O_RDONLY))
        try:
            return await Signing(read_keyring(Home(str(home.path)))).sign(message, b"")
        finally:
            message.close()

    assert asyncio.run(sign()) > 0


@pytest.mark.parametrize("lines", [b"250-x\r\n" * 50_000, b"250 ok\r\n" * 50_000, b"250-\n" * 50_000])
def test_reply_lines_without_number_end_the_connection_before_they_are_looked_at(lines: bytes) -> None:
    client, asked = ready(), transaction(*[b"r%d@b.example" % number for number in range(90)])
    client.begin(asked)
    client.feed(lines)
    assert client.state is ClientState.CLOSED
    assert client.failure is not None
    assert b"over %d lines of SMTP replies at once" % LINES_MAX in client.failure[1]


def test_the_replies_to_a_whole_flight_may_have_many_lines_each() -> None:
    client, asked = ready(), transaction(*[b"r%d@b.example" % number for number in range(90)])
    said = run(client, asked, (b"250-of\r\n250-many\r\n" + b"250-lines\r\n" * 30 + b"250 ok\r\n") * 91, b"354 go\r\n")
    assert said.endswith(b"<message>")
    assert client.state is ClientState.END
