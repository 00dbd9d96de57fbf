"""The client's side of one SMTP connection (RFC 5321), without the connection: bytes in, bytes to send out.

A connection is greeted once and can then carry one transaction after another. Its phases:

    GREETING   the peer's greeting, EHLO or HELO; then READY, or CLOSED with `failure` set
    READY      between messages: `begin` starts one, `quit` ends it all
    ENVELOPE   MAIL, RCPT and DATA are under way; with PIPELINING (RFC 2920) MAIL and all RCPTs go at once
    MESSAGE    the caller sends the message (queue_wire.dotstuff) and then says `message_sent`
    ANSWER     the answer to the message is awaited
    CLOSED     nothing more can be said; the caller closes the connection

A transaction can be done before its last reply has come; only READY means that the next may begin. Nothing
that a peer sends raises: bytes that are no reply, or a reply that nobody asked for, close the connection and
give what was under way a temporary failure.
"""

import enum
from collections import deque
from collections.abc import Callable

from queue_wire import smtp_text as text
from queue_wire.errors import FormatError
from queue_wire.report import PERMANENT, SUCCESS, TEMPORARY
from queue_wire.smtp_reply import Reply, ReplyReader
from queue_wire.smtp_text import Verdict
from queue_wire.smtp_transaction import Transaction


class Phase(enum.Enum):
    GREETING = 1
    READY = 2
    ENVELOPE = 3
    MESSAGE = 4
    ANSWER = 5
    CLOSED = 6


