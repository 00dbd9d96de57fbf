"""A connection on the event loop: what is late is ended, and no client has the loop, or memory, for itself."""

import asyncio
import os
import socket
import ssl
import time
from contextlib import chdir, suppress
from typing import cast
from unittest import mock

import pytest

from queue_base.home import Home
from queue_smtp.server import TIMEOUT
from queue_smtp.server_replies import ServerReply
from queue_smtpd.auth.authenticator import Authenticator
from queue_smtpd.intake_links import SMALL, IntakeLinks
from queue_smtpd.milter.message_spool import SpoolMemory
from queue_smtpd.milter.milter_link import MilterAlerts
from queue_smtpd.milter.session_filter import FilterPlace, SessionFilter
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.smtp_connection import (
    COMMANDS_SLICE,
    HANDSHAKE_SECONDS,
    PROOF_SECONDS,
    BegunSession,
    OpenConnections,
    SmtpConnection,
)
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.greeting_pauses import GreetingPauses
from queue_smtpd.strangers.stranger_checks import StrangerChecks
from queue_wire.control.milters import REFUSE, FilterSetup
from support.servers.certificate import server_context
from support.smtpd.sessions import RULES, STRANGER, UNLIMITED, K, make_session
from support.smtpd.smtpd_daemon import trusting

NO_FILTERS = FilterSetup()


class Transport:
    """What a connection has written, and whether it reads."""

    def __init__(self) -> None:
        self.said = b""
        self.reading = True
        self.ended = self.aborted = False

    def write(self, data: bytes) -> None:
        self.said += data

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    close = abort


class _Lines(LogWriter):
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines


class Scene:
    """A connection whose greeting is said, if there is no pause before it. It has no queue-intake."""

    def __init__(
        self,
        home: Home,
        context: ssl.SSLContext | None = None,
        client: ClientFacts = STRANGER,
        pause: int = 0,
        filters: FilterSetup = NO_FILTERS,
        greylist: bool = False,
    ) -> None:
        self.log = _Lines()
        loop = asyncio.get_running_loop()
        authenticator = Authenticator(home, self.log)
        checks = StrangerChecks(home, self.log)
        limits = ClientLimits(UNLIMITED._replace(pause=pause))
        links, lookups = IntakeLinks(home, loop), MailboxLookups(home, loop)
        self.open = OpenConnections(links, lookups, self.log, authenticator, limits, GreetingPauses(loop), checks)
        self.transport = Transport()
        limits.hold("")
        rules, tls = RULES._replace(checkrcpt=False), context is not None
        session = make_session(
            client, rules, tls=tls, client_limits=limits, filters=filters, greylist=greylist
        )
        begun = BegunSession(session, 1, 2, None, context)
        self.connection = SmtpConnection(lambda transport, now: begun, self.open)
        self.connection.connection_made(cast(asyncio.Transport, self.transport))
        self.begun = time.monotonic()

    def run(self, seconds: float) -> bytes:
        """Let so many seconds pass since the beginning; return the last line that was said."""
        self.open.run(self.begun + seconds)
        return self.transport.said.splitlines()[-1]


class _Failing(SessionFilter):
    """Filters with a mistake."""

    async def ask_sender(self, *_: object) -> ServerReply | None:
        raise ZeroDivisionError


def test_filters_that_fail_as_they_should_not_end_the_session(home: Home) -> None:
    async def play() -> None:
        setup = FilterSetup(headerfaults=REFUSE)
        scene = Scene(home, filters=setup)
        shared = SpoolMemory(), MilterAlerts()
        scene.connection._filter = _Failing(setup, 12, FilterPlace(b"me"), *shared, scene.log.write)
        scene.connection.data_received(b"EHLO c\r\nMAIL FROM:<>\r\n")
        task = scene.connection._filtering
        assert task is not None
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert scene.transport.said.endswith(b"421 4.3.2 Server is busy; try again later\r\n")
        assert any(line.startswith(b"alert: smtp 12: the filters have failed: Zero") for line in scene.log.lines)

    asyncio.run(play())


@pytest.mark.parametrize("sent", [b"", b"EHL", b"EHLO c\r\nNO"])
def test_a_command_that_does_not_come_in_time_ends_the_session(home: Home, sent: bytes) -> None:
    async def play() -> None:
        scene = Scene(home)
        scene.connection.data_received(sent)
        assert not scene.run(TIMEOUT - 1).startswith(b"421")
        scene.connection.data_received(b"O")
        assert scene.run(TIMEOUT + 1) == b"421 4.4.2 Timeout exceeded"
        assert scene.transport.ended and not scene.transport.aborted
        # The client does not close it.
        scene.run(TIMEOUT + 60)
        assert scene.transport.aborted
        assert scene.log.lines[-1].startswith(b"smtp 12: end timeout: ")

    asyncio.run(play())


