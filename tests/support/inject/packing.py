"""Packs messages as the formats of batches have them."""

import re

from queue_smtp.dotstuff import DotStuffer
from queue_smtp.path import pack_path
from queue_wire.files.envelope import check_address
from queue_wire.pipes.framing import pack_netstring


def quote_mbox(message: bytes, sender: bytes = b"MAILER-DAEMON", rd: bool = True) -> bytes:
    """Return a message as an mbox has it, with its From_ line (of no date) and the empty line after it.

    A last line without its end gets one: an mbox cannot say that there was none.
    """
    pattern = rb"^(>*From )" if rd else rb"^(From )"
    text = re.sub(pattern, rb">\1", message, flags=re.MULTILINE)
    end = b"" if not text or text.endswith(b"\n") else b"\n"
    return b"From " + sender + b" Thu Jan  1 00:00:00 1970\n" + text + end + b"\n"


def pack_bsmtp(sender: bytes, recipients: list[bytes], message: bytes) -> bytes:
    """Return a message as batch SMTP, with CRLF; `message` ends in LF. Raises FormatError for a wrong address."""
    lines = [b"MAIL FROM:" + pack_path(sender), *[b"RCPT TO:" + pack_path(each) for each in recipients], b"DATA", b""]
    stuffer = DotStuffer()
    return b"\r\n".join(lines) + stuffer.feed(message) + stuffer.finish()


def pack_pair(sender: bytes, recipients: list[bytes], message: bytes) -> bytes:
    """Return a message and its envelope as netstrings. Raises FormatError for a wrong address."""
    parts = [b"F%s\0" % check_address(sender), *[b"T%s\0" % check_address(each) for each in recipients], b"\0"]
    return pack_netstring(message) + pack_netstring(b"".join(parts))
