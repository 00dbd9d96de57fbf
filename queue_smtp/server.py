"""The server side of an SMTP session without I/O (RFC 5321): bytes from a client in, events and replies out.

    events = server.feed(data)        for bytes that the client sent
    events = server.answer(reply)     the decision on the event in `server.asked`
    data = server.data_to_send()      after each call
    server.state                      says what the session waits for

Some events are questions: the server may do nothing more before it has an answer. There is one question at a time, the
last event of a list, and commands that are pipelined behind it wait (RFC 2920). So replies have the order of their
commands. `answer()` accepts, with the usual reply; `answer(reply)` gives another one, whose code decides. Replies 421
and 521 end the session. What an event says comes from the client, and is not checked further than its docstring says.

Nothing that a client sends raises. What it sends against the protocol is a BadCommand, and too many of them end the
session.

    state      takes                           next state
    TLS        secured()                       GREETING under implicit TLS, HELLO after STARTTLS
    GREETING   greet()                         HELLO
    HELLO      EHLO, HELO, XCLIENT             IDLE
    IDLE       MAIL                            MAIL
               STARTTLS                        TLS
               AUTH                            AUTH; IDLE once it is over
               XCLIENT                         HELLO
               ETRN                            IDLE
               ATRN                            REVERSED if it is accepted
    MAIL       RCPT                            RCPT if it is accepted
    RCPT       RCPT                            RCPT
               DATA                            DATA
               BDAT                            CHUNK
    DATA       the message, CRLF.CRLF          IDLE
    CHUNK      the bytes of a chunk            CHUNKS; IDLE after the last one
    CHUNKS     BDAT                            CHUNK
    SKIP       the bytes of a chunk that is    the state before, or IDLE if a transaction was refused
               refused
    AUTH       a response                      AUTH, IDLE
    REVERSED   nothing: the client is the      CLOSED, at end_turn()
               server (RFC 2645)
    CLOSED                                     the caller sends data_to_send() and closes the connection

NOOP, RSET, VRFY, HELP, QUIT and EHLO are taken in all states that take commands. RSET and EHLO end a transaction. Each
transaction that began, by an accepted MAIL, ends with one of: a MessageEnded, a negative answer to MessageBegun, or
TransactionDropped.

A session for ATRN takes no mail: before AUTH the commands of a transaction are 530, and 502 then (RFC 2645 section 5).

STARTTLS: whatever came behind it in clear is thrown away, and so is all that was said before TLS. The caller gives
`feed` nothing of the TLS handshake.

Memory: a command line over the limits is skipped, a message passes through in the pieces in which it comes, and while
`wants_data` is false the caller should not read. Then the session keeps a few kB beside what the last `feed` was given.
"""

import binascii
import re
from collections.abc import Callable

from queue_smtp import server_replies as replies
from queue_smtp.auth_server import (
    AuthChallenge,
    AuthStep,
    PasswordGiven,
    Proved,
    ServerMechanism,
    ServerScram,
    VerifierWanted,
    WrongProof,
    make_mechanism,
)
from queue_smtp.command import (
    COMMAND_MAX,
    RESPONSE_MAX,
    CommandRefused,
    divide_command,
    unpack_bdat,
    unpack_hello,
    unpack_mail,
    unpack_rcpt,
)
from queue_smtp.incoming import IncomingMessage
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
from queue_smtp.server_replies import ServerReply, pack_reply
from queue_smtp.server_session import ServerSession, ServerSettings, ServerState
from queue_smtp.xclient import ATTRIBUTES, unpack_xclient
from queue_wire.control.smtpdusers import Verifier
from queue_wire.format_error import FormatError

