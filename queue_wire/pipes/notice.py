"""queue-todo to queue-send: notices. Short ones are the wire format of the EXTTODO patch, each ended by a NUL.

    D<channel><id>\\0   the message is classified; channel L local, R remote, B both, X no recipients. A message of
                       another class than the first has ` <class>` after its id; `=<uid>` may follow, as in todo/B/I,
                       with the submitter if there is one
    L<line>\\0          a log line for queue-send to print, without a newline
    F<id>\\0           the message, whose lines have just come, has a mark in hold/: a standing hold fits it
    W\\0                queue-todo asks for an answer when the lines before this are written to the log
    P\\0                the answer to the oldest unanswered P of queue-send
    K<id>\\0           the answer to I: the message is classified
    M<id>\\0           the answer to I: the message is not in todo/ any more, or is another one
    Z<id> <time> <why>\\0   the message could not be classified, for this reason; it is tried again at this time, in
                       seconds since the epoch
    H<settings>\\0     the answer to H: what is in force of its control files (queue_wire.admin.settings)
    S<settings>\\0     the same without being asked, when it has read them
    netstring          a full notice: C<id> \\0 birth \\0 size \\0 todo size \\0 check \\0 pid \\0 uid \\0 sender
                       [\\0 P<class>] [\\0 recipient ...], or A<id> ...: the message is announced; it stays in
                       todo/, and is not classified yet. P<class>: it is of another class than the first. The uid is
                       as in todo/B/I, with the submitter if there is one
Back, one byte each: H reread the control files, X exit, W the answer to the oldest unanswered W, P asks for an answer
when all messages whose lines are in the log have been announced; what to do with new messages from now on: A announce
them, L leave them in todo/, C classify them, F announce those of the first class and leave the others. And records:

    I<id> <done>\\0    classify an announced message; done: the recipients that are done, a bit each, in hexadecimal
    G<id>\\0           an announced message has ended and is gone
    R<id>\\0           classify a message now that could not be classified; R0: all of them

A full notice has the envelope, so that queue-send need not read it: the birth in microseconds since the epoch, the
size in bytes, length and CRC-32 of todo/B/I, pid and uid of the injector, and the recipients in the order of todo/B/I,
each after L (local) or R (remote), as they are, or will be, in local/B/I and remote/B/I. A message with many recipients
has a short one. The log lines of an announced message are queue-send's; those of a classified one come before it.

W ensures that the lines about a message are in the log before the message leaves todo/. After the answer to a P that
was sent when the backlog had been read, no notice is about a message that was found in the backlog.
queue-send asks again when an order has tried or ended a message whose notice may be still to come.
"""

import re
from enum import Enum
from typing import NamedTuple

from queue_wire.files.envelope import is_class_name, pack_injector, unpack_injector
from queue_wire.format_error import FormatError, quoted
from queue_wire.ids import unpack_id
from queue_wire.logline import LINE_MAX
from queue_wire.pipes.framing import PREFIX_MAX, pack_netstring

REREAD = b"H"
EXIT = b"X"
WRITTEN = b"W"
PASSED = b"P"
ANNOUNCE = b"A"
LEAVE = b"L"
CLASSIFY = b"C"
FIRST = b"F"
CHANNELS = b"LRBX"
# The most recipients of a message that has a full notice, and the most bytes of its envelope.
FULL_RECIPIENTS = 100
FULL_BYTES = 8192
COMMAND_MAX = 200  # Bytes of a record of queue-send.
NOTICE_MAX = 2 * FULL_BYTES  # Bytes of a record.
WHY_MAX = 400  # Bytes of the reason for which a message could not be classified.
SETTINGS_MAX = 8000  # Bytes of the settings in a record.
LOCAL, REMOTE = b"L", b"R"
_CLASS = b"P"
# What is before the sender: the kind, the id, birth, size, length, check, pid, uid and submitter.
_ARRIVED = re.compile(rb"[AC]([0-9]{1,20})\0" + rb"([0-9]{1,20})\0" * 5 + rb"([0-9]{1,20})(?: ([0-9a-f]{16}))?\0")


class Ask(Enum):
    """A request of queue-todo to queue-send, or the answer to one of queue-send's."""

    WRITTEN = "W"
    PASSED = "P"


class Classified(NamedTuple):
    """A message that left todo/: its id, whether it has local and remote recipients, and its class.

    A class is empty for the first one (queue_wire.control.priorities). `uid` is that of the injector, None if it is not
    known; `submitter` is empty for none.
    """

    message: int
    local: bool
    remote: bool
    priority: str = ""
    uid: int | None = None
    submitter: bytes = b""


