"""One SMTP connection on the event loop: moves bytes between a socket and SmtpClient, and watches the clock.

    connection = await connect(...)       OSError, TimeoutError
    await connection.opened()             then client.phase is READY, STARTTLS, or CLOSED with client.failure
    await connection.start_tls(plan)      then it goes on opening
    await connection.transact(...)        then the transaction is done, or client.phase is CLOSED
    connection.park(...), connection.close()

What the peer does never raises: it ends in the client's failure or the transaction's verdict. Each wait is bounded by
`timeout`, and what many waits make by limits of their own, so that no peer can hold a delivery for longer by doing
a little now and then: the opening has `timeout` in all, the envelope three of them, and the message has to get off
at RATE_LEAST. It is read as fast as the peer takes it.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import cast

from queue_base.errors import reason
from queue_remote.message import Message
from queue_remote.tls import TlsPlan
from queue_remote.trace import Trace
from queue_wire.dotstuff import DotStuffer
from queue_wire.report import TEMPORARY
from queue_wire.smtp_client import SmtpClient
from queue_wire.smtp_session import Phase, Tls
from queue_wire.smtp_text import no_message
from queue_wire.smtp_transaction import Transaction

ENVELOPE_TIMEOUTS = 3
# Bytes a second, as Postfix's smtp_min_data_rate.
RATE_LEAST = 500
# For the answer to QUIT, and for the end of TLS.
PARTING_SECONDS = 2.0
_FOREVER = float("inf")


class Connection(asyncio.Protocol):
    """A connection; its `client` knows what state it is in. `on_end` is called when its socket is closed."""

    __slots__ = (
        "_begun",
        "_deadline",
        "_early",
        "_limit",
        "_loop",
        "_message",
        "_paused",
        "_sent",
        "_settled",
        "_shaking",
        "_stuffer",
        "_timeout",
        "_timer",
        "_trace",
        "_transaction",
        "_transport",
        "_waiter",
        "client",
        "on_end",
    )

    def __init__(self, client: SmtpClient, timeout: float, trace: Trace | None = None) -> None:
        self.client = client
        self.on_end: Callable[[Connection], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._trace = trace
        self._paused = False
        # What comes now is not for the client yet: before the handshake, or under TLS that is not judged.
        self._shaking = client.session.tls is Tls.DONE
        self._early = b""
        self._deadline = self._limit = _FOREVER
        self._begun = 0.0
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[Connection], None] | None = None
        self._transaction: Transaction | None = None
        self._message: Message | None = None
        self._stuffer: DotStuffer | None = None

    async def opened(self) -> None:
        """Wait until the client is READY, CLOSED, or wants TLS."""
        while self.client.phase is Phase.GREETING:
            await self._wait()

    async def start_tls(self, plan: TlsPlan) -> None:
        """Do the handshake and judge the certificate; then the client goes on, or is CLOSED."""
        transport, client = self._transport, self.client
        assert plan.context is not None
        if transport is None or transport.is_closing() or client.phase is Phase.CLOSED:
            return
        if self._early:
            client.handshake_failed("it spoke before the handshake")
            self.close()
            return
        self._shaking = True
        try:
            found = await self._loop.start_tls(
                transport,
                self,
                plan.context,
                server_hostname=plan.server_name,
                ssl_handshake_timeout=max(0.1, self._limit - time.monotonic()),
                ssl_shutdown_timeout=PARTING_SECONDS,
            )
        except (OSError, ValueError) as error:
            self._transport = None
            client.handshake_failed(_why(error))
            self._end()
            transport.abort()
            self._ended()
            return
        finally:
            self._shaking = False
        # Typeshed allows for None, which is for loops that are closing.
        secured = self._transport = cast(asyncio.Transport, found)
        objection = plan.verify(secured.get_extra_info("ssl_object"))
        if self._trace is not None:
            self._trace.note(_tls_facts(secured, plan, objection))
        if objection is not None:
            client.unverified(objection)
            self.close()
            return
        self._progress()
        self._write(client.secured())
        if self._early:
            self.data_received(self._early)
            self._early = b""

    async def transact(self, transaction: Transaction, message: Message) -> None:
        """Carry one transaction, from READY until it is done or the connection fails. The caller closes the message."""
        client = self.client
        self._transaction = transaction
        self._message = message
        self._limit = time.monotonic() + ENVELOPE_TIMEOUTS * self._timeout
        self._progress()
        self._write(client.begin(transaction))
        try:
            while not transaction.done and client.phase is not Phase.CLOSED:
                await self._wait()
        finally:
            self._transaction = None
            self._message = None
            self._stuffer = None

    def settle(self, seconds: float, then: Callable[["Connection"], None]) -> None:
        """Call `then` once the client is READY or CLOSED; the transaction is done, but replies are still to come."""
        self._settled = then
        self._limit = time.monotonic() + seconds
        self._set_clock(seconds)

    def park(self, then: Callable[["Connection"], None]) -> None:
        """Wait for another transaction, without a limit; call `then` if the connection ends before one comes."""
        self._settled = then
        self._deadline = self._limit = _FOREVER

    def unpark(self) -> None:
        self._settled = None

    def close(self) -> None:
        """Say QUIT where it would be understood, wait a little for its answer, and close; returns at once."""
        self._settled = None
        if self._transport is None or self._transport.is_closing():
            return
        client = self.client
        self._write(client.quit())
        if client.farewell and not client.cut:
            self._limit = _FOREVER
            self._set_clock(PARTING_SECONDS)
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
        self._limit = time.monotonic() + self._timeout
        self._progress()

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
        said = client.feed(data)
        if said:
            self._write(said)
        if client.replies != before:
            self._progress()
        if client.phase is Phase.MESSAGE and self._stuffer is None:
            self._stuffer = DotStuffer()
            self._begun, self._sent = time.monotonic(), 0
            self._send_message()
        self._notice()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.client.lost("it closed the connection" if exc is None else _why(exc))
        if self._trace is not None:
            self._trace.closed()
            self._trace.note("closed")
        self._end()
        self._ended()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._stuffer is not None:
            self._progress()
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
            self._sent += len(wire)
            self._limit = self._begun + self._timeout + self._sent / RATE_LEAST
            if self._transport is not None:
                self._transport.write(wire)
        if self.client.phase is Phase.ANSWER:
            self._limit = _FOREVER
            self._progress()
            if self._trace is not None:
                self._trace.sent(self._sent)

    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            if self._trace is not None:
                self._trace.said(data, self.client.authenticating)
            self._transport.write(data)

    def _progress(self) -> None:
        self._deadline = min(time.monotonic() + self._timeout, self._limit)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._look_at_clock)

    def _set_clock(self, seconds: float) -> None:
        """End the connection after so many seconds, whatever it does."""
        self._deadline = time.monotonic() + seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look_at_clock)

    def _look_at_clock(self) -> None:
        # One timer a connection, set again when it comes early, costs less than one for each reply.
        self._timer = None
        left = self._deadline - time.monotonic()
        if left <= 0:
            self.client.lost("the message did not get off in time" if self._stuffer else "no answer in time")
            self._end()
        elif left != _FOREVER:
            self._timer = self._loop.call_later(left, self._look_at_clock)

    def _end(self) -> None:
        """The connection is of no more use: let go of the socket, and tell who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._notice()

    def _ended(self) -> None:
        if self.on_end is not None:
            self.on_end(self)

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
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def _why(error: Exception) -> str:
    """Return why a connection or handshake failed, in a few words."""
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return reason(error) if isinstance(error, OSError) else str(error)


def _tls_facts(transport: asyncio.BaseTransport, plan: TlsPlan, objection: str | None) -> str:
    version = transport.get_extra_info("ssl_object").version()
    cipher, _, _ = transport.get_extra_info("cipher")
    verified = plan.context is not None and plan.context.verify_mode is not ssl.CERT_NONE
    judged = objection or ("verified" if verified else f"not verified: policy {plan.policy}")
    return f"TLS: {version} {cipher}, {judged}"
