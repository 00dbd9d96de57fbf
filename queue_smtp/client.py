"""The client side of an SMTP or LMTP connection without I/O: bytes from the server in, events and commands out.

    events = client.feed(data)       for bytes that the server sent
    data = client.data_to_send()     after each call
    client.state                     says what the caller does next

The client has no callbacks. Events are facts about the recipients, the transaction or the connection; the caller words
reports. Nothing that a server sends raises: bytes that are no reply, or a reply to no command, end the connection.

A reply belongs to the oldest command that has none. While replies are outstanding, the state is named after that
command, also if more commands have been sent after it (PIPELINING, RFC 2920).

    state      waits for                       next state
    TLS        secured()                       GREETING under implicit TLS, EHLO after STARTTLS
    GREETING   220                             EHLO; HELO if the session has no ESMTP; LHLO for LMTP
    EHLO       2xx                             STARTTLS, AUTH or READY; HELO after 5xx in clear
    LHLO       2xx                             STARTTLS, AUTH or READY
    HELO       2xx                             AUTH or READY
    STARTTLS   220                             TLS; AUTH or READY if it is refused, not by 421, and TLS is optional
    AUTH       235; 334 is a challenge         READY; AUTH after a challenge
    READY      begin() or quit()               RSET, MAIL; QUIT
    RSET       2xx                             MAIL
    MAIL       2xx; 4xx and 5xx refuse it      RCPT; READY
    RCPT       2xx; 4xx and 5xx refuse one     RCPT, DATA; READY if no recipient is left
    DATA       354; 4xx and 5xx refuse it      MESSAGE; READY
    MESSAGE    message_sent()                  END; the caller sends the message (queue_smtp.dotstuff)
    END        2xx; 4xx and 5xx refuse it      READY; RSET if the next transaction was begun; END for LMTP
    QUIT       the answer to QUIT              CLOSED
    CLOSED                                     the caller closes the connection

From each state before READY the client goes to QUIT if the server does not offer what the session needs, and from each
state to CLOSED if the connection fails. CLOSED without QUIT means that nothing more may be sent: it could be taken for
a part of a message.

MAIL, all RCPTs and DATA are sent at once if the server offers PIPELINING. If it then wants a message although it
accepted no sender or no recipient, the connection ends: the lone dot of RFC 2920 would be an empty message to the
recipients that the server has kept. RSET precedes the next MAIL for the same reason, if the server may have kept any.

The next transaction may begin in END, if the server offers PIPELINING: its envelope is sent behind the final dot, as
RFC 2920 section 3.1 allows. RSET comes first, because it is not known yet whether the server takes the message. Up to
the reply to the dot, a failure of the connection is the message's; the next transaction has not been attempted then.
`withdraw` gives it up.

A transaction that fails before the server has accepted MAIL has had no effect and may be tried with another server.
MAIL that is refused on a connection that has carried others ends the connection, so that it is tried on a fresh one.

LMTP (RFC 2033) is SMTP (RFC 5321) with LHLO for EHLO, and with a reply to the final dot for each recipient that was
accepted, in the order of their RCPTs. No transaction begins in END then: if a server gave fewer replies than it should,
those to the next envelope would be taken for them, and mail would be lost. So the connection waits for all of them.
"""

import binascii
import enum
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from queue_smtp.auth import Credentials, Mechanism, choose
from queue_smtp.path import SmtpPath
from queue_smtp.reply import Reply, ReplyReader
from queue_wire.format_error import FormatError

# Commands without a reply at any time. It bounds the memory for a server that answers and does not read.
PIPELINED_MAX = 100
# No mechanism has more than three challenges.
CHALLENGES_MAX = 10
CLOSED_BY_PEER = "it closed the connection"
# A server that closed the connection is seen as one of these, since a command sent after that causes a reset.
_CLOSED_BY_PEER = (CLOSED_BY_PEER, "connection reset by peer", "broken pipe")


