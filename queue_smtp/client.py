"""The client's side of one SMTP connection (RFC 5321), without the connection: bytes in, bytes to send out.

A connection is opened once (queue_smtp.opening) and can then carry one transaction after another; its
phases are in queue_smtp.session. With PIPELINING (RFC 2920) MAIL, all RCPTs and DATA go at once. Where MAIL
or every recipient was refused and the peer wants a message all the same, the connection ends: the lone dot of that RFC
would be an empty message to whomever the peer has kept. For the same reason RSET comes before the next MAIL wherever
the peer may have kept a recipient.

A transaction can be done before its last reply has come; only READY means that the next may begin. What the
peer does never raises. Where the connection fails before the peer has accepted MAIL, the transaction is not
done, and `failure` says why: nothing came of it, and it may go elsewhere. After that it gets the failure.
"""

from queue_smtp import text
from queue_smtp.opening import Opening
from queue_smtp.reply import Reply
from queue_smtp.session import Phase, Session
from queue_smtp.transaction import Transaction
from queue_wire.report import PERMANENT, SUCCESS, TEMPORARY

# Commands under way at once. A peer that answers and does not read costs what they and their replies take.
FLIGHT_MOST = 100
# What no server answers with 3xx: only DATA and AUTH go on after it.
_WITHOUT_INTERMEDIATE = frozenset((b"RSET", b"MAIL", b"RCPT", b"end of message", b"message"))


class SmtpClient(Opening):
    """One connection; `transactions` counts those that were begun, and `dismissed` says that the peer said 421."""

    __slots__ = ("_data_asked", "_open", "_transaction", "_window", "dismissed", "transactions")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.transactions = 0
        self.dismissed = False
        self._transaction: Transaction | None = None
        self._window = 1
        self._data_asked = False
        # The peer has accepted MAIL or, behind a MAIL that it refused, a recipient, and no message since.
        self._open = False

    def begin(self, transaction: Transaction) -> bytes:
        """Start a transaction that is not done, in READY; return what to send, nothing where it is refused at once."""
        assert self.phase is Phase.READY
        limit = self.size_limit
        if limit and transaction.size > limit:
            transaction.finish(PERMANENT, text.too_large(self._peer, transaction.size, limit))
            return b""
        mail = transaction.start(self._peer, self.extensions)
        if mail is None:
            return b""
        self._transaction = transaction
        self.transactions += 1
        self.phase = Phase.ENVELOPE
        self._data_asked = False
        self._window = FLIGHT_MOST if self.session.pipelining and b"PIPELINING" in self.extensions else 1
        if self._open:
            self._open = False
            self._ask(b"RSET", b"RSET\r\n", self._on_reset)
        if len(self._expected) < self._window:
            self._ask(b"MAIL", mail, self._on_mail)
            self._fill()
        return self._sent()

    @property
    def size_limit(self) -> int:
        """The largest message, in bytes, that the peer says it takes (RFC 1870); 0 where there is no limit."""
        limit = self.extensions.get(b"SIZE", b"")
        return int(limit) if limit.isdigit() and len(limit) < 19 else 0

    def message_sent(self) -> None:
        """The message and its closing dot are with the connection."""
        if self.phase is Phase.MESSAGE:
            self.phase = Phase.ANSWER

    def fail(self, letter: bytes, reason: bytes) -> None:
        """End the connection, whatever it is doing, and give the reason to what the peer has begun to take."""
        if self.phase is not Phase.CLOSED:
            super().fail(letter, reason)
            if self._transaction is not None and self._open:
                self._transaction.finish(letter, reason)

    def quit(self) -> bytes:
        """End the connection; return what to send first."""
        speaking = self.phase is Phase.READY
        self.phase = Phase.CLOSED
        self.farewell = self.farewell or speaking
        return b"QUIT\r\n" if speaking else b""

    def _take(self, reply: Reply) -> None:
        stage = self.stage
        if reply.intermediate and stage in _WITHOUT_INTERMEDIATE:
            # It wants something that nobody offered, perhaps the message, so we no longer agree on where we are.
            self._cut_off(text.out_of_step(self._peer, reply))
            return
        super()._take(reply)
        if reply.code == 421:
            self.dismissed = True
            self.fail(TEMPORARY, text.closing(self._peer, stage, reply))

    def _fill(self) -> None:
        """Ask as much more of the envelope as may be under way."""
        transaction = self._current()
        while len(self._expected) < self._window and not self._data_asked:
            command = transaction.next_recipient()
            if command is not None:
                self._ask(b"RCPT", command, self._on_recipient)
                continue
            self._data_asked = True
            self._ask(b"DATA", b"DATA\r\n", self._on_data)

    def _on_reset(self, reply: Reply) -> None:
        if not reply.accepted:
            self.fail(TEMPORARY, text.closing(self._peer, b"RSET", reply))
        elif not self._expected:
            self._ask(b"MAIL", self._current().mail, self._on_mail)

    def _on_mail(self, reply: Reply) -> None:
        if reply.accepted:
            self._open = True
            self._fill()
        elif reply.code == 421:
            self.fail(TEMPORARY, text.sender_rejected(self._peer, reply))
        else:
            self._current().finish(_letter(reply), text.sender_rejected(self._peer, reply))
            self._end_if_answered()

    def _on_recipient(self, reply: Reply) -> None:
        transaction = self._current()
        if transaction.done:
            # MAIL was refused; what the peer says to the RCPTs behind it changes no verdict.
            self._open = self._open or reply.accepted
            self._end_if_answered()
            return
        transaction.recipient_reply(reply)
        if transaction.complete and not transaction.accepted:
            transaction.finish(PERMANENT, text.giving_up(self._peer))
            self._end_if_answered()
        else:
            self._fill()

    def _on_data(self, reply: Reply) -> None:
        transaction = self._current()
        if reply.code == 354 and not transaction.done:
            self.phase = Phase.MESSAGE
            self._expected.append((b"end of message", self._on_message))
        else:
            transaction.finish(_letter(reply), text.data_failed(self._peer, reply))
            if reply.accepted or reply.intermediate:
                # It thinks that it has a message, or is to get one, so we no longer agree on where we are.
                self._cut_off(text.data_failed(self._peer, reply))
            self._end_if_answered()

    def _on_message(self, reply: Reply) -> None:
        early = self.phase is Phase.MESSAGE
        transaction = self._current()
        if reply.accepted and not early:
            transaction.finish(SUCCESS, text.accepted(self._peer, reply))
        else:
            transaction.finish(_letter(reply), text.message_failed(self._peer, reply))
            if early:
                # The rest of the message would be read as commands.
                self.fail(TEMPORARY, text.message_failed(self._peer, reply))
        self._open = not reply.accepted
        self._end_if_answered()

    def _cut_off(self, reason: bytes) -> None:
        """End the connection without a word that could be taken for a part of a message."""
        self.fail(TEMPORARY, reason)
        self.cut = True

    def _end_if_answered(self) -> None:
        """The transaction is done; once its last reply is in, the connection can carry another one."""
        if not self._expected and self.phase is not Phase.CLOSED:
            self._transaction = None
            self.phase = Phase.READY

    def _current(self) -> Transaction:
        assert self._transaction is not None
        return self._transaction


def _letter(reply: Reply) -> bytes:
    return PERMANENT if reply.permanent else TEMPORARY
