"""Chooses the form in which a message is sent to a server: as stored, 7-bit, or with shorter lines.

    8-bit mail, the server has 8BITMIME         as stored, with BODY=8BITMIME (RFC 6152)
    8-bit mail, the server does not have it     made 7-bit, or it fails with 5.6.3
    8-bit bytes in the header alone             as stored, as Postfix does: their charset is unknown
    a header in UTF-8, the server has SMTPUTF8  with SMTPUTF8 (RFC 6531)
    lines over 998 bytes                        as control/longlines says: as stored, encoded, or it fails

Each form is sealed and signed by itself.
"""

from queue_base.errors import reason
from queue_remote.config import ENCODE, FAIL
from queue_remote.message.conversions import Later
from queue_remote.message.encoding import LINE_MAX
from queue_remote.message.file import Message
from queue_remote.message.message_scan import Facts
from queue_remote.report_text import Verdict, long_lines, no_message, not_converted, not_converted_now, not_shortened
from queue_remote.setup import Setup
from queue_smtp.client import SmtpClient
from queue_wire.control.registry import LONGLINES
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import PERMANENT, TEMPORARY

# Of a message that was not looked at yet.
_UNKNOWN = Facts()


class Unsendable(Exception):
    """A message that cannot be sent, or not to this server; `verdict` is that on the message."""

    def __init__(self, letter: bytes, text: bytes) -> None:
        super().__init__(text)
        self.verdict: Verdict = (letter, text)


class Forms:
    """The forms of one delivery's message. The caller closes the message; `close` closes the other form."""

    __slots__ = (
        *("_facts", "_message", "_needs", "_other", "_other_size", "_sealed", "_sender", "_setup", "_signed"),
        "_size",
    )

    def __init__(self, setup: Setup, message: Message, sender: bytes, signed: bool) -> None:
        """`signed`: whether it is signed, if its domain has keys, and sealed, if it was forwarded."""
        self._setup = setup
        self._sealed = signed and setup.sealing.active
        self._signed = signed and setup.signing.active
        self._message = message
        self._sender = sender
        self._facts = _UNKNOWN
        self._size = message.size
        self._needs = False, False
        self._other: Message | None = None
        self._other_size = 0

    async def prepare(self) -> None:
        """Find the facts of the message, and seal and sign it. Raises Unsendable and Unsigned."""
        setup = self._setup
        try:
            self._facts = await setup.scans.find(self._message)
            self._size = self._facts.wire_size
        except OSError as error:
            raise Unsendable(TEMPORARY, no_message(reason(error))) from error
        if self._facts.long_lines and setup.config.values[LONGLINES] == FAIL:
            raise Unsendable(PERMANENT, long_lines(LINE_MAX))
        if self._sealed:
            self._size += await setup.sealing.seal(self._message, self._message)
        if self._signed:
            self._size += await setup.signing.sign(self._message, self._sender)

    @property
    def eight_bit(self) -> bool:
        """Whether the message has 8-bit bytes."""
        return self._facts.eight_bit

    @property
    def header_utf8(self) -> bool:
        """Whether the header has 8-bit bytes, in UTF-8."""
        return self._facts.header_utf8

    async def fit(self, client: SmtpClient) -> tuple[Message, int]:
        """Return the form for a client that is READY, and its size on the wire. Raises Unsendable, Unsigned.

        This may take long: the client may not be READY any more when it returns.
        """
        facts = self._facts
        takes_8_bit = b"8BITMIME" in client.extensions
        seven_bit = facts.body_eight_bit and not takes_8_bit
        short_lines = facts.long_lines and self._setup.config.values[LONGLINES] == ENCODE
        if not (seven_bit or short_lines):
            return self._message, self._size
        if self._other is None or self._needs != (seven_bit, short_lines):
            self.close()
            try:
                await self._make_other(seven_bit, short_lines)
            except FormatError as error:
                text = not_converted(client.session.peer, str(error)) if seven_bit else not_shortened(str(error))
                raise Unsendable(PERMANENT, text) from error
            except Later as error:
                raise Unsendable(TEMPORARY, not_converted_now(client.session.peer, str(error))) from error
            except OSError as error:
                raise Unsendable(TEMPORARY, no_message(reason(error))) from error
        assert self._other is not None
        return self._other, self._other_size

    def close(self) -> None:
        """Close the other form."""
        if self._other is not None:
            self._other.close()
            self._other = None

    async def _make_other(self, seven_bit: bool, short_lines: bool) -> None:
        """Make the other form. Raises FormatError, Later, OSError, Unsigned."""
        self._needs = seven_bit, short_lines
        conversions = self._setup.conversions
        self._other, self._other_size = await conversions.convert(self._message, seven_bit, short_lines)
        if self._sealed:
            self._other_size += await self._setup.sealing.seal(self._other, self._message)
        if self._signed:
            self._other_size += await self._setup.signing.sign(self._other, self._sender)