# While a question is open, more than this is not read.
WAITING_MAX = 4096
# RFC 5321 section 4.5.3.2.7, and as long between two pieces of a message.
TIMEOUT = 300
AUTH_FAILURES_MAX = 3
# A chunk that is refused is read to its end if it is not larger.
SKIP_MAX = 64 << 20
# A smaller chunk leads to no mail, unless it is the last one.
CHUNK_MIN = 1000
# A client that tries these takes the server for something else, and may act for somebody who cannot reach it.
_FORBIDDEN = frozenset((b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT", b"TRACE"))
_WORD = re.compile(rb"[A-Za-z]{1,12}")
_SHOWN_MAX = 200
# RFC 2645 section 5.2.1; underscores are common.
_TURNED = re.compile(rb"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63}){0,126}")
# RFC 1985 section 5: a domain, with `@` for those below it, too, or `#` for a queue by its name.
_NODE = re.compile(rb"[@#]?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,126}\.?")


_TLS, _GREETING, _HELLO, _IDLE, _MAIL, _RCPT, _DATA, _CHUNK, _CHUNKS, _SKIP, _AUTH, _REVERSED, _CLOSED = ServerState
# An accepted MAIL, and no end of its transaction.
IN_TRANSACTION = (_MAIL, _RCPT, _DATA, _CHUNK, _CHUNKS)
_TAKES_COMMANDS = (_HELLO, _IDLE, _MAIL, _RCPT, _CHUNKS)
# The states in which each command is taken; it is refused in the other ones.
COMMANDS: dict[bytes, tuple[ServerState, ...]] = {
    b"EHLO": _TAKES_COMMANDS,
    b"HELO": _TAKES_COMMANDS,
    b"XCLIENT": (_HELLO, _IDLE),
    b"STARTTLS": (_IDLE,),
    b"AUTH": (_IDLE,),
    b"ETRN": (_IDLE,),
    b"ATRN": (_IDLE,),
    b"MAIL": (_IDLE,),
    b"RCPT": (_MAIL, _RCPT),
    b"DATA": (_RCPT,),
    b"BDAT": (_RCPT, _CHUNKS),
    b"RSET": _TAKES_COMMANDS,
    b"NOOP": _TAKES_COMMANDS,
    b"VRFY": _TAKES_COMMANDS,
    b"HELP": _TAKES_COMMANDS,
    b"QUIT": _TAKES_COMMANDS,
}
# What a session for ATRN does not take.
_OF_MAIL = frozenset((b"ETRN", b"MAIL", b"RCPT", b"DATA", b"VRFY"))
_WITHOUT_ARGUMENT = (b"DATA", b"RSET", b"QUIT", b"STARTTLS")
_USELESS = (b"EHLO", b"HELO", b"ETRN", b"ATRN", b"RSET", b"NOOP", b"VRFY", b"HELP")
_KNOWN_MISSING = (b"ETRN", b"ATRN", b"EXPN", b"TURN", b"SEND", b"SOML", b"SAML")


class SmtpServer(ServerSession):
    """One session of SMTP.

    `hello` is the name of EHLO or HELO, `esmtp` whether it was EHLO. `secure`: under TLS. `user` is the authenticated
    one, or empty. `accepted` counts the recipients of the transaction. `early`: the client spoke before the greeting.
    """

    __slots__ = (
        *("_buffer", "_by_chunks", "_chunk", "_dropped", "_exchange", "_failures", "_mechanism", "_nonce", "_searched"),
        *("_skip_reply", "_skip_to", "_skipping", "_useless", "accepted", "early", "esmtp", "hello", "secure", "user"),
    )

    def __init__(self, settings: ServerSettings, nonce: bytes = b"") -> None:
        """`nonce` is random, for CRAM-MD5; nothing if that is not offered."""
        super().__init__(settings, _TLS if settings.implicit_tls else _GREETING)
        self._nonce = nonce
        self.secure = False
        self.hello = b""
        self.esmtp = False
        self.user = b""
        self.accepted = 0
        self.early = False
        self._buffer = bytearray()
        # Before this place there is no LF.
        self._searched = 0
        # The rest of a line that is too long is thrown away.
        self._skipping = False
        self._useless = 0
        self._failures = 0
        self._dropped = False
        self._by_chunks = False
        # Bytes of the chunk that are to come, and whether it is the last one.
        self._chunk = 0, False
        self._skip_reply = replies.CHUNK_OUT_OF_SEQUENCE
        self._skip_to = _IDLE
        self._exchange: ServerMechanism | None = None
        self._mechanism = b""

    @property
    def wants_data(self) -> bool:
        return self.state is not _CLOSED and (self.asked is None or len(self._buffer) < WAITING_MAX)

    @property
    def in_transaction(self) -> bool:
        return (self._skip_to if self.state is _SKIP else self.state) in IN_TRANSACTION

    # Input and output.

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self.state is _GREETING:
            self.early = True
        elif self.state in (_TLS, _REVERSED, _CLOSED):
            return []
        self._buffer += data
        return self._go_on()

    def greet(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        assert self.state is _GREETING
        reply = reply or self._greeting()
        self.state = _HELLO
        self._say(reply)
        if not reply.positive:
            self._close("turned away")
        return self._go_on()

    def offer_xclient(self, offered: bool) -> None:
        """Offer XCLIENT from now on, or not: another client is there."""
        self._settings = self._settings._replace(xclient=offered)

    def secured(self) -> list[ServerEvent]:
        """Note that the TLS handshake is done."""
        assert self.state is _TLS
        self.state = _GREETING if self._settings.implicit_tls else _HELLO
        self.secure = True
        self.hello = b""
        self.esmtp = False
        return self._go_on()

    def close(self, reply: ServerReply, reason: str) -> list[ServerEvent]:
        if self.state not in (_CLOSED, _TLS, _REVERSED):
            self._say(reply)
        self._close(reason)
        return self._take_events()

    def lost(self) -> list[ServerEvent]:
        self._close("connection lost")
        return self._take_events()

    def take_rest(self) -> bytes:
        """Return what the client has sent behind ATRN, in the state REVERSED: it is no server's command."""
        assert self.state is _REVERSED
        rest = bytes(self._buffer)
        self.forget_input()
        return rest

    def end_turn(self) -> list[ServerEvent]:
        """End the session in the state REVERSED."""
        self._close("ATRN")
        return self._take_events()

    def forget_input(self) -> None:
        self._buffer.clear()
        self._searched = 0

    # Answers.

    def answer(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        """Answer the question in `asked`. VerifierWanted, MailWanted and TurnWanted need a reply."""
        asked = self.asked
        assert asked is not None
        self.asked = None
        positive = reply is None or reply.positive
        if isinstance(asked, PasswordGiven):
            self._end_auth(asked.user, reply)
        elif isinstance(asked, VerifierWanted):
            assert reply is not None
            self._end_auth(asked.user, reply)
        elif isinstance(asked, RecipientGiven):
            if positive:
                self.accepted += 1
                self.state = _RCPT
            self._decide(reply, replies.RECIPIENT_OK, of_recipient=True)
        elif isinstance(asked, SenderGiven):
            if positive:
                self.state = _MAIL
            self._decide(reply, replies.SENDER_OK)
        elif isinstance(asked, MailWanted):
            assert reply is not None
            self._decide(reply, reply)
        elif isinstance(asked, TurnWanted):
            assert reply is not None
            if positive:
                self.state = _REVERSED
            self._decide(reply, reply)
        elif isinstance(asked, MessageBegun):
            self._begin_message(reply)
        elif isinstance(asked, MessageEnded):
            self.state = _IDLE
            if positive:
                self._errors = self._useless = self._deferred = 0
            self._decide(reply, replies.MESSAGE_TAKEN)
        elif isinstance(asked, HelloGiven):
            if positive:
                self.hello, self.esmtp = asked.name, asked.esmtp
                self.state = _IDLE
            self._decide(reply, self._hello_reply(asked.esmtp))
        elif isinstance(asked, TlsWanted):
            if positive:
                self._buffer.clear()
                self._searched = 0
                self.state = _TLS
            self._decide(reply, replies.START_TLS)
        else:
            if positive:
                self.state = _HELLO
                self.hello = b""
                # Who has authenticated for the client before is not this one.
                self.user = asked.attributes.get(b"LOGIN", b"")
            self._decide(reply, self._greeting())
        return self._go_on()

    def give_verifier(self, verifier: Verifier | None) -> list[ServerEvent]:
        """Answer VerifierWanted; None if there is no such user."""
        exchange, asked = self._exchange, self.asked
        assert isinstance(exchange, ServerScram) and isinstance(asked, VerifierWanted)
        self.asked = None
        try:
            self._take_step(exchange.give_verifier(verifier))
        except FormatError:
            self._fail_auth(replies.AUTH_SYNTAX)
        return self._go_on()

    # The loop over what has come.

    def _go_on(self) -> list[ServerEvent]:
        """Take what is in the buffer, until a question is open or more bytes are needed."""
        more = True
        while more and self.asked is None and self.state not in (_GREETING, _TLS, _REVERSED, _CLOSED):
            if self.state is _DATA:
                more = self._take_data()
            elif self.state is _CHUNK:
                more = self._take_chunk()
            elif self.state is _SKIP:
                more = self._skip_chunk()
            else:
                more = self._take_line()
        return self._take_events()

    def _take_line(self) -> bool:
        buffer = self._buffer
        most = RESPONSE_MAX if self.state is _AUTH else COMMAND_MAX
        end = buffer.find(b"\n", self._searched)
        if end < 0:
            if len(buffer) > most:
                self._skipping = True
                buffer.clear()
            self._searched = len(buffer)
            return False
        too_long = self._skipping or end > most
        line = b"" if too_long else bytes(buffer[:end])
        del buffer[: end + 1]
        self._searched = 0
        self._skipping = False
        if too_long:
            self._refuse_line(replies.LINE_TOO_LONG)
        elif b"\r" not in line[:-1] and (line.endswith(b"\r") or self._settings.message.bare_line_ends):
            self._dispatch(line.removesuffix(b"\r"))
        else:
            self._refuse_line(replies.BARE_LINE_END)
        return True

    def _refuse_line(self, reply: ServerReply) -> None:
        """Refuse a line unread. It may be a response of AUTH, which is over then."""
        if self.state is _AUTH:
            self.state = _IDLE
            self._exchange = None
        self._refuse(reply, b"?")

    def _dispatch(self, line: bytes) -> None:
        if self.state is _AUTH:
            self._on_response(line)
            return
        verb = b""
        try:
            verb, argument = divide_command(line)
            allowed = COMMANDS.get(verb)
            if allowed is None or (verb in (b"ETRN", b"ATRN") and not self._offers(verb)):
                self._on_unknown(verb)
            elif self._settings.turns and (verb in _OF_MAIL or (verb == b"ATRN" and not self.user)):
                raise CommandRefused(self._no_mail_here())
            elif verb in _WITHOUT_ARGUMENT and argument:
                raise CommandRefused(replies.NO_ARGUMENT_ALLOWED)
            elif verb == b"BDAT":
                # Its chunk is to be read in any state.
                self._on_bdat(argument)
            elif self.state not in allowed:
                raise CommandRefused(self._out_of_turn(verb))
            elif verb not in _USELESS or self._count_useless():
                _HANDLERS[verb](self, argument)
        except CommandRefused as refusal:
            known = verb in COMMANDS and verb != b"AUTH"
            self._refuse(refusal.reply, line[:_SHOWN_MAX] if known else verb, verb == b"RCPT")

    def _out_of_turn(self, verb: bytes) -> ServerReply:
        if self.state is _HELLO:
            return replies.HELLO_FIRST
        if self.state is _CHUNKS:
            return replies.CHUNKS_BEGUN
        if verb == b"MAIL":
            return replies.SECOND_SENDER
        if verb in (b"STARTTLS", b"AUTH", b"XCLIENT", b"ETRN", b"ATRN"):
            return replies.NOT_IN_TRANSACTION
        return replies.NO_VALID_RECIPIENT if self.state is _MAIL else replies.SENDER_FIRST

    def _offers(self, verb: bytes) -> bool:
        """Return whether the session has ETRN, or ATRN. Where mail goes out by ATRN, ETRN is a command of mail."""
        return self._settings.turns or (verb == b"ETRN" and self._settings.etrn)

    def _no_mail_here(self) -> ServerReply:
        """Return the reply to the commands of a transaction in a session for ATRN."""
        if self.user:
            return replies.COMMAND_MISSING
        return replies.AUTH_REQUIRED if self.secure else replies.TLS_REQUIRED

    def _on_unknown(self, verb: bytes) -> None:
        if verb in _FORBIDDEN:
            self._refuse(replies.FORBIDDEN_COMMAND, verb)
        elif verb in _KNOWN_MISSING:
            self._refuse(replies.COMMAND_MISSING, verb)
        else:
            # It may be a password that came out of turn.
            self._refuse(replies.COMMAND_UNKNOWN, verb if _WORD.fullmatch(verb) else b"?")

    # Commands.

    def _on_ehlo(self, argument: bytes) -> None:
        name = unpack_hello(argument)
        self._drop()
        self._ask(HelloGiven(name, True))

    def _on_helo(self, argument: bytes) -> None:
        name = unpack_hello(argument)
        self._drop()
        self._ask(HelloGiven(name, False))

    def _on_xclient(self, argument: bytes) -> None:
        if not self._settings.xclient:
            raise CommandRefused(replies.XCLIENT_REFUSED)
        try:
            attributes = unpack_xclient(argument)
        except FormatError:
            raise CommandRefused(replies.XCLIENT_SYNTAX) from None
        self._ask(ClientChanged(attributes))

    def _on_starttls(self, argument: bytes) -> None:
        if self.secure:
            raise CommandRefused(replies.TLS_ACTIVE)
        if not self._settings.tls:
            raise CommandRefused(replies.TLS_UNAVAILABLE)
        self._ask(TlsWanted())

    def _on_mail(self, argument: bytes) -> None:
        address, parameters = unpack_mail(argument)
        if parameters.smtputf8 and not self._settings.smtputf8:
            raise CommandRefused(replies.PARAMETER_UNKNOWN)
        most = self._settings.message.size
        if most and parameters.size > most:
            raise CommandRefused(replies.TOO_LARGE)
        self.smtputf8 = parameters.smtputf8
        self.accepted = 0
        self._ask(SenderGiven(address, parameters))

    def _on_rcpt(self, argument: bytes) -> None:
        address = unpack_rcpt(argument, self.smtputf8)
        if self.accepted >= self._settings.recipients:
            # RFC 5321 section 4.5.3.1.10: those that were accepted count.
            raise CommandRefused(replies.TOO_MANY_RECIPIENTS)
        self._ask(RecipientGiven(address))

    def _on_data(self, argument: bytes) -> None:
        self._by_chunks = False
        self._ask(MessageBegun())

    def _on_etrn(self, argument: bytes) -> None:
        if len(argument) > 255 or not _NODE.fullmatch(argument):
            raise CommandRefused(replies.SYNTAX)
        self._ask(MailWanted(argument))

    def _on_atrn(self, argument: bytes) -> None:
        domains = [domain.strip(b" ").lower() for domain in argument.split(b",")] if argument else []
        if not all(len(domain) <= 253 and _TURNED.fullmatch(domain) for domain in domains):
            raise CommandRefused(replies.SYNTAX)
        self._ask(TurnWanted(domains))

    def _on_rset(self, argument: bytes) -> None:
        self._drop()
        self._say(replies.OK)

    def _on_noop(self, argument: bytes) -> None:
        self._say(replies.OK)

    def _on_vrfy(self, argument: bytes) -> None:
        if not argument:
            raise CommandRefused(replies.SYNTAX)
        self._say(replies.CANNOT_VERIFY)

    def _on_help(self, argument: bytes) -> None:
        self._say(replies.HELP)

    def _on_quit(self, argument: bytes) -> None:
        self._say(replies.CLOSING)
        self._close("QUIT")

    # The message.

    def _begin_message(self, reply: ServerReply | None) -> None:
        if reply is not None and not reply.positive:
            if self._by_chunks and not reply.closes:
                self._skip(self._chunk[0], reply, _IDLE)
            else:
                self.state = _IDLE
                self._decide(reply, reply)
            return
        self._incoming = IncomingMessage(self._settings.message)
        self._dropped = False
        if self._by_chunks:
            self.state = _CHUNK
        else:
            self.state = _DATA
            self._say(replies.SEND_MESSAGE)

    def _take_data(self) -> bool:
        if not self._buffer:
            return False
        text, rest = self._incoming.feed_data(bytes(self._buffer))
        self._buffer = bytearray(rest or b"")
        self._pass_on(text)
        if rest is None:
            return self.state is not _CLOSED
        self._end_message()
        return True

    def _on_bdat(self, argument: bytes) -> None:
        chunk = unpack_bdat(argument)
        if chunk is None:
            raise CommandRefused(replies.CHUNK_SYNTAX)
        if self._settings.turns:
            self._skip(chunk[0], self._no_mail_here(), self.state)
        elif not self._settings.chunking:
            self._skip(chunk[0], replies.COMMAND_MISSING, self.state)
        elif self.state in (_RCPT, _CHUNKS) and _is_small(*chunk) and not self._count_useless():
            return
        elif self.state is _CHUNKS:
            self._chunk = chunk
            self.state = _CHUNK
        elif self.state is _RCPT:
            self._chunk = chunk
            self._by_chunks = True
            self._ask(MessageBegun())
        else:
            reply = self._out_of_turn(b"BDAT")
            self._skip(chunk[0], replies.CHUNK_OUT_OF_SEQUENCE if self.state is _IDLE else reply, self.state)

    def _take_chunk(self) -> bool:
        size, last = self._chunk
        if size and not self._buffer:
            return False
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        size -= len(data)
        self._chunk = size, last
        self._pass_on(self._incoming.feed_chunk(data, last and not size))
        if size or self.state is _CLOSED:
            return False
        fault = self._incoming.fault
        if last or fault:
            self._end_message()
        else:
            self.state = _CHUNKS
            self._say(ServerReply(250, b"2.0.0", b"Chunk received, %d bytes in all" % self._incoming.size))
        return True

    def _skip(self, size: int, reply: ServerReply, following: ServerState) -> None:
        """Read a chunk that is refused to its end, since the next command is behind it (RFC 3030 section 2)."""
        if size > SKIP_MAX:
            # It would cost more than a new connection.
            self._refuse(reply, b"BDAT")
            self._close("refused chunk is too large to be read")
            return
        self._chunk = size, False
        self._skip_reply = reply
        self._skip_to = following
        self.state = _SKIP

    def _skip_chunk(self) -> bool:
        size, _ = self._chunk
        here = min(size, len(self._buffer))
        del self._buffer[:here]
        self._chunk = size - here, False
        if size > here:
            return False
        self.state = self._skip_to
        self._refuse(self._skip_reply, b"BDAT")
        return True

    def _pass_on(self, text: bytes) -> None:
        """Report text of the message, unless something is wrong with it."""
        incoming = self._incoming
        if incoming.fault:
            if not self._dropped:
                self._dropped = True
                self._events.append(TransactionDropped())
            if incoming.excessive:
                self._say(replies.TOO_LARGE)
                self._close("message far over the limit on its size")
        elif text:
            self._events.append(MessagePiece(text))

    def _end_message(self) -> None:
        if self.state is _CLOSED:
            return
        fault = self._incoming.fault
        if fault is None:
            self._ask(MessageEnded(self._incoming.size))
        else:
            self.state = _IDLE
            self._refuse(fault, b"message")

    # AUTH.

    def _on_auth(self, argument: bytes) -> None:
        if not self.secure and self._settings.mechanisms:
            raise CommandRefused(replies.AUTH_NEEDS_TLS)
        if not self._settings.mechanisms:
            raise CommandRefused(replies.AUTH_UNAVAILABLE)
        if self.user:
            raise CommandRefused(replies.AUTH_TWICE)
        name, _, initial = argument.partition(b" ")
        if not name:
            raise CommandRefused(replies.SYNTAX)
        if name.upper() not in self._settings.mechanisms:
            raise CommandRefused(replies.MECHANISM_UNKNOWN)
        self._mechanism = name.upper()
        challenge = b"<%s.%d@%s>" % (self._nonce, self._failures, self._settings.name)
        exchange = make_mechanism(self._mechanism, self._settings.secret, challenge)
        self._exchange = exchange
        try:
            # RFC 4954 section 4: `=` is an empty initial response.
            response = b"" if initial == b"=" else _unpack_base64(initial) if initial else None
            self._take_step(exchange.start(response))
        except FormatError:
            self._fail_auth(replies.AUTH_SYNTAX)
        except WrongProof as wrong:
            self._end_auth(wrong.user, replies.BAD_CREDENTIALS)

    def _on_response(self, line: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None
        self.state = _IDLE
        if line == b"*":
            self._fail_auth(replies.AUTH_CANCELLED)
            return
        try:
            self._take_step(exchange.respond(_unpack_base64(line)))
        except FormatError:
            self._fail_auth(replies.AUTH_SYNTAX)
        except WrongProof as wrong:
            self._end_auth(wrong.user, replies.BAD_CREDENTIALS)

    def _take_step(self, step: AuthStep) -> None:
        if isinstance(step, AuthChallenge):
            self.state = _AUTH
            self._say(ServerReply(334, b"", binascii.b2a_base64(step.text, newline=False)))
        elif isinstance(step, Proved):
            self._end_auth(step.user, None)
        else:
            self._ask(step)

    def _end_auth(self, user: bytes, reply: ServerReply | None) -> None:
        """The password is right or wrong, or could not be looked up."""
        self._exchange = None
        if reply is None or reply.positive:
            self.user = user
            self._events.append(UserAuthenticated(user, self._mechanism))
            self._say(reply or replies.AUTHENTICATED)
            return
        if reply.code >= 500:
            self._events.append(UserRefused(user, self._mechanism))
            self._failures += 1
        self._decide(reply, reply)
        if self._failures >= AUTH_FAILURES_MAX and self.state is not _CLOSED:
            self._say(replies.TOO_MANY_ERRORS)
            self._close("too many AUTH failures")

    def _fail_auth(self, reply: ServerReply) -> None:
        self._exchange = None
        self._refuse(reply, b"AUTH")

    # Replies and ends.

    def _greeting(self) -> ServerReply:
        return ServerReply(220, b"", self._settings.name + b" ESMTP")

    def _hello_reply(self, esmtp: bool) -> ServerReply:
        settings = self._settings
        lines = [settings.name]
        if esmtp:
            lines.append(b"PIPELINING")
            if not settings.turns:
                lines.append(b"SIZE %d" % settings.message.size if settings.message.size else b"SIZE")
            if settings.tls and not self.secure:
                lines.append(b"STARTTLS")
            if settings.mechanisms and self.secure:
                lines.append(b"AUTH " + b" ".join(settings.mechanisms))
            if settings.xclient:
                lines.append(b"XCLIENT " + b" ".join(ATTRIBUTES))
            lines.append(b"ENHANCEDSTATUSCODES")
            lines += [b"ATRN"] if settings.turns else self._mail_extensions()
        return ServerReply(250, b"", b"\n".join(lines))

    def _mail_extensions(self) -> list[bytes]:
        settings = self._settings
        lines = [b"8BITMIME"]
        if settings.smtputf8:
            lines.append(b"SMTPUTF8")
        if settings.chunking:
            lines.append(b"CHUNKING")
        if settings.etrn:
            lines.append(b"ETRN")
        return lines

    def _say(self, reply: ServerReply) -> None:
        self._out.append(pack_reply(reply))

    def _decide(self, reply: ServerReply | None, usual: ServerReply, of_recipient: bool = False) -> None:
        """Send the reply to a question."""
        reply = reply or usual
        self._say(reply)
        if not reply.positive:
            self._count_refusal(reply, of_recipient)

    def _refuse(self, reply: ServerReply, shown: bytes, of_recipient: bool = False) -> None:
        """Refuse a command, or a message, that is against the protocol."""
        self._events.append(BadCommand(shown, reply))
        self._say(reply)
        self._count_refusal(reply, of_recipient)

    def _count_refusal(self, reply: ServerReply, of_recipient: bool) -> None:
        if reply.closes:
            self._close("refused")
        elif not of_recipient or self._is_error(reply, self.accepted):
            self._count_error()

    def _count_error(self) -> None:
        self._errors += 1
        if self._errors >= self._settings.errors:
            self._say(replies.TOO_MANY_ERRORS)
            self._close("too many errors")

    def _count_useless(self) -> bool:
        """Count a command that leads to no mail; return whether the session goes on."""
        self._useless += 1
        if self._useless > self._settings.useless:
            self._count_error()
        return self.state is not _CLOSED

    def _drop(self) -> None:
        """End the transaction, if there is one."""
        if self.in_transaction:
            self._events.append(TransactionDropped())
            self.state = _IDLE

    def _close(self, reason: str) -> None:
        if self.state is _CLOSED:
            return
        # A transaction whose message is wrong was dropped when that was found.
        reported = self.state in (_DATA, _CHUNK) and self._dropped
        if self.in_transaction and not reported:
            self._events.append(TransactionDropped())
        self.asked = None
        self._exchange = None
        self._buffer.clear()
        self.state = _CLOSED
        self._events.append(SessionClosed(reason))


_HANDLERS: dict[bytes, Callable[[SmtpServer, bytes], None]] = {
    b"EHLO": SmtpServer._on_ehlo,
    b"HELO": SmtpServer._on_helo,
    b"XCLIENT": SmtpServer._on_xclient,
    b"STARTTLS": SmtpServer._on_starttls,
    b"AUTH": SmtpServer._on_auth,
    b"ETRN": SmtpServer._on_etrn,
    b"ATRN": SmtpServer._on_atrn,
    b"MAIL": SmtpServer._on_mail,
    b"RCPT": SmtpServer._on_rcpt,
    b"DATA": SmtpServer._on_data,
    b"RSET": SmtpServer._on_rset,
    b"NOOP": SmtpServer._on_noop,
    b"VRFY": SmtpServer._on_vrfy,
    b"HELP": SmtpServer._on_help,
    b"QUIT": SmtpServer._on_quit,
}


def _is_small(size: int, last: bool) -> bool:
    return size < CHUNK_MIN and not last


def _unpack_base64(text: bytes) -> bytes:
    """Return what base64 encodes. Raises FormatError."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise FormatError("not base64") from error
