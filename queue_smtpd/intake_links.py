"""How messages go to queue-intake: by QMTP over its Unix socket (queue_wire.pipes.qmtp).

A message that is complete while it is small goes as one package, on a link that other messages share. A larger one goes
in pieces, as it arrives, on a link of its own. So no message is in memory as a whole unless it is small, and a client
that sends slowly holds no link.

The Received field of each has the place of the number that queue-intake gives it. A link says so at its beginning.

queue-intake ends a link that is silent within a message. While a client pauses, `keep_alive` sends empty pieces.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from queue_base.daemon.unix_sockets import connect_to
from queue_base.daemon.unread_input import read_unread
from queue_base.home import Home
from queue_wire.format_error import FormatError
from queue_wire.pipes.qmtp import (
    ACCEPTED,
    GIVE_UP,
    NUMBERS,
    PERMANENT,
    PIECE_MAX,
    PIECES_END,
    SOCKET,
    TEMPORARY,
    Answer,
    AnswerReader,
    pack_envelope,
    pack_facts,
    pack_package,
    pack_piece,
)

# A message that is larger goes in pieces.
SMALL = 65536
# Bytes of messages that are kept in memory until they are complete; beyond it smaller ones go in pieces, too.
KEPT_MAX = 32 << 20
# Messages that wait on one link, if it answers promptly: queue-intake reads, commits and answers them together. A link
# whose first answer takes longer than PROMPT_SECONDS is left to the messages that it has.
TOGETHER = 8
PROMPT_SECONDS = 0.1
# Links that small messages share. While queue-todo is behind, queue-intake has each link wait before each message.
SHARED_MAX = 32
# Links in all: queue-intake takes 1,000 connections, from all processes.
LINKS_MAX = 400
# Seconds after which a link that nobody uses is closed; queue-intake closes it after 300.
IDLE_SECONDS = 60.0
# Seconds for the answer to a message. RFC 5321 section 4.5.3.2.6 has clients wait for ten minutes.
ANSWER_SECONDS = 570.0
# Seconds in which a piece must be sent; queue-intake waits for 60.
PIECE_SECONDS = 20.0
_EMPTY_PIECE = pack_piece(b"")
_WORST_FIRST = (TEMPORARY, PERMANENT, ACCEPTED)

# What became of a message: None if queue-intake has said nothing, and the message may be queued or not.
Decided = Callable[[Answer | None], None]


class _HandedMessage:
    """A message that waits for its answers, one for each recipient."""

    __slots__ = ("answer", "decided", "left", "since", "until")

    def __init__(self, decided: Decided, recipients: int, now: float) -> None:
        self.decided = decided
        self.left = recipients
        self.since = now
        self.until = now + ANSWER_SECONDS
        self.answer: Answer | None = None

    def take(self, answer: Answer) -> None:
        """Take an answer. The worst one counts: a client can be told only one thing, and no recipient may be lost."""
        self.left -= 1
        if self.answer is None or _WORST_FIRST.index(answer.letter) < _WORST_FIRST.index(self.answer.letter):
            self.answer = answer


class IntakeLink:
    """A connection to queue-intake.

    waiting: messages that it has to answer, in order. busy: a message is being sent in pieces. full: queue-intake does
    not read as fast as we write; `on_flow` of the message that is being sent is called when that changes. slow: its
    last answer took long, as it does while queue-todo is behind.

    For the event loop it is an asyncio.Protocol. mypyc makes a fast class of it because it has no base class.
    """

    def __init__(self, now: float) -> None:
        self.waiting: deque[_HandedMessage] = deque()
        self.busy = self.full = self.lost = self.slow = False
        self.used = self.sent = now
        self.on_flow: Callable[[], None] | None = None
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._unsent = [NUMBERS]

    def write(self, data: bytes, now: float) -> None:
        """Send data, once connected."""
        self.used = self.sent = now
        if self._transport is None:
            self._unsent.append(data)
        else:
            self._transport.write(data)

    def is_prompt(self, now: float) -> bool:
        """Return whether the link takes another message, which will not wait for long."""
        if self.busy or self.full or self.lost:
            return False
        waiting = self.waiting
        return not waiting or (
            not self.slow and len(waiting) < TOGETHER and now - waiting[0].since < PROMPT_SECONDS
        )

    def close(self) -> None:
        """Close the link; what waits for answers is told that there are none."""
        if self._transport is not None:
            self._transport.abort()
        self.fail()

    def fail(self) -> None:
        """Note that the link is lost."""
        self.lost = True
        waiting, self.waiting = self.waiting, deque()
        for each in waiting:
            each.decided(None)
        self._change_flow(False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no asyncio.Transport.
        stream = self._transport = cast(asyncio.Transport, transport)
        if self.lost:
            stream.abort()
            return
        stream.writelines(self._unsent)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._reader.feed(data)
        except FormatError:
            self.close()
            return
        for answer in answers:
            if not self.waiting:
                # An answer to nothing: what follows cannot be understood.
                self.close()
                return
            first = self.waiting[0]
            first.take(answer)
            if not first.left:
                self.waiting.popleft()
                self.slow = time.monotonic() - first.since > PROMPT_SECONDS
                first.decided(first.answer)

    def eof_received(self) -> bool:
        # The transport closes itself.
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and (unread := read_unread(self._transport)):
            self.data_received(unread)
        self.fail()

    def pause_writing(self) -> None:
        self._change_flow(True)

    def resume_writing(self) -> None:
        self._change_flow(False)

    def _change_flow(self, full: bool) -> None:
        self.full = full
        if self.on_flow is not None:
            self.on_flow()


class IntakeLinks:
    """The links of this process."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self._loop = loop
        self._links: list[IntakeLink] = []
        # Connects that the loop has not finished.
        self._tasks: set[asyncio.Task[None]] = set()
        self.kept = 0

    def link(self, now: float) -> IntakeLink | None:
        """Return a link for a small message: a prompt or idle one, a new one, or that with the least to do, else None.

        It is meant to be asked before a message begins, too, so that a client hears early that there is no link.
        """
        for link in self._links:
            if link.is_prompt(now):
                return link
        usable = self._usable()
        least = min(usable, key=lambda link: len(link.waiting), default=None)
        if least is not None and (not least.waiting or len(usable) >= SHARED_MAX):
            return least
        return self._connect(now) or least

    def own_link(self, now: float) -> IntakeLink | None:
        """Return a link that a message may have for itself, None if there is none. It is marked as busy.

        Large messages that come slowly leave links for small ones.
        """
        if sum(link.busy for link in self._links) >= LINKS_MAX - SHARED_MAX:
            return None
        found = next((link for link in self._usable() if not link.waiting), None) or self._connect(now)
        if found is not None:
            found.busy = True
        return found

    def run(self, now: float) -> None:
        """Close links that are idle, that take nothing for too long, or whose answers take too long.

        Call it every few seconds.
        """
        for link in self._links:
            if link.waiting:
                if now > link.waiting[0].until:
                    link.close()
            elif link.busy and link.full:
                # queue-intake hangs: the message fails, so that its client is not held for ever.
                if now > link.sent + ANSWER_SECONDS:
                    link.close()
            elif not link.busy and now > link.used + IDLE_SECONDS:
                link.close()
        self._links = [link for link in self._links if not link.lost]

    def close(self) -> None:
        """Close all."""
        for link in self._links:
            link.close()

    def _usable(self) -> list[IntakeLink]:
        return [link for link in self._links if not (link.lost or link.busy or link.full)]

    def _connect(self, now: float) -> IntakeLink | None:
        """Return a new link, None if queue-intake does not listen, or has too many connections."""
        self._links = [link for link in self._links if not link.lost]
        if len(self._links) >= LINKS_MAX:
            return None
        try:
            connection = connect_to(f"{self.home.run}/{SOCKET}")
        except OSError:
            return None
        link = IntakeLink(now)
        task = self._loop.create_task(self._adopt(link, connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._links.append(link)
        return link

    async def _adopt(self, link: IntakeLink, connection: socket.socket) -> None:
        try:
            await self._loop.create_unix_connection(lambda: cast(asyncio.Protocol, link), sock=connection)
        except OSError:
            connection.close()
            link.fail()


class MessageTransfer:
    """One message on its way to queue-intake: `add` its text, then `finish`, or `give_up`.

    `decided` is called once behind `finish`, perhaps before it returns. `on_flow` is called when `full` changes.
    `priority` is the class that the listener gives its mail, `submitter` for whom it is, empty for none.
    """

    __slots__ = ("_decided", "_kept", "_link", "_links", "_on_flow", "_parts", "_priority", "_submitter", "failed")

    def __init__(
        self,
        links: IntakeLinks,
        decided: Decided,
        on_flow: Callable[[], None],
        priority: str = "",
        submitter: bytes = b"",
    ) -> None:
        self._links = links
        self._decided = decided
        self._on_flow = on_flow
        self._priority = priority
        self._submitter = submitter
        self._parts: list[bytes] = []
        self._kept = 0
        self._link: IntakeLink | None = None
        self.failed = False

    @property
    def full(self) -> bool:
        """Whether no text should be added now, because queue-intake does not read as fast."""
        return self._link is not None and self._link.full and not self._link.lost

    def add(self, data: bytes, now: float) -> None:
        """Take text of the message. Once something has failed, it is thrown away."""
        if self.failed:
            return
        if self._link is not None:
            self._send(data, now)
            return
        self._parts.append(data)
        self._kept += len(data)
        self._links.kept += len(data)
        if self._kept > SMALL or self._links.kept > KEPT_MAX:
            self._begin_pieces(now)

    def finish(
        self, sender: bytes, recipients: list[bytes], now: float, hold: bytes = b"", copy: bytes = b""
    ) -> None:
        """Hand over the message, which is complete. `hold` and `copy` are causes, empty for none."""
        link, own = self._link, self._link is not None
        if link is None and not self.failed:
            link = self._links.link(now)
        if link is None or link.lost or self.failed:
            self.give_up(now)
            self._decided(None)
            return
        if hold or copy or self._priority or self._submitter:
            link.write(pack_facts(None, False, hold, copy, self._priority, self._submitter), now)
        if own:
            self._release()
            link.write(PIECES_END + pack_envelope(sender, recipients), now)
        else:
            link.write(pack_package(b"".join(self._parts), sender, recipients), now)
        link.waiting.append(_HandedMessage(self._decided, len(recipients), now))
        self._forget()

    def give_up(self, now: float) -> None:
        """Forget the message."""
        link = self._link
        if link is not None:
            self._release()
            if not link.lost:
                link.write(GIVE_UP, now)
        self._forget()

    def keep_alive(self, now: float) -> None:
        """Show queue-intake that the message goes on, though its client pauses."""
        link = self._link
        if link is not None and not link.lost and not link.full and now > link.sent + PIECE_SECONDS:
            link.write(_EMPTY_PIECE, now)

    def _begin_pieces(self, now: float) -> None:
        link = self._link = self._links.own_link(now)
        text = b"".join(self._parts)
        self._forget()
        if link is None:
            self.failed = True
            return
        link.on_flow = self._on_flow
        link.write(pack_facts(pieces=True), now)
        self._send(text, now)

    def _send(self, data: bytes, now: float) -> None:
        link = self._link
        assert link is not None
        if link.lost:
            self.failed = True
            return
        for at in range(0, len(data), PIECE_MAX - 1):
            link.write(pack_piece(data[at : at + PIECE_MAX - 1]), now)

    def _release(self) -> None:
        link, self._link = self._link, None
        assert link is not None
        link.busy = False
        link.on_flow = None

    def _forget(self) -> None:
        self._parts.clear()
        self._links.kept -= self._kept
        self._kept = 0
