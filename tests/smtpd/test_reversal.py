"""What a host is told when several queues are asked for its mail, and how one follows the other on its connection."""

import array
import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.daemon.unix_sockets import listen_at, receive_with_descriptors
from queue_smtpd.reversal import GREETING, QUIT, Reversal
from queue_wire.admin.ondemand_socket import (
    BROKEN,
    CLEAN,
    EMPTY,
    LATER,
    RUNNING,
    SOCKET,
    STARTED,
    UNKNOWN,
    WANTED,
    RunAnswer,
    pack_run_answer,
)

ABSENT = b"absent"


class FakeQueue:
    """The socket of a queue-ondemand that answers with a word, then says a text as an SMTP client, and is done."""

    def __init__(self, path: Path, word: bytes, end: bytes = CLEAN) -> None:
        self.path = str(path)
        self.heard = b""
        self._word = word
        self._end = end
        self._listener: socket.socket | None = None
        if word != ABSENT:
            path.mkdir()
            self._listener = listen_at(f"{path}/{SOCKET}", 1)
            self._listener.setblocking(False)

    async def serve(self) -> None:
        if self._listener is None:
            return
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(self._listener)
        with connection, ExitStack() as stack:
            connection.setblocking(True)
            asked, descriptors = receive_with_descriptors(connection, 65536)
            assert asked.endswith(b"atrn\0a.example\x00192.0.2.7\0joe,")
            channel = stack.enter_context(socket.socket(fileno=descriptors[0]))
            connection.sendall(pack_run_answer(RunAnswer(self._word)))
            if self._word == STARTED:
                channel.setblocking(False)
                self.heard = await loop.sock_recv(channel, 100)
                await loop.sock_sendall(channel, b"EHLO x\r\n")
                stack.close()
                connection.sendall(pack_run_answer(RunAnswer(WANTED)))
                connection.sendall(pack_run_answer(RunAnswer(self._end)))


    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


async def turn(queues: Sequence[FakeQueue]) -> tuple[int, bool | None, bytes]:
    """Return the reply's code, whether all was delivered, and what was said to the host."""
    said: list[bytes] = []

    def say(data: bytes) -> None:
        said.append(data)
        if data == QUIT:
            reversal.take(b"221 bye\r\n")

    wanted: list[bool] = []
    told = say, lambda: None, lambda: wanted.append(True)
    reversal = Reversal([queue.path for queue in queues], [b"a.example"], "192.0.2.7", b"joe", *told)
    serving = [asyncio.ensure_future(queue.serve()) for queue in queues]
    reply = await reversal.begin()
    clean = None
    if reply.positive:
        reversal.take(b"220 host\r\n")
        clean = await reversal.run()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    assert len(wanted) == len([queue for queue in queues if queue.heard])
    for queue in queues:
        queue.close()
    return reply.code, clean, b"".join(said)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([EMPTY, EMPTY], 453),
        ([LATER, EMPTY], 451),
        ([EMPTY, UNKNOWN], 451),
        ([EMPTY, ABSENT], 451),
        ([RUNNING, STARTED], 450),
        ([EMPTY, RUNNING], 450),
    ],
)
def test_of_several_answers_the_one_that_matters_most_counts(tmp_path: Path, words: list[bytes], code: int) -> None:
    queues = [FakeQueue(tmp_path / str(number), word) for number, word in enumerate(words)]
    assert asyncio.run(turn(queues)) == (code, None, b"")


@pytest.mark.parametrize("before", [EMPTY, LATER, ABSENT])
def test_a_queue_that_has_nothing_or_is_down_keeps_nobody_from_the_mail_of_the_next_ones(
    tmp_path: Path, before: bytes
) -> None:
    words = (before, STARTED, RUNNING, ABSENT, STARTED)
    queues = [FakeQueue(tmp_path / str(number), word) for number, word in enumerate(words)]
    assert asyncio.run(turn(queues)) == (250, True, b"EHLO x\r\n" * 2 + QUIT)
    assert [queues[1].heard, queues[4].heard] == [b"220 host\r\n", GREETING]


def test_after_an_end_that_is_not_clean_nothing_more_is_said(tmp_path: Path) -> None:
    queues = [FakeQueue(tmp_path / "a", STARTED, BROKEN), FakeQueue(tmp_path / "b", STARTED)]
    assert asyncio.run(turn(queues)) == (250, False, b"EHLO x\r\n")
    assert not queues[1].heard


def test_descriptors_that_nobody_can_use_are_closed_by_the_kernel() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        many = array.array("i", [ours.fileno()] * 9)
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
        data, found = receive_with_descriptors(theirs, 10)
        assert data == b"x" and 0 < len(found) < 9
        for descriptor in found:
            socket.socket(fileno=descriptor).close()
