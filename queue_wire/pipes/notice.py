"""queue-todo to queue-send: notices. Short ones are the wire format of the EXTTODO patch, each ended by a NUL.

    D<channel><id>\\0   the message is classified; channel L local, R remote, B both, X no recipients
    L<line>\\0          a log line for queue-send to print, without a newline
    W\\0                queue-todo asks for an answer when the lines before this are written to the log
    P\\0                the answer to the oldest unanswered P of queue-send
    netstring          a full notice: C<id> \\0 birth \\0 size \\0 sender [\\0 recipient ...]
Back, one byte each: H reread the control files, X exit, W the answer to the oldest unanswered W, P asks for an answer
when all messages whose lines are in the log have been announced.

A full notice has the envelope of a classified message, so that queue-send need not read it: the birth in microseconds
since the epoch, the size in bytes, and the recipients in the order of todo/B/I, each after L (local) or R (remote), as
they are in local/B/I and remote/B/I. A message with many recipients has a short one.

W ensures that the lines about a message are in the log before the message leaves todo/. After the answer to a P that
was sent when the backlog had been read, no notice is about a message that was found in the backlog.
"""

from enum import Enum
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.ids import unpack_id
from queue_wire.logline import LINE_MAX
from queue_wire.pipes.framing import PREFIX_MAX, pack_netstring

REREAD = b"H"
EXIT = b"X"
WRITTEN = b"W"
PASSED = b"P"
CHANNELS = b"LRBX"
# The most recipients of a message that has a full notice, and the most bytes of its envelope.
FULL_RECIPIENTS = 100
FULL_BYTES = 8192
NOTICE_MOST = 2 * FULL_BYTES  # Bytes of a record.
LOCAL, REMOTE = b"L", b"R"


class Ask(Enum):
    """A request of queue-todo to queue-send, or the answer to one of queue-send's."""

    WRITTEN = "W"
    PASSED = "P"


class Classified(NamedTuple):
    """A message that left todo/: its id, and whether it has local and remote recipients."""

    message: int
    local: bool
    remote: bool


class Arrived(NamedTuple):
    """A full notice: a message that left todo/, and its envelope. `birth` is in microseconds since the epoch.

    `recipients` are (channel, address) in the order of todo/B/I; the channel is LOCAL or REMOTE.
    """

    message: int
    birth: int
    size: int
    sender: bytes
    recipients: list[tuple[bytes, bytes]]


Notice = Classified | Arrived


def pack_arrived(notice: Arrived) -> bytes:
    """Return the full notice as a netstring."""
    fields = [b"C%d" % notice.message, b"%d" % notice.birth, b"%d" % notice.size, notice.sender]
    return pack_netstring(b"\0".join(fields + [channel + address for channel, address in notice.recipients]))


def pack_classified(notice: Classified) -> bytes:
    """Return the D record, with its NUL."""
    channel = b"XLRB"[notice.local + 2 * notice.remote]
    return b"D%c%d\0" % (channel, notice.message)


def pack_log(line: bytes) -> bytes:
    """Return the L record, with its NUL. `line` contains neither NUL nor newline."""
    return b"L%s\0" % line


def pack_ask(ask: Ask) -> bytes:
    """Return the W or P record, with its NUL."""
    return ask.value.encode("ascii") + b"\0"


def unpack_notice(record: bytes) -> Notice | Ask | bytes:
    """Return what one record of a NoticeReader holds; bytes are a log line. Raises FormatError."""
    kind = record[:1]
    if kind == b"L":
        if b"\n" in record or len(record) > LINE_MAX + 1:
            raise FormatError(f"notice: log line holds a newline or over {LINE_MAX} bytes: {quoted(record)}")
        return record[1:]
    if kind == b"C":
        return _unpack_arrived(record)
    if record in (WRITTEN, PASSED):
        return Ask(kind.decode("ascii"))
    channel = record[1:2]
    if kind != b"D" or not channel or channel not in CHANNELS:
        raise FormatError(f"notice: unknown record: {quoted(record)}")
    return Classified(unpack_id(record[2:]), channel in b"LB", channel in b"RB")


def _unpack_arrived(record: bytes) -> Arrived:
    fields = record.split(b"\0")
    if len(fields) < 4:
        raise FormatError(f"notice: not id, birth, size, sender, recipients: {quoted(record)}")
    recipients = [(field[:1], field[1:]) for field in fields[4:]]
    if any(channel not in (LOCAL, REMOTE) for channel, _ in recipients):
        raise FormatError(f"notice: recipient of no channel: {quoted(record)}")
    return Arrived(unpack_id(fields[0][1:]), _number(fields[1]), _number(fields[2]), fields[3], recipients)


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise FormatError(f"notice: not a number: {quoted(text)}")
    return int(text)


class NoticeReader:
    """Reads a stream of notices: records that a NUL ends, and netstrings, which begin with a digit."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the records that `data` completes, without their framing. Raises FormatError.

        What is left of `data` is then lost. The caller may continue with the bytes that follow.
        """
        data, self._rest = self._rest + data, b""
        records = []
        start, size = 0, len(data)
        while start < size:
            if data[start] in b"0123456789":
                colon = data.find(b":", start, start + PREFIX_MAX + 1)
                if colon < 0:
                    if size - start > PREFIX_MAX:
                        raise FormatError(f"notice: no length: {quoted(data[start : start + 20])}")
                    break
                prefix = data[start:colon]
                if not prefix.isdigit() or int(prefix) > NOTICE_MOST:
                    raise FormatError(f"notice: no length up to {NOTICE_MOST}: {quoted(prefix)}")
                end = colon + 1 + int(prefix)
                if end >= size:
                    break
                if data[end] != 0x2C:
                    raise FormatError("notice: no comma at the end of a netstring")
                records.append(data[colon + 1 : end])
            else:
                end = data.find(b"\0", start)
                if (end if end >= 0 else size) - start > NOTICE_MOST:
                    raise FormatError(f"notice: record over {NOTICE_MOST} bytes")
                if end < 0:
                    break
                records.append(data[start:end])
            start = end + 1
        self._rest = data[start:]
        return records
