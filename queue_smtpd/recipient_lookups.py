"""Asks queue-local's recipient checker which local recipients exist (queue_wire.pipes.recipient_question).

All questions of this process share one connection, which is opened with the first one, and again after it was lost. An
answer that does not come in time, and a checker that does not run, mean that the recipient is undecided: the client is
told to come again.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

from queue_base.daemon.unix_sockets import connect_to
from queue_base.daemon.unread_input import read_unread
from queue_base.errors import reason
from queue_base.home import Home
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import (
    CHECK_SOCKET,
    EXISTS,
    QUESTION_MAX,
    UNDECIDED,
    UNKNOWN,
    VERDICT_MAX,
    RecipientQuestion,
    pack_question,
    unpack_verdict,
)

# Seconds; the checker itself answers in 10.
ANSWER_SECONDS = 15.0
_FOUND = {EXISTS: MailboxFound.EXISTS, UNKNOWN: MailboxFound.UNKNOWN, UNDECIDED: MailboxFound.UNDECIDED}

# What the lookup has found, and the reason, for the log.
Found = Callable[[MailboxFound, bytes], None]


class _OpenQuestion(NamedTuple):
    found: Found
    until: float


class _CheckerLink(asyncio.Protocol):
    """The connection to the checker."""

    def __init__(self, lookups: "MailboxLookups") -> None:
        self._lookups = lookups
        self._transport: asyncio.Transport | None = None
        self._reader = NetstringReader(VERDICT_MAX)
        self._unsent: list[bytes] = []
        self.lost = False

    def write(self, data: bytes) -> None:
        """Send data, once connected."""
        if self._transport is None:
            self._unsent.append(data)
        else:
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Close the link; what waits for answers is undecided."""
        if self._transport is not None:
            self._transport.abort()
        if not self.lost:
            self.lost = True
            self._lookups.fail(self, why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        if self.lost:
            self._transport.abort()
            return
        self._transport.writelines(self._unsent)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (payload := self._reader.next()) is not None:
                verdict = unpack_verdict(payload)
                self._lookups.decide(verdict.number, _FOUND[verdict.letter], verdict.text)
        except FormatError as error:
            self.close(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and (unread := read_unread(self._transport)):
            self.data_received(unread)
        self.close("it has closed the connection")


class MailboxLookups:
    """The lookups of this process: the questions that the checker has not answered."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        # That of any queue does: all have the same users.
        self._paths = [f"{each.queue}/{CHECK_SOCKET}" for each in home.each()]
        self._loop = loop
        self._link: _CheckerLink | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._open: dict[int, _OpenQuestion] = {}
        self._count = 0

    def ask(self, wanted: MailboxWanted, found: Found, now: float) -> int:
        """Ask whether a recipient exists; return a number for `forget`. `found` is called later, never at once."""
        self._count += 1
        number = self._count
        self._open[number] = _OpenQuestion(found, now + ANSWER_SECONDS)
        why = ""
        question = pack_question(RecipientQuestion(number, wanted.address, wanted.servers, wanted.relayed))
        if len(question) > QUESTION_MAX:
            why = "the address is too long"
        elif self._link is None or self._link.lost:
            why = self._connect()
        if why:
            self._loop.call_soon(self.decide, number, MailboxFound.UNDECIDED, _trouble(why))
        else:
            assert self._link is not None
            self._link.write(question)
        return number

    def forget(self, number: int) -> None:
        """Nobody waits for the answer to a question any more."""
        self._open.pop(number, None)

    def decide(self, number: int, found: MailboxFound, text: bytes) -> None:
        """Tell who has asked, if anybody waits."""
        question = self._open.pop(number, None)
        if question is not None:
            question.found(found, text)

    def fail(self, link: _CheckerLink, why: str) -> None:
        """Note that the connection is lost."""
        if link is self._link:
            self._link = None
            for number in list(self._open):
                self.decide(number, MailboxFound.UNDECIDED, _trouble(why))

    def run(self, now: float) -> None:
        """Give up questions whose answers take too long. Call it every few seconds."""
        for number in list(self._open):
            if now < self._open[number].until:
                # The others were asked later.
                return
            self.decide(number, MailboxFound.UNDECIDED, _trouble("it does not answer"))

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link.close("queue-smtpd stops")

    def _connect(self) -> str:
        """Connect; return why that is impossible, "" if it is not."""
        why = ""
        for path in self._paths:
            try:
                connection = connect_to(path)
            except OSError as error:
                why = why or f"unable to connect to {path}: {reason(error)}"
            else:
                break
        else:
            return why
        link = self._link = _CheckerLink(self)
        self._connecting = self._loop.create_task(self._adopt(link, connection))
        return ""

    async def _adopt(self, link: _CheckerLink, connection: socket.socket) -> None:
        try:
            await self._loop.create_unix_connection(lambda: link, sock=connection)
        except OSError as error:
            connection.close()
            link.close(reason(error))


def _trouble(why: str) -> bytes:
    return f"Unable to ask the recipient checker of queue-local: {why}. (#4.3.0)".encode("utf-8", "surrogateescape")
