"""queue-todo to queue-send: NUL-terminated notices, the wire format of the EXTTODO patch.

    D<channel><id>\\0   the message is classified; channel L local, R remote, B both, X no recipients
    L<line>\\0          a log line for queue-send to print, without a newline
    W\\0                queue-todo asks for an answer when the lines before this are written to the log
Back, one byte each: H reread the control files, X exit, W the answer to the oldest unanswered W.

W is our addition. It ensures that the lines about a message are in the log before the message leaves todo/.
"""

from enum import Enum
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.ids import unpack_id
from queue_wire.logline import LINE_MAX

REREAD = b"H"
EXIT = b"X"
WRITTEN = b"W"
CHANNELS = b"LRBX"


class Ask(Enum):
    """A request of queue-todo to queue-send."""

    WRITTEN = "W"


class Classified(NamedTuple):
    """A message that left todo/: its id, and whether it has local and remote recipients."""

    message: int
    local: bool
    remote: bool


def pack_classified(notice: Classified) -> bytes:
    """Return the D record, with its NUL."""
    channel = b"XLRB"[notice.local + 2 * notice.remote]
    return b"D%c%d\0" % (channel, notice.message)


def pack_log(line: bytes) -> bytes:
    """Return the L record, with its NUL. `line` contains neither NUL nor newline."""
    return b"L%s\0" % line


def pack_ask(ask: Ask) -> bytes:
    """Return the W record, with its NUL."""
    return ask.value.encode("ascii") + b"\0"


def unpack_notice(record: bytes) -> Classified | Ask | bytes:
    """Return the Classified, the Ask or the log line in one record without its NUL. Raises FormatError."""
    if record == WRITTEN:
        return Ask.WRITTEN
    kind = record[:1]
    if kind == b"L":
        if b"\n" in record or len(record) > LINE_MAX + 1:
            raise FormatError(f"notice: log line holds a newline or over {LINE_MAX} bytes: {quoted(record)}")
        return record[1:]
    channel = record[1:2]
    if kind != b"D" or not channel or channel not in CHANNELS:
        raise FormatError(f"notice: unknown record: {quoted(record)}")
    return Classified(unpack_id(record[2:]), channel in b"LB", channel in b"RB")