def test_when_all_places_are_taken_who_has_not_authenticated_for_long_is_ended_for_a_user(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home)
        now = scene.begun
        assert not scene.open.end_unproven(now + 3600)
        scene.open.expect_proof(scene.connection, now)
        assert not scene.open.end_unproven(now + PROOF_SECONDS - 1)
        assert not scene.transport.ended
        assert scene.open.end_unproven(now + PROOF_SECONDS)
        assert scene.transport.said.splitlines()[-1] == b"421 4.3.2 Server is busy; try again later"
        assert scene.log.lines[-1].startswith(b"smtp 12: end no_AUTH: ")
        # Its place is taken once.
        assert not scene.open.end_unproven(now + 3600)

        trusted = Scene(home, client=STRANGER._replace(user=b"joe"))
        trusted.open.expect_proof(trusted.connection, now)
        assert not trusted.open.end_unproven(now + 3600)
        assert not trusted.transport.ended

    asyncio.run(play())


@pytest.mark.parametrize("sent", [b"E", b"EHLO c\r\nMAIL FROM:<a@b.example>\r\n"])
def test_a_stranger_that_speaks_in_the_pause_before_the_greeting_is_turned_away(home: Home, sent: bytes) -> None:
    async def play() -> None:
        scene = Scene(home, pause=60)
        assert scene.transport.said == b""
        scene.connection.data_received(sent)
        assert scene.transport.said == b"554 5.5.1 You spoke before the greeting\r\n"
        assert scene.transport.ended
        text = b"refused early talker: 554_5.5.1_You_spoke_before_the_greeting client "
        assert scene.log.lines[1].startswith(b"smtp 12: " + text)
        assert scene.log.lines[2].startswith(b"smtp 12: end ")

    asyncio.run(play())


def test_a_stranger_that_waits_is_greeted_after_the_pause_and_one_that_ends_is_not(home: Home) -> None:
    async def play() -> None:
        scene, gone = Scene(home, pause=1), Scene(home, pause=1)
        gone.connection.eof_received()
        assert gone.log.lines[-1].startswith(b"smtp 12: end connection_lost")
        while not scene.transport.said:
            await asyncio.sleep(0.01)
        assert time.monotonic() - scene.begun >= 0.99
        assert scene.transport.said.startswith(b"220 ")
        scene.connection.data_received(b"EHLO c\r\n")
        assert b"\r\n250 " in scene.transport.said
        assert gone.transport.said == b""

    asyncio.run(play())


def test_there_is_no_pause_for_those_who_may_relay(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home, client=STRANGER._replace(relays=True), pause=60)
        assert scene.transport.said.startswith(b"220 ")

    asyncio.run(play())


def test_thousands_of_pauses_have_one_timer() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        pauses, done = GreetingPauses(loop), asyncio.Event()
        greeted: list[float] = []

        def greet(now: float) -> None:
            greeted.append(now)
            if len(greeted) == 5000:
                done.set()

        with mock.patch.object(loop, "call_at", wraps=loop.call_at) as timers:
            for _ in range(5000):
                pauses.add(0.3, greet)
            await asyncio.wait_for(done.wait(), 60)
        assert timers.call_count <= 100
        assert greeted == sorted(greeted)

    asyncio.run(play())


def test_a_client_that_does_not_read_is_not_read(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home)
        scene.connection.pause_writing()
        assert not scene.transport.reading
        scene.connection.data_received(b"NOOP\r\n")
        assert scene.transport.said.count(b"\n") == 1
        scene.connection.resume_writing()
        await asyncio.sleep(0)
        assert scene.transport.said.count(b"\n") == 2 and scene.transport.reading

    asyncio.run(play())


def test_many_commands_at_once_are_taken_in_several_turns_of_the_loop(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home)
        recipients = b"RCPT TO:<joe@example.org>\r\n" * 900
        scene.connection.data_received(b"EHLO c\r\nMAIL FROM:<>\r\n" + recipients)
        said = [scene.transport.said.count(b"Recipient ok")]
        assert 0 < said[0] < COMMANDS_SLICE // 20 and not scene.transport.reading
        while not scene.transport.reading:
            await asyncio.sleep(0)
            said.append(scene.transport.said.count(b"Recipient ok"))
        assert said[-1] == 900 and len(said) >= 3

    asyncio.run(play())


