"""A session (SMTP, QMTP) by the server's rules, without I/O: bytes of a client in, actions, replies and log lines out.

    actions = session.feed(data, now)      and the other methods
    data = session.data_to_send()          replies, after each call
    lines = session.log_lines()            without newlines, after each call

An action is a fact, or a question: the last one of a list may be a question, and the session goes on when it is
answered. A message begins with MessageStarted, has any number of MessageText, and ends with MessageFinished or
MessageDropped, whatever happens. `over`: the caller sends what there is and closes the connection.
"""

import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from queue_smtp import server_replies as replies
from queue_smtp.auth_server import PasswordGiven, VerifierWanted
from queue_smtp.server import SmtpServer
from queue_smtp.server_events import (
    BadCommand,
    ClientChanged,
    HelloGiven,
    MailWanted,
    MessageBegun,
    MessageEnded,
    MessagePiece,
    RecipientGiven,
    SenderGiven,
    ServerEvent,
    SessionClosed,
    TlsWanted,
    TransactionDropped,
    TurnWanted,
    UserAuthenticated,
    UserRefused,
)
from queue_smtp.server_replies import ServerReply
from queue_smtp.server_session import ServerSession, ServerSettings, ServerState
from queue_smtpd.sessions import session_log as log
from queue_smtpd.sessions.client_facts import ClientFacts, TlsFacts, replace_client
from queue_smtpd.sessions.forged_results import ForgedResults
from queue_smtpd.sessions.qmtp_server import QmtpServer
from queue_smtpd.sessions.received_line import pack_received
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted
from queue_smtpd.sessions.session_policy import Decision, SessionPolicy
from queue_wire.address import split_address
from queue_wire.admin.smtpd_status import SessionStatus
from queue_wire.control.milters import FilterSetup
from queue_wire.control.networks import Network, is_listed
from queue_wire.control.smtpdusers import Verifier
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import FormatError
from queue_wire.pipes.qmtp import ACCEPTED, PERMANENT, Answer
from queue_wire.submitter import pack_submitter

# The status at the end of an answer of queue-intake (qmail's form).
_STATUS = re.compile(rb" \(#(5\.[0-9]{1,3}\.[0-9]{1,3})\)$")

# Seconds by which the answer to each unknown recipient of a stranger comes later than to the one before, and the most.
DELAY_STEP = 1.0
DELAY_MAX = 10.0
# After a wrong password: who guesses gets few answers.
FAILURE_SECONDS = 2.0

NOBODY: Mapping[bytes, tuple[bytes, ...]] = {}
_IN_MESSAGE = (ServerState.DATA, ServerState.CHUNK, ServerState.CHUNKS, ServerState.SKIP)


class MessageStarted(NamedTuple):
    """Question: can a message be handed over now? The answer is `begin_message`."""


class MessageText(NamedTuple):
    """The next bytes of the message, with LF line ends. The first ones are its Received field."""

    data: bytes


class MessageFinished(NamedTuple):
    """Question: the message is complete. What became of it is told to `end_message`."""

    sender: bytes
    recipients: list[bytes]


class MessageDropped(NamedTuple):
    """What there is of the message is to be forgotten."""


class SenderFiltered(NamedTuple):
    """Question: do the filters take this sender? The answer is `answer_filter`. `identity` is that of the message."""

    client: ClientFacts
    identity: bytes
    sender: bytes
    parameters: list[bytes]


class RecipientFiltered(NamedTuple):
    """Question: do the filters take this recipient? The answer is `answer_filter`."""

    recipient: bytes


class ReplyDelayed(NamedTuple):
    """The replies go to the client after so many seconds. Until then no bytes of the client are taken."""

    seconds: float


class GreetingPaused(NamedTuple):
    """The greeting is due after so many seconds: `end_pause` is next, at once if the client says something before."""

    seconds: float


class ClientReplaced(NamedTuple):
    """Question: XCLIENT has named another client, which counts from now on; `greet_anew` is next. The ports are its."""

    address: str
    port: int
    server_port: int


class StrangerWanted(NamedTuple):
    """Question: may this stranger send to a recipient that exists? The answer is `answer_stranger`.

    `lists`: the DNS lists are to be asked about the address; `greylist`: so is the greylist, about all three.
    """

    address: str
    sender: bytes
    recipient: bytes
    lists: bool
    greylist: bool


