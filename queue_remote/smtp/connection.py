"""One SMTP connection on the event loop: moves bytes between a socket and an SmtpClient, with timeouts.

    await connection.opened()             then client.state is READY, TLS, or the client has ended with client.failure
    await connection.start_tls(plan)      then the connection goes on opening
    await connection.transact(...)        then the transaction is done, or the client has ended
    connection.park(...), connection.close()

Nothing that the server does raises: it ends in client.failure or in the transaction's verdict. Each wait is bounded by
`timeout`. So is the sum of many waits, for servers that send a little now and then: `timeout` for the opening, three
times that for the envelope, and a least rate for the message.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from queue_base.errors import reason
from queue_remote.message.file import Message
from queue_remote.smtp.timer import ProgressTimer
from queue_remote.smtp.trace import Trace
from queue_remote.smtp.transaction import Transaction
from queue_remote.tls.handshake import PARTING_SECONDS, describe_error, describe_tls, is_about_certificate, shake_hands
from queue_remote.tls.plan import TlsPlan
from queue_smtp.client import CLOSED_BY_PEER, ENDED, ENVELOPE, OPENING, ClientState, Event, SmtpClient, Tls
from queue_smtp.dotstuff import DotStuffer

ENVELOPE_TIMEOUTS = 3
# Bytes of a message that a connection takes before others have their turn: a fast server takes all of it at once.
TURN_MOST = 256 * 1024
# Bytes a second, as Postfix's smtp_min_data_rate: a server that takes a little now and then holds no delivery for days.
RATE_LEAST = 500


class Sending:
    """A message that is being sent: its next bytes, and the time by which they must be taken.

    `sent` counts the bytes so far. `ended` once the final dot is among them.
    """

    __slots__ = ("_begun", "_message", "_stuffer", "ended", "sent")

    def __init__(self, message: Message) -> None:
        self.ended = False
        self.sent = 0
        self._begun = time.monotonic()
        self._message = message
        self._stuffer = DotStuffer()

    def next(self) -> bytes:
        """Return the next bytes to send. Raises OSError if the message cannot be read."""
        wire = self._stuffer.feed(self._message.read())
        if self._message.ended:
            wire += self._stuffer.finish()
            self.ended = True
        self.sent += len(wire)
        return wire

    def limit(self, timeout: float) -> float:
        """Return the time (of time.monotonic) by which the server must have taken the bytes so far."""
        return self._begun + timeout + self.sent / RATE_LEAST


class Connection(asyncio.Protocol):
    """A connection. Its `client` has the state. `on_end` is called when the socket is closed."""

    __slots__ = (
        *("_clock", "_early", "_message", "_paused", "_sending", "_settled", "_shaking", "_trace", "_transaction"),
        *("_transport", "_turning", "_waiter", "client", "on_end"),
    )

    def __init__(self, client: SmtpClient, timeout: float, trace: Trace | None = None) -> None:
        self.client = client
        self.on_end: Callable[[Connection], None] = _ignore
        self._clock = ProgressTimer(asyncio.get_running_loop(), timeout, self._on_timeout)
        self._trace = trace
        self._paused = False
        # The rest of a message waits for the next turn of the event loop.
        self._turning = False
        # What comes now is not for the client yet: before the handshake, or before the certificate is checked.
        self._shaking = client.session.tls is Tls.IMPLICIT
        self._early = b""
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[Connection], None] | None = None
        self._transaction: Transaction | None = None
        self._message: Message | None = None
        self._sending: Sending | None = None

    async def opened(self) -> None:
        """Wait until the client is READY, has ended, or waits for the TLS handshake."""
        while self.client.state in OPENING:
            await self._wait()

    async def start_tls(self, plan: TlsPlan) -> None:
        """Do the handshake and check the certificate. Then the client goes on, or has ended."""
        transport, client = self._transport, self.client
        if transport is None or transport.is_closing():
            while not client.ended:
                await self._wait()
        if transport is None or client.ended:
            return
        if self._early:
            client.handshake_failed("it spoke before the handshake")
            self.abort()
            return
        self._shaking = True
        try:
            secured = await shake_hands(transport, self, plan, self._clock.left())
        except (OSError, ValueError) as error:
            (client.unverified if is_about_certificate(error) else client.handshake_failed)(describe_error(error))
            transport.abort()
            self.connection_lost(None)
            return
        finally:
            self._shaking = False
        self._transport = secured
        objection = plan.verify(secured.get_extra_info("ssl_object"))
        if self._trace is not None:
            self._trace.note(describe_tls(secured, plan, objection))
        if objection is not None:
            client.unverified(objection)
            self.abort()
            return
        self._clock.progress()
        client.secured()
        self._write(client.data_to_send())
        if self._early:
            self.data_received(self._early)
            self._early = b""

    async def transact(self, transaction: Transaction, message: Message) -> None:
        """Carry one transaction, from READY until it is done or the client has ended. The caller closes the message."""
        client = self.client
        self._settled = None
        self._transaction = transaction
        self._message = message
        self._clock.allow(ENVELOPE_TIMEOUTS * self._clock.timeout)
        self._apply(client.begin(transaction.start(client.session.peer)))
        self._write(client.data_to_send())
        try:
            while transaction.verdict is None and client.state not in ENDED:
                await self._wait()
        finally:
            self._transaction = None
            self._message = None
            self._sending = None

    def park(self, then: Callable[["Connection"], None], seconds: float | None = None) -> None:
        """Call `then` when the client has all replies of a transaction, or when it has ended.

        If the client is READY already, `then` is called when the server sends anything before the next transaction.
        After `seconds`, if given, the connection is ended.
        """
        self._settled = then
        if seconds is None:
            self._clock.rest()
        else:
            self._clock.set(seconds)

    def close(self) -> None:
        """Send QUIT if the state allows it, wait a little for the answer, and close. Returns at once."""
        self._settled = None
        if self._transport is None or self._transport.is_closing():
            return
        self.client.quit()
        self._write(self.client.data_to_send())
        if self.client.state is ClientState.QUIT:
            self._clock.set(PARTING_SECONDS)
        else:
            # An orderly end in the middle of a message could be taken for the message's end.
            self._end()

    def abort(self) -> None:
        """Close at once, without QUIT."""
        self._settled = None
        self._end()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._clock.allow(self._clock.timeout)

    def data_received(self, data: bytes) -> None:
        client = self.client
        if self._shaking:
            self._early += data
            return
        if self._trace is not None:
            self._trace.heard(data)
        if client.state in ENDED:
            # The answer to QUIT, or anything after the end.
            if self._transport is not None:
                self._transport.close()
            return
        before = client.replies
        events = client.feed(data)
        self._write(client.data_to_send())
        self._apply(events)
        if client.replies != before:
            self._clock.progress()
        if client.state is ClientState.MESSAGE and self._sending is None and self._message is not None:
            self._sending = Sending(self._message)
            self._send_message()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._apply(self.client.lost(CLOSED_BY_PEER if exc is None else describe_error(exc)))
        if self._trace is not None:
            self._trace.closed()
        self._end()
        self._clock.end()
        self.on_end(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._sending is not None:
            self._clock.progress()
            if not self._turning:
                self._send_message()

    def _apply(self, events: list[Event]) -> None:
        """Give events to the transaction. What the client says apart from it is in its attributes."""
        if self._transaction is not None:
            for event in events:
                self._transaction.take(event, self.client)

    def _send_message(self) -> None:
        """Send as much of the message as the connection takes now, and no more than TURN_MOST."""
        assert self._sending is not None
        client, clock, sending = self.client, self._clock, self._sending
        most = sending.sent + TURN_MOST
        while not self._paused and client.state is ClientState.MESSAGE and self._transport is not None:
            if self._transport.is_closing():
                return  # It discards what is written, until connection_lost is called.
            if sending.sent >= most:
                if not self._turning:
                    self._turning = True
                    asyncio.get_running_loop().call_soon(self._take_turn)
                return
            try:
                wire = sending.next()
            except OSError as error:
                # Without the final dot the server does not accept the message.
                self._apply(client.abandon(reason(error)))
                self._end()
                return
            clock.limit = sending.limit(clock.timeout)
            self._transport.write(wire)
            if sending.ended:
                client.message_sent()
                clock.allow(clock.timeout)
                if self._trace is not None:
                    self._trace.sent(sending.sent)

    def _take_turn(self) -> None:
        self._turning = False
        if self._sending is not None:
            self._send_message()

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            if self._trace is not None:
                self._trace.said(data, self.client.authenticating)
            self._transport.write(data)

    def _on_timeout(self) -> None:
        sending = self.client.state is ClientState.MESSAGE
        self._apply(self.client.lost("the message did not get off in time" if sending else "no answer in time"))
        self._end()

    def _end(self) -> None:
        """Close the socket at once, and wake the waiting coroutine."""
        self._clock.stop()
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        """Wake who waits, if what they wait for has happened."""
        state = self.client.state
        if self._waiter is not None:
            transaction = self._transaction
            over = state not in OPENING if transaction is None else transaction.verdict is not None or state in ENDED
            if over and not self._waiter.done():
                self._waiter.set_result(None)
        elif self._settled is not None and state not in ENVELOPE:
            then, self._settled = self._settled, None
            then(self)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _ignore(connection: Connection) -> None:
    """The default of on_end."""
