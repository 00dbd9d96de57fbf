"""One SMTP connection on the event loop: moves bytes between a socket and an SmtpClient, with timeouts.

    await connection.opened()             then client.state is READY, TLS, or the client has ended with client.failure
    await connection.start_tls(plan)      then the connection goes on opening
    await connection.transact(...)        then the transaction is done, or the client has ended
    connection.carry(transaction)         the same without waiting: transaction.over is called then
    connection.park(...), connection.close()

`carry` takes a transaction while others are under way, too. Its envelope is sent behind the final dot of the one before
(RFC 2920), in the same write, and the replies to both mostly come in one read. If the connection ends before it is the
transaction's turn, or the reply to the dot takes long, the transaction has not been attempted.

Nothing that the server does raises: it ends in client.failure or in the transaction's verdict. Each wait is bounded by
`timeout`. So is the sum of many waits, for servers that send a little now and then: `timeout` for the opening, three
times that for the envelope, and a least rate for the message. All of it, up to the final dot, has the time of the job.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from queue_base.daemon.unread_input import read_unread
from queue_base.errors import reason
from queue_remote.message.file import Message
from queue_remote.smtp.timer import NEVER, ProgressTimer
from queue_remote.smtp.trace import Trace
from queue_remote.smtp.transaction import Transaction
from queue_remote.tls.handshake import PARTING_SECONDS, describe_error, describe_tls, is_about_certificate, shake_hands
from queue_remote.tls.plan import TlsPlan
from queue_smtp.client import CLOSED_BY_PEER, ENDED, ENVELOPE, OPENING, ClientState, Event, SmtpClient, Tls
from queue_smtp.dotstuff import DotStuffer

ENVELOPE_TIMEOUTS = 3
# Bytes of a message that a connection takes before others have their turn: a fast server takes all of it at once.
TURN_MAX = 256 * 1024
# Transactions that a connection takes at once: one whose reply is outstanding, one whose envelope was sent behind it,
# and one that waits, so that its envelope can be sent in one write with the second one's message.
CARRIED_MAX = 3
# A server that answers the final dot within these seconds is given transactions while others are under way.
PROMPT_SECONDS = 0.005
# Bytes a second, as Postfix's smtp_min_data_rate: a server that takes a little now and then holds no delivery for days.
RATE_MIN = 500

# Names of their own, because Python 3.11 is slow to look up a member of an Enum, and each reply needs several.
_STARTTLS, _READY, _MESSAGE = ClientState.STARTTLS, ClientState.READY, ClientState.MESSAGE
_END, _QUIT = ClientState.END, ClientState.QUIT


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
        return self._begun + timeout + self.sent / RATE_MIN


class Connection:
    """A connection. Its `client` has the state. `on_end` is called when the socket is closed.

    For the event loop it is an asyncio.Protocol. It does not inherit from that class: mypyc makes a fast class only of
    one that has no base class in Python.
    """

    __slots__ = (
        *("_begun", "_carried", "_clock", "_dot_sent", "_early", "_finished", "_paused", "_prompt", "_sending"),
        *("_opening_limit", "_settled", "_shaking", "_tls_timeout", "_trace", "_transport", "_turning", "_waiter"),
        *("client", "on_end"),
    )

    def __init__(
        self,
        client: SmtpClient,
        timeout: float,
        trace: Trace | None = None,
        tls_timeout: float = NEVER,
        until: float = NEVER,
    ) -> None:
        """`tls_timeout`: seconds for STARTTLS and the handshake. `until`: the time by which it must be READY."""
        self.client = client
        self._tls_timeout = tls_timeout
        self._opening_limit = NEVER
        self.on_end: Callable[[Connection], None] = _ignore
        self._clock = ProgressTimer(asyncio.get_running_loop(), timeout, self._on_timeout)
        self._clock.bound = until
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
        # Transactions, the oldest first; `_begun` counts those whose envelope was sent.
        self._carried: deque[Transaction] = deque()
        self._begun = 0
        self._finished: list[Transaction] = []
        self._sending: Sending | None = None
        self._dot_sent = 0.0
        self._prompt = False

    @property
    def carried(self) -> int:
        """The number of transactions that are under way or wait."""
        return len(self._carried)

    @property
    def waiting(self) -> int:
        """The number of transactions whose turn has not come: all but the one that the replies are about."""
        return len(self._carried) - min(1, self._begun)

    def takes_more(self, transactions_most: int) -> bool:
        """Return whether it is worth while to `carry` a transaction behind others: the server answers promptly."""
        count = len(self._carried)
        return (
            self._prompt
            and 0 < count < CARRIED_MAX
            and isinstance(self._carried[0].content, bytes)
            and self.client.state not in ENDED
            and self.client.transactions + count - self._begun < transactions_most
        )

    async def opened(self) -> None:
        """Wait until the client is READY, has ended, or waits for the TLS handshake."""
        while self.client.state in OPENING:
            await self._wait()

    def set_timeout(self, timeout: float) -> None:
        """Wait so long from now on, where it was another time while it was opened."""
        self._clock.timeout = timeout

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
            secured = await shake_hands(transport, cast(asyncio.Protocol, self), plan, self._clock.left())
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
        self._clock.limit = self._opening_limit
        self._clock.progress()
        client.secured()
        self._write(client.data_to_send())
        if self._early:
            self.data_received(self._early)
            self._early = b""

    async def transact(self, transaction: Transaction, message: Message) -> None:
        """Carry one transaction, from READY until it is done or the client has ended. The caller closes the message."""
        waiter = asyncio.get_running_loop().create_future()
        transaction.content = message
        transaction.over = lambda: None if waiter.done() else waiter.set_result(None)
        self.carry(transaction)
        try:
            await waiter
        finally:
            if transaction in self._carried:
                self.abort()
                self._carried.clear()

    def carry(self, transaction: Transaction) -> None:
        """Carry a transaction, after those that are under way."""
        self._settled = None
        transaction.given = time.monotonic()
        self._carried.append(transaction)
        self._go_on()
        self._tell_over()

    def withdraw(self, before: float) -> None:
        """End the wait of transactions whose turn has not come, if they were given before a time."""
        waiting = list(self._carried)[min(1, self._begun) :]
        if not waiting or waiting[0].given >= before:
            return
        if self._begun > 1:
            self._begun = 1
            self.client.withdraw()
        for transaction in waiting:
            self._carried.remove(transaction)
        self._prompt = False
        self._finished += waiting
        self._tell_over()

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
        if self.client.state is _QUIT:
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
        self._opening_limit = self._clock.limit

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
        now = self._dot_sent
        if client.replies != before:
            now = self._clock.progress()
            if client.state is _STARTTLS:
                self._clock.shorten(self._tls_timeout)
        if events:
            self._apply(events, now)
        self._go_on()
        self._tell_over()

    def eof_received(self) -> None:
        """The event loop closes the transport, and calls connection_lost."""

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and (unread := read_unread(self._transport)):
            self.data_received(unread)
        self._transport = None
        self._apply(self.client.lost(CLOSED_BY_PEER if exc is None else describe_error(exc)))
        self._drop_carried()
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
                self._tell_over()
        elif self._carried:
            self._clock.progress()
            self._go_on()
            self._tell_over()

    def _apply(self, events: list[Event], now: float = 0.0) -> None:
        """Give events to the transactions. What the client says apart from them is in its attributes.

        The first result is the oldest transaction's, and what follows it the next one's.
        """
        carried = self._carried
        for event in events:
            if not carried:
                return
            transaction = carried[0]
            transaction.take(event, self.client)
            if transaction.verdict is not None:
                self._prompt = now - self._dot_sent < PROMPT_SECONDS
                self._finish_first()

    def _finish_first(self) -> None:
        """Let go of the oldest transaction."""
        transaction = self._carried.popleft()
        self._begun -= self._begun > 0
        if self._begun:
            # The replies to an envelope that was sent behind the message are next.
            self._clock.bound = self._carried[0].until
            self._clock.allow(ENVELOPE_TIMEOUTS * self._clock.timeout)
        self._sending = None
        self._finished.append(transaction)

    def _drop_carried(self) -> None:
        """Let go of all transactions: the connection has ended."""
        while self._carried:
            self._finish_first()

    def _tell_over(self) -> None:
        """Tell those that gave the transactions that have finished; they may give the next ones at once."""
        while self._finished:
            self._finished.pop(0).over()

    def _go_on(self) -> None:
        """Do the next step of the transactions: begin one, or send a message. Send what the client has to say."""
        client, carried = self.client, self._carried
        while carried:
            state = client.state
            if state is _READY:
                self._clock.bound = carried[0].until
                self._clock.allow(ENVELOPE_TIMEOUTS * self._clock.timeout)
                self._begin(carried[0])
            elif state is _MESSAGE:
                if self._sending is not None:
                    break
                content = carried[0].content
                if not isinstance(content, bytes):
                    self._sending = Sending(content)
                    self._send_message()
                    break
                if self._paused:
                    break
                self._send_small(content)
            elif state is _END and self._begun < len(carried) and self._begun == 1 and client.takes_next:
                self._begin(carried[1])
            else:
                if state in ENDED:
                    self._drop_carried()
                break
        self._write(client.data_to_send())
        if self._waiter is not None or self._settled is not None:
            self._wake()

    def _begin(self, transaction: Transaction) -> None:
        """Begin the transaction that is next."""
        client = self.client
        count = client.transactions
        for event in client.begin(transaction.start(client.session.peer)):
            transaction.take(event, client)
        if client.transactions != count:
            self._begun += 1
        elif transaction.verdict is not None:
            self._carried.remove(transaction)
            self._finished.append(transaction)

    def _send_small(self, wire: bytes) -> None:
        """Send a small message as a whole, with what is to follow it in the same write."""
        client, carried = self.client, self._carried
        client.message_sent()
        self._clock.bound = NEVER
        self._dot_sent = self._clock.allow(self._clock.timeout)
        if self._trace is not None:
            self._trace.sent(len(wire))
        if len(carried) > 1 and client.takes_next:
            self._begin(carried[1])
            wire += client.data_to_send()
        if self._transport is not None:
            self._transport.write(wire)

    def _send_message(self) -> None:
        """Send as much of the message as the connection takes now, and no more than TURN_MAX."""
        assert self._sending is not None
        client, clock, sending = self.client, self._clock, self._sending
        most = sending.sent + TURN_MAX
        while not self._paused and client.state is _MESSAGE and self._transport is not None:
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
            clock.limit = min(sending.limit(clock.timeout), clock.bound + sending.sent / RATE_MIN)
            # What was written before was taken.
            clock.progress()
            self._transport.write(wire)
            if sending.ended:
                client.message_sent()
                # The server may have the message already: the reply has its time.
                clock.bound = NEVER
                self._dot_sent = clock.allow(clock.timeout)
                self._sending = None
                if self._trace is not None:
                    self._trace.sent(sending.sent)
                self._go_on()

    def _take_turn(self) -> None:
        self._turning = False
        if self._sending is not None:
            self._send_message()
            self._tell_over()

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None:
            if self._trace is not None:
                self._trace.said(data, self.client.authenticating)
            self._transport.write(data)

    def _on_timeout(self) -> None:
        sending = self.client.state is _MESSAGE
        self._apply(self.client.lost("the message did not get off in time" if sending else "no answer in time"))
        self._end()

    def _end(self) -> None:
        """Close the socket at once, and wake the waiting coroutine."""
        self._clock.stop()
        if self._transport is not None:
            self._transport.abort()
        if self.client.state in ENDED:
            self._drop_carried()
        self._wake()
        self._tell_over()

    def _wake(self) -> None:
        """Wake who waits, if what they wait for has happened."""
        state = self.client.state
        if self._waiter is not None:
            if state not in OPENING and not self._waiter.done():
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
