"""last/B/I: why the recipients of a message are still in the queue. It is for people; nothing depends on it.

    queue-suite last 1 01763809881123456
    remote 0 1763813481 example.net Connected to 192.0.2.1 but greeting failed.
     Remote host said: 450 4.2.0 try later

The first line has the format and the birth of the message in microseconds, so that the file of an earlier message with
the same number is known as such. Then comes a record for each deferral: the channel, the offset of the recipient's
record in local/B/I or remote/B/I, the time in seconds since the epoch, the nexthop (escaped as in the log), and the
text: that of the delivery's report, or SUSPENDED and why there was no attempt. Further lines of the text begin with a
space. Records are appended; the last one of a recipient counts.

A crash may leave a part of a record, or none of them. What is no record is passed by.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from queue_wire.failures import clean_text
from queue_wire.logline import escape

# How the text begins where the nexthop was dead, so that there was no attempt.
SUSPENDED = b"delivery temporarily suspended: "
HEADER_SIZE = 37  # Bytes of the first line.
NEXTHOP_MAX = 255  # Bytes.
# Bytes of a file: 40 for each byte of local/B/I and remote/B/I, which is some 1,000 for a recipient, within these.
FILE_MIN = 4096
FILE_MAX = 16 << 20
_FACTOR = 40

_HEADER = re.compile(rb"queue-suite last 1 ([0-9]{17})\n")
_RECORD = re.compile(rb"(local|remote) ([0-9]{1,15}) ([0-9]{1,15}) ([!-~]{1,255}) (.*)", re.DOTALL)
_BOUNDARY = re.compile(rb"\n(?! )")


class LastResult(NamedTuple):
    """A deferral: the channel (local or remote), the offset of the recipient's record, the time in seconds since the
    epoch, the nexthop, the text."""

    channel: str
    offset: int
    when: int
    nexthop: bytes
    text: bytes

    @property
    def tried(self) -> bool:
        """Whether it is of an attempt."""
        return not self.text.startswith(SUSPENDED)


def pack_header(birth: int) -> bytes:
    """Return the first line; `birth` is in microseconds since the epoch."""
    return b"queue-suite last 1 %017d\n" % min(max(birth, 0), 10**17 - 1)


def unpack_header(data: bytes) -> int | None:
    """Return the birth in the first line, in microseconds since the epoch; None if that is something else."""
    found = _HEADER.match(data)
    return int(found[1]) if found else None


def pack_result(channel: str, offset: int, when: int, nexthop: bytes, text: bytes) -> bytes:
    """Return a record. The text is that of clean_text, at most 1,000 bytes."""
    body = clean_text(text).replace(b"\n", b"\n ")
    return b"%s %d %d %s %s\n" % (channel.encode(), offset, max(0, when), escape(nexthop[:NEXTHOP_MAX]) or b"-", body)


def unpack_results(data: bytes) -> Iterator[LastResult]:
    """Yield the records in any part of a file, in order; what stands before the first whole record is passed by."""
    at = 0
    while at < len(data):
        boundary = _BOUNDARY.search(data, at)
        end = boundary.start() if boundary else len(data)
        found = _RECORD.fullmatch(data, at, end)
        if found is not None:
            channel, offset, when, nexthop, text = found.groups()
            yield LastResult(channel.decode("ascii"), int(offset), int(when), nexthop, text.replace(b"\n ", b"\n"))
        at = end + 1


def size_limit(envelope: int) -> int:
    """Return the most bytes of a file, for a message whose local/B/I and remote/B/I have `envelope` bytes."""
    return min(max(FILE_MIN, _FACTOR * envelope), FILE_MAX)


def whole_records(tail: bytes) -> bytes:
    """Return the whole records in the end of a file: what begins after the first end of a record."""
    boundary = _BOUNDARY.search(tail)
    return tail[boundary.end() :] if boundary else b""


def suspension(nexthop: bytes, why: bytes) -> bytes:
    """Return the text for recipients that were not tried, since their nexthop is dead; `why` is empty if not known."""
    return b"%s%s is dead%s" % (SUSPENDED, nexthop, why and b": " + why)


def short_reason(text: bytes) -> bytes:
    """Return the most telling part of a report's text in one line: a server's reply, if it has one, else all of it."""
    parts = [part.strip() for part in text.split(b"\n") if part.strip()]
    if parts and parts[-1].startswith(b"Giving up on "):
        parts.pop()
    line = b" ".join(parts)
    return line.partition(b"Remote host said: ")[2] or line
