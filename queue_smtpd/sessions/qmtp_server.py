"""The server side of a QMTP session with strangers, without I/O (cr.yp.to/proto/qmtp.txt): in the place of SmtpServer.

It has the events, questions and answers of queue_smtp.server, so the rules of a session are those of SMTP. The order is
another one, since QMTP has the message before its envelope. Of each package:

    MessageBegun     before a byte of it is taken
    MessagePiece     any number
    SenderGiven      its envelope is there
    RecipientGiven   each recipient, in order
    MessageEnded     if a recipient was accepted

Then the client gets an answer for each recipient: K, or with Z or D what has refused the recipient, the sender or the
message. A reply that is about the connection cannot be sent, since QMTP has only answers to recipients: the client sees
the end of the connection, and comes again. A package that has begun, and is not complete, is not answered either. What
breaks the protocol ends the session. So do facts and messages in pieces, which are for queue-intake.

    state      waits for
    GREETING   greet()
    IDLE       a package
    DATA       the rest of a package
    MAIL       the decisions on its envelope
    CLOSED     the caller to send data_to_send() and close the connection

At most settings.recipients recipients of a package are taken, and the others are to come again. For each `feed`, TURN
recipients are decided at most: then `paused` is set, and the caller feeds again, perhaps nothing, in its next turn.
"""

from queue_smtp import server_replies as replies
from queue_smtp.command import SenderParameters
from queue_smtp.incoming import IncomingMessage
from queue_smtp.path import unpack_mailbox
from queue_smtp.server_events import (
    BadCommand,
    MessageBegun,
    MessageEnded,
    MessagePiece,
    RecipientGiven,
    SenderGiven,
    ServerEvent,
    SessionClosed,
    TransactionDropped,
)
from queue_smtp.server_replies import ServerReply
from queue_smtp.server_session import ServerSession, ServerSettings, ServerState
from queue_wire.address import DOUBLE_BOUNCE_SENDER
from queue_wire.format_error import FormatError
from queue_wire.pipes.package_reader import Begin, Data, Package, PackageReader, Protocol
from queue_wire.pipes.qmtp import ACCEPTED, PERMANENT, TEMPORARY, TEXT_MAX, pack_answer

# Recipients that are decided in one turn, some 3 ms.
TURN = 200
# Of one package, as SMTP's commands would have them; and those that are read to be told to come again.
RECIPIENT_BYTES = 256 << 10
RECIPIENTS_READ_MAX = 10_000
# A message over the limit is read to its end, if it is not larger than this: its D comes behind its envelope.
SKIP_MAX = 64 << 20
_SHOWN_MAX = 200