def test_without_queue_intake_data_is_answered_451_and_the_session_goes_on(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home)
        scene.connection.data_received(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<joe@example.org>\r\nDATA\r\nNOOP\r\n")
        assert scene.transport.said.splitlines()[-2:] == [
            b"451 4.3.0 Queue is not available now",
            b"250 2.0.0 Ok",
        ]

    asyncio.run(play())


def test_what_a_client_has_sent_behind_a_message_is_forgotten_when_it_goes_before_the_answer(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home)
        mail = b"MAIL FROM:<>\r\nRCPT TO:<joe@example.org>\r\nDATA\r\nSubject: x\r\n\r\n.\r\n"
        scene.connection.data_received(b"EHLO c\r\n" + 2 * mail)
        (link,) = scene.open.links._links
        assert len(link.waiting) == 1 and scene.connection.state() == "queueing"
        scene.connection.connection_lost(None)
        assert len(scene.open) == 1
        link.waiting.popleft().decided(K)
        # It could not be told of the second one, and would send it again.
        assert not link.waiting and len(scene.open) == 0
        assert [line.split(b": ")[1].split()[0] for line in scene.log.lines[-2:]] == [b"queued", b"end"]
        assert scene.open.limits.hold("") == 1
        scene.open.links.close()

    os.makedirs(f"{home.queue}/intake", exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening, chdir(home.queue):
        listening.bind("intake/socket")
        listening.listen()
        asyncio.run(play())


def test_a_check_that_fails_as_it_should_not_ends_the_session(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home, greylist=True)
        scene.open.checks = _FailingChecks(home, scene.log)
        scene.connection.data_received(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<joe@example.org>\r\nNOOP\r\n")
        task = scene.connection._asking
        assert task is not None
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert scene.transport.said.endswith(b"421 4.3.2 Server is busy; try again later\r\n")
        assert any(line.startswith(b"alert: smtp 12: a check has failed: Zero") for line in scene.log.lines)

    asyncio.run(play())


class _FailingChecks(StrangerChecks):
    """Checks of strangers with a mistake."""

    async def judge(self, _: object) -> ServerReply | None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("begin", "text", "said"),
    [
        (b"DATA\r\n", b"x" * 20_000 + b"\r\n", b"354"),
        (b"BDAT 1\r\nx", b"BDAT 10000\r\n" + b"x" * 10_000 + b"BDAT 9978\r\n" + b"x" * 9_978, b"250"),
    ],
)
def test_a_message_that_comes_too_slowly_ends_the_session(home: Home, begin: bytes, text: bytes, said: bytes) -> None:
    async def play() -> None:
        scene = Scene(home)
        links = scene.open.links
        scene.connection.data_received(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<joe@example.org>\r\n" + begin)
        scene.connection.data_received(text)
        # The next piece is late before the message is.
        assert scene.run(TIMEOUT - 1).startswith(said)
        assert scene.connection.state() == "message"
        scene.connection._deadline += 1000
        assert scene.run(TIMEOUT + 39).startswith(said)
        assert scene.run(TIMEOUT + 41) == b"421 4.4.2 Timeout exceeded"
        assert links.kept == 0
        assert SMALL > 20_002
        links.close()

    os.makedirs(f"{home.queue}/intake", exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening, chdir(home.queue):
        # The path of a socket is short. Nobody accepts the link.
        listening.bind("intake/socket")
        listening.listen()
        asyncio.run(play())


def test_what_was_read_in_clear_and_not_taken_is_thrown_away_by_starttls(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home, server_context())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting().wrap_bio(incoming, outgoing, server_hostname="raw.example")
        # Far more than is taken in one turn of the loop: the handshake is done before the next turn.
        scene.connection.data_received(b"EHLO c\r\nSTARTTLS\r\n" + b"VRFY mallory\r\n" * 5000)
        assert scene.transport.said.endswith(b"220 2.0.0 Ready to start TLS\r\n")
        scene.transport.said = b""
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            scene.connection.data_received(outgoing.read())
            incoming.write(scene.transport.said)
            scene.transport.said = b""
        assert scene.log.lines[-1].startswith(b"smtp 12: tls TLSv1.3 ")
        for _ in range(20):
            await asyncio.sleep(0)
        client.write(b"QUIT\r\n")
        scene.connection.data_received(outgoing.read())
        incoming.write(scene.transport.said)
        assert client.read(1000) == b"221 2.0.0 Bye\r\n"

    asyncio.run(play())


def test_a_handshake_that_is_not_done_in_time_ends_the_connection(home: Home) -> None:
    async def play() -> None:
        scene = Scene(home, server_context())
        scene.connection.data_received(b"EHLO c\r\nSTARTTLS\r\n")
        # The first bytes of a ClientHello, one by one.
        for byte in b"\x16\x03\x01\x02\x00\x01":
            scene.connection.data_received(bytes([byte]))
        scene.run(HANDSHAKE_SECONDS - 1)
        assert not scene.transport.ended
        scene.run(HANDSHAKE_SECONDS + 1)
        # Nothing is said in clear any more.
        assert scene.transport.ended and scene.transport.said.endswith(b"220 2.0.0 Ready to start TLS\r\n")
        assert scene.log.lines[-1].startswith(b"smtp 12: end timeout: ")

    asyncio.run(play())