class ClientState(enum.Enum):
    """The states of the table above; the value is the name in texts."""

    TLS = b"TLS handshake"
    GREETING = b"greeting"
    EHLO = b"EHLO"
    LHLO = b"LHLO"
    HELO = b"HELO"
    STARTTLS = b"STARTTLS"
    AUTH = b"AUTH"
    READY = b"idle"
    RSET = b"RSET"
    MAIL = b"MAIL"
    RCPT = b"RCPT"
    DATA = b"DATA"
    MESSAGE = b"message"
    END = b"end of message"
    QUIT = b"QUIT"
    CLOSED = b"closed"

    # Enum's own hash is slow, and two tables are looked up for each reply.
    __hash__ = object.__hash__


# Names of their own, because Python 3.11 is slow to look up a member of an Enum, and each reply needs several.
_TLS, _GREETING, _EHLO, _LHLO, _HELO, _STARTTLS, _AUTH, _READY, *_REST = ClientState
_RSET, _MAIL, _RCPT, _DATA, _MESSAGE, _END, _QUIT, _CLOSED = _REST
# The next states after a reply, QUIT and CLOSED apart.
TRANSITIONS: dict[ClientState, tuple[ClientState, ...]] = {
    _GREETING: (_EHLO, _LHLO, _HELO),
    _EHLO: (_HELO, _STARTTLS, _AUTH, _READY),
    _LHLO: (_STARTTLS, _AUTH, _READY),
    _HELO: (_AUTH, _READY),
    _STARTTLS: (_TLS, _AUTH, _READY),
    _AUTH: (_AUTH, _READY),
    _RSET: (_MAIL,),
    _MAIL: (_RCPT, _READY),
    _RCPT: (_RCPT, _DATA, _READY),
    _DATA: (_MESSAGE, _READY),
    _END: (_END, _READY, _RSET),
}
# The connection is not READY yet, and the next step is the server's.
OPENING = (_GREETING, _EHLO, _LHLO, _HELO, _STARTTLS, _AUTH)
# Replies to a transaction's commands are outstanding. Its result can be known before the last one.
ENVELOPE = (_RSET, _MAIL, _RCPT, _DATA)
# The connection can carry nothing more.
ENDED = (_CLOSED, _QUIT)
# The replies to a whole envelope may come together.
_FLIGHT = (_MAIL, _RSET)
# The message is on its way, or sent.
_WITH_MESSAGE = (_MESSAGE, _END)
# Only DATA and AUTH are continued after a 3xx reply.
_WITHOUT_INTERMEDIATE = (_RSET, _MAIL, _RCPT, _MESSAGE, _END)


class Tls(enum.Enum):
    """NEVER: in clear. MAY: STARTTLS if offered. MUST: STARTTLS is required. IMPLICIT: TLS from the first byte."""

    NEVER = 1
    MAY = 2
    MUST = 3
    IMPLICIT = 4


class Session(NamedTuple):
    """The parameters of one connection: `peer` is the server as texts name it, `name` the argument of EHLO.

    AUTH is done if there are `credentials`. Without `pipelining` commands are sent one by one, without `esmtp` HELO
    replaces EHLO, whatever the server offers. `policy` names what requires TLS, for texts; it is empty if nothing does.
    Unless it is `replaceable`, there can be no other connection to the server.
    `ours` are this host's names in lower case: a server that answers with one of them is this host. It is empty if
    the server may be this host. `lmtp`: the server speaks LMTP.
    """

    peer: bytes
    name: bytes
    tls: Tls = Tls.NEVER
    credentials: Credentials | None = None
    pipelining: bool = True
    esmtp: bool = True
    policy: bytes = b""
    ours: frozenset[bytes] = frozenset()
    lmtp: bool = False
    replaceable: bool = True


class SmtpEnvelope(NamedTuple):
    """A message's envelope as SMTP carries it: the packed paths, and the size as RFC 1870 counts it (0: not known).

    `eight_bit` says that the message has 8-bit bytes, which a server with 8BITMIME is told (RFC 6152).
    `header_utf8` says that its header has some, in UTF-8: a server with SMTPUTF8 is told, and any other gets it all the
    same, since hosts without it have long passed such headers on.
    """

    reverse_path: SmtpPath
    forward_paths: list[SmtpPath]
    size: int
    eight_bit: bool
    header_utf8: bool = False


