"""What a milter says before it closes the connection counts, though the rest of the command cannot be written."""

import asyncio
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
import uvloop

from queue_smtpd.milter.milter_client import AnswerKind, MilterAnswer
from queue_smtpd.milter.milter_link import MilterLink, MilterTrouble
from queue_wire.control.milters import unpack_milters
from support.smtpd.milter_server import OFFER, SECONDS, packet


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(SECONDS)
    return listening


def answer_and_close(listening: socket.socket, answer: bytes) -> None:
    """Negotiate, read the first bytes of the next command, answer, and close with the rest unread."""
    with listening, listening.accept()[0] as milter:
        milter.settimeout(SECONDS)
        (size,) = struct.unpack(">I", milter.recv(4, socket.MSG_WAITALL))
        milter.recv(size, socket.MSG_WAITALL)
        milter.sendall(packet(b"O" + OFFER))
        milter.recv(5, socket.MSG_WAITALL)
        if answer:
            milter.sendall(packet(answer))


async def ask(port: int) -> MilterAnswer:
    [line] = unpack_milters(b"inet:127.0.0.1:%d\n" % port)
    link = MilterLink(line)
    await link.open()
    try:
        # More than the kernel keeps, so that its end waits until the beginning is read.
        link.client.end_message({b"i": b"x" * (16 << 20)})
        await link.exchange(time.monotonic() + SECONDS)
        answered = link.client.answer
        # The connection is closed by now, or soon.
        with pytest.raises(MilterTrouble):
            while True:
                link.client.end_message({})
                await link.exchange(time.monotonic() + SECONDS)
        return answered
    finally:
        link.close()


@pytest.mark.parametrize("attempt", range(8))
def test_its_answer_counts(listener: socket.socket, attempt: int) -> None:
    thread = threading.Thread(target=answer_and_close, args=(listener, b"r"))
    thread.start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(ask(listener.getsockname()[1]))
    thread.join(SECONDS)
    assert answer.kind is AnswerKind.REFUSE


def test_without_an_answer_it_is_in_trouble(listener: socket.socket) -> None:
    thread = threading.Thread(target=answer_and_close, args=(listener, b""))
    thread.start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(MilterTrouble):
        runner.run(ask(listener.getsockname()[1]))
    thread.join(SECONDS)
