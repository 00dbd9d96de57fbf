"""The lines that a delivery adds before a message (qmail-local(8)), and the search for a Delivered-To line. Pure.

    From sender date          only in an mbox file
    Return-Path: <sender>
    Delivered-To: recipient
"""

import time
from typing import BinaryIO, NamedTuple

from queue_wire.address import quote_address

# Independent of the locale.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FROM_SAFE = bytes.maketrans(b" \t\n", b"---")
# Longer than any line that is searched for; longer lines are read in pieces.
_PIECE = 8192


class HeaderLines(NamedTuple):
    """The lines of one delivery, each with its newline."""

    from_line: bytes
    return_path: bytes
    delivered_to: bytes


def return_path(sender: bytes) -> bytes:
    """Return the Return-Path line."""
    return b"Return-Path: <%s>\n" % quote_address(sender)


def delivered_to(recipient: bytes) -> bytes:
    """Return the Delivered-To line; a newline in the recipient becomes `_`."""
    return b"Delivered-To: %s\n" % recipient.replace(b"\n", b"_")


def from_line(sender: bytes, now: float) -> bytes:
    """Return the From_ line that begins a message in an mbox file; `now` is in seconds since the epoch, shown in UTC.

    White space in the sender becomes `-`; the empty sender becomes MAILER-DAEMON.
    """
    when = time.gmtime(now)
    day = f"{_DAYS[when.tm_wday]} {_MONTHS[when.tm_mon - 1]} {when.tm_mday:02d}"
    date = f"{day} {when.tm_hour:02d}:{when.tm_min:02d}:{when.tm_sec:02d} {when.tm_year}"
    return b"From %s %s\n" % (sender.translate(_FROM_SAFE) or b"MAILER-DAEMON", date.encode())


def header_has(message: BinaryIO, line: bytes) -> bool:
    """Return whether the header (up to the first empty line) contains exactly `line`, including its newline."""
    at_start = True
    while piece := message.readline(_PIECE):
        if at_start and piece == line:
            return True
        if at_start and piece == b"\n":
            return False
        at_start = piece.endswith(b"\n")
    return False
