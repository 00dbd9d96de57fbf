"""One SMTP connection on the event loop: moves bytes between a socket and SmtpClient, and watches the clock.

    await connection.opened()             then client.phase is READY, STARTTLS, or CLOSED with client.failure
    await connection.start_tls(plan)      then it goes on opening
    await connection.transact(...)        then the transaction is done, or client.phase is CLOSED
    connection.park(...), connection.close()

What the peer does never raises: it ends in the client's failure or the transaction's verdict. Each wait is bounded by
`timeout`, and so is what many waits make, for peers that do a little now and then: the opening has `timeout` in
all, the envelope three of them, and the message has to get off at a least rate (queue_remote.sending).
"""

import asyncio
from collections.abc import Callable
from typing import cast

from queue_base.errors import reason
from queue_remote.deadline import Deadline
from queue_remote.message.file import Message
from queue_remote.sending import Sending
from queue_remote.tls.handshake import PARTING_SECONDS, is_about_certificate, shake_hands, tls_facts, why
from queue_remote.tls.plan import TlsPlan
from queue_remote.trace import Trace
from queue_smtp.client import SmtpClient
from queue_smtp.dialogue import CLOSED_BY_PEER
from queue_smtp.session import Phase, Tls
from queue_smtp.text import no_message
from queue_smtp.transaction import Transaction
from queue_wire.report import TEMPORARY

ENVELOPE_TIMEOUTS = 3
# Bytes of a message that go to a connection before others have their turn: a fast peer takes all there is.
TURN_MOST = 256 * 1024


class Connection(asyncio.Protocol):
    """A connection; its `client` knows what state it is in. `on_end` is called when its socket is closed."""

    __slots__ = (
        *("_clock", "_early", "_message", "_paused", "_sending", "_settled", "_shaking", "_trace", "_transaction"),
        *("_transport", "_turning", "_waiter", "client", "on_end"),
    )

    def __init__(self, client: SmtpClient, timeout: float, trace: Trace | None = None) -> None:
        self.client = client
        self.on_end: Callable[[Connection], None] = _nobody
        self._clock = Deadline(asyncio.get_running_loop(), timeout, self._on_timeout)
        self._trace = trace
        self._paused = False
        # The rest of a message waits for the next turn of the event loop.
        self._turning = False
        # What comes now is not for the client yet: before the handshake, or under TLS that is not judged.
        self._shaking = client.session.tls is Tls.DONE
        self._early = b""
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[Connection], None] | None = None
        self._transaction: Transaction | None = None
        self._message: Message | None = None
        self._sending: Sending | None = None

    async def opened(self) -> None:
        """Wait until the client is READY, CLOSED, or wants TLS."""
        while self.client.phase is Phase.GREETING:
            await self._wait()

    async def start_tls(self, plan: TlsPlan) -> None:
        """Do the handshake and judge the certificate; then the client goes on, or is CLOSED."""
        transport, client = self._transport, self.client
        if transport is None or transport.is_closing() or client.phase is Phase.CLOSED:
            return
        if self._early:
            client.handshake_failed("it spoke before the handshake")
            self.abort()
            return
        self._shaking = True
        try:
            secured = await shake_hands(transport, self, plan, self._clock.left())
        except (OSError, ValueError) as error:
            (client.unverified if is_about_certificate(error) else client.handshake_failed)(why(error))
            transport.abort()
            self.connection_lost(None)
            return
        finally:
            self._shaking = False
        self._transport = secured
        objection = plan.verify(secured.get_extra_info("ssl_object"))
        if self._trace is not None:
            self._trace.note(tls_facts(secured, plan, objection))
        if objection is not None:
            client.unverified(objection)
            self.abort()
            return
        self._clock.progress()
        self._write(client.secured())
        if self._early:
            self.data_received(self._early)
            self._early = b""

    async def transact(self, transaction: Transaction, message: Message) -> None:
        """Carry one transaction, from READY until it is done or the connection fails. The caller closes the message."""
        client = self.client
        self._settled = None
        self._transaction = transaction
        self._message = message
        self._clock.allow(ENVELOPE_TIMEOUTS * self._clock.timeout)
        self._write(client.begin(transaction))
        try:
            while not transaction.done and client.phase is not Phase.CLOSED:
                await self._wait()
        finally:
            self._transaction = None
            self._message = None
            self._sending = None

    def park(self, then: Callable[["Connection"], None], seconds: float | None = None) -> None:
        """After a transaction: call `then` once the client is READY or CLOSED, with replies that are still to come.

        Where it is READY already, that is when the peer says anything before the next transaction. After
        `seconds`, if given, the connection is ended.
        """
        self._settled = then
        if seconds is None:
            self._clock.rest()
        else:
            self._clock.set(seconds)

    def close(self) -> None:
        """Say QUIT where it would be understood, wait a little for its answer, and close; returns at once."""
        self._settled = None
        if self._transport is None or self._transport.is_closing():
            return
        client = self.client
        self._write(client.quit())
        if client.farewell and not client.cut:
            self._clock.set(PARTING_SECONDS)
        else:
            # An orderly end in the middle of a message could be taken for the message's end.
            self._end()

    def abort(self) -> None:
        """Close at once, without a word."""
        self._settled = None
        self._end()

    # What the event loop calls.

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
        if client.phase is Phase.CLOSED:
            # The answer to QUIT, or what nobody wants to hear.
            if self._transport is not None:
                self._transport.close()
            return
        before = client.replies
        self._write(client.feed(data))
        if client.replies != before:
            self._clock.progress()
        if client.phase is Phase.MESSAGE and self._sending is None and self._message is not None:
            self._sending = Sending(self._message)
            self._send_message()
        self._notice()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.client.lost(CLOSED_BY_PEER if exc is None else why(exc))
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

    # What happens inside.

    def _send_message(self) -> None:
        """Send as much of the message as the connection takes now, and no more than one turn's share."""
        assert self._sending is not None
        client, clock, sending = self.client, self._clock, self._sending
        most = sending.sent + TURN_MOST
        while not self._paused and client.phase is Phase.MESSAGE and self._transport is not None:
            if self._transport.is_closing():
                return  # It takes and forgets what is written, until connection_lost comes.
            if sending.sent >= most:
                if not self._turning:
                    self._turning = True
                    asyncio.get_running_loop().call_soon(self._take_turn)
                return
            try:
                wire = sending.next()
            except OSError as error:
                # Without its closing dot the message does not count as sent.
                client.fail(TEMPORARY, no_message(reason(error)))
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
        sending = self.client.phase is Phase.MESSAGE
        self.client.lost("the message did not get off in time" if sending else "no answer in time")
        self._end()

    def _end(self) -> None:
        """The connection is of no more use: let go of the socket, and tell who waits."""
        self._clock.stop()
        if self._transport is not None:
            self._transport.abort()
        self._notice()

    def _notice(self) -> None:
        """Wake who waits, if what they wait for has come."""
        phase = self.client.phase
        if self._waiter is not None:
            transaction = self._transaction
            there = phase is not Phase.GREETING if transaction is None else transaction.done or phase is Phase.CLOSED
            if there and not self._waiter.done():
                self._waiter.set_result(None)
        elif self._settled is not None and phase is not Phase.ENVELOPE:
            then, self._settled = self._settled, None
            then(self)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _nobody(connection: Connection) -> None:
    """Nobody has asked to be told."""