class Arrived(NamedTuple):
    """A full notice: a message that left todo/, or is announced, and its envelope. `birth` is in microseconds.

    `recipients` are (channel, address) in the order of todo/B/I; the channel is LOCAL or REMOTE. `todo_size` and
    `check` are the length and the CRC-32 of todo/B/I, `pid` and `uid` those of the injector; `submitter` is empty for
    none.
    """

    message: int
    birth: int
    size: int
    sender: bytes
    recipients: list[tuple[bytes, bytes]]
    announced: bool = False
    todo_size: int = 0
    check: int = 0
    pid: int = 0
    uid: int = 0
    priority: str = ""
    submitter: bytes = b""


class ClassifyAnswer(NamedTuple):
    """The answer to a request to classify an announced message: it is `classified`, or is not in todo/ any more."""

    message: int
    classified: bool


class ClassifyRequest(NamedTuple):
    """A request to classify an announced message; bit n of `done` is its n-th recipient in todo/B/I."""

    message: int
    done: int


class ClassifyDeferral(NamedTuple):
    """A message that could not be classified: when that is tried again, in seconds since the epoch, and why."""

    message: int
    time: int
    why: bytes


class Resubmission(NamedTuple):
    """A request to classify a message now that could not be classified; all of them if the number is 0."""

    message: int


class Held(NamedTuple):
    """A message that is being classified has got a mark in hold/."""

    message: int


class Gone(NamedTuple):
    """An announced message has ended, and its number may be used again."""

    message: int


class Reread(NamedTuple):
    """What is in force of queue-todo's control files, in lines of queue_wire.admin.settings.

    `asked` is true for the answer to REREAD.
    """

    settings: bytes
    asked: bool


Notice = Classified | Arrived


def pack_arrived(notice: Arrived) -> bytes:
    """Return the full notice as a netstring."""
    message, birth, size, sender, recipients, announced, todo_size, check, pid, uid, priority, submitter = notice
    numbers = b"%s%d\0%d\0%d\0%d\0%d\0%d\0%s" % (
        b"A" if announced else b"C", message, birth, size, todo_size, check, pid, pack_injector(uid, submitter),
    )  # fmt: skip
    fields = [numbers, sender]
    if priority:
        fields.append(_CLASS + priority.encode("ascii"))
    fields += [channel + address for channel, address in recipients]
    return pack_netstring(b"\0".join(fields))


def pack_classified(notice: Classified) -> bytes:
    """Return the D record, with its NUL."""
    channel = b"XLRB"[notice.local + 2 * notice.remote]
    record = b"D%c%d" % (channel, notice.message)
    if notice.priority:
        record += b" " + notice.priority.encode("ascii")
    if notice.uid is not None:
        record += b"=" + pack_injector(notice.uid, notice.submitter)
    return record + b"\0"


def pack_log(line: bytes) -> bytes:
    """Return the L record, with its NUL. `line` contains neither NUL nor newline."""
    return b"L%s\0" % line


def pack_ask(ask: Ask) -> bytes:
    """Return the W or P record, with its NUL."""
    return ask.value.encode("ascii") + b"\0"


def pack_answer(answer: ClassifyAnswer) -> bytes:
    """Return the K or M record, with its NUL."""
    return b"%s%d\0" % (b"K" if answer.classified else b"M", answer.message)


def pack_held(message: int) -> bytes:
    """Return the F record, with its NUL."""
    return b"F%d\0" % message


def pack_deferral(deferral: ClassifyDeferral) -> bytes:
    """Return the Z record, with its NUL. Control characters of the reason become spaces, and its end is cut off."""
    why = bytes(32 if byte < 32 or byte == 127 else byte for byte in deferral.why[:WHY_MAX])
    return b"Z%d %d %s\0" % (deferral.message, deferral.time, why)


def pack_resubmission(message: int) -> bytes:
    """Return the R record, with its NUL; 0 for all messages."""
    return b"R%d\0" % message


def pack_reread(reread: Reread) -> bytes:
    """Return the H or S record, with its NUL. The settings contain none, and are cut to SETTINGS_MAX bytes."""
    return b"%s%s\0" % (b"H" if reread.asked else b"S", reread.settings[:SETTINGS_MAX])


def pack_request(request: ClassifyRequest) -> bytes:
    """Return the I record, with its NUL."""
    return b"I%d %x\0" % request


def pack_gone(message: int) -> bytes:
    """Return the G record, with its NUL."""
    return b"G%d\0" % message