Action = (
    MailboxWanted
    | MessageStarted
    | MessageText
    | MessageFinished
    | MessageDropped
    | TlsWanted
    | PasswordGiven
    | VerifierWanted
    | MailWanted
    | TurnWanted
    | ReplyDelayed
    | SenderFiltered
    | RecipientFiltered
    | GreetingPaused
    | ClientReplaced
    | StrangerWanted
)


class SessionSetup(NamedTuple):
    """What the sessions of one listener have in common. `me` is this host's name.

    relay_suffix: what is added to each recipient; the value of RELAYCLIENT, as of qmail-smtpd. With `filters`, the
    caller asks them: about senders and recipients when it gets a question, and about messages itself. `dnslists` and
    `greylist`: strangers are looked up there. The hosts of `xclients` may use XCLIENT. `priority` is the class of the
    mail, empty for none. `authserv` are the authserv-ids of this host, whose Authentication-Results clients that may
    not relay cannot send. `customers` has the domains whose mail each user may take with ATRN. `names_user`: Received
    names the user of AUTH.
    """

    me: bytes
    settings: ServerSettings
    policy: SessionPolicy
    relay_suffix: bytes = b""
    filters: FilterSetup = FilterSetup()
    dnslists: bool = False
    greylist: bool = False
    xclients: tuple[Network, ...] = ()
    priority: str = ""
    authserv: frozenset[bytes] = frozenset()
    qmtp: bool = False
    customers: Mapping[bytes, tuple[bytes, ...]] = NOBODY
    names_user: bool = False


