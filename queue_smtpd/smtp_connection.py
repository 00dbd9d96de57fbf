"""A client's connection on the event loop (SMTP, QMTP): reads and writes for its session, and hands its messages on.

Bytes of a client are taken a slice at a time, so that no client has the loop for long. Nothing is read while the
session waits for an answer, queue-intake does not take the message as fast, or the client does not read its replies.

A stranger may have to wait for the greeting. If it says something before, it is turned away.

A session that is not over in time gets 421. The time counts from the last command or piece of a message, not from the
last byte, so that a client cannot hold a connection with a line that never ends.

Once STARTTLS is accepted, what was read in clear is thrown away, and all that comes later goes through the TLS channel.
If the handshake fails, the connection ends.

Once ATRN is accepted, what comes is for queue-ondemand, and what goes out is its (queue_smtpd.reversal).
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import NamedTuple, cast

from queue_base.daemon.unread_input import read_unread
from queue_smtp import server_replies as replies
from queue_smtp.auth_server import PasswordGiven, VerifierWanted
from queue_smtp.server import TIMEOUT
from queue_smtp.server_events import MailWanted, TlsWanted, TurnWanted
from queue_smtp.server_replies import ServerReply
from queue_smtpd.auth.authenticator import Authenticator
from queue_smtpd.intake_links import IntakeLinks, MessageTransfer
from queue_smtpd.mail_request import ask_for_mail
from queue_smtpd.milter.enqueue_program import EnqueuePrograms, GivenMessage
from queue_smtpd.milter.message_spool import SpoolMemory
from queue_smtpd.milter.milter_link import MilterAlerts
from queue_smtpd.milter.session_filter import FilterPlace, FilterVerdict, SessionFilter
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.recipient_lookups import MailboxLookups
from queue_smtpd.reversal import Reversal
from queue_smtpd.server_counters import ServerCounters
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted
from queue_smtpd.sessions.session import (
    Action,
    ClientReplaced,
    GreetingPaused,
    MessageDropped,
    MessageFinished,
    MessageStarted,
    MessageText,
    RecipientFiltered,
    ReplyDelayed,
    SenderFiltered,
    SmtpSession,
    StrangerWanted,
)
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_smtpd.strangers.greeting_pauses import GreetingPauses
from queue_smtpd.strangers.stranger_checks import StrangerChecks
from queue_smtpd.tls.tls_channel import TlsChannel, describe_tls_error
from queue_wire.admin.smtpd_status import SessionStatus
from queue_wire.control.milters import FilterSetup
from queue_wire.logline import alert
from queue_wire.pipes.qmtp import Answer

# Bytes that are taken at once: of commands, some 200, in about 3 ms; of a message.
COMMANDS_SLICE = 8192
MESSAGE_SLICE = 32768
# A message that comes with fewer bytes a second is not waited for, after the first TIMEOUT seconds.
RATE_MIN = 500.0
# Seconds for the client to close the connection, once it was told that the session is over. To close it at once would
# reset it if the client goes on sending, and the client would lose the reply.
LINGER_SECONDS = 5.0
# Seconds in which a user should authenticate. When all places are taken, who has not done so is ended for another one.
PROOF_SECONDS = 15.0
# Those that are looked at for that.
_LOOKED_AT = 20
# Seconds in which nothing passes between a client and queue-ondemand. The latter has a limit for each reply.
SILENT_SECONDS = 900.0
# Seconds in which nothing passes, after which the client gives way to another one of the same user that asks for mail,
# and how often that one looks, half a second apart, whether it does.
IDLE_SECONDS = 60.0
_LOOKS = 6
# Seconds after which a client that is gone is noticed, if it takes its mail: it cannot ask again before.
GONE_SECONDS = 120
# Seconds for the TLS handshake.
HANDSHAKE_SECONDS = 30.0


class BegunSession(NamedTuple):
    """The session of a new connection, and the ports of both ends, for the log. `busy`: it is to be turned away.

    `context` is for TLS, None if the session does not offer it. `filter` is that of a session with filters. `address`
    is the client's, which limits count. `submits`: a user is expected, who authenticates.
    """

    session: SmtpSession
    port: int
    server_port: int
    busy: ServerReply | None = None
    context: ssl.SSLContext | None = None
    filter: SessionFilter | None = None
    address: str = ""
    submits: bool = False


# What makes the session of a connection, when the event loop has made its transport.
Begin = Callable[[asyncio.Transport, float], BegunSession]


class OpenConnections:
    """The connections that are open, and what they share. `empty` is set while there are none.

    stopping: each session is to end when its transaction has ended.
    """

    def __init__(
        self,
        links: IntakeLinks,
        lookups: MailboxLookups,
        log: LogWriter,
        authenticator: Authenticator,
        limits: ClientLimits,
        pauses: GreetingPauses,
        checks: StrangerChecks,
    ) -> None:
        self.links = links
        self.lookups = lookups
        self.log = log
        self.authenticator = authenticator
        self.limits = limits
        self.pauses = pauses
        self.checks = checks
        self.counters = ServerCounters()
        self.stopping = False
        self.empty = asyncio.Event()
        self.empty.set()
        self._spools = SpoolMemory()
        self.programs = EnqueuePrograms(links.home, log)
        self._milter_alerts = MilterAlerts()
        self._open: set[SmtpConnection] = set()
        # Those on listeners for users, and when they began, in this order. Who has authenticated is left out when it
        # is noticed.
        self._unproven: dict[SmtpConnection, float] = {}

    def __len__(self) -> int:
        return len(self._open)

    def filter_session(self, filters: FilterSetup, number: int, place: FilterPlace) -> SessionFilter | None:
        """Return the filters of a new session, None if there are none."""
        if not filters.any:
            return None
        return SessionFilter(filters, number, place, self._spools, self._milter_alerts, self.write_log)

    def write_log(self, lines: list[bytes]) -> None:
        """Write log lines, and count what they say."""
        self.counters.take(lines)
        self.log.write(lines)

    def all(self) -> "list[SmtpConnection]":
        """Return those that are open."""
        return list(self._open)

    def add(self, connection: "SmtpConnection") -> None:
        self._open.add(connection)
        self.empty.clear()

    def discard(self, connection: "SmtpConnection") -> None:
        self._open.discard(connection)
        self._unproven.pop(connection, None)
        if not self._open:
            self.empty.set()

    def expect_proof(self, connection: "SmtpConnection", now: float) -> None:
        """Note a connection whose client is to authenticate."""
        self._unproven[connection] = now

    def end_unproven(self, now: float) -> bool:
        """End the connection that has waited longest without AUTH, if that is long enough; return whether it was."""
        for connection, begun in list(islice(self._unproven.items(), _LOOKED_AT)):
            if connection.proven:
                del self._unproven[connection]
            elif now - begun < PROOF_SECONDS:
                return False
            else:
                del self._unproven[connection]
                connection.end(replies.SERVER_BUSY, "no AUTH", now)
                return True
        return False

    def run(self, now: float) -> None:
        """End what is too late. Call it every few seconds."""
        for connection in list(self._open):
            connection.run(now)
        self.links.run(now)
        self.lookups.run(now)

    def close(self) -> None:
        """Close what the connections share."""
        now = time.monotonic()
        for connection in list(self._open):
            connection.give_up_filter(now)
        self.links.close()
        self.lookups.close()

    def begin_stop(self, now: float) -> None:
        """End the sessions that are in no transaction; each of the others ends behind its transaction."""
        self.stopping = True
        for connection in list(self._open):
            connection.end_if_idle(now)

    def end_all(self, reply: ServerReply, reason: str, now: float) -> None:
        """End all sessions that do not wait for the answer to a message."""
        for connection in list(self._open):
            connection.end(reply, reason, now)


class SmtpConnection:
    """One connection.

    For the event loop it is an asyncio.Protocol. mypyc makes a fast class of it because it has no base class.
    """

    __slots__ = (
        *("_address", "_asking", "_begin", "_close_at", "_context", "_deadline", "_delay", "_delayed_to", "_eof"),
        *("_filter", "_filtering", "_finishing", "_lookup", "_message_by", "_open", "_paused", "_reading"),
        *("_reversal", "_scheduled", "_server_port", "_session", "_tls", "_transfer", "_transport", "_unread"),
        "_writable",
    )

    _session: SmtpSession

    def __init__(self, begin: Begin, open_: OpenConnections) -> None:
        self._begin = begin
        self._open = open_
        self._address = ""
        self._transport: asyncio.Transport | None = None
        self._transfer: MessageTransfer | None = None
        self._context: ssl.SSLContext | None = None
        self._tls: TlsChannel | None = None
        # What the client said, in clear or under TLS, that the session has not taken.
        self._unread = b""
        self._reading = self._writable = True
        self._scheduled = self._eof = False
        # The greeting is not said yet.
        self._paused = False
        # Replies wait for this time, and so does the check of a further password.
        self._delayed_to = 0.0
        # What asks whether a password is right, or about a stranger.
        self._asking: asyncio.Task[None] | None = None
        self._filter: SessionFilter | None = None
        # What asks the filters.
        self._filtering: asyncio.Task[None] | None = None
        # The client is the server, or may soon be.
        self._reversal: Reversal | None = None
        # A message is complete, and the filters or queue-intake have not answered.
        self._finishing = False
        # The number of a recipient's lookup, and the wait before its answer.
        self._lookup = 0
        self._server_port = 0
        self._delay: asyncio.TimerHandle | None = None
        self._deadline = self._message_by = 0.0
        # When a connection whose session is over is closed, if its client does not close it.
        self._close_at = 0.0

    # From the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are no asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)
        now = time.monotonic()
        self._deadline = now + TIMEOUT
        begun = self._begin(self._transport, now)
        self._session, port, server_port, busy, self._context, self._filter, self._address, submits = begun
        self._server_port = server_port
        if submits and busy is None:
            self._open.expect_proof(self, now)
        actions = self._session.start(port, server_port, now, busy)
        if self._session.awaits_tls:
            self._begin_tls(now)
        self._carry_out(actions, now)

    def data_received(self, data: bytes) -> None:
        if self._session.over:
            return
        if self._paused:
            self._end_pause(True, time.monotonic())
            return
        if self._tls is not None:
            data = self._take_tls(self._tls, data)
            if not data or self._session.over:
                return
        if self._reversal is not None and self._session.reversed:
            self._deadline = time.monotonic() + SILENT_SECONDS
            self._reversal.take(data)
            if self._eof:
                self._regulate()
            return
        self._unread = self._unread + data if self._unread else data
        if not self._scheduled:
            self._take_slice()

    def eof_received(self) -> bool:
        self._eof = True
        if self._session.over:
            self._close()
        else:
            self._regulate()
        # What was sent before is answered.
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and self._reversal is not None and (unread := read_unread(self._transport)):
            # The client is the server, and its last words are the verdict on a message.
            self.data_received(unread)
        self._transport = None
        self._unread = b""
        # What becomes of a message is logged all the same. Another one behind it would come twice: its client does not
        # hear of it, and sends it again.
        if self._finishing:
            self._session.forget_input()
        else:
            self._end_lost(time.monotonic())

    def pause_writing(self) -> None:
        self._writable = False
        self._regulate()
        if self._reversal is not None:
            self._reversal.hold(True)

    def resume_writing(self) -> None:
        self._writable = True
        self._regulate()
        if self._reversal is not None:
            self._reversal.hold(False)

    # From the daemon, or the process of one connection.

    @property
    def proven(self) -> bool:
        """Whether its client has authenticated, or may relay without."""
        return self._session.trusted

    def state(self) -> str:
        """Return what the session is doing, one of STATES."""
        session = self._session
        if session.over:
            return "closing"
        if self._finishing:
            return "queueing"
        if session.awaits_tls or (self._tls is not None and not self._tls.established):
            return "tls"
        if not session.greeted:
            return "greeting"
        if session.in_message:
            return "message"
        if session.reversed:
            return "reversed"
        if session.asks:
            return "lookup"
        return "transaction" if session.in_transaction else "command"

    def status(self, now: float) -> SessionStatus:
        """Return what there is to know of the session."""
        return self._session.status(self.state(), self._server_port, now)

    def run(self, now: float) -> None:
        """End the session, or the connection, if it is late."""
        if self._close_at:
            if now >= self._close_at and self._transport is not None:
                self._transport.abort()
        elif self._finishing:
            return
        elif self._filtering is not None:
            # Nor is it here; filters have times of their own.
            self._deadline = now + TIMEOUT
        elif self._transfer is not None and self._transfer.full:
            # It is not the client that is slow.
            self._deadline = now + TIMEOUT
            self._message_by = max(self._message_by, self._deadline)
        elif now >= self._deadline or (self._message_by and now >= self._message_by):
            self.end(replies.TIMED_OUT, "timeout", now)
        elif self._transfer is not None:
            self._transfer.keep_alive(now)

    def end(self, reply: ServerReply, reason: str, now: float) -> None:
        """End the session with a reply, unless it waits for the answer to a message."""
        if self._session.over or self._finishing:
            return
        reversed_ = self._session.reversed
        self._carry_out(self._session.close(reply, reason, now), now)
        if reversed_ and self._transport is not None:
            # An orderly end could be taken for the end of a message.
            self._transport.abort()

    def end_if_idle(self, now: float) -> None:
        """End the session if it is in no transaction."""
        if not self._session.in_transaction:
            self.end(replies.SHUTTING_DOWN, "stop", now)

    # Input and output.

    def _take_slice(self) -> None:
        """Take some of what was read; the rest in a later turn of the loop."""
        self._scheduled = False
        if not (self._unread or self._session.paused) or not self._may_take():
            self._regulate()
            return
        most = MESSAGE_SLICE if self._session.in_message else COMMANDS_SLICE
        data, self._unread = self._unread[:most], self._unread[most:]
        now = time.monotonic()
        if self._session.in_message:
            self._deadline = now + TIMEOUT
            self._message_by = (self._message_by or now + TIMEOUT) + len(data) / RATE_MIN
        self._carry_out(self._session.feed(data, now), now)

    def _begin_tls(self, now: float) -> None:
        """Take all that comes from now on as TLS. A byte in clear that came too early must not be taken under TLS."""
        assert self._context is not None
        self._unread = b""
        self._tls = TlsChannel(self._context)
        self._deadline = now + HANDSHAKE_SECONDS

    def _take_tls(self, tls: TlsChannel, data: bytes) -> bytes:
        """Take bytes of TLS; return what the client has said in them."""
        tls.receive(data)
        text = b""
        try:
            if not tls.established and tls.shake_hands():
                now = time.monotonic()
                self._deadline = now + TIMEOUT
                self._carry_out(self._session.secured(tls.facts, now), now)
            if tls.established:
                text = tls.read()
        except ssl.SSLError as error:
            self._fail_tls(error)
            return b""
        self._write(b"")
        if tls.ended:
            self._eof = True
            if not text:
                self._regulate()
        return text

    def _fail_tls(self, error: ssl.SSLError) -> None:
        now = time.monotonic()
        self._write(b"")
        if self._finishing:
            # What becomes of the message is logged when it is known.
            assert self._transport is not None
            self._transport.abort()
        elif not self._session.over:
            self._carry_out(self._session.fail_tls(describe_tls_error(error), now), now)

    def _write(self, text: bytes) -> None:
        """Send text, under TLS if that has begun, and what TLS itself has to say."""
        data = text
        if self._tls is not None:
            if text:
                self._tls.write(text)
            data = self._tls.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def _may_take(self) -> bool:
        full = self._transfer is not None and self._transfer.full
        if self._reversal is not None and self._session.reversed:
            # It is the queues that are to take it.
            return not self._reversal.full
        return self._session.wants_data and self._writable and not full and not self._delayed_to

    def _carry_out(self, actions: list[Action], now: float) -> None:
        """Do what the session wants, and go on with it as far as it can go now."""
        while actions:
            following: list[Action] = []
            for action in actions:
                following = self._do(action, now)
            actions = following
        if self._open.stopping and not self._session.over:
            self.end_if_idle(now)
        self._put(now)
        self._regulate()

    def _do(self, action: Action, now: float) -> list[Action]:
        """Carry out an action; return those that follow from the answer to a question that has one at once."""
        if isinstance(action, MessageText):
            self._add_text(action.data, now)
        elif isinstance(action, MessageStarted):
            return self._start_message(action, now)
        elif isinstance(action, MessageFinished):
            self._finish_message(action, now)
        elif isinstance(action, MessageDropped):
            self._drop_message(now)
        elif isinstance(action, MailboxWanted):
            if action.known is None:
                self._lookup = self._open.lookups.ask(action, self._found, now)
            elif action.known is MailboxFound.EXISTS:
                return self._session.answer_mailbox(action.known, now)
            else:
                self._found(action.known, b"")
        elif isinstance(action, TlsWanted):
            following = self._session.begin_tls(now)
            # The reply goes out in clear.
            self._put(now)
            self._begin_tls(now)
            return following
        elif isinstance(action, PasswordGiven | VerifierWanted):
            self._start_asking(self._ask(action))
        elif isinstance(action, MailWanted):
            self._start_asking(self._ask_for_mail(action))
        elif isinstance(action, TurnWanted):
            self._start_asking(self._turn(action.domains))
        elif isinstance(action, StrangerWanted):
            self._start_asking(self._check_stranger(action))
        elif isinstance(action, GreetingPaused):
            self._paused = True
            self._open.pauses.add(action.seconds, self._greet)
        elif isinstance(action, ClientReplaced):
            self._replace_client(action)
            return self._session.greet_anew(now)
        elif isinstance(action, ReplyDelayed):
            self._delayed_to = now + action.seconds
            asyncio.get_running_loop().call_later(action.seconds, self._end_delay, self._delayed_to)
        else:
            assert self._filter is not None
            self._start_filter(self._ask_filter(self._filter, action))
        return []

    # The message. It goes to queue-intake as it comes, or if there are filters to their spool until they have decided.

    def _start_message(self, started: MessageStarted, now: float) -> list[Action]:
        """Answer the question whether a message can be handed over, unless the filters are asked first."""
        links = self._open.links
        reply: ServerReply | None = None
        if links.link(now) is None:
            reply = replies.QUEUE_UNAVAILABLE
        elif self._filter is None:
            self._transfer = self._begin_transfer(self._regulate)
        elif self._session.envelope_last:
            self._filter.begin_message()
        else:
            self._start_filter(self._ask_filter(self._filter, started))
            return []
        return self._session.begin_message(reply, int(time.time()), now)

    def _begin_transfer(self, on_flow: Callable[[], None]) -> MessageTransfer:
        session = self._session
        return MessageTransfer(self._open.links, self._decided, on_flow, session.priority, session.submitter)

    def _add_text(self, text: bytes, now: float) -> None:
        if self._transfer is not None:
            self._transfer.add(text, now)
        else:
            assert self._filter is not None
            self._filter.add(text)

    def _finish_message(self, finished: MessageFinished, now: float) -> None:
        transfer, self._transfer = self._transfer, None
        self._finishing = True
        if transfer is not None:
            transfer.finish(finished.sender, finished.recipients, now)
        else:
            assert self._filter is not None
            self._start_filter(self._filter_message(self._filter, finished))

    def _drop_message(self, now: float) -> None:
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.give_up(now)
        elif self._filter is not None:
            self._filter.drop_message()

    def _replace_client(self, replaced: ClientReplaced) -> None:
        """Have limits and filters look at the client that XCLIENT has named."""
        limits = self._open.limits
        limits.hold(replaced.address)
        limits.release(self._address)
        self._address = replaced.address
        self._server_port = replaced.server_port
        if self._filter is not None:
            self._filter.begin_anew(replaced.port, replaced.server_port)

    # Filters.

    def _start_filter(self, work: Coroutine[object, object, None]) -> None:
        self._filtering = asyncio.get_running_loop().create_task(work)
        self._filtering.add_done_callback(self._filter_done)

    def _filter_done(self, task: asyncio.Task[None]) -> None:
        """End the session if the filters have failed as they should not: its client must not wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._filtering = None
        now = time.monotonic()
        self._open.log.write([alert(f"smtp {self._session.number}: the filters have failed: {error!r}; report this")])
        if self._finishing:
            self._end_filtered(replies.QUEUE_UNAVAILABLE, now)
        self.end(replies.SERVER_BUSY, "filters failed", now)

    async def _ask_filter(
        self, session_filter: SessionFilter, question: SenderFiltered | RecipientFiltered | MessageStarted
    ) -> None:
        """Ask the filters, and go on with the session if it is not over meanwhile."""
        if isinstance(question, SenderFiltered):
            reply = await session_filter.ask_sender(
                question.client, question.identity, question.sender, question.parameters
            )
        elif isinstance(question, RecipientFiltered):
            reply = await session_filter.ask_recipient(question.recipient)
        else:
            reply = await session_filter.ask_data()
        self._filtering = None
        now = time.monotonic()
        actions: list[Action] = []
        if self._session.over:
            pass
        elif isinstance(question, MessageStarted):
            if reply is None:
                session_filter.begin_message()
            actions = self._session.begin_message(reply, int(time.time()), now)
        else:
            actions = self._session.answer_filter(reply, now)
        self._carry_out(actions, now)

    async def _filter_message(self, session_filter: SessionFilter, finished: MessageFinished) -> None:
        """Ask the filters what becomes of a message, and hand it over as they have changed it."""
        if self._session.envelope_last and (reply := await session_filter.ask_data()) is not None:
            verdict = FilterVerdict(finished.sender, finished.recipients, reply)
        else:
            verdict = await session_filter.ask_message(finished.sender, finished.recipients)
        now = time.monotonic()
        if verdict.reply is not None or verdict.discards:
            self._filtering = None
            self._end_filtered(verdict.reply, now)
            return
        if session_filter.program and not verdict.hold:
            await self._run_program(session_filter, verdict)
            return
        flow = asyncio.Event()
        transfer = self._begin_transfer(flow.set)
        try:
            for piece in session_filter.pieces():
                now = time.monotonic()
                transfer.add(piece, now)
                # Other connections have their turns.
                await asyncio.sleep(0)
                while transfer.full:
                    flow.clear()
                    await flow.wait()
        except OSError:
            transfer.failed = True
        except asyncio.CancelledError:
            transfer.give_up(now)
            raise
        self._filtering = None
        session_filter.drop_message()
        transfer.finish(verdict.sender, verdict.recipients, time.monotonic(), verdict.hold, verdict.copy)

    async def _run_program(self, session_filter: SessionFilter, verdict: FilterVerdict) -> None:
        """Have a program queue the message."""
        message = GivenMessage(session_filter.pieces(), verdict.sender, verdict.recipients)
        environment = session_filter.environment(self._session.trusted)
        if self._session.priority:
            environment[b"QUEUE_PRIORITY"] = self._session.priority.encode("ascii")
        environment[b"QUEUE_SUBMITTER"] = self._session.submitter
        answer, why = await self._open.programs.run(session_filter.program, environment, message)
        session_filter.note_program(why)
        self._filtering = None
        session_filter.drop_message()
        self._decided(answer)

    def _end_filtered(self, reply: ServerReply | None, now: float) -> None:
        """Answer a message that goes no further; None: it is discarded."""
        self._finishing = False
        if self._filter is not None:
            self._filter.drop_message()
        self._carry_out(self._session.end_filtered(reply, now), now)
        if self._transport is None:
            self._end_lost(now)

    def give_up_filter(self, now: float) -> None:
        """Refuse a message that the filters still look at: there is no time left."""
        task, self._filtering = self._filtering, None
        if task is not None:
            task.cancel()
            if self._finishing:
                self._end_filtered(replies.QUEUE_UNAVAILABLE, now)

    def _close_filter(self) -> None:
        """The session is over, and so is what it asks."""
        session_filter = self._filter
        if session_filter is not None and not self._finishing:
            self._filter = None
            if self._filtering is not None:
                self._filtering.cancel()
            session_filter.close()

    def _greet(self, now: float) -> None:
        # It may have said something, or be gone.
        if self._paused and not self._session.over:
            self._end_pause(False, now)

    def _end_pause(self, early: bool, now: float) -> None:
        self._paused = False
        self._carry_out(self._session.end_pause(early, now), now)

    def _found(self, found: MailboxFound, why: bytes) -> None:
        """Take what the lookup of a recipient has found. The answer is given later, never at once."""
        self._lookup = 0
        seconds = self._session.mailbox_delay(found)
        self._delay = asyncio.get_running_loop().call_later(seconds, self._answer_mailbox, found, why)

    def _answer_mailbox(self, found: MailboxFound, why: bytes) -> None:
        self._delay = None
        now = time.monotonic()
        self._carry_out(self._session.answer_mailbox(found, now, why), now)

    def _forget_lookup(self) -> None:
        """The session is over, and nobody waits for a recipient any more."""
        if self._lookup:
            self._open.lookups.forget(self._lookup)
        if self._delay is not None:
            self._delay.cancel()

    def _start_asking(self, work: Coroutine[object, object, None]) -> None:
        self._asking = asyncio.get_running_loop().create_task(work)
        self._asking.add_done_callback(self._asking_done)

    def _asking_done(self, task: asyncio.Task[None]) -> None:
        """End the session if a check has failed as it should not: its client must not wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._asking = None
            self._open.log.write([alert(f"smtp {self._session.number}: a check has failed: {error!r}; report this")])
            self.end(replies.SERVER_BUSY, "check failed", time.monotonic())

    async def _ask(self, question: PasswordGiven | VerifierWanted) -> None:
        """Have a password checked, and go on with the session if it is not over meanwhile."""
        authenticator = self._open.authenticator
        if self._delayed_to:
            await asyncio.sleep(self._delayed_to - time.monotonic())
        if isinstance(question, PasswordGiven):
            right = await authenticator.check_password(question.user, question.password, question.challenge)
            now = time.monotonic()
            actions = [] if self._session.over else self._session.answer_password(right, now)
        else:
            found = await authenticator.find_verifier(question.user)
            now = time.monotonic()
            actions = [] if self._session.over else self._session.answer_verifier(found, now)
        self._asking = None
        self._carry_out(actions, now)

    async def _ask_for_mail(self, wanted: MailWanted) -> None:
        """Have queue-ondemand deliver the mail of a domain, and go on with the session if it is not over meanwhile."""
        queues = [one.queue for one in self._open.links.home.each()]
        reply = await ask_for_mail(queues, wanted.name, self._address)
        self._asking = None
        if not self._session.over:
            now = time.monotonic()
            self._carry_out(self._session.answer_etrn(reply, now), now)

    async def _turn(self, domains: list[bytes]) -> None:
        """Answer ATRN; if there is mail, pass it on until all of it is delivered, or the client is gone."""
        queues = [one.queue for one in self._open.links.home.each()]
        client = self._address, self._session.user
        # A client that was cut off asks again before its old connection is known to be gone, which gives way now.
        looks = _LOOKS
        while True:
            reversal = self._reversal = Reversal(
                queues, domains, *client, self._say_for_queue, self._regulate, self._give_way
            )
            reply = await reversal.begin()
            if reply != replies.TURN_BUSY or not looks or self._session.over:
                break
            looks -= 1
            await asyncio.sleep(0.5)
        now = time.monotonic()
        if self._session.over:
            reversal.close()
            return
        self._carry_out(self._session.answer_turn(reply, domains, now), now)
        if not self._session.reversed:
            self._reversal = self._asking = None
            self._regulate()
            return
        self._deadline = now + SILENT_SECONDS
        self._notice_gone_client()
        rest, self._unread = self._session.take_rest() + self._unread, b""
        reversal.hold(not self._writable)
        reversal.take(rest)
        clean = await reversal.run()
        self._asking = None
        self._end_turn(clean, time.monotonic())

    def _give_way(self) -> None:
        """End the connection if nothing has passed: its user asks for the mail on another one."""
        now = time.monotonic()
        if self._session.reversed and now - (self._deadline - SILENT_SECONDS) >= IDLE_SECONDS:
            self.end(replies.SERVER_BUSY, "ATRN failed", now)

    def _say_for_queue(self, data: bytes) -> None:
        """Say what queue-ondemand says."""
        self._deadline = time.monotonic() + SILENT_SECONDS
        if self._session.over or self._transport is None:
            return
        try:
            self._write(data)
        except ssl.SSLError:
            self._transport.abort()

    def _end_turn(self, clean: bool, now: float) -> None:
        """End the session of a client that has its mail, or cannot take it."""
        if self._session.over:
            return
        if clean:
            self._carry_out(self._session.end_turn(now), now)
        else:
            self.end(replies.SERVER_BUSY, "ATRN failed", now)

    def _notice_gone_client(self) -> None:
        """Have the kernel notice that a client is gone, also while nothing is said to it."""
        assert self._transport is not None
        own = self._transport.get_extra_info("socket")
        try:
            with socket.socket(fileno=os.dup(own.fileno())) as shared:
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_SECONDS // 2)
                shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GONE_SECONDS // 8)
                shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
                shared.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_SECONDS * 1000)
        except OSError:
            pass  # It is no TCP connection, or over.

    async def _check_stranger(self, wanted: StrangerWanted) -> None:
        reply = await self._open.checks.judge(wanted)
        self._asking = None
        if not self._session.over:
            now = time.monotonic()
            self._carry_out(self._session.answer_stranger(reply, now), now)

    def _end_delay(self, time_of_it: float) -> None:
        if time_of_it < self._delayed_to:
            # There was another refusal meanwhile.
            return
        self._delayed_to = 0.0
        self._put(time.monotonic())
        self._regulate()

    def _decided(self, answer: Answer | None) -> None:
        """Take what became of the message."""
        now = time.monotonic()
        self._finishing = False
        self._carry_out(self._session.end_message(answer, now), now)
        if self._transport is None:
            self._end_lost(now)

    def _end_lost(self, now: float) -> None:
        """End the session of a connection that is closed."""
        self._end_gone(now)
        self._open.discard(self)
        self._open.limits.release(self._address)

    def _end_gone(self, now: float) -> None:
        """End the session: the client has closed the connection, as it does when it has its mail."""
        if self._session.over:
            return
        if self._reversal is not None and self._reversal.finished:
            self._carry_out(self._session.end_turn(now), now)
        else:
            self._carry_out(self._session.lost(now), now)

    def _put(self, now: float) -> None:
        """Write the log lines, then the replies that they are about."""
        if self._session.over:
            self._forget_lookup()
            self._close_filter()
            if self._reversal is not None:
                self._reversal.close()
        lines = self._session.log_lines()
        if lines:
            self._open.write_log(lines)
        if self._delayed_to:
            return
        data = self._session.data_to_send()
        if not self._session.in_message:
            self._message_by = 0.0
        transport = self._transport
        if transport is None:
            return
        if data:
            self._deadline = now + TIMEOUT
            try:
                self._write(data)
            except ssl.SSLError:
                transport.abort()
                return
        if self._session.over and not self._close_at:
            self._unread = b""
            if self._tls is not None and self._tls.established:
                self._tls.close()
                self._write(b"")
            self._close_at = now + LINGER_SECONDS
            if self._eof:
                self._close()
            else:
                transport.write_eof()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _regulate(self) -> None:
        """Read from the client or not; take the next slice of what was read; notice its end."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        may_take = self._may_take()
        if (self._unread or self._session.paused) and may_take and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_slice)
        asks = self._session.asks or self._session.paused
        if self._eof and not self._unread and not self._session.over and not asks:
            self._end_gone(time.monotonic())
            return
        # Once the session is over, what comes is thrown away.
        reading = self._session.over or (may_take and not self._unread)
        if reading != self._reading:
            self._reading = reading
            if reading:
                transport.resume_reading()
            else:
                transport.pause_reading()
