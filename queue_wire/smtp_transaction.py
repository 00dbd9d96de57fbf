"""One message for one or more recipients over SMTP: what is asked, and the verdict on each recipient.

An address that SMTP cannot carry is refused here, before anything is sent. When nothing is left to do the
transaction is `done`: it has a verdict on the message, which stands for every recipient that was not
refused by itself.
"""

from queue_wire import smtp_text as text
from queue_wire.errors import FormatError
from queue_wire.report import PERMANENT, TEMPORARY
from queue_wire.smtp_path import NotAscii, pack_path
from queue_wire.smtp_reply import Reply
from queue_wire.smtp_text import Verdict


class Transaction:
    """The envelope of one message, its size in bytes (0: not known), and what became of each recipient.

    `refused` has, for each recipient, its own verdict or None; `verdict` is that on the message, None
    until done; `answers` counts the recipients that the peer has answered for.
    """

    __slots__ = ("_asked", "_peer", "_sender", "accepted", "answers", "refused", "size", "verdict")

    def __init__(self, sender: bytes, recipients: list[bytes], size: int) -> None:
        self.size = size
        self.refused: list[Verdict | None] = [None] * len(recipients)
        self.verdict: Verdict | None = None
        self.answers = 0
        self.accepted = 0
        self._asked: list[tuple[int, bytes]] = []
        self._peer = b""
        self._sender = b""
        try:
            self._sender = pack_path(sender)
        except FormatError as error:
            self.finish(PERMANENT, _unsendable(error, "5.1.7"))
            return
        for index, recipient in enumerate(recipients):
            try:
                self._asked.append((index, _pack_recipient(recipient)))
            except FormatError as error:
                self.refused[index] = (PERMANENT, _unsendable(error, "5.1.3"))
        if not self._asked:
            self.finish(PERMANENT, text.NO_RECIPIENT_LEFT)

    @property
    def done(self) -> bool:
        return self.verdict is not None

    @property
    def complete(self) -> bool:
        """Every recipient that was asked for is answered."""
        return self.answers == len(self._asked)

    @property
    def reported(self) -> int:
        """How many recipients, from the first, have been judged by the peer or could not be asked for."""
        if self.complete:
            return len(self.refused)
        return self._asked[self.answers][0]

    def mail_command(self, peer: bytes, announce_size: bool) -> bytes:
        """Return MAIL FROM for this peer; its size goes with it where the peer wants to know (RFC 1870)."""
        self._peer = peer
        if announce_size and self.size:
            return b"MAIL FROM:%s SIZE=%d\r\n" % (self._sender, self.size)
        return b"MAIL FROM:%s\r\n" % self._sender

    def recipient_command(self) -> bytes:
        """Return RCPT TO for the first recipient without an answer."""
        return b"RCPT TO:%s\r\n" % self._asked[self.answers][1]

    def recipient_commands(self) -> list[bytes]:
        """Return RCPT TO for all recipients."""
        return [b"RCPT TO:%s\r\n" % path for _, path in self._asked]

    def recipient_reply(self, reply: Reply) -> None:
        """Take the answer for the first recipient without one.

        452 is "too many recipients", and so is 552 after others were taken (RFC 5321 section
        4.5.3.1.10); those who are left out go with the next attempt, which will be a smaller one.
        """
        index = self._asked[self.answers][0]
        self.answers += 1
        if reply.accepted:
            self.accepted += 1
            return
        too_many = reply.code == 552 and self.accepted > 0
        letter = PERMANENT if reply.permanent and not too_many else TEMPORARY
        self.refused[index] = (letter, text.recipient_rejected(self._peer, reply))

    def finish(self, letter: bytes, reason: bytes) -> None:
        """Set the verdict on the message; the first one stays."""
        if self.verdict is None:
            self.verdict = (letter, reason)

    def verdicts(self) -> list[Verdict]:
        """Return one verdict a recipient, in order. Only when done.

        The peer's refusal of a recipient ends with "Giving up", as it does in qmail's log, where
        every recipient has a connection of its own.
        """
        assert self.verdict is not None
        found = [refusal or self.verdict for refusal in self.refused]
        for index, _ in self._asked:
            refusal = self.refused[index]
            if refusal is not None:
                found[index] = (refusal[0], refusal[1] + text.giving_up(self._peer))
        return found


def _pack_recipient(recipient: bytes) -> bytes:
    path = pack_path(recipient)
    if path == b"<>":
        raise FormatError("recipient is empty")
    return path


def _unsendable(error: FormatError, code: str) -> bytes:
    # 5.6.7: the address is not ASCII and the transaction cannot be SMTPUTF8 (RFC 6531 section 3.5).
    return text.unsendable(str(error), "5.6.7" if isinstance(error, NotAscii) else code)