def unpack_notice(record: bytes) -> Notice | ClassifyAnswer | ClassifyDeferral | Held | Reread | Ask | bytes:
    """Return what one record of a NoticeReader holds; bytes are a log line. Raises FormatError."""
    kind = record[:1]
    if kind == b"L":
        if b"\n" in record or len(record) > LINE_MAX + 1:
            raise FormatError(f"notice: log line holds a newline or over {LINE_MAX} bytes: {quoted(record)}")
        return record[1:]
    if kind == b"C" or kind == b"A":
        return _unpack_arrived(record)
    if kind == b"K" or kind == b"M":
        return ClassifyAnswer(unpack_id(record[1:]), kind == b"K")
    if kind == b"Z":
        return _unpack_deferral(record)
    if kind == b"F":
        return Held(unpack_id(record[1:]))
    if kind == b"H" or kind == b"S":
        return Reread(record[1:], kind == b"H")
    if record in (WRITTEN, PASSED):
        return Ask(kind.decode("ascii"))
    channel = record[1:2]
    if kind != b"D" or not channel or channel not in CHANNELS:
        raise FormatError(f"notice: unknown record: {quoted(record)}")
    facts, equals, injector = record[2:].partition(b"=")
    number, space, priority = facts.partition(b" ")
    if space and not is_class_name(priority):
        raise FormatError(f"notice: not a class: {quoted(record)}")
    uid, submitter = unpack_injector(injector) if equals else (None, b"")
    found = unpack_id(number), channel in b"LB", channel in b"RB", priority.decode("ascii")
    return Classified(*found, uid, submitter)


def _unpack_deferral(record: bytes) -> ClassifyDeferral:
    number, _, rest = record[1:].partition(b" ")
    time, space, why = rest.partition(b" ")
    if not space or not time.isdigit() or len(time) > 18:
        raise FormatError(f"notice: not id, time and reason: {quoted(record)}")
    return ClassifyDeferral(unpack_id(number), int(time), why[:WHY_MAX])


def _unpack_arrived(record: bytes) -> Arrived:
    match = _ARRIVED.match(record)
    if match is None:
        raise FormatError(f"notice: not id, numbers, sender, recipients: {quoted(record)}")
    message, *numbers, submitter = match.groups(b"")
    birth, size, todo_size, check, pid, uid = map(int, numbers)
    sender, *fields = record[match.end() :].split(b"\0")
    recipients = []
    priority = ""
    if fields and fields[0][:1] == _CLASS:
        name = fields.pop(0)[1:]
        if not is_class_name(name):
            raise FormatError(f"notice: not a class: {quoted(record)}")
        priority = name.decode("ascii")
    for field in fields:
        channel = field[:1]
        if channel != LOCAL and channel != REMOTE:
            raise FormatError(f"notice: recipient of no channel: {quoted(record)}")
        recipients.append((channel, field[1:]))
    announced = record[:1] == b"A"
    facts = birth, size, sender, recipients, announced, todo_size, check, pid, uid, priority, submitter
    return Arrived(unpack_id(message), *facts)


class CommandReader:
    """Reads the commands of queue-send: single bytes, and records that begin with I, G or R and end with a NUL."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes | ClassifyRequest | Gone | Resubmission]:
        """Return the commands that `data` completes; a byte is returned as it is. Raises FormatError."""
        data, self._rest = self._rest + data, b""
        commands: list[bytes | ClassifyRequest | Gone | Resubmission] = []
        at = 0
        while at < len(data):
            command = data[at : at + 1]
            if command not in b"IGR":
                commands.append(command)
                at += 1
                continue
            end = data.find(b"\0", at)
            if (end if end >= 0 else len(data)) - at > COMMAND_MAX:
                raise FormatError(f"command: over {COMMAND_MAX} bytes")
            if end < 0:
                break
            commands.append(_unpack_command(data[at:end]))
            at = end + 1
        self._rest = data[at:]
        return commands


def _unpack_command(record: bytes) -> ClassifyRequest | Gone | Resubmission:
    if record[:1] == b"R":
        return Resubmission(0 if record == b"R0" else unpack_id(record[1:]))
    if record[:1] == b"G":
        return Gone(unpack_id(record[1:]))
    number, _, done = record[1:].partition(b" ")
    if not done or done.strip(b"0123456789abcdef"):
        raise FormatError(f"command: not an id and bits: {quoted(record)}")
    return ClassifyRequest(unpack_id(number), int(done, 16))


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
                if not prefix.isdigit() or int(prefix) > NOTICE_MAX:
                    raise FormatError(f"notice: no length up to {NOTICE_MAX}: {quoted(prefix)}")
                end = colon + 1 + int(prefix)
                if end >= size:
                    break
                if data[end] != 0x2C:
                    raise FormatError("notice: no comma at the end of a netstring")
                records.append(data[colon + 1 : end])
            else:
                end = data.find(b"\0", start)
                if (end if end >= 0 else size) - start > NOTICE_MAX:
                    raise FormatError(f"notice: record over {NOTICE_MAX} bytes")
                if end < 0:
                    break
                records.append(data[start:end])
            start = end + 1
        self._rest = data[start:]
        return records
