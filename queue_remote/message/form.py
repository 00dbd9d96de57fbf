"""The form in which a message goes to a server: as it is stored, or 7-bit or with shorter lines where it must be.

    8-bit mail, the server has 8BITMIME       as it is, with BODY=8BITMIME (RFC 6152)
    8-bit mail, the server does not have it   made 7-bit, or it fails with 5.6.3
    8-bit bytes in the header alone           as it is, as Postfix does: no form of MIME would say what they mean
    lines over 998 bytes                      as control/longlines says: as they are, encoded, or it fails

A form other than the stored one is signed as it goes out.
"""

from queue_base.errors import reason
from queue_remote.connection import Connection
from queue_remote.message.converting import Later
from queue_remote.message.facts import LINE_MOST, Facts
from queue_remote.message.file import Message
from queue_remote.settings import ENCODE, FAIL
from queue_remote.setup import Setup
from queue_smtp.text import Verdict, long_lines, no_message, not_converted, not_converted_now, not_shortened
from queue_smtp.transaction import Transaction
from queue_wire.format_error import FormatError
from queue_wire.report import PERMANENT, TEMPORARY


class Unfit(Exception):
    """A message that cannot go out, in general or to this server; it has the verdict on it."""

    def __init__(self, letter: bytes, text: bytes) -> None:
        super().__init__(text)
        self.verdict: Verdict = (letter, text)


class Forms:
    """One delivery's message, which the caller closes, and its other form, which `close` closes."""

    __slots__ = ("_facts", "_message", "_needs", "_other", "_other_size", "_sender", "_setup", "_size")

    def __init__(self, setup: Setup, message: Message, sender: bytes) -> None:
        self._setup = setup
        self._message = message
        self._sender = sender
        self._facts = Facts()
        self._size = message.size
        self._needs = False, False
        self._other: Message | None = None
        self._other_size = 0

    async def prepare(self) -> None:
        """Look at the message, and sign it. Raises Unfit and Unsigned."""
        setup = self._setup
        try:
            self._facts = await setup.scans.find(self._message)
            self._size = self._facts.wire_size
        except OSError as error:
            raise Unfit(TEMPORARY, no_message(reason(error))) from error
        if self._facts.long_lines and setup.settings.long_lines == FAIL:
            raise Unfit(PERMANENT, long_lines(LINE_MOST))
        if setup.signing.active:
            self._size += await setup.signing.sign(self._message, self._sender)

    async def fit(self, connection: Connection, transaction: Transaction) -> Message:
        """Return the form for a connection that is READY, and tell the transaction what it is. Raises Unfit, Unsigned.

        The connection may not be READY any more then.
        """
        facts, client = self._facts, connection.client
        takes_8_bit = b"8BITMIME" in client.extensions
        seven_bit = facts.body_eight_bit and not takes_8_bit
        short_lines = facts.long_lines and self._setup.settings.long_lines == ENCODE
        transaction.eight_bit = facts.eight_bit
        if not (seven_bit or short_lines):
            transaction.size = self._size
            return self._message
        if self._other is None or self._needs != (seven_bit, short_lines):
            self.close()
            # The server hears nothing until this is done, and may say what it likes.
            connection.park(_ignore)
            try:
                await self._make_other(seven_bit, short_lines)
            except FormatError as error:
                text = not_converted(client.session.peer, str(error)) if seven_bit else not_shortened(str(error))
                raise Unfit(PERMANENT, text) from error
            except Later as error:
                raise Unfit(TEMPORARY, not_converted_now(client.session.peer, str(error))) from error
            except OSError as error:
                raise Unfit(TEMPORARY, no_message(reason(error))) from error
        assert self._other is not None
        transaction.size = self._other_size
        return self._other

    def close(self) -> None:
        """Let go of the other form."""
        if self._other is not None:
            self._other.close()
            self._other = None

    async def _make_other(self, seven_bit: bool, short_lines: bool) -> None:
        """Raises FormatError, Later, OSError, Unsigned."""
        self._needs = seven_bit, short_lines
        conversions = self._setup.conversions
        self._other, self._other_size = await conversions.convert(self._message, seven_bit, short_lines)
        if self._setup.signing.active:
            self._other_size += await self._setup.signing.sign(self._other, self._sender)


def _ignore(connection: Connection) -> None:
    """What it says changes its phase."""
