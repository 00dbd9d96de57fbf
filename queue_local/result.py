"""What the process of a delivery sends to queue-local: a text, and the mail that it wants forwarded. Pure.

    text netstring                                             at most TEXT_MAX bytes
    [uid \\0 sender \\0 head \\0 recipient [\\0 recipient ...]  netstring]

The exit code of the process is the verdict. The bytes end with the pipe. A list may have millions of recipients, so
queue-local takes the bytes of a forward in the pieces in which they came, and passes them on as they are: only the
forwarder looks into them.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import NetstringReader, pack_netstring

# qmail-lspawn's truncreport: a report goes into a log line and a bounce.
TEXT_MAX = 3000
# The most bytes of a forward. A .qmail file of QMAIL_MAX bytes fits (queue_local.qmailfile).
FORWARD_MAX = 65 << 20
# The text, and the length of the forward, are in the first bytes of a result.
_BEGINNING = TEXT_MAX + 64
_LENGTH = re.compile(rb"([1-9][0-9]{0,8}):")
_TOO_LONG = b"\n[...]\n"
# Bytes kept of the end of a long text: the count of deliveries and the last output of a program are there.
_END = 1000


class Forward(NamedTuple):
    """One message to queue: `head` (complete lines), then the message that is being delivered.

    `uid` is the user's, for the Received: line and the envelope. Addresses are as in envelopes.
    """

    uid: int
    sender: bytes
    head: bytes
    recipients: list[bytes]


class Outcome(NamedTuple):
    """The report of a delivery that succeeded, and its forward, which is not queued yet."""

    text: str
    forward: Forward | None = None


def cut_text(text: bytes) -> bytes:
    """Return the text of a report with a final newline; over TEXT_MAX bytes, its middle is left out."""
    text = text.rstrip(b"\n") + b"\n"
    if len(text) <= TEXT_MAX:
        return text
    return text[: TEXT_MAX - _END - len(_TOO_LONG)] + _TOO_LONG + text[-_END:]


def pack_result(text: bytes, forward: Forward | None = None) -> bytes:
    """Return the bytes that the process of a delivery writes. Raises FormatError if a forward cannot be packed."""
    data = pack_netstring(cut_text(text))
    return data if forward is None else data + pack_netstring(pack_forward(forward))


def unpack_result(parts: Sequence[bytes]) -> tuple[bytes, list[bytes] | None]:
    """Return the text, and the packed forward in pieces, of what a process wrote, in pieces. Raises FormatError."""
    beginning, rest = b"", list(parts)
    while rest and len(beginning) < _BEGINNING:
        beginning += rest.pop(0)
    reader = NetstringReader(_BEGINNING)
    reader.feed(beginning)
    text = reader.next()
    if text is None:
        raise FormatError(f"result: not a text and a forward: {quoted(beginning[:_BEGINNING])}")
    begin = len(pack_netstring(text))
    if begin == len(beginning) and not rest:
        return cut_text(text), None
    length = _LENGTH.match(beginning, begin)
    pieces = [beginning[length.end() :], *rest] if length else [b""]
    if length is None or sum(map(len, pieces)) != int(length[1]) + 1 or not pieces[-1].endswith(b","):
        raise FormatError("result: its forward is not whole")
    pieces[-1] = pieces[-1][:-1]
    return cut_text(text), pieces


def pack_forward(forward: Forward) -> bytes:
    """Return the fields of a forward, separated by NUL. Raises FormatError for a NUL in a field, or too many bytes."""
    fields = [forward.sender, forward.head, *forward.recipients]
    packed = b"\0".join([b"%d" % forward.uid, *fields])
    if not forward.recipients or packed.count(b"\0") != len(fields):
        raise FormatError("no recipients, or a NUL in an address")
    if len(packed) > FORWARD_MAX:
        raise FormatError(f"{len(packed)} bytes of addresses, limit {FORWARD_MAX}")
    return packed


def unpack_forward(payload: bytes) -> Forward:
    """Return the forward that `pack_forward` packed. Raises FormatError."""
    uid, *fields = payload.split(b"\0")
    # (uid_t) -1 is not a uid.
    if not uid.isdigit() or len(uid) > 10 or int(uid) >= 2**32 - 1 or len(fields) < 3:
        raise FormatError(f"forward: not uid, sender, head, recipients: {quoted(payload)}")
    sender, head, *recipients = fields
    if head and not head.endswith(b"\n"):
        raise FormatError(f"forward: head is not whole lines: {quoted(head)}")
    return Forward(int(uid), sender, head, recipients)