class SmtpClient:
    """One connection. `peer` is the other host's address as text, `name` what EHLO says; both bytes.

    `extensions` maps each EHLO keyword, in upper case, to its parameters; `failure` is why the
    connection came to nothing; `replies` counts the replies taken; `cut` says that it was ended in
    the middle of a message, `unavailable` that MAIL was answered as a greeting might have been, with 421.
    """

    __slots__ = (
        "_expected", "_name", "_out", "_peer", "_reader", "_stale", "_transaction", "cut", "extensions",
        "failure", "phase", "replies", "unavailable",
    )  # fmt: skip

    def __init__(self, peer: bytes, name: bytes) -> None:
        self.phase = Phase.GREETING
        self.extensions: dict[bytes, bytes] = {}
        self.failure: Verdict | None = None
        self.replies = 0
        self.cut = False
        self.unavailable = False
        self._peer = peer
        self._name = name
        self._out: list[bytes] = []
        self._reader = ReplyReader()
        self._stale = False
        self._transaction: Transaction | None = None
        self._expected: deque[Callable[[Reply], None]] = deque([self._on_greeting])

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the peer; return what to send."""
        self._reader.feed(data)
        try:
            while self.phase is not Phase.CLOSED and (reply := self._reader.next()) is not None:
                self._take(reply)
        except FormatError as error:
            self.fail(TEMPORARY, text.not_smtp(self._peer, str(error)))
        return self._sent()

    def begin(self, transaction: Transaction) -> bytes:
        """Start a transaction that is not done, in READY; return what to send, nothing where it is refused at once."""
        assert self.phase is Phase.READY
        limit = self.size_limit
        if limit and transaction.size > limit:
            transaction.finish(PERMANENT, text.too_large(self._peer, transaction.size, limit))
            return b""
        self._transaction = transaction
        self.phase = Phase.ENVELOPE
        if self._stale:
            self._stale = False
            self._ask(b"RSET\r\n", self._on_reset)
        self._ask(transaction.mail_command(self._peer, b"SIZE" in self.extensions), self._on_mail)
        if b"PIPELINING" in self.extensions:
            for command in transaction.recipient_commands():
                self._ask(command, self._on_recipient)
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

    def lost(self) -> None:
        """The connection ended, or no reply came in time."""
        self.fail(TEMPORARY, text.connection_died(self._peer, self.phase is Phase.ANSWER))

    def fail(self, letter: bytes, reason: bytes) -> None:
        """End the connection, whatever it is doing, and give the reason to what is under way."""
        if self.phase is not Phase.CLOSED:
            self.cut = self.phase is Phase.MESSAGE
            self.phase = Phase.CLOSED
            self.failure = (letter, reason)
            if self._transaction is not None:
                self._transaction.finish(letter, reason)

    def quit(self) -> bytes:
        """End the connection; return what to send first. The reply is not worth waiting for."""
        speaking = self.phase in (Phase.READY, Phase.ENVELOPE)
        self.phase = Phase.CLOSED
        return b"QUIT\r\n" if speaking else b""

    def _ask(self, command: bytes, then: Callable[[Reply], None]) -> None:
        self._out.append(command)
        self._expected.append(then)

    def _sent(self) -> bytes:
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _take(self, reply: Reply) -> None:
        self.replies += 1
        if not self._expected:
            # Between messages a server may say 421 and close; anything else is out of step.
            self.lost()
            return
        self._expected.popleft()(reply)
        if reply.code == 421 and self.phase is Phase.READY:
            self.lost()

    def _on_greeting(self, reply: Reply) -> None:
        if reply.code == 220:
            self._ask(b"EHLO %s\r\n" % self._name, self._on_ehlo)
        else:
            self._decline(text.greeting_failed(self._peer, reply))

    def _on_ehlo(self, reply: Reply) -> None:
        if reply.accepted:
            for line in reply.text.split(b"\n")[1:]:
                keyword, _, parameters = line[4:].strip().partition(b" ")
                self.extensions[keyword.upper()] = parameters
            self.phase = Phase.READY
        elif reply.permanent:
            # RFC 5321 section 3.2: a server that does not know EHLO is asked again with HELO.
            self._ask(b"HELO %s\r\n" % self._name, self._on_helo)
        else:
            self._decline(text.name_rejected(self._peer, reply))

    def _on_helo(self, reply: Reply) -> None:
        if reply.accepted:
            self.phase = Phase.READY
        else:
            self._decline(text.name_rejected(self._peer, reply))

    def _decline(self, reason: bytes) -> None:
        """The peer does not want to talk to us: part in good order, and let another host have the mail."""
        self._out.append(b"QUIT\r\n")
        self.fail(TEMPORARY, reason)

    def _on_reset(self, reply: Reply) -> None:
        if not reply.accepted:
            self.fail(TEMPORARY, text.not_smtp(self._peer, "RSET was refused"))

    def _on_mail(self, reply: Reply) -> None:
        transaction = self._current()
        if not reply.accepted:
            # RFC 5321 section 4.2.3: 421 speaks of the service, and may be the answer to any command.
            self.unavailable = reply.code == 421
            transaction.finish(_letter(reply), text.sender_rejected(self._peer, reply))
            self._end_if_answered()
        elif not self._expected:
            self._ask(transaction.recipient_command(), self._on_recipient)

    def _on_recipient(self, reply: Reply) -> None:
        transaction = self._current()
        if transaction.done:
            # MAIL was refused; what the peer says to the RCPTs behind it is no news.
            self._end_if_answered()
            return
        transaction.recipient_reply(reply)
        if not transaction.complete:
            if not self._expected:
                self._ask(transaction.recipient_command(), self._on_recipient)
        elif transaction.accepted:
            self._ask(b"DATA\r\n", self._on_data)
        else:
            transaction.finish(PERMANENT, text.giving_up(self._peer))
            self._end_if_answered()

    def _on_data(self, reply: Reply) -> None:
        if reply.code == 354:
            self.phase = Phase.MESSAGE
            self._expected.append(self._on_message)
            return
        self._current().finish(_letter(reply), text.data_failed(self._peer, reply))
        if reply.accepted:
            # It thinks that it has the message, so we no longer agree on where we are.
            self.fail(TEMPORARY, text.data_failed(self._peer, reply))
        else:
            self._end_if_answered()

    def _on_message(self, reply: Reply) -> None:
        early = self.phase is Phase.MESSAGE
        if reply.accepted and not early:
            self._current().finish(SUCCESS, text.accepted(self._peer, reply))
            self._transaction = None
            self.phase = Phase.READY
            return
        self._current().finish(_letter(reply), text.message_failed(self._peer, reply))
        if early:
            # An answer to a message that is still being sent: the rest of it would be read as commands.
            self.fail(TEMPORARY, text.message_failed(self._peer, reply))
        else:
            self._end_if_answered()

    def _end_if_answered(self) -> None:
        """The transaction failed; once its last pipelined reply is in, the peer can be reset and used again."""
        if not self._expected:
            self._transaction = None
            self._stale = True
            self.phase = Phase.READY

    def _current(self) -> Transaction:
        assert self._transaction is not None
        return self._transaction


def _letter(reply: Reply) -> bytes:
    return PERMANENT if reply.permanent else TEMPORARY