class Problem(enum.Enum):
    """Why a transaction or a connection failed. Problems marked with * come with the server's reply."""

    # Of a connection that is being opened.
    GREETING = enum.auto()  # * no 220
    NAME = enum.auto()  # * EHLO or HELO refused
    OWN_NAME = enum.auto()  # * the server is this host
    NO_STARTTLS = enum.auto()  # required and not offered
    STARTTLS = enum.auto()  # * required and refused, or 421
    INJECTED = enum.auto()  # bytes between the reply to STARTTLS and TLS
    HANDSHAKE = enum.auto()  # with details
    CERTIFICATE = enum.auto()  # with details
    NO_MECHANISM = enum.auto()  # no AUTH mechanism that may be used
    AUTH = enum.auto()  # * refused
    CHALLENGE = enum.auto()  # with details: an AUTH exchange that makes no sense
    # Of a connection in any state.
    NOT_SMTP = enum.auto()  # with details: bytes that are no reply
    OUT_OF_TURN = enum.auto()  # * a reply to no command, or 3xx to a command that is complete
    ENDED = enum.auto()  # * 421, or RSET refused
    LOST = enum.auto()  # with details: the connection died, or no reply came in time
    NO_MESSAGE = enum.auto()  # with details: the caller cannot read the message
    WITHDRAWN = enum.auto()  # the transaction that was begun behind a message was given up
    # Of a transaction. SENDER, DATA and MESSAGE end the connection too if the client and the server disagree
    # about its state.
    TOO_LARGE = enum.auto()  # larger than size_limit
    SENDER_NEEDS_SMTPUTF8 = enum.auto()
    NO_RECIPIENT_LEFT = enum.auto()  # all need SMTPUTF8
    SENDER = enum.auto()  # * refused
    RECIPIENTS = enum.auto()  # all refused
    DATA = enum.auto()  # * refused
    MESSAGE = enum.auto()  # * refused


class RecipientRefused(NamedTuple):
    """The server refused forward_paths[number]. `after` is the number of recipients that it accepted before."""

    number: int
    reply: Reply
    after: int


class RecipientNeedsSmtputf8(NamedTuple):
    """forward_paths[number] was left out: it needs SMTPUTF8 (RFC 6531), which the server does not offer."""

    number: int


class RecipientAnswered(NamedTuple):
    """LMTP: the server took the message for forward_paths[number], which it had accepted, or refused it for that one.

    The result of the transaction follows the last of these events: whether the server took the message for any.
    """

    number: int
    reply: Reply


class TransactionAccepted(NamedTuple):
    """The server took the message for all recipients that it accepted; for LMTP, for one or more of them."""

    reply: Reply


class TransactionRejected(NamedTuple):
    """The server took the message for no recipient."""

    problem: Problem
    reply: Reply | None = None


class ConnectionFailed(NamedTuple):
    """The connection failed in `state`. `in_transaction`: so did a transaction whose MAIL the server had accepted.

    `answered` is the number of its recipients that have a reply, or were left out.
    """

    problem: Problem
    state: ClientState
    reply: Reply | None
    details: str
    in_transaction: bool
    answered: int = 0


RecipientEvent = RecipientRefused | RecipientNeedsSmtputf8 | RecipientAnswered
Event = RecipientEvent | TransactionAccepted | TransactionRejected | ConnectionFailed


class _TransactionState:
    """How far a transaction has come: `paths` has the number and the path of each recipient that the server can take.

    `asked`, `answered` and `accepted` count recipients. `finished`: its result is known.

    For LMTP: `taken` has the numbers of the recipients that the server accepted, and `delivered` counts those for which
    it took the message.
    """

    __slots__ = (
        *("accepted", "answered", "asked", "data_asked", "delivered", "finished", "mail", "mail_accepted", "paths"),
        "taken",
    )

    def __init__(self, mail: bytes, paths: list[tuple[int, bytes]]) -> None:
        self.mail = mail
        self.paths = paths
        self.asked = self.answered = self.accepted = self.delivered = 0
        self.taken: list[int] = []
        self.data_asked = self.mail_accepted = self.finished = False


