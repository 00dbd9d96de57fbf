"""How messages go to queue-intake: small ones together, large ones in pieces, and a pause does not end their link."""

import asyncio
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import pytest
import uvloop

from queue_base.home import Home
from queue_smtpd import intake_links
from queue_smtpd.intake_links import PROMPT_SECONDS, SMALL, TOGETHER, IntakeLinks, MessageTransfer
from queue_wire.pipes.qmtp import (
    GIVE_UP,
    NUMBERS,
    PIECES_END,
    Answer,
    pack_answer,
    pack_envelope,
    pack_facts,
    pack_package,
    pack_piece,
)

SENDER, RECIPIENTS = b"a@example.net", [b"b@example.org", b"c@example.org"]
ENVELOPE = pack_envelope(SENDER, RECIPIENTS)


class Server:
    """Something in the place of queue-intake: `came` is what each connection has sent, `writers` take answers.

    What each begins with, that its messages have places for their numbers, is left out.
    """

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.reads = asyncio.Event()
        self.reads.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.came)
        self.came.append(b"")
        self.writers.append(writer)
        try:
            assert await reader.readexactly(len(NUMBERS)) == NUMBERS
            while await self.reads.wait() and (data := await reader.read(65536)):
                self.came[place] += data
        except (ConnectionError, asyncio.IncompleteReadError):
            # The links were closed with an answer under way.
            pass
        finally:
            writer.transport.abort()
            self.ended += 1

    def has(self, expected: list[bytes]) -> bool:
        return self.came == expected

    async def wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not done():
            assert time.monotonic() < until, [data[-100:] for data in self.came]
            await asyncio.sleep(0.001)


