"""One message for one or more recipients over SMTP: what is asked, and the verdict on each recipient.

An address that SMTP cannot carry is refused before anything is sent, at once or, where only SMTPUTF8 could
carry it (RFC 6531), once it is known what the peer can do. When nothing is left to do the transaction is
`done`: it has a verdict on the message, which stands for every recipient that was not refused by itself. A
transaction that is not done may be started again, with another peer.
"""

from collections.abc import Mapping

from queue_smtp import text
from queue_smtp.path import pack_path, pack_utf8_path
from queue_smtp.reply import Reply
from queue_smtp.text import Verdict
from queue_wire.format_error import FormatError
from queue_wire.report import PERMANENT, TEMPORARY


class Transaction:
    """The envelope of one message, its size as RFC 1870 counts it (0: not known), and what became of each recipient.

    `refused` has, for each recipient, its own verdict or None; `verdict` is that on the message, None
    until done; `accepted` counts the recipients that the peer takes. `eight_bit`: the message
    has 8-bit bytes, which a peer with 8BITMIME is told (RFC 6152).
    """

    __slots__ = (
        "_answers",
        "_asked",
        "_paths",
        "_peer",
        "_sendable",
        "_sender",
        "_unsendable",
        "accepted",
        "eight_bit",
        "mail",
        "refused",
        "size",
        "verdict",
    )

    def __init__(self, sender: bytes, recipients: list[bytes], size: int, eight_bit: bool = False) -> None:
        self.size = size
        self.eight_bit = eight_bit
        self.verdict: Verdict | None = None
        self.accepted = 0
        self.mail = b""
        # For each recipient that SMTP can carry: its number, its path, and whether that needs SMTPUTF8. Those
        # that this peer can carry are in _paths; _asked and _answers count them.
        self._sendable: list[tuple[int, bytes, bool]] = []
        self._paths = self._sendable
        self._unsendable: list[Verdict | None] = [None] * len(recipients)
        self._asked = 0
        self._answers = 0
        self._peer = b""
        self._sender = b"", False
        self.refused = self._unsendable
        try:
            self._sender = _pack_sender(sender)
        except FormatError as error:
            self.finish(PERMANENT, text.unsendable(str(error), "5.1.7"))
            return
        for index, recipient in enumerate(recipients):
            try:
                self._sendable.append((index, *_pack_recipient(recipient)))
            except FormatError as error:
                self._unsendable[index] = (PERMANENT, text.unsendable(str(error), "5.1.3"))
        if not self._sendable:
            self.finish(PERMANENT, text.NO_RECIPIENT_LEFT)

    @property
    def done(self) -> bool:
        return self.verdict is not None

    @property
    def complete(self) -> bool:
        """Every recipient is answered for."""
        return self._answers == len(self._paths)

    @property
    def reported(self) -> int:
        """How many recipients, from the first, have been judged by the peer or could not be asked for."""
        if self.complete:
            return len(self.refused)
        return self._paths[self._answers][0]

    def start(self, peer: bytes, extensions: Mapping[bytes, bytes]) -> bytes | None:
        """Return MAIL FROM for a peer with these extensions; None, and the transaction is done, where it cannot do.

        Its size goes with it where the peer wants to know (RFC 1870), as does what the message needs.
        """
        self._peer = peer
        self._asked = self._answers = self.accepted = 0
        self.refused = list(self._unsendable)
        path, utf8 = self._sender
        self._paths = self._sendable
        utf8 = utf8 or any(needed for _, _, needed in self._paths)
        if utf8 and b"SMTPUTF8" not in extensions:
            if not self._go_without_utf8():
                return None
            utf8 = False
        mail = b"MAIL FROM:" + path
        if self.size and b"SIZE" in extensions:
            mail += b" SIZE=%d" % self.size
        if self.eight_bit and b"8BITMIME" in extensions:
            mail += b" BODY=8BITMIME"
        self.mail = mail + (b" SMTPUTF8\r\n" if utf8 else b"\r\n")
        return self.mail

    def next_recipient(self) -> bytes | None:
        """Return RCPT TO for the next recipient, None after the last."""
        if self._asked == len(self._paths):
            return None
        self._asked += 1
        return b"RCPT TO:%s\r\n" % self._paths[self._asked - 1][1]

    def recipient_reply(self, reply: Reply) -> None:
        """Take the answer for the first recipient without one.

        452 is "too many recipients", and so is 552 after others were taken (RFC 5321 section
        4.5.3.1.10); those who are left out go with the next attempt, which will be a smaller one.
        """
        index = self._paths[self._answers][0]
        self._answers += 1
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
        for index, _, _ in self._paths[: self._answers]:
            refusal = self.refused[index]
            if refusal is not None:
                found[index] = (refusal[0], refusal[1] + text.giving_up(self._peer))
        return found

    def _go_without_utf8(self) -> bool:
        """Refuse what needs SMTPUTF8 (RFC 6531 section 3.5); return whether anything is left to send."""
        if self._sender[1]:
            self.finish(PERMANENT, text.no_utf8(self._peer))
            return False
        self._paths = [entry for entry in self._sendable if not entry[2]]
        for index, _, utf8 in self._sendable:
            if utf8:
                self.refused[index] = (PERMANENT, text.no_utf8(self._peer))
        if not self._paths:
            self.finish(PERMANENT, text.NO_RECIPIENT_LEFT)
        return bool(self._paths)


def _pack_sender(sender: bytes) -> tuple[bytes, bool]:
    return (pack_path(sender), False) if sender.isascii() else pack_utf8_path(sender)


def _pack_recipient(recipient: bytes) -> tuple[bytes, bool]:
    if not recipient.isascii():
        return pack_utf8_path(recipient)
    path = pack_path(recipient)
    if path == b"<>":
        raise FormatError("recipient is empty")
    return path, False
