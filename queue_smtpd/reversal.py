"""A client's connection whose roles ATRN has reversed (RFC 2645): queue-ondemand's mail goes out, replies come in.

    reply = await reversal.begin()      asks the queues for the mail of domains, up to the first one that has some
    clean = await reversal.run()        passes on bytes until all is delivered

The SMTP client is queue-ondemand's queue-remote, at the other end of a socket pair whose one end goes with the request
(queue_wire.admin.ondemand_socket). Nothing of what passes is looked at here. TLS stays here, and this process still
reads nothing of the queue.

With several queues the mail of each follows on the same connection, as long as the client can take more. A later queue
is greeted in the client's name, says EHLO once more, which RFC 5321 section 4.1.4 allows, and sends its mail. Behind
the last one this module says QUIT.

What one side does not take is not read from the other.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.mail_request import ANSWER_SECONDS, QueueRequest, open_request
from queue_wire.admin.ondemand_socket import (
    ATRN,
    CLEAN,
    EMPTY,
    LATER,
    RUNNING,
    SOCKET,
    STARTED,
    UNKNOWN,
    WANTED,
    RunRequest,
)
from queue_wire.format_error import FormatError

# For the reply to QUIT.
QUIT_SECONDS = 5.0
GREETING = b"220 ready for more\r\n"
QUIT = b"QUIT\r\n"
# Of several words the first one here counts.
_REPLIES = {
    STARTED: replies.TURNING,
    RUNNING: replies.TURN_BUSY,
    LATER: replies.TURN_LATER,
    UNKNOWN: replies.TURN_LATER,
    EMPTY: replies.TURN_NONE,
}


class _QueueChannel(asyncio.Protocol):
    """Our end of the socket pair: what queue-remote says goes to `say`. `ended`: it has closed its end."""

    def __init__(self, say: Callable[[bytes], None], regulate: Callable[[], None]) -> None:
        self.ended = asyncio.Event()
        self.full = False
        self._say = say
        self._regulate = regulate
        self._transport: asyncio.Transport | None = None

    def write(self, data: bytes) -> None:
        """Pass on what the client says."""
        if self._transport is not None:
            self._transport.write(data)

    def hold(self, held: bool) -> None:
        """Read from queue-remote, or not, because the client does not take it."""
        if self._transport is not None and not self._transport.is_closing():
            if held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def close(self) -> None:
        """Close it, once queue-remote has what the client has said: its last words are the verdict on a message."""
        if self._transport is not None:
            self._transport.close()

    # From the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._say(data)

    def eof_received(self) -> None:
        """The event loop closes the transport."""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.full = False
        self.ended.set()
        self._regulate()

    def pause_writing(self) -> None:
        self.full = True
        self._regulate()

    def resume_writing(self) -> None:
        self.full = False
        self._regulate()


class Reversal:
    """One such connection. `say` sends bytes to the client; `regulate` is called when `full` may have changed.

    `finished`: all is delivered, and QUIT is said.
    """

    def __init__(
        self,
        queues: list[str],
        domains: list[bytes],
        client: str,
        user: bytes,
        say: Callable[[bytes], None],
        regulate: Callable[[], None],
        wanted: Callable[[], None],
    ) -> None:
        """`queues` are their paths; `client` is the client's address, `user` who has authenticated. `wanted` is called
        when that user asks for the mail on another connection, in whatever process.
        """
        self.finished = False
        self._queues = list(queues)
        self._request = RunRequest(ATRN, b",".join(domains), client.encode("ascii", "replace"), user)
        self._say = say
        self._regulate = regulate
        self._wanted = wanted
        self._current: tuple[QueueRequest, _QueueChannel] | None = None
        self._held = False
        # The client has said something after QUIT, or is gone.
        self._heard = asyncio.Event()
        self._lost = False

    @property
    def full(self) -> bool:
        """Whether the client should not be read."""
        return self._current is not None and self._current[1].full

    async def begin(self) -> ServerReply:
        """Return the reply to ATRN."""
        # A queue that cannot answer keeps nobody from the mail of the others.
        return _REPLIES[await self._next_queue((STARTED, RUNNING))]

    async def run(self) -> bool:
        """Pass on bytes until the mail is delivered; return whether all of it was, and the client can take more."""
        clean = True
        while clean and self._current is not None:
            clean = await self._end_current()
            if clean and await self._next_queue() == STARTED:
                self._pass_on(GREETING)
        if clean and not self._lost:
            self.finished = True
            self._say(QUIT)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIT_SECONDS):
                    await self._heard.wait()
        self.close()
        return clean

    def take(self, data: bytes) -> None:
        """Take what the client says."""
        if self._current is not None:
            self._pass_on(data)
        elif self.finished and data:
            self._heard.set()

    def hold(self, held: bool) -> None:
        """Note whether the client takes what is said to it."""
        self._held = held
        if self._current is not None:
            self._current[1].hold(held)

    def close(self) -> None:
        """End it: the client is gone, or there is no more time. It may be called more than once."""
        self._lost = True
        self._queues.clear()
        self._heard.set()
        if self._current is not None:
            # Both: nobody waits for the end if the client was gone before the reply.
            request, channel = self._current
            channel.close()
            request.close()

    def _pass_on(self, data: bytes) -> None:
        if self._current is not None and data:
            self._current[1].write(data)

    async def _next_queue(self, stop: tuple[bytes, ...] = (STARTED,)) -> bytes:
        """Ask the queues that are left, up to one whose word is one of `stop`; return the word that counts."""
        words = [EMPTY]
        while self._queues and words[-1] not in stop:
            words.append(await self._ask_queue(self._queues.pop(0)))
        return min(words, key=list(_REPLIES).index)

    async def _ask_queue(self, queue: str) -> bytes:
        """Return the word of a queue's answer; LATER if there is none."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        request = None
        word = LATER
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                request = await open_request(f"{queue}/{SOCKET}", self._request, theirs.fileno())
                word = await request.answer()
                if word == STARTED and not self._lost:
                    self._current = request, await self._open_channel(ours)
                    if self._lost:
                        self.close()
        except (OSError, FormatError, EOFError):
            word = LATER
        finally:
            theirs.close()
            if self._current is None or self._current[0] is not request:
                ours.close()
                if request is not None:
                    request.close()
        return word

    async def _open_channel(self, ours: socket.socket) -> _QueueChannel:
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: _QueueChannel(self._say, self._regulate), sock=ours)
        channel.hold(self._held)
        return channel

    async def _end_current(self) -> bool:
        """Wait until a queue has delivered what it has; return whether the client can take more."""
        assert self._current is not None
        request, channel = self._current
        second = asyncio.ensure_future(self._second_answer(request))
        # If it fails before the end, that is seen then.
        second.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        try:
            await channel.ended.wait()
            if self._lost:
                return False
            async with asyncio.timeout(ANSWER_SECONDS):
                return await second == CLEAN and not self._lost
        except (OSError, FormatError, EOFError):
            return False
        finally:
            second.cancel()
            self._current = None
            channel.close()
            request.close()

    async def _second_answer(self, request: QueueRequest) -> bytes:
        """Return the word of the answer at the end. Raises OSError, EOFError, FormatError."""
        while (word := await request.answer()) == WANTED:
            self._wanted()
        return word
