"""Several messages on one connection at once: each is delivered once, to its own recipients, or was not attempted."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_remote.smtp.connection import CARRIED_MAX, Connection
from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ClientState, SmtpClient
from support.servers.smtp.smtp_script import PIPELINING, PLAIN, ready

OK, NO, LATER, BYE, GONE = b"2", b"5", b"4", b"421", b""
ANSWERS = [OK, OK, OK, OK, OK, OK, NO, LATER, BYE, GONE]


class StrictServer(asyncio.Transport):
    """A server that keeps the order of RFC 5321 and answers as it is told; it checks that nothing comes out of turn.

    `taken` has the number of each message that came to its end, `accepted` those that it took. An answer BYE or GONE
    ends the connection.
    """

    def __init__(self, answers: Iterator[bytes]) -> None:
        super().__init__()
        self._answers = answers
        self._rest = b""
        self._sender = False
        self._recipients: list[bytes] = []
        self._message: list[bytes] | None = None
        self.said = b""
        self.closed = False
        self.taken: list[int] = []
        self.accepted: list[int] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        *lines, self._rest = (self._rest + bytes(data)).split(b"\r\n")
        for line in lines:
            if not self.closed:
                self._hear(line)

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    close = abort

    def _hear(self, line: bytes) -> None:
        if self._message is not None and line != b".":
            self._message.append(line)
        elif self._message is not None:
            self._end_message(int(self._message[0]))
        elif line == b"RSET":
            if self._say(OK):
                self._sender, self._recipients = False, []
        elif line.startswith(b"MAIL"):
            if self._sender:
                self._refuse()
            else:
                self._sender = self._say(next(self._answers, OK))
        elif line.startswith(b"RCPT TO:"):
            if not self._sender:
                self._refuse()
            elif self._say(next(self._answers, OK)):
                self._recipients.append(line[9:-1])
        elif line == b"DATA":
            if not self._recipients:
                self._refuse()
            else:
                self._begin_message(next(self._answers, OK))
        elif line == b"QUIT":
            self.said += b"221 bye\r\n"
        else:
            raise AssertionError(f"no command: {line!r}")

    def _begin_message(self, answer: bytes) -> None:
        if answer == OK:
            self.said += b"354 go\r\n"
            self._message = []
        else:
            self._say(answer)

    def _end_message(self, number: int) -> None:
        assert {owner.partition(b"-")[0] for owner in self._recipients} == {b"%d" % number}
        self.taken.append(number)
        self._message, self._sender, self._recipients = None, False, []
        if self._say(next(self._answers, OK)):
            self.accepted.append(number)

    def _say(self, answer: bytes) -> bool:
        if answer in (BYE, GONE):
            self.said += b"421 bye\r\n" if answer else b""
            self.closed = True
        else:
            self.said += answer + b"50 said\r\n"
        return answer == OK

    def _refuse(self) -> None:
        self.said += b"503 bad sequence\r\n"


def message(number: int, recipients: int, over: list[int]) -> Transaction:
    transaction = Transaction(b"f@a.example", [b"%d-%d@b.example" % (number, to) for to in range(recipients)], 9)
    transaction.content = b"%d\r\ntext\r\n.\r\n" % number
    transaction.over = lambda: over.append(number)
    return transaction


async def play(
    client: SmtpClient, answers: list[bytes], messages: list[int], cuts: list[int]
) -> tuple[StrictServer, list[Transaction], list[int]]:
    """Carry messages with so many recipients each, up to CARRIED_MAX at once; the replies come in pieces."""
    server, over = StrictServer(iter(answers)), list[int]()
    connection = Connection(client, 60)
    connection.connection_made(server)
    given: list[Transaction] = []
    pieces = iter(cuts)
    while len(over) < len(messages):
        while len(given) < len(messages) and connection.carried < CARRIED_MAX and not client.ended:
            given.append(message(len(given), messages[len(given)], over))
            connection.carry(given[-1])
        if server.said:
            size = next(pieces, 1000)
            piece, server.said = server.said[:size], server.said[size:]
            connection.data_received(piece)
        else:
            assert server.closed or client.ended
            connection.connection_lost(None)
            break
    connection.abort()
    return server, given, over


@given(
    st.lists(st.sampled_from(ANSWERS), max_size=40),
    st.lists(st.integers(1, 3), min_size=1, max_size=7),
    st.lists(st.integers(1, 90), max_size=30),
    st.sampled_from([PIPELINING, PLAIN]),
)
@example([OK] * 3 + [NO], [1, 1, 1], [], PIPELINING)
@example([OK] * 3 + [BYE], [1, 1, 1], [], PIPELINING)
@example([OK] * 3 + [GONE], [1, 1, 1], [], PIPELINING)
@example([OK] * 4 + [OK, OK, NO], [1, 1, 1], [9, 9, 9, 9], PIPELINING)
def test_each_message_is_delivered_once_or_was_not_attempted(
    answers: list[bytes], messages: list[int], cuts: list[int], greeting: bytes
) -> None:
    server, given, over = asyncio.run(play(ready(greeting).protocol, answers, messages, cuts))
    assert sorted(over) == list(range(len(given)))
    assert len(set(server.taken)) == len(server.taken)
    for number, transaction in enumerate(given):
        if transaction.verdict is None:
            assert number not in server.taken
        elif transaction.verdict[0] == b"K":
            assert number in server.accepted
        elif number in server.accepted:
            # The reply that says so was lost.
            assert b"Possible duplicate" in transaction.verdict[1]


def test_the_next_envelope_goes_out_in_one_write_with_the_message() -> None:
    async def run() -> list[bytes]:
        writes: list[bytes] = []

        class Server(StrictServer):
            def write(self, data: bytes | bytearray | memoryview) -> None:
                writes.append(bytes(data))

        client = ready().protocol
        connection = Connection(client, 60)
        connection.connection_made(Server(iter(())))
        for number in range(3):
            connection.carry(message(number, 1, []))
        connection.data_received(b"250 ok\r\n250 ok\r\n354 go\r\n")
        connection.data_received(b"250 done\r\n250 reset\r\n250 ok\r\n250 ok\r\n354 go\r\n")
        connection.abort()
        return writes

    envelope = b"MAIL FROM:<f@a.example> SIZE=9\r\nRCPT TO:<%d-0@b.example>\r\nDATA\r\n"
    assert asyncio.run(run()) == [
        envelope % 0,
        b"0\r\ntext\r\n.\r\nRSET\r\n" + envelope % 1,
        b"1\r\ntext\r\n.\r\nRSET\r\n" + envelope % 2,
    ]


@pytest.mark.parametrize("answered", [b"", b"250 ok\r\n250 ok\r\n354 go\r\n"])
def test_a_message_whose_turn_does_not_come_is_taken_back(answered: bytes) -> None:
    async def run() -> None:
        over: list[int] = []
        server = StrictServer(iter([OK] * 9))
        connection = Connection(ready().protocol, 60)
        connection.connection_made(server)
        waiting = [message(number, 1, over) for number in range(3)]
        for transaction in waiting:
            connection.carry(transaction)
        connection.data_received(answered)
        connection.withdraw(waiting[0].given)
        assert over == []
        connection.withdraw(waiting[2].given + 1)
        assert over == [1, 2]
        assert [transaction.verdict for transaction in waiting[1:]] == [None, None]
        server.said = server.said.removeprefix(answered)
        while not connection.client.ended and connection.client.state is not ClientState.READY:
            said, server.said = server.said, b""
            connection.data_received(said)
        assert over == [1, 2, 0]
        assert server.accepted == [0]
        connection.abort()

    asyncio.run(run())