class SmtpClient:
    """One connection. The attributes without an underscore are for the caller to read.

    `extensions` maps each EHLO keyword, in upper case, to its parameters; what was said before TLS is forgotten.
    `size_limit` is the largest message, in bytes, that the server says it takes (RFC 1870); 0 if there is no limit.
    `failure` is the ConnectionFailed event once it has occurred. `replies` counts the replies, and `transactions` those
    that were begun. `secure` is true under TLS. `dismissed`: the server said 421. `tls_broken`: the connection failed
    because of TLS, or at STARTTLS, or under TLS before it was READY and without a reply. `ehlo_broken`: the server
    closed the connection at EHLO, and HELO may do better.
    """

    __slots__ = (
        *("_awaited", "_challenges", "_current", "_events", "_greeted", "_lmtp", "_mechanism", "_next", "_out"),
        "_reader",
        *("_recipients_kept", "_window"),
        *("dismissed", "ehlo_broken", "extensions", "failure", "replies", "secure", "session", "size_limit", "state"),
        *("tls_broken", "transactions"),
    )

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lmtp = session.lmtp
        self.secure = session.tls is Tls.IMPLICIT
        self.state = _TLS if self.secure else _GREETING
        self.extensions: dict[bytes, bytes] = {}
        self.size_limit = 0
        self.failure: ConnectionFailed | None = None
        self.replies = 0
        self.transactions = 0
        self.dismissed = False
        self.tls_broken = False
        self.ehlo_broken = False
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._reader = ReplyReader()
        # Commands without a reply, the oldest first.
        self._awaited: deque[ClientState] = deque(() if self.secure else (_GREETING,))
        self._greeted = b""
        self._mechanism: Mechanism | None = None
        self._challenges = 0
        # The transaction whose replies come now, until the last one is in, and the one that was begun behind it.
        self._current: _TransactionState | None = None
        self._next: _TransactionState | None = None
        self._window = 1
        # The server has accepted MAIL, or a recipient after a MAIL that it refused, and no message since.
        self._recipients_kept = False

    @property
    def ended(self) -> bool:
        """Whether the connection can carry nothing more."""
        return self.state in ENDED

    @property
    def _transaction(self) -> _TransactionState:
        assert self._current is not None
        return self._current

    @property
    def looped(self) -> bool:
        """Whether the connection ended because the server is this host."""
        return self.failure is not None and self.failure.problem is Problem.OWN_NAME

    @property
    def authenticating(self) -> bool:
        """Whether what is sent now answers a challenge, so that it is a secret."""
        return self._mechanism is not None

    @property
    def pipelines(self) -> bool:
        """Whether commands are sent without waiting for replies."""
        return self.session.pipelining and b"PIPELINING" in self.extensions

    @property
    def takes_next(self) -> bool:
        """Whether `begin` may be called now."""
        if self.state is _END:
            # The reply to a final dot may be loose if no other is awaited with it.
            return len(self._awaited) == 1 and self.pipelines and not self._lmtp
        return self.state is _READY

    @property
    def _reads_loosely(self) -> bool:
        """Whether a reply counts that is not strict: it cannot be taken for another's.

        Until the end of the opening the peer may be no mail server at all.
        """
        if len(self._awaited) > 1:
            return False
        return self.state in _WITH_MESSAGE or (self.state in ENVELOPE and not self.pipelines)

    # Input and output.

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes from the server; return what they mean."""
        if self.state is _TLS:
            # Anybody on the way could have inserted them.
            self.tls_broken = True
            self._fail(Problem.INJECTED)
        elif self.state is _QUIT:
            self.state = _CLOSED
        elif self.state is not _CLOSED:
            self._reader.feed(data)
            try:
                while self.state not in ENDED:
                    if self.state in _FLIGHT and self._take_all():
                        continue
                    reply = self._reader.next(self._reads_loosely)
                    if reply is None:
                        break
                    self._take(reply)
            except FormatError as error:
                self.tls_broken = self.tls_broken or self.state is _STARTTLS
                self._fail(Problem.NOT_SMTP, details=str(error))
        return self._take_events()

    def data_to_send(self) -> bytes:
        """Return the commands to send since the last call."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def lost(self, reason: str = CLOSED_BY_PEER) -> list[Event]:
        """Note that the connection ended, or that no reply came in time."""
        state = self.state
        if state in (_STARTTLS, _TLS) or (self.secure and state in OPENING):
            self.tls_broken = True
        elif state in (_EHLO, _HELO) and reason in _CLOSED_BY_PEER:
            # Some old servers close the connection at a command that they do not know, without a reply.
            self.ehlo_broken = self.session.esmtp
        elif state is _QUIT:
            self.state = _CLOSED
        self._fail(Problem.LOST, details=reason)
        return self._take_events()

    # TLS.

    def secured(self) -> None:
        """Note that the TLS handshake is done and the certificate is good.

        What the server said before is forgotten (RFC 3207 section 4.2). Under implicit TLS the greeting comes now.
        """
        if self.ended:
            return
        assert self.state is _TLS
        if self.secure:
            self.state = _GREETING
            self._awaited.append(_GREETING)
            return
        self.secure = True
        self.extensions = {}
        self.size_limit = 0
        self._reader = ReplyReader()
        self.state = self._say_hello(_LHLO if self._lmtp else _EHLO)

    def handshake_failed(self, reason: str) -> list[Event]:
        """Note that the TLS handshake failed."""
        return self._tls_failed(Problem.HANDSHAKE, reason)

    def unverified(self, reason: str) -> list[Event]:
        """Note that the handshake is done and the certificate is not good."""
        return self._tls_failed(Problem.CERTIFICATE, reason)

    def _tls_failed(self, problem: Problem, reason: str) -> list[Event]:
        self.tls_broken = True
        self._fail(problem, details=reason)
        return self._take_events()

    # Transactions.

    def begin(self, envelope: SmtpEnvelope) -> list[Event]:
        """Begin a transaction; only if `takes_next`. The state does not change if this server cannot take the message.

        The events are this transaction's.
        """
        assert self.takes_next
        if self.size_limit and envelope.size > self.size_limit:
            return [TransactionRejected(Problem.TOO_LARGE)]
        progress = self._prepare(envelope)
        if progress is None:
            return self._take_events()
        self.transactions += 1
        self._window = PIPELINED_MAX if self.pipelines else 1
        behind = self.state is _END
        if self._recipients_kept:
            # Behind a message its recipients are kept until the reply to it.
            self._recipients_kept = behind
            self._ask(_RSET, b"RSET\r\n")
        if len(self._awaited) < self._window:
            self._ask(_MAIL, progress.mail)
            self._ask_recipients(progress)
        if behind:
            self._next = progress
        else:
            self._current = progress
            self.state = self._awaited[0]
        return self._take_events()

    def withdraw(self) -> None:
        """Give up the transaction that was begun behind a message; the connection ends with the message's reply."""
        self._next = None

    def message_sent(self) -> None:
        """Note that the message and its final dot are sent."""
        if self.state is _MESSAGE:
            self.state = _END
            if self._lmtp:
                self._awaited.extend([_END] * len(self._transaction.taken))
            else:
                self._awaited.append(_END)

    def abandon(self, reason: str) -> list[Event]:
        """End the connection at once, because the message cannot be read."""
        self._fail(Problem.NO_MESSAGE, details=reason)
        return self._take_events()

    def quit(self) -> None:
        """End the connection, with QUIT if the state is READY."""
        if self.state is _READY:
            self._out.append(b"QUIT\r\n")
            self.state = _QUIT
        elif self.state is not _QUIT:
            self.state = _CLOSED

    # Replies. The method for a state returns the next state.

    def _take_all(self) -> bool:
        """Take the replies to a whole envelope, if it is in flight and all of them accept; return whether.

        The result is the same as that of one reply after the other, for a fifth of the work.
        """
        current, awaited = self._current, self._awaited
        if current is None or not current.data_asked or not self._reader.skip_accepted(len(awaited) - 1):
            return False
        self.replies += len(awaited)
        awaited.clear()
        current.answered = current.accepted = len(current.paths)
        if self._lmtp:
            current.taken = [number for number, _ in current.paths]
        current.mail_accepted = self._recipients_kept = True
        self.state = _MESSAGE
        return True

    def _take(self, reply: Reply) -> None:
        self.replies += 1
        state = self.state
        if state is _READY or (300 <= reply.code < 400 and state in _WITHOUT_INTERMEDIATE):
            # After a 3xx reply the server waits for something, perhaps the message, which was not announced.
            self._fail(Problem.OUT_OF_TURN, reply)
        else:
            if state is not _MESSAGE:
                self._awaited.popleft()
            following = _HANDLERS[state](self, reply)
            if following is not self.state:
                assert following in TRANSITIONS[state]
                self.state = following
        if reply.code == 421:
            self.dismissed = True
            self._fail(Problem.ENDED, reply, state=state)

    def _on_greeting(self, reply: Reply) -> ClientState:
        self._greeted = _host(reply)
        if reply.code != 220:
            return self._decline(Problem.GREETING, reply)
        if self._lmtp:
            return self._say_hello(_LHLO)
        return self._say_hello(_EHLO if self.session.esmtp else _HELO)

    def _on_ehlo(self, reply: Reply) -> ClientState:
        """Take the reply to EHLO, or to LHLO."""
        if reply.accepted:
            for line in reply.text.split(b"\n")[1:]:
                keyword, _, parameters = line[4:].strip().partition(b" ")
                # `AUTH=` is older than RFC 2554; some servers still send both forms.
                keyword, equals, first = keyword.upper().partition(b"=")
                self.extensions[keyword] = b"%s %s" % (first, parameters) if equals else parameters
            limit = self.extensions.get(b"SIZE", b"")
            self.size_limit = int(limit) if limit.isdigit() and len(limit) < 19 else 0
            return self._on_name_accepted(reply)
        if reply.permanent and not self.secure and not self._lmtp:
            # RFC 5321 section 3.2: HELO is for servers that do not know EHLO.
            return self._say_hello(_HELO)
        return self._decline(Problem.NAME, reply)

    def _on_helo(self, reply: Reply) -> ClientState:
        return self._on_name_accepted(reply) if reply.accepted else self._decline(Problem.NAME, reply)

    def _on_name_accepted(self, reply: Reply) -> ClientState:
        """End the connection if the server has this host's name: the mail would come back.

        A server that greets with another name and answers EHLO with ours only repeats what EHLO said.
        """
        ours = self.session.ours
        if _host(reply) in ours and (self._greeted in ours or b"." not in self._greeted):
            return self._decline(Problem.OWN_NAME, reply)
        tls = self.session.tls
        if self.secure or tls is Tls.NEVER:
            return self._authenticate()
        if b"STARTTLS" in self.extensions:
            return self._ask(_STARTTLS, b"STARTTLS\r\n")
        return self._decline(Problem.NO_STARTTLS) if tls is Tls.MUST else self._authenticate()

    def _on_starttls(self, reply: Reply) -> ClientState:
        if reply.code == 220:
            if self._reader.pending:
                self.tls_broken = True
                return self._fail(Problem.INJECTED)
            return _TLS
        if self.session.tls is Tls.MUST:
            return self._decline(Problem.STARTTLS, reply)
        if reply.code == 421:
            # It closes the connection at STARTTLS, as others do without a word.
            self.tls_broken = True
            return self._decline(Problem.STARTTLS, reply)
        return self._authenticate()

    def _authenticate(self) -> ClientState:
        credentials = self.session.credentials
        if credentials is None:
            return _READY
        mechanism = choose(self.extensions.get(b"AUTH", b""), credentials, self.secure)
        if mechanism is None:
            return self._decline(Problem.NO_MECHANISM)
        self._mechanism = mechanism
        initial = mechanism.initial()
        command = b"AUTH " + mechanism.name
        if initial is not None:
            command += b" " + (_base64(initial) or b"=")
        return self._ask(_AUTH, command + b"\r\n")

    def _on_auth(self, reply: Reply) -> ClientState:
        assert self._mechanism is not None
        try:
            if reply.code != 334:
                mechanism, self._mechanism = self._mechanism, None
                if not reply.accepted:
                    return self._decline(Problem.AUTH, reply)
                mechanism.finish()
                return _READY
            self._challenges += 1
            if self._challenges > CHALLENGES_MAX:
                raise FormatError("more challenges than any mechanism has")
            answer = self._mechanism.answer(binascii.a2b_base64(reply.text.rpartition(b"\n")[2][4:]))
        except (FormatError, binascii.Error) as error:
            self._mechanism = None
            if reply.code == 334:
                # RFC 4954 section 4: `*` cancels the exchange.
                self._out.append(b"*\r\n")
            return self._decline(Problem.CHALLENGE, details=str(error))
        return self._ask(_AUTH, _base64(answer) + b"\r\n")

    def _on_reset(self, reply: Reply) -> ClientState:
        if not reply.accepted:
            return self._fail(Problem.ENDED, reply)
        return self._awaited[0] if self._awaited else self._ask(_MAIL, self._transaction.mail)

    def _on_mail(self, reply: Reply) -> ClientState:
        current = self._transaction
        if reply.accepted:
            current.mail_accepted = self._recipients_kept = True
            self._ask_recipients(current)
        elif reply.code == 421 or (self.transactions > 1 and self.session.replaceable):
            # Some servers take so many messages a connection, and then refuse each sender.
            return self._fail(Problem.SENDER, reply)
        else:
            self._finish(TransactionRejected(Problem.SENDER, reply))
        return self._next_awaited()

    def _on_recipient(self, reply: Reply) -> ClientState:
        current = self._transaction
        if current.finished:
            # MAIL was refused, so this reply changes no result.
            self._recipients_kept = self._recipients_kept or reply.accepted
            return self._next_awaited()
        if not reply.accepted:
            self._events.append(RecipientRefused(current.paths[current.answered][0], reply, current.accepted))
        elif self._lmtp:
            current.taken.append(current.paths[current.answered][0])
        current.answered += 1
        current.accepted += reply.accepted
        if current.answered == len(current.paths) and not current.accepted:
            self._finish(TransactionRejected(Problem.RECIPIENTS))
        else:
            self._ask_recipients(current)
        return self._next_awaited()

    def _on_data(self, reply: Reply) -> ClientState:
        if reply.code == 354 and not self._transaction.finished:
            return _MESSAGE
        self._finish(TransactionRejected(Problem.DATA, reply))
        if reply.accepted or reply.intermediate:
            # The server has a message, or waits for one.
            return self._fail(Problem.DATA, reply)
        return self._next_awaited()

    def _on_early_reply(self, reply: Reply) -> ClientState:
        """The rest of the message would be read as commands."""
        self._finish(TransactionRejected(Problem.MESSAGE, reply))
        return self._fail(Problem.MESSAGE, reply)

    def _on_end(self, reply: Reply) -> ClientState:
        accepted = reply.accepted
        if self._lmtp:
            current = self._transaction
            self._events.append(RecipientAnswered(current.taken[-1 - len(self._awaited)], reply))
            current.delivered += accepted
            if self._awaited:
                return _END
            accepted = current.delivered > 0
        self._finish(TransactionAccepted(reply) if accepted else TransactionRejected(Problem.MESSAGE, reply))
        self._current, self._next = self._next, None
        if not self._awaited:
            # RFC 5321 section 4.1.1.4 has the server forget the recipients; not all do so after a refusal.
            self._recipients_kept = not accepted
            if not self._reader.loose:
                return _READY
            # The rest of such a reply may come late, and would be taken for one to the next message's commands.
            self._out.append(b"QUIT\r\n")
            self.state = _QUIT
            return self.state
        # RSET is sent.
        self._recipients_kept = False
        return self._awaited[0] if self._current is not None else self._fail(Problem.WITHDRAWN)

    # Commands.

    def _ask(self, state: ClientState, command: bytes) -> ClientState:
        self._out.append(command)
        self._awaited.append(state)
        return state

    def _say_hello(self, state: ClientState) -> ClientState:
        return self._ask(state, b"%s %s\r\n" % (state.value, self.session.name))

    def _prepare(self, envelope: SmtpEnvelope) -> _TransactionState | None:
        """Make MAIL for this server, and choose the recipients that it can take; return None if nothing is left."""
        takes_utf8 = b"SMTPUTF8" in self.extensions
        reverse_path, utf8 = envelope.reverse_path
        if utf8 and not takes_utf8:
            self._events.append(TransactionRejected(Problem.SENDER_NEEDS_SMTPUTF8))
            return None
        paths = []
        for number, (path, needs_utf8) in enumerate(envelope.forward_paths):
            if needs_utf8 and not takes_utf8:
                # RFC 6531 section 3.5: the others can still get the message.
                self._events.append(RecipientNeedsSmtputf8(number))
            else:
                paths.append((number, path))
                utf8 = utf8 or needs_utf8
        if not paths:
            self._events.append(TransactionRejected(Problem.NO_RECIPIENT_LEFT))
            return None
        utf8 = utf8 or (envelope.header_utf8 and takes_utf8)
        mail = b"MAIL FROM:" + reverse_path
        if envelope.size and b"SIZE" in self.extensions:
            mail += b" SIZE=%d" % envelope.size
        if envelope.eight_bit and b"8BITMIME" in self.extensions:
            mail += b" BODY=8BITMIME"
        return _TransactionState(mail + (b" SMTPUTF8\r\n" if utf8 else b"\r\n"), paths)

    def _ask_recipients(self, progress: _TransactionState) -> None:
        """Send RCPTs, then DATA, as far as the window allows."""
        paths, awaited, out = progress.paths, self._awaited, self._out
        while len(awaited) < self._window and not progress.data_asked:
            if progress.asked < len(paths):
                out.append(b"RCPT TO:%s\r\n" % paths[progress.asked][1])
                awaited.append(_RCPT)
                progress.asked += 1
            else:
                out.append(b"DATA\r\n")
                awaited.append(_DATA)
                progress.data_asked = True

    # Ends.

    def _next_awaited(self) -> ClientState:
        """Return the state of the oldest command without a reply; after the last one the transaction is over."""
        if self._awaited:
            return self._awaited[0]
        self._current = None
        return _READY

    def _finish(self, result: TransactionAccepted | TransactionRejected) -> None:
        """Report the result of the transaction, once."""
        if not self._transaction.finished:
            self._transaction.finished = True
            self._events.append(result)

    def _decline(self, problem: Problem, reply: Reply | None = None, details: str = "") -> ClientState:
        """End the connection with QUIT: the server does not want us, or cannot do what we need."""
        self._out.append(b"QUIT\r\n")
        self._fail(problem, reply, details)
        self.state = _QUIT
        return self.state

    def _fail(
        self, problem: Problem, reply: Reply | None = None, details: str = "", state: ClientState | None = None
    ) -> ClientState:
        """End the connection, if it has not ended, with the transaction if the server may have begun to take it."""
        if not self.ended:
            current = self._current
            in_transaction = current is not None and current.mail_accepted and not current.finished
            # Those that were left out had their events.
            answered = current.paths[current.answered - 1][0] + 1 if current is not None and current.answered else 0
            self.failure = ConnectionFailed(problem, state or self.state, reply, details, in_transaction, answered)
            self._events.append(self.failure)
            self._awaited.clear()
            self.state = _CLOSED
        return self.state

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events


_HANDLERS: dict[ClientState, Callable[[SmtpClient, Reply], ClientState]] = {
    _GREETING: SmtpClient._on_greeting,
    _EHLO: SmtpClient._on_ehlo,
    _LHLO: SmtpClient._on_ehlo,
    _HELO: SmtpClient._on_helo,
    _STARTTLS: SmtpClient._on_starttls,
    _AUTH: SmtpClient._on_auth,
    _RSET: SmtpClient._on_reset,
    _MAIL: SmtpClient._on_mail,
    _RCPT: SmtpClient._on_recipient,
    _DATA: SmtpClient._on_data,
    _MESSAGE: SmtpClient._on_early_reply,
    _END: SmtpClient._on_end,
}


def _host(reply: Reply) -> bytes:
    """Return the name that a server gives itself: the first word of its greeting or reply to EHLO, in lower case."""
    return reply.text.partition(b"\n")[0][4:].strip().partition(b" ")[0].lower().removesuffix(b".")


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)
