"""One message for one or more recipients over SMTP or LMTP: its envelope, and the verdict on each recipient.

An address that SMTP cannot carry is refused before anything is sent. The client's events (queue_smtp.client) become
verdicts. The transaction is `done` once it has a verdict on the message, which counts for each recipient that has none
of its own: that was not refused itself and, with LMTP, has no reply to the message. A transaction that is not done may
be started again with another server.
"""

import re
from collections.abc import Callable

from queue_remote import report_text
from queue_remote.message.file import Message
from queue_remote.report_text import Verdict, describe_failure, describe_rejection
from queue_remote.smtp.timer import NEVER
from queue_smtp.client import (
    Event,
    Problem,
    RecipientAnswered,
    RecipientNeedsSmtputf8,
    RecipientRefused,
    SmtpClient,
    SmtpEnvelope,
    TransactionAccepted,
    TransactionRejected,
)
from queue_smtp.path import SmtpPath, pack_forward_path, pack_reverse_path
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import PERMANENT, SUCCESS, TEMPORARY

# Codes of a refusal because of the number of recipients, if the server has accepted others before. RFC 5321 section
# 4.5.3.1.10 has 452, and 552 for old servers; 451 comes from those that take one domain's recipients a message.
_TOO_MANY = {451, 452, 552}
# A refusal of this recipient all the same: a full mailbox, or a greylist.
_ITS_OWN = re.compile(rb"452[ -]4\.2\.|45[12][ -]4\.7\.|.*gr[ea]y-?list", re.IGNORECASE | re.DOTALL)
# Before one of these results the server has answered for each recipient.
_AFTER_RECIPIENTS = (Problem.RECIPIENTS, Problem.DATA, Problem.MESSAGE)


class Transaction:
    """The envelope of one message, and the verdicts.

    `size` is the message's as RFC 1870 counts it, 0 if it is not known; `eight_bit` says that it has 8-bit bytes,
    `header_utf8` that its header has some, in UTF-8.
    `until` is the time (of time.monotonic) by which the server must want the message.
    `own` has, for each recipient, the verdict on it alone, or None. `verdict` is that on the message, None until
    the transaction is done.

    For a connection that carries it (queue_remote.smtp.connection): `content` is the message, or the bytes to send for
    a small one; `over` is called once when the transaction is done or the connection cannot carry it; `given` is the
    time when it was given to the connection.
    """

    __slots__ = (
        *("_answered", "_forward_paths", "_peer", "_rejected", "_reverse_path", "_sendable", "_too_many"),
        "_unsendable",
        *("content", "eight_bit", "given", "header_utf8", "over", "own", "size", "until", "verdict"),
    )

    def __init__(
        self, sender: bytes, recipients: list[bytes], size: int, eight_bit: bool = False, until: float = NEVER
    ) -> None:
        self.size = size
        self.eight_bit = eight_bit
        self.header_utf8 = False
        self.verdict: Verdict | None = None
        self.content: Message | bytes = b""
        self.over: Callable[[], None] = _ignore
        self.given = 0.0
        self.until = until
        self._peer = b""
        # How many of the sendable recipients the server has answered for, and those that it refused.
        self._answered = 0
        self._rejected: list[int] = []
        self._too_many: list[int] = []
        self._reverse_path: SmtpPath = b"", False
        # The recipients that SMTP can carry, by their index in `recipients`, and the path of each.
        self._sendable: list[int] = []
        self._forward_paths: list[SmtpPath] = []
        # The verdicts before a server is asked.
        self._unsendable: list[Verdict | None] = [None] * len(recipients)
        self.own = self._unsendable
        try:
            self._reverse_path = pack_reverse_path(sender)
        except FormatError as error:
            self.finish(PERMANENT, report_text.unsendable(str(error), "5.1.7"))
        else:
            self._pack(recipients)

    def _pack(self, recipients: list[bytes]) -> None:
        for index, recipient in enumerate(recipients):
            try:
                self._forward_paths.append(pack_forward_path(recipient))
                self._sendable.append(index)
            except FormatError as error:
                self._unsendable[index] = (PERMANENT, report_text.unsendable(str(error), "5.1.3"))
        if not self._sendable:
            self.finish(PERMANENT, report_text.NO_RECIPIENT_LEFT)

    @property
    def done(self) -> bool:
        return self.verdict is not None

    @property
    def address(self) -> bytes:
        """The address of the server that it was given to last, or that is tried for it; empty if there was none."""
        return self._peer.partition(b" ")[0]

    def expect(self, address: bytes) -> None:
        """Note the address of a server that is tried for it."""
        self._peer = address

    @property
    def too_many(self) -> list[int]:
        """The recipients that the server refused for now because of their number, if it took the message for others."""
        return self._too_many if self.verdict is not None and self.verdict[0] == SUCCESS else []

    @property
    def reported(self) -> int:
        """The number of recipients, from the first, that the server has answered for or was not asked for."""
        for index in self._sendable[self._answered :]:
            if self.own[index] is None:
                return index
        return len(self.own)

    def start(self, peer: bytes) -> SmtpEnvelope:
        """Return the envelope for a server. Verdicts of the server before are forgotten."""
        self._peer = peer
        self._answered = 0
        self._rejected = []
        self._too_many = []
        self.own = self._unsendable.copy()
        return SmtpEnvelope(self._reverse_path, self._forward_paths, self.size, self.eight_bit, self.header_utf8)

    def take(self, event: Event, client: SmtpClient) -> None:
        """Turn an event of the client into a verdict."""
        if isinstance(event, TransactionAccepted):
            self._answered = len(self._sendable)
            self.finish(SUCCESS, report_text.accepted(self._peer, event.reply))
        elif isinstance(event, RecipientRefused):
            self._refuse(self._sendable[event.number], event)
        elif isinstance(event, RecipientAnswered):
            self.own[self._sendable[event.number]] = report_text.judge_answer(self._peer, event.reply)
        elif isinstance(event, TransactionRejected):
            if event.problem in _AFTER_RECIPIENTS:
                self._answered = len(self._sendable)
            self.finish(*describe_rejection(client, event, self.size))
        elif isinstance(event, RecipientNeedsSmtputf8):
            index = self._sendable[event.number]
            self.own[index] = (PERMANENT, report_text.no_utf8(self._peer))
        elif event.in_transaction:
            self._answered = event.answered
            self.finish(*describe_failure(client, event))

    def _refuse(self, index: int, event: RecipientRefused) -> None:
        """Judge a recipient by the reply to its RCPT."""
        reply = event.reply
        too_many = event.after > 0 and reply.code in _TOO_MANY and _ITS_OWN.match(reply.text) is None
        if too_many:
            self._too_many.append(index)
        letter = PERMANENT if reply.permanent and not too_many else TEMPORARY
        self.own[index] = (letter, report_text.recipient_rejected(self._peer, reply))
        self._rejected.append(index)

    def finish(self, letter: bytes, reason: bytes) -> None:
        """Set the verdict on the message, if it has none."""
        if self.verdict is None:
            self.verdict = (letter, reason)

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on the recipients, in order; only when done.

        A refusal by the server ends with "Giving up", as in qmail's log, where each recipient has its own connection.
        """
        assert self.verdict is not None
        verdicts = [own or self.verdict for own in self.own]
        for index in self._rejected:
            letter, text = verdicts[index]
            verdicts[index] = (letter, text + report_text.giving_up(self._peer))
        return verdicts


def _ignore() -> None:
    """The default of over."""