class QmtpServer(ServerSession):
    """One session of QMTP."""

    __slots__ = (
        "_accepted", "_asked", "_decided", "_fault", "_invalid", "_package", "_reader", "_transaction", "_turn",
    )  # fmt: skip

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(settings, ServerState.GREETING)
        self._reader = self._new_reader()
        self._turn = 0
        # A message was begun, and its transaction is not over.
        self._transaction = False
        # What refuses all of the package that is being read.
        self._fault: ServerReply | None = None
        # A complete package, and the replies to its recipients so far; None: its message decides.
        self._package: Package | None = None
        self._decided: list[ServerReply | None] = []
        # The places of invalid recipients, and how many of the others were asked about.
        self._invalid: frozenset[int] = frozenset()
        self._asked = self._accepted = 0

    @property
    def wants_data(self) -> bool:
        return self.state is not ServerState.CLOSED and self.asked is None

    @property
    def in_transaction(self) -> bool:
        return self._transaction

    def feed(self, data: bytes) -> list[ServerEvent]:
        if self.state is ServerState.CLOSED:
            return []
        self._reader.feed(data)
        self._turn = 0
        self.paused = False
        return self._go_on()

    def greet(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        """Begin, or turn the client away. QMTP has no greeting."""
        self.state = ServerState.IDLE
        if reply is not None and not reply.positive:
            self._close("turned away")
        return self._go_on()

    def close(self, reply: ServerReply, reason: str) -> list[ServerEvent]:
        """End the session. The recipients of a complete package get the reply."""
        self._end_package(reply)
        self._close(reason)
        return self._take_events()

    def lost(self) -> list[ServerEvent]:
        """Note that the client is gone. Between packages that is how a session ends."""
        self._close("QUIT" if self.state is ServerState.IDLE and self._reader.idle else "connection lost")
        return self._take_events()

    def forget_input(self) -> None:
        self._reader = self._new_reader()

    def answer(self, reply: ServerReply | None = None) -> list[ServerEvent]:
        asked = self.asked
        assert asked is not None
        self.asked = None
        accepted = self._accepted if isinstance(asked, RecipientGiven) else 0
        positive = reply is None or reply.positive
        if isinstance(asked, MessageBegun):
            self._transaction = positive
            if not positive:
                self._fault = reply
        elif isinstance(asked, SenderGiven):
            if not positive:
                assert reply is not None
                self._drop()
                self._end_package(reply)
        elif isinstance(asked, RecipientGiven):
            self._decided.append(None if positive else reply)
            self._accepted += positive
        else:
            assert isinstance(asked, MessageEnded)
            self._transaction = False
            if positive:
                self._errors = self._deferred = 0
            self._end_package(reply or replies.MESSAGE_TAKEN)
        if reply is not None and not reply.positive:
            self._count(reply, accepted)
        return self._go_on()

    # The loop over what has come.

    def _go_on(self) -> list[ServerEvent]:
        """Take what there is, until a question is open, the turn is over, or more bytes are needed."""
        more = True
        while more and self.asked is None and self.state not in (ServerState.GREETING, ServerState.CLOSED):
            more = self._read() if self._package is None else self._decide(self._package)
        return self._take_events()

    def _read(self) -> bool:
        """Take the next element of the stream; return whether there was one."""
        try:
            event = self._reader.next()
        except FormatError as error:
            self._refuse(b"package", replies.PACKAGE_SYNTAX._replace(text=str(error).encode("utf-8", "replace")))
            return False
        if event is None:
            if self._reader.recipients_read > RECIPIENTS_READ_MAX:
                self._refuse(b"package", replies.TOO_MANY_RECIPIENTS._replace(code=421))
            return self._reader.paused
        if isinstance(event, Data):
            self._add(event.data)
        elif isinstance(event, Begin) and event.size is not None:
            self._begin(event.size)
        elif isinstance(event, Package):
            self._take_package(event)
        else:
            self._refuse(b"package", replies.PACKAGE_SYNTAX._replace(text=b"facts, which only queue-intake takes"))
        return True

    def _begin(self, size: int) -> None:
        self.state = ServerState.DATA
        self._incoming = IncomingMessage(self._settings.message)
        self._fault = None
        most = self._settings.message.size
        if not most or size <= most:
            self._ask(MessageBegun())
        elif size <= max(SKIP_MAX, most):
            # As it is in the queue it has fewer bytes than in SMTP, so it is over the limit.
            self._refuse_message(replies.TOO_LARGE)
        else:
            self._refuse_message(replies.TOO_LARGE)
            self._close("message far over the limit on its size")

    def _add(self, data: bytes) -> None:
        """Take text of the message, unless it is refused."""
        if self._fault is not None:
            return
        text = self._incoming.feed_lines(data)
        fault = self._incoming.fault
        if fault is not None:
            self._drop()
            self._refuse_message(fault)
        elif text:
            self._events.append(MessagePiece(text))

    def _take_package(self, package: Package) -> None:
        """Begin with the envelope, unless the message is refused."""
        self.state = ServerState.MAIL
        self._package = package
        self._decided = []
        self._invalid = frozenset(package.invalid)
        self._asked = self._accepted = 0
        sender = _unpack_sender(package.sender)
        if self._fault is not None:
            self._end_package(self._fault)
        elif not package.sent:
            # There is nobody to be answered.
            self._refuse_package(b"package", replies.NO_VALID_RECIPIENT)
        elif sender is None:
            self._refuse_package(b"MAIL", replies.BAD_SENDER)
        elif package.too_many_invalid:
            self._refuse_package(b"RCPT", replies.BAD_RECIPIENT)
        else:
            self._ask(SenderGiven(sender, SenderParameters(self._incoming.size, smtputf8=not sender.isascii())))

    def _decide(self, package: Package) -> bool:
        """Go on to the next recipient; return whether there is more to do in this turn."""
        place = len(self._decided)
        if self._turn >= TURN:
            self.paused = True
            return False
        self._turn += 1
        if place in self._invalid:
            self._refuse_recipient(b"")
        elif self._asked < len(package.recipients):
            address = package.recipients[self._asked]
            self._asked += 1
            try:
                recipient = unpack_mailbox(address)
            except FormatError:
                self._refuse_recipient(address)
            else:
                self._ask(RecipientGiven(recipient))
        else:
            if place < package.sent:
                self._events.append(BadCommand(b"RCPT", replies.TOO_MANY_RECIPIENTS))
            if self._accepted:
                self._ask(MessageEnded(self._incoming.size))
            else:
                self._drop()
                self._end_package(replies.NO_VALID_RECIPIENT)
        return True

    # Refusals, and the end of a package.

    def _refuse(self, shown: bytes, reply: ServerReply) -> None:
        """Report what is wrong."""
        self._events.append(BadCommand(shown, reply))
        self._count(reply)

    def _refuse_message(self, fault: ServerReply) -> None:
        """Refuse the message that is being read. Its answers come behind its envelope."""
        self._fault = fault
        self._refuse(b"message", fault)

    def _refuse_package(self, shown: bytes, reply: ServerReply) -> None:
        self._drop()
        self._end_package(reply)
        self._refuse(shown, reply)

    def _refuse_recipient(self, address: bytes) -> None:
        self._decided.append(replies.BAD_RECIPIENT)
        self._refuse(b"RCPT <%s>" % address[:_SHOWN_MAX], replies.BAD_RECIPIENT)

    def _count(self, reply: ServerReply, accepted: int = 0) -> None:
        """Count a refusal; end the session if it, or their number, demands that.

        Of a recipient: `accepted` are those of its package before it.
        """
        if reply.closes:
            self._end_package(reply)
            self._close("refused")
        elif self._is_error(reply, accepted):
            self._errors += 1
            if self._errors >= self._settings.errors:
                self._end_package(replies.TOO_MANY_ERRORS)
                self._close("too many errors")

    def _end_package(self, reply: ServerReply) -> None:
        """Answer all recipients of the package, if it is complete; `reply` is for those that have no other one."""
        package, self._package = self._package, None
        if package is None:
            return
        looked_at = bool(self._decided)
        taken = len(package.recipients) + len(package.invalid)
        answers = [_pack(each or reply) for each in self._decided]
        answers.append(_pack(reply) * (taken - len(answers)))
        answers.append(_pack(replies.TOO_MANY_RECIPIENTS if looked_at else reply) * (package.sent - taken))
        self._out.append(b"".join(answers))
        self._decided = []
        self._fault = None
        if self.state is not ServerState.CLOSED:
            self.state = ServerState.IDLE

    def _drop(self) -> None:
        """End the transaction, if there is one."""
        if self._transaction:
            self._transaction = False
            self._events.append(TransactionDropped())

    def _close(self, reason: str) -> None:
        if self.state is ServerState.CLOSED:
            return
        self._drop()
        self.asked = self._package = None
        self.state = ServerState.CLOSED
        self._events.append(SessionClosed(reason))

    def _new_reader(self) -> PackageReader:
        return PackageReader(Protocol.QMTP, self._settings.recipients, RECIPIENT_BYTES)


def _unpack_sender(sender: bytes | None) -> bytes | None:
    """Return the sender of a package as a path would give it; None if no path has it."""
    if sender is None or sender in (b"", DOUBLE_BOUNCE_SENDER):
        return sender and b""
    try:
        return unpack_mailbox(sender)
    except FormatError:
        return None


def _pack(reply: ServerReply) -> bytes:
    """Return a reply as the answer to a recipient, with its status in qmail's form."""
    if reply.positive:
        return pack_answer(ACCEPTED, reply.text)
    status = b" (#%s)" % reply.status if reply.status else b""
    return pack_answer(TEMPORARY if reply.code < 500 else PERMANENT, reply.text[: TEXT_MAX - len(status)] + status)
