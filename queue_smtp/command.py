"""The commands that a client sends (RFC 5321 section 4.1.1): lines in, verbs, addresses and parameters out.

A line that is no such command raises CommandRefused, which has the reply.
"""

import re
from typing import NamedTuple

from queue_smtp.path import unpack_path
from queue_smtp.server_replies import (
    BAD_RECIPIENT,
    BAD_SENDER,
    NAME_MISSING,
    NEEDS_SMTPUTF8,
    NOT_PRINTABLE,
    PARAMETER_UNKNOWN,
    SYNTAX,
    ServerReply,
)
from queue_wire.format_error import FormatError

# RFC 5321 section 4.5.3.1.4 demands 512 bytes with CRLF, and the extensions add to it.
COMMAND_MAX = 2048
# RFC 4954 section 4: a response of AUTH.
RESPONSE_MAX = 12288
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NUMBER = re.compile(rb"[0-9]{1,18}")


class CommandRefused(Exception):
    """The command cannot be carried out; `reply` says why."""

    def __init__(self, reply: ServerReply) -> None:
        super().__init__(reply.text.decode())
        self.reply = reply


class SenderParameters(NamedTuple):
    """What a client says about a message in MAIL. `size` is 0 if it says nothing."""

    size: int = 0
    eight_bit: bool = False
    smtputf8: bool = False


def divide_command(line: bytes) -> tuple[bytes, bytes]:
    """Return (verb in upper case, argument) of a line without its line end. Spaces around the argument do not count.

    Raises CommandRefused for a line with control characters, of which a tab is a space.
    """
    if _UNPRINTABLE.search(line):
        raise CommandRefused(NOT_PRINTABLE)
    line = line.replace(b"\t", b" ").strip(b" ")
    verb, _, argument = line.partition(b" ")
    return verb.upper(), argument.strip(b" ")


def unpack_hello(argument: bytes) -> bytes:
    """Return the name of EHLO or HELO: the first word of its argument, as its sender wrote it.

    RFC 5321 section 4.1.2 has letters, digits, hyphens and literals. Some clients send the name that their user gave to
    the computer, in any charset, and nothing here depends on it.
    """
    name = argument.partition(b" ")[0]
    if not name:
        raise CommandRefused(NAME_MISSING)
    return name


def unpack_mail(argument: bytes) -> tuple[bytes, SenderParameters]:
    """Return (sender, parameters) of MAIL; the sender is empty for `<>`."""
    address, rest = _unpack_address(argument, b"FROM:", BAD_SENDER)
    size, eight_bit, smtputf8 = 0, False, False
    said: dict[bytes, bytes] = {}
    for parameter in rest.split():
        keyword, equals, value = parameter.partition(b"=")
        keyword = keyword.upper()
        # RFC 5321 section 4.1.1.11 has a parameter once. Python's smtplib repeats BODY=8BITMIME, which changes nothing.
        if said.setdefault(keyword, value) != value:
            raise CommandRefused(SYNTAX)
        if keyword == b"SIZE":
            if not _NUMBER.fullmatch(value):
                raise CommandRefused(SYNTAX)
            size = int(value)
        elif keyword == b"BODY":
            # BINARYMIME is not offered (RFC 3030 section 3).
            if value.upper() not in (b"7BIT", b"8BITMIME"):
                raise CommandRefused(SYNTAX)
            eight_bit = value.upper() == b"8BITMIME"
        elif keyword == b"SMTPUTF8":
            if equals:
                raise CommandRefused(SYNTAX)
            smtputf8 = True
        elif keyword == b"AUTH":
            # RFC 4954 section 5: who sent it first. Nobody is trusted to know that, which is AUTH=<>.
            if not value:
                raise CommandRefused(SYNTAX)
        else:
            raise CommandRefused(PARAMETER_UNKNOWN)
    if not address.isascii() and not smtputf8:
        raise CommandRefused(NEEDS_SMTPUTF8)
    return address, SenderParameters(size, eight_bit, smtputf8)


def unpack_rcpt(argument: bytes, smtputf8: bool) -> bytes:
    """Return the recipient of RCPT. `smtputf8`: MAIL has said that addresses may be UTF-8."""
    address, rest = _unpack_address(argument, b"TO:", BAD_RECIPIENT)
    if not address:
        raise CommandRefused(BAD_RECIPIENT)
    if rest.split():
        # DSN (RFC 3461) is not offered, and no other extension has parameters here.
        raise CommandRefused(PARAMETER_UNKNOWN)
    if not address.isascii() and not smtputf8:
        raise CommandRefused(NEEDS_SMTPUTF8)
    return address


def unpack_bdat(argument: bytes) -> tuple[int, bool] | None:
    """Return (size, whether it is the last chunk) of BDAT; None if the size cannot be known."""
    size, _, last = argument.partition(b" ")
    if not _NUMBER.fullmatch(size) or last.strip(b" ").upper() not in (b"", b"LAST"):
        return None
    return int(size), bool(last)


def _unpack_address(argument: bytes, keyword: bytes, wrong: ServerReply) -> tuple[bytes, bytes]:
    """Return (address, parameters). A space behind the colon is against the standard and common."""
    if argument[: len(keyword)].upper() != keyword:
        raise CommandRefused(SYNTAX)
    try:
        return unpack_path(argument[len(keyword) :].lstrip(b" "))
    except FormatError:
        # `from None`: the reply says all that the client may know.
        raise CommandRefused(wrong) from None
