"""One SMTP connection on the event loop: moves bytes between a socket and SmtpClient, and watches the clock.

    connection = await connect(...)       OSError, TimeoutError
    await connection.greeted()            then client.phase is READY, or CLOSED with client.failure
    await connection.transact(...)        then the transaction is done
    connection.close()

A connection that is READY after a transaction may carry another one. What the peer does never raises:
it ends in the client's failure or the transaction's verdict. Each wait for a reply, and each wait for
room to send, is bounded by the reply timeout; the message is read as fast as the peer takes it.
"""

import asyncio
import time
from typing import cast

from queue_base.errors import reason
from queue_remote.message import Message
from queue_wire.dotstuff import DotStuffer
from queue_wire.report import TEMPORARY
from queue_wire.smtp_client import Phase, SmtpClient
from queue_wire.smtp_text import no_message
from queue_wire.smtp_transaction import Transaction


class Connection(asyncio.Protocol):
    """A connection; its `client` knows what state it is in."""

    __slots__ = (
        "_deadline",
        "_loop",
        "_message",
        "_paused",
        "_stuffer",
        "_timeout",
        "_timer",
        "_transport",
        "_waiter",
        "client",
    )

    def __init__(self, client: SmtpClient, timeout: float) -> None:
        self.client = client
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._paused = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._message: Message | None = None
        self._stuffer: DotStuffer | None = None

    async def greeted(self) -> None:
        """Wait until the client is READY or CLOSED."""
        while self.client.phase is Phase.GREETING:
            await self._wait()

    async def transact(self, transaction: Transaction, message: Message) -> None:
        """Carry one transaction, from READY until it is done. The caller closes the message."""
        self._message = message
        self._progress()
        self._write(self.client.begin(transaction))
        while not transaction.done:
            await self._wait()
        self._message = None
        self._stuffer = None

    def close(self) -> None:
        """Say QUIT where it would be understood, and close. The reply is not waited for."""
        if self._transport is None or self._transport.is_closing():
            return
        self._write(self.client.quit())
        if self.client.cut:
            # An orderly end in the middle of a message could be taken for the message's end.
            self._transport.abort()
        else:
            self._transport.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._progress()

    def data_received(self, data: bytes) -> None:
        client = self.client
        before = client.replies
        self._write(client.feed(data))
        if client.replies != before:
            self._progress()
        if client.phase is Phase.MESSAGE and self._stuffer is None:
            self._stuffer = DotStuffer()
            self._send_message()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._progress()
        if self._stuffer is not None:
            self._send_message()

    # What happens inside.

    def _send_message(self) -> None:
        """Send as much of the message as the connection takes now."""
        assert self._message is not None and self._stuffer is not None
        # A transport that has failed takes and forgets what is written, until connection_lost comes.
        while not self._paused and self.client.phase is Phase.MESSAGE and not self._closing():
            try:
                chunk = self._message.read()
            except OSError as error:
                # Without its closing dot the message does not count as sent.
                self.client.fail(TEMPORARY, no_message(reason(error)))
                self._end()
                return
            wire = self._stuffer.feed(chunk)
            if self._message.ended:
                wire += self._stuffer.finish()
                self.client.message_sent()
            self._write(wire)

    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    def _progress(self) -> None:
        self._deadline = time.monotonic() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._look_at_clock)

    def _look_at_clock(self) -> None:
        # One timer a connection, set again when it comes early, costs less than one for each reply.
        left = self._deadline - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look_at_clock)
        else:
            self._timer = None
            self._end()

    def _end(self) -> None:
        """The connection is of no more use: tell who waits, and let go of the socket."""
        self.client.lost()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


async def connect(address: str, port: int, client: SmtpClient, connect_timeout: float, timeout: float) -> Connection:
    """Open a connection. Times in seconds. Raises OSError (TimeoutError is one)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(connect_timeout):
        _, connection = await loop.create_connection(lambda: Connection(client, timeout), address, port)
    return connection