def with_server(home: Home, work: Callable[[Server, IntakeLinks], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        os.makedirs(f"{home.queue}/intake", exist_ok=True)
        server = Server()
        listening = await asyncio.start_unix_server(server.serve, f"{home.queue}/intake/socket")
        links = IntakeLinks(home, asyncio.get_running_loop())
        try:
            await work(server, links)
        finally:
            links.close()
            listening.close()
            server.reads.set()
            await server.wait(lambda: server.ended == len(server.came))
            # The transports close in the next turn of the loop.
            await asyncio.sleep(0.01)

    # The path of a socket is short.
    here = Path.cwd()
    os.chdir(home.path)
    try:
        # The event loop of queue-smtpd.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        os.chdir(here)


def transfer(links: IntakeLinks, decided: list[Answer | None]) -> MessageTransfer:
    return MessageTransfer(links, decided.append, lambda: None)


def test_small_messages_are_packages_on_links_that_are_used_again(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        for number in range(3):
            message = transfer(links, decided)
            message.add(b"one\n", 1.0)
            message.add(b"two\n", 1.0)
            message.finish(SENDER, RECIPIENTS, 1.0)
            packages = pack_package(b"one\ntwo\n", SENDER, RECIPIENTS) * (number + 1)
            await server.wait(partial(server.has, [packages]))
            # One answer a recipient; the worst one counts, in any order.
            server.writers[0].write(pack_answer(b"K", b"ok 1-a") + pack_answer(b"KZD"[number : number + 1], b"x"))
            while len(decided) <= number:
                await asyncio.sleep(0.001)
        assert [answer and answer.letter for answer in decided] == [b"K", b"Z", b"D"]
        assert links.kept == 0

    with_server(home, work)


def test_a_message_of_a_listener_with_a_class_says_so_and_for_whom_it_is(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        message = MessageTransfer(links, decided.append, lambda: None, "bulk", b"0123456789abcdef")
        message.add(b"one\n", 1.0)
        message.finish(SENDER, RECIPIENTS, 1.0, hold=b"why")
        facts = pack_facts(hold=b"why", priority="bulk", submitter=b"0123456789abcdef")
        package = facts + pack_package(b"one\n", SENDER, RECIPIENTS)
        await server.wait(partial(server.has, [package]))

    with_server(home, work)


def test_a_large_message_goes_in_pieces_and_a_pause_sends_an_empty_one(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        message = transfer(links, decided)
        message.add(b"x" * SMALL, 1.0)
        assert not server.came and links.kept == SMALL
        message.add(b"y\n", 1.0)
        message.keep_alive(20.0)
        message.keep_alive(22.0)
        message.add(b"z\n", 23.0)
        message.finish(SENDER, RECIPIENTS, 24.0)
        text = b"x" * SMALL + b"y\n"
        pieces = pack_piece(text[: (1 << 16) - 1]) + pack_piece(text[(1 << 16) - 1 :]) + pack_piece(b"")
        expected = pack_facts(pieces=True) + pieces + pack_piece(b"z\n") + PIECES_END + ENVELOPE
        await server.wait(lambda: server.came == [expected])
        assert links.kept == 0 and pack_piece(b"") == b"1:\n,"
        server.writers[0].close()
        await server.wait(lambda: decided == [None])

    with_server(home, work)


def test_what_is_given_up_leaves_a_link_that_can_be_used(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        message = transfer(links, decided)
        message.add(b"x" * (SMALL + 1), 1.0)
        message.give_up(1.0)
        small = transfer(links, decided)
        small.add(b"m\n", 1.0)
        small.finish(SENDER, RECIPIENTS, 1.0)
        await server.wait(lambda: server.came[:1] != [] and server.came[0].endswith(ENVELOPE))
        assert len(server.came) == 1 and GIVE_UP + pack_package(b"m\n", SENDER, RECIPIENTS) in server.came[0]
        assert not decided

    with_server(home, work)


def hand(links: IntakeLinks, decided: list[Answer | None], count: int, now: float) -> None:
    for _ in range(count):
        message = transfer(links, decided)
        message.add(b"m\n", now)
        message.finish(SENDER, RECIPIENTS, now)


def test_messages_share_links_that_answer_promptly(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # The answer of the test takes longer on a busy machine.
    monkeypatch.setattr(intake_links, "PROMPT_SECONDS", 20.0)

    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        now = time.monotonic()
        hand(links, decided, TOGETHER * 2, now)
        package = pack_package(b"m\n", SENDER, RECIPIENTS)
        await server.wait(lambda: server.came == [package * TOGETHER] * 2)
        server.writers[0].write(pack_answer(b"K", b"ok 1-a") * len(RECIPIENTS))
        await server.wait(lambda: len(decided) == 1)
        hand(links, decided, 1, now)
        await server.wait(lambda: server.came == [package * (TOGETHER + 1), package * TOGETHER])
        # Neither has answered its next one for long: others do not wait behind it.
        hand(links, decided, 1, now + 20.0)
        await server.wait(lambda: server.came == [package * (TOGETHER + 1), package * TOGETHER, package])

    with_server(home, work)


def test_messages_do_not_share_a_link_whose_last_answer_took_long(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        now = time.monotonic()
        hand(links, decided, 1, now - PROMPT_SECONDS)
        package = pack_package(b"m\n", SENDER, RECIPIENTS)
        await server.wait(lambda: server.came == [package])
        server.writers[0].write(pack_answer(b"K", b"ok 1-a") * len(RECIPIENTS))
        await server.wait(lambda: len(decided) == 1)
        hand(links, decided, 3, now)
        await server.wait(lambda: server.came == [package * 2, package * 2])

    with_server(home, work)


def test_messages_share_links_when_there_are_many(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        # Each is handed over when those before it have waited for long.
        for number in range(intake_links.SHARED_MAX * 2):
            hand(links, decided, 1, 1.0 + number * PROMPT_SECONDS)
        package = pack_package(b"m\n", SENDER, RECIPIENTS)
        await server.wait(lambda: server.came == [package * 2] * intake_links.SHARED_MAX)
        # Nobody answers in time.
        links.run(100.0 + intake_links.ANSWER_SECONDS)
        assert decided == [None] * intake_links.SHARED_MAX * 2

    with_server(home, work)


def test_a_link_that_takes_nothing_for_too_long_is_closed_and_its_message_fails(home: Home) -> None:
    async def work(server: Server, links: IntakeLinks) -> None:
        decided: list[Answer | None] = []
        message = transfer(links, decided)
        server.reads.clear()
        while not message.full:
            message.add(b"x" * SMALL, 1.0)
            await asyncio.sleep(0)
        links.run(1.0 + intake_links.ANSWER_SECONDS)
        assert message.full
        links.run(1.0 + intake_links.ANSWER_SECONDS + 1)
        assert not message.full
        message.add(b"y", 600.0)
        assert message.failed
        message.finish(SENDER, RECIPIENTS, 600.0)
        assert decided == [None]

    with_server(home, work)


def test_without_queue_intake_there_is_no_link(home: Home) -> None:
    async def work() -> None:
        links = IntakeLinks(home, asyncio.get_running_loop())
        assert links.link(1.0) is None and links.own_link(1.0) is None
        decided: list[Answer | None] = []
        message = transfer(links, decided)
        message.add(b"x" * (SMALL + 1), 1.0)
        assert message.failed
        message.finish(SENDER, RECIPIENTS, 1.0)
        assert decided == [None]

    asyncio.run(work())


def test_an_answer_counts_though_what_follows_it_cannot_be_written(home: Home) -> None:
    os.makedirs(f"{home.queue}/intake", exist_ok=True)

    async def run(listening: socket.socket) -> list[Answer | None]:
        links = IntakeLinks(home, asyncio.get_running_loop())
        decided: list[Answer | None] = []
        first, second = transfer(links, decided), transfer(links, [])
        first.add(b"one\n", 1.0)
        first.finish(SENDER, RECIPIENTS, 1.0)
        queue_intake, _ = listening.accept()
        while not await asyncio.sleep(0.001, select.select([queue_intake], [], [], 0)[0]):
            pass
        # It answers, and closes with something unread; the link is written to before the answer is read.
        queue_intake.sendall(pack_answer(b"K", b"ok 1-a") * len(RECIPIENTS))
        queue_intake.close()
        second.add(b"two\n", 1.0)
        second.finish(SENDER, RECIPIENTS, 1.0)
        until = time.monotonic() + 30
        while not decided and time.monotonic() < until:
            await asyncio.sleep(0.001)
        links.close()
        return decided

    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(home.path):
        listening.bind("queue/intake/socket")
        listening.listen()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(run(listening)) == [Answer(b"K", b"ok 1-a")]