class SmtpSession:
    """A session. `number` is that of its log lines; `now` is a monotonic time in seconds everywhere."""

    __slots__ = (
        *("_begun", "_client", "_counted", "_errors", "_filtered", "_forged", "_lines", "_listed", "_mailbox"),
        *("_messages", "_number", "_port", "_received", "_recipients", "_sender", "_server", "_server_port", "_setup"),
        *("_size", "_speaks_for_others", "_started", "_unknown", "_unlisted"),
    )

    def __init__(self, number: int, client: ClientFacts, setup: SessionSetup, now: float) -> None:
        self._number = number
        self._client = client._replace(qmtp=setup.qmtp)
        self._setup = setup
        self._filtered = setup.filters.any
        self._begun = now
        nonce = secrets.token_hex(16).encode() if setup.settings.turns else b""
        self._server: ServerSession = (
            QmtpServer(setup.settings) if setup.qmtp else SmtpServer(setup.settings, nonce)
        )
        self._speaks_for_others = False
        self._judge_proxy()
        self._port = self._server_port = 0
        self._lines: list[bytes] = []
        self._messages = self._errors = self._received = self._size = self._unknown = 0
        self._sender = b""
        self._recipients: list[bytes] = []
        self._mailbox: MailboxWanted | None = None
        # What DNS lists have said: the reply to each recipient, or that it is in none.
        self._listed: ServerReply | None = None
        self._unlisted = False
        # A wrong password has been counted.
        self._counted = False
        # What removes Authentication-Results from the message that is being received.
        self._forged: ForgedResults | None = None
        # A MessageStarted was answered with yes, and its end was not reported.
        self._started = False

    @property
    def number(self) -> int:
        """The number of its log lines."""
        return self._number

    @property
    def priority(self) -> str:
        """The class that the listener gives its mail, empty for none."""
        return self._setup.priority

    @property
    def user(self) -> bytes:
        """The user who has authenticated, empty for none."""
        return self._client.user

    @property
    def submitter(self) -> bytes:
        """For whom its mail is: the user who has authenticated, or else the client's host."""
        return pack_submitter(self._client.shown_address, self._client.user)

    @property
    def over(self) -> bool:
        """Whether the session is at its end."""
        return self._server.state is ServerState.CLOSED

    @property
    def wants_data(self) -> bool:
        """Whether the caller should read from the client."""
        return self._server.wants_data

    @property
    def paused(self) -> bool:
        """Whether the caller should feed it again, perhaps with nothing, when others have had their turns."""
        return self._server.paused

    @property
    def envelope_last(self) -> bool:
        """Whether the envelope comes behind the message: filters are asked about sender and recipients then."""
        return self._setup.qmtp

    @property
    def asks(self) -> bool:
        """Whether a question is open."""
        return self._server.asked is not None

    @property
    def greeted(self) -> bool:
        """Whether the client was greeted, or begins with TLS."""
        return self._server.state is not ServerState.GREETING

    @property
    def awaits_tls(self) -> bool:
        """Whether the client is to begin with TLS now: `secured` or `fail_tls` is next."""
        return self._server.state is ServerState.TLS

    @property
    def in_message(self) -> bool:
        """Whether the client is sending a message, perhaps between two chunks, or what is refused of one."""
        return self._server.state in _IN_MESSAGE

    @property
    def reversed(self) -> bool:
        """Whether the client is the server now: its bytes are not for the session."""
        return self._server.state is ServerState.REVERSED

    @property
    def in_transaction(self) -> bool:
        """Whether a sender was accepted, and its transaction is not over; or the client takes its mail."""
        return self._server.in_transaction or self.reversed

    @property
    def trusted(self) -> bool:
        """Whether the client may relay, or is exempt from limits."""
        return self._setup.policy.trusts(self._client)

    def status(self, state: str, port: int, now: float) -> SessionStatus:
        """Return what there is to know of the session; the caller knows its state, and the port of the server."""
        client = self._client
        return SessionStatus(
            self._number,
            client.shown_address,
            client.name.decode("utf-8", "replace"),
            port,
            state,
            int(now - self._begun),
            self._messages,
            client.tls.version.decode("ascii", "replace") if client.tls is not None else "",
            client.user.decode("utf-8", "replace"),
        )

    def data_to_send(self) -> bytes:
        """Return the replies to send since the last call."""
        return self._server.data_to_send()

    def log_lines(self) -> list[bytes]:
        """Return the log lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def start(self, port: int, server_port: int, now: float, busy: ServerReply | None = None) -> list[Action]:
        """Greet the client, or turn it away, with `busy` in any case. The ports are for the log."""
        client = self._client
        self._port, self._server_port = port, server_port
        self._lines.append(log.connect(self._number, *self._places()))
        reply = busy or self._judge_connection(now)
        if reply is not None:
            self._log_refusal(b"connect", reply)
        elif not self._speaks_for_others and (seconds := self._setup.policy.pause(client)):
            return [GreetingPaused(seconds)]
        if not self.awaits_tls:
            return self._go_on(self._server.greet(reply), now)
        # Before TLS nothing can be said.
        return [] if reply is None else self._go_on(self._server.close(reply, "turned away"), now)

    def end_pause(self, early: bool, now: float) -> list[Action]:
        """Greet the client; turn it away if it was early: it has said something before (as a spammer's program)."""
        if not early:
            return self._go_on(self._server.greet(), now)
        self._log_refusal(b"early talker", replies.EARLY_TALKER)
        return self._go_on(self._server.greet(replies.EARLY_TALKER), now)

    def greet_anew(self, now: float) -> list[Action]:
        """Answer ClientReplaced: greet the client that XCLIENT has named, or turn it away.

        There is no pause: who speaks before the greeting has spoken to the proxy.
        """
        reply = self._judge_connection(now)
        if reply is not None:
            self._log_refusal(b"connect", reply)
        return self._go_on(self._server.answer(reply), now)

    def _judge_connection(self, now: float) -> ServerReply | None:
        # Those of a proxy's are its clients'.
        return None if self._speaks_for_others else self._setup.policy.greet(self._client, now)

    def _judge_proxy(self) -> None:
        """Offer XCLIENT to a host that may use it.

        Behind XCLIENT that is the client's, since a proxy may pass on its commands.
        """
        if self._setup.xclients and isinstance(self._server, SmtpServer):
            self._speaks_for_others = is_listed(self._client.address, self._setup.xclients)
            self._server.offer_xclient(self._speaks_for_others)

    def begin_tls(self, now: float) -> list[Action]:
        """Answer TlsWanted: what is in data_to_send() then goes out in clear, and everything later under TLS."""
        return self._go_on(self._server.answer(), now)

    def secured(self, tls: TlsFacts, now: float) -> list[Action]:
        """Note that the TLS handshake is done. What the client has said before is forgotten (RFC 3207 section 4.2)."""
        self._client = self._client._replace(tls=tls, hello=b"", esmtp=False)
        self._lines.append(log.tls_started(self._number, tls.version, tls.cipher))
        server = self._server
        assert isinstance(server, SmtpServer)
        events = server.secured()
        if server.state is ServerState.GREETING:
            events += server.greet()
        return self._go_on(events, now)

    def fail_tls(self, why: str, now: float) -> list[Action]:
        """Note that the TLS handshake, or what comes under TLS, has failed. The session ends; none goes on in clear."""
        self._lines.append(log.tls_failed(self._number, why))
        return self._go_on(self._server.lost(), now)

    def feed(self, data: bytes, now: float) -> list[Action]:
        """Take bytes of the client."""
        return self._go_on(self._server.feed(data), now)

    def forget_input(self) -> None:
        """Forget what the client has sent behind the open question: it is gone."""
        self._server.forget_input()

    def mailbox_delay(self, found: MailboxFound) -> float:
        """Return how many seconds to wait before `answer_mailbox`: the more recipients of a stranger are unknown, the
        longer.
        """
        if found is not MailboxFound.UNKNOWN or self._setup.policy.trusts(self._client):
            return 0.0
        self._unknown += 1
        return min(DELAY_STEP * (self._unknown - 1), DELAY_MAX)

    def answer_mailbox(self, found: MailboxFound, now: float, why: bytes = b"") -> list[Action]:
        """Answer MailboxWanted. The log has `why` a lookup could not be made."""
        wanted = self._mailbox
        assert wanted is not None
        if found is MailboxFound.UNDECIDED and wanted.servers and self._setup.policy.relays(self._client):
            # Mail of users is not refused because an LMTP server is being restarted: the queue waits for it.
            found = MailboxFound.EXISTS
        reply = self._setup.policy.decide_mailbox(found, self._client, now)
        if reply is None and (self._setup.dnslists or self._setup.greylist) and self._is_suspect(wanted.recipient):
            return self._check_stranger(wanted.recipient, now)
        return self._filter_recipient(wanted, reply, why, now)

    def answer_stranger(self, reply: ServerReply | None, now: float) -> list[Action]:
        """Answer StrangerWanted; None if the stranger may send to the recipient."""
        wanted = self._mailbox
        assert wanted is not None
        if reply is not None and not reply.positive and reply.code >= 500:
            # No other recipient will make a difference.
            self._listed = reply
        else:
            self._unlisted = True
        return self._refuse_stranger(reply, now)

    def _is_suspect(self, recipient: bytes) -> bool:
        """Return whether the client is to be looked up before it may send to a recipient."""
        # Whoever is refused must be able to ask why (RFC 5321 section 4.5.1).
        return split_address(recipient)[0].lower() != b"postmaster" and not self.trusted

    def _check_stranger(self, recipient: bytes, now: float) -> list[Action]:
        if self._listed is not None:
            return self._refuse_stranger(self._listed, now)
        lists, greylist = self._setup.dnslists and not self._unlisted, self._setup.greylist
        if not lists and not greylist:
            return self._refuse_stranger(None, now)
        return [StrangerWanted(self._client.address, self._sender, recipient, lists, greylist)]

    def _refuse_stranger(self, reply: ServerReply | None, now: float) -> list[Action]:
        assert self._mailbox is not None
        over = self._setup.policy.count_refusal(reply, self._client, now)
        return self._filter_recipient(self._mailbox, over, b"", now)

    def _filter_recipient(
        self, wanted: MailboxWanted, reply: ServerReply | None, why: bytes, now: float
    ) -> list[Action]:
        """Have the filters asked about a recipient who would be taken."""
        if reply is None and self._filtered and len(wanted.recipient) <= ADDRESS_MAX:
            return [RecipientFiltered(wanted.recipient)]
        return self._go_on(self._end_recipient(wanted, reply, why), now)

    def answer_filter(self, reply: ServerReply | None, now: float) -> list[Action]:
        """Answer SenderFiltered or RecipientFiltered; None is yes."""
        asked = self._server.asked
        if isinstance(asked, SenderGiven):
            return self._go_on(self._end_sender(asked, reply), now)
        wanted = self._mailbox
        assert wanted is not None
        return self._go_on(self._end_recipient(wanted, reply, b""), now)

    def end_filtered(self, reply: ServerReply | None, now: float) -> list[Action]:
        """Answer MessageFinished: the filters refuse the message, or None, have discarded it."""
        self._started = False
        if reply is None:
            self._lines.append(log.discarded(self._number, self._size, len(self._recipients)))
            return self._go_on(self._server.answer(), now)
        self._log_refusal(b"message", reply)
        return self._go_on(self._server.answer(reply), now)

    def answer_password(self, right: bool | None, now: float) -> list[Action]:
        """Answer PasswordGiven; None if the password cannot be checked now."""
        asked = self._server.asked
        assert isinstance(asked, PasswordGiven)
        if right is None:
            return self._answer_auth(asked.user, replies.AUTH_FAILED_FOR_NOW, now)
        if right:
            return self._go_on(self._server.answer(), now)
        self._counted = True
        over = self._setup.policy.count_refused_user(self._client, now)
        if over is None:
            return self._go_on(self._server.answer(replies.BAD_CREDENTIALS), now)
        return [ReplyDelayed(FAILURE_SECONDS), *self._answer_auth(asked.user, over, now)]

    def answer_verifier(self, found: tuple[Verifier | None] | None, now: float) -> list[Action]:
        """Answer VerifierWanted; None if it cannot be looked up now."""
        asked = self._server.asked
        assert isinstance(asked, VerifierWanted)
        if found is None:
            return self._answer_auth(asked.user, replies.AUTH_FAILED_FOR_NOW, now)
        server = self._server
        assert isinstance(server, SmtpServer)
        return self._go_on(server.give_verifier(found[0]), now)

    def _answer_auth(self, user: bytes, reply: ServerReply, now: float) -> list[Action]:
        self._log_refusal(b"AUTH " + user, reply)
        return self._go_on(self._server.answer(reply), now)

    def answer_etrn(self, reply: ServerReply, now: float) -> list[Action]:
        """Answer MailWanted."""
        asked = self._server.asked
        assert isinstance(asked, MailWanted)
        if reply.positive:
            self._lines.append(log.mail_wanted(self._number, asked.name, reply))
        else:
            self._log_refusal(b"ETRN " + asked.name, reply)
        return self._go_on(self._server.answer(reply), now)

    def answer_turn(self, reply: ServerReply, domains: list[bytes], now: float) -> list[Action]:
        """Answer TurnWanted, which has these domains."""
        if reply.positive:
            self._lines.append(log.mail_turned(self._number, domains, reply))
        else:
            self._log_refusal(b"ATRN " + b",".join(domains), reply)
        return self._go_on(self._server.answer(reply), now)

    def take_rest(self) -> bytes:
        """Return what the client has sent behind ATRN, once it is the server."""
        assert isinstance(self._server, SmtpServer)
        return self._server.take_rest()

    def end_turn(self, now: float) -> list[Action]:
        """End the session: the client has its mail."""
        assert isinstance(self._server, SmtpServer)
        return self._go_on(self._server.end_turn(), now)

    def begin_message(self, reply: ServerReply | None, seconds: int, now: float) -> list[Action]:
        """Answer MessageStarted; None is yes. `seconds` is the time since the epoch."""
        if reply is not None:
            self._log_refusal(b"DATA", reply)
            return self._go_on(self._server.answer(reply), now)
        self._started = True
        self._received += 1
        # A user of this host (sendmail -bs) has no address, and may relay, but is no filter.
        trusted = bool(self._client.address) and self._setup.policy.relays(self._client)
        bare = self._setup.settings.message.bare_line_ends
        self._forged = None if trusted else ForgedResults(self._setup.authserv, bare)
        names_user = self._setup.names_user
        field = pack_received(self._client, self._setup.me, seconds, self._server.smtputf8, names_user)
        return [MessageText(field), *self._go_on(self._server.answer(), now)]

    def end_message(self, answer: Answer | None, now: float) -> list[Action]:
        """Answer MessageFinished with what queue-intake has said; None if it has said nothing."""
        self._started = False
        reply = _reply_to_message(answer)
        if reply.positive:
            assert answer is not None
            self._messages += 1
            self._lines.append(log.queued(self._number, answer.long_id, self._size, len(self._recipients)))
        else:
            # The log has what queue-intake says, which may name paths of this host.
            said = reply if answer is None else reply._replace(text=answer.text)
            self._log_refusal(b"message", said)
        return self._go_on(self._server.answer(reply), now)

    def close(self, reply: ServerReply, reason: str, now: float) -> list[Action]:
        """End the session with a reply."""
        return self._go_on(self._server.close(reply, reason), now)

    def lost(self, now: float) -> list[Action]:
        """Note that the client is gone."""
        return self._go_on(self._server.lost(), now)

    def _go_on(self, events: list[ServerEvent], now: float) -> list[Action]:
        """Carry out events, until a question is open that the caller must answer, or there are no more."""
        actions: list[Action] = []
        while events:
            following: list[ServerEvent] = []
            for event in events:
                # Only the last one is a question, whose answer leads to more events.
                following = self._take(event, actions, now)
            events = following
        return actions

    def _take(self, event: ServerEvent, actions: list[Action], now: float) -> list[ServerEvent]:
        """Carry out an event; return those that follow from an answer."""
        server = self._server
        if isinstance(event, MessagePiece):
            text = event.data if self._forged is None else self._forged.feed(event.data)
            if text:
                actions.append(MessageText(text))
        elif isinstance(event, RecipientGiven):
            return self._take_recipient(event, actions, now)
        elif isinstance(event, SenderGiven):
            return self._take_sender(event, actions, now)
        elif isinstance(event, MessageBegun):
            reply = self._decide(event, now)
            if isinstance(reply, ServerReply):
                self._log_refusal(b"DATA", reply)
                return server.answer(reply)
            actions.append(MessageStarted())
        elif isinstance(event, MessageEnded):
            self._size = event.size
            if self._forged is not None and (rest := self._forged.end()):
                actions.append(MessageText(rest))
            actions.append(MessageFinished(self._sender, self._recipients))
        elif isinstance(event, HelloGiven):
            self._client = self._client._replace(hello=event.name, esmtp=event.esmtp)
            return server.answer()
        elif isinstance(event, TlsWanted | PasswordGiven | VerifierWanted | MailWanted):
            actions.append(event)
        elif isinstance(event, TurnWanted):
            return self._take_turn(event, actions, now)
        elif isinstance(event, UserAuthenticated):
            self._client = self._client._replace(user=event.user, mechanism=event.mechanism)
            self._lines.append(log.authenticated(self._number, event.user, event.mechanism))
        elif isinstance(event, UserRefused):
            if not self._counted:
                self._setup.policy.count_refused_user(self._client, now)
            self._counted = False
            self._log_refusal(b"AUTH " + event.user, replies.BAD_CREDENTIALS)
            actions.append(ReplyDelayed(FAILURE_SECONDS))
        elif isinstance(event, TransactionDropped):
            self._lines.append(log.dropped(self._number))
            if self._started:
                self._started = False
                actions.append(MessageDropped())
        elif isinstance(event, BadCommand):
            self._log_refusal(event.shown, event.reply)
        elif isinstance(event, SessionClosed):
            self._log_end(event.reason, now)
        else:
            actions.append(self._replace_client(event, now))
        return []

    def _take_turn(self, event: TurnWanted, actions: list[Action], now: float) -> list[ServerEvent]:
        """Judge ATRN. RFC 2645 section 5.2.1: if one of the domains is not the user's, no mail goes out."""
        own = self._setup.customers.get(self._client.user, ())
        domains = event.domains or list(own)
        if domains and all(domain in own for domain in domains):
            actions.append(TurnWanted(domains))
            return []
        self._log_refusal(b"ATRN " + b",".join(domains), replies.TURN_REFUSED)
        return self._server.answer(replies.TURN_REFUSED)

    def _replace_client(self, event: ClientChanged, now: float) -> ClientReplaced:
        """Begin anew with the client that XCLIENT has named. For the log it is another session."""
        self._log_end("XCLIENT", now)
        attributes = event.attributes
        client = self._client = replace_client(self._client, attributes)
        self._port = int(attributes.get(b"PORT") or (0 if b"ADDR" in attributes else self._port))
        self._server_port = int(attributes.get(b"DESTPORT") or self._server_port)
        # RELAYCLIENT was for the proxy.
        self._setup = self._setup._replace(relay_suffix=b"")
        self._judge_proxy()
        self._begun = now
        self._messages = self._errors = self._unknown = 0
        self._listed = None
        self._unlisted = self._counted = False
        self._lines.append(log.connect(self._number, *self._places()))
        if client.tls is not None:
            self._lines.append(log.tls_started(self._number, client.tls.version, client.tls.cipher))
        if client.user:
            self._lines.append(log.authenticated(self._number, client.user, client.mechanism))
        return ClientReplaced(client.address, self._port, self._server_port)

    def _places(self) -> tuple[str, int, bytes, str, int]:
        """Return where the client and the server are, for the log."""
        client = self._client
        return client.shown_address, self._port, client.name, client.shown_server, self._server_port

    def _log_end(self, reason: str, now: float) -> None:
        seconds = int(now - self._begun)
        self._lines.append(log.ended(self._number, reason, self._messages, self._errors, seconds))

    def _take_sender(self, event: SenderGiven, actions: list[Action], now: float) -> list[ServerEvent]:
        reply = self._decide(event, now)
        if reply is None and self._filtered:
            # The message that may follow has this name.
            identity = b"%d-%d" % (self._number, self._received + 1)
            parameters = _shown_parameters(event)
            actions.append(SenderFiltered(self._client, identity, event.address, parameters))
            return []
        assert not isinstance(reply, MailboxWanted)
        return self._end_sender(event, reply)

    def _end_sender(self, event: SenderGiven, reply: ServerReply | None) -> list[ServerEvent]:
        if reply is not None:
            self._log_refusal(b"MAIL <%s>" % event.address, reply)
            return self._server.answer(reply)
        self._sender = event.address
        self._recipients = []
        self._lines.append(log.sender_accepted(self._number, event.address, event.parameters.size))
        return self._server.answer()

    def _take_recipient(self, event: RecipientGiven, actions: list[Action], now: float) -> list[ServerEvent]:
        address = event.address + self._setup.relay_suffix
        if len(address) > ADDRESS_MAX:
            decision: Decision = replies.BAD_RECIPIENT
        else:
            decision = self._decide(RecipientGiven(address), now)
        if isinstance(decision, ServerReply):
            self._log_refusal(b"RCPT <%s>" % address, decision)
            return self._server.answer(decision)
        assert decision is not None
        self._mailbox = decision
        actions.append(decision)
        return []

    def _end_recipient(self, wanted: MailboxWanted, reply: ServerReply | None, why: bytes) -> list[ServerEvent]:
        if len(wanted.recipient) > ADDRESS_MAX:
            reply = replies.BAD_RECIPIENT
        if reply is None:
            self._recipients.append(wanted.recipient)
            self._lines.append(log.recipient_accepted(self._number, wanted.recipient))
        else:
            # Why a lookup failed may name paths of this host, so it is for the log alone.
            said = reply._replace(text=why) if why and reply == replies.RECIPIENT_UNDECIDED else reply
            self._log_refusal(b"RCPT <%s>" % wanted.recipient, said)
        return self._server.answer(reply)

    def _decide(self, question: SenderGiven | RecipientGiven | MessageBegun, now: float) -> Decision:
        try:
            return self._setup.policy.decide(question, self._client, now)
        except (OSError, FormatError):
            return replies.RULES_UNDECIDED

    def _log_refusal(self, what: bytes, reply: ServerReply) -> None:
        self._errors += 1
        self._lines.append(log.refused(self._number, what, reply, self._client.shown_address))


def _shown_parameters(event: SenderGiven) -> list[bytes]:
    """Return the parameters of MAIL as a client writes them."""
    given = event.parameters
    size = [b"SIZE=%d" % given.size] if given.size else []
    return size + [b"BODY=8BITMIME"] * given.eight_bit + [b"SMTPUTF8"] * given.smtputf8


def _reply_to_message(answer: Answer | None) -> ServerReply:
    """Return the reply to a message for an answer of queue-intake, None if there is none."""
    if answer is not None and answer.letter == ACCEPTED:
        return replies.MESSAGE_TAKEN._replace(text=answer.text)
    if answer is not None and answer.letter == PERMANENT:
        # It is about the message, such as its size. A Z may name paths of this host, so only the log has its text.
        found = _STATUS.search(answer.text)
        status = found[1] if found else replies.MESSAGE_REFUSED.status
        return replies.MESSAGE_REFUSED._replace(status=status, text=_STATUS.sub(b"", answer.text))
    return replies.QUEUE_UNAVAILABLE
