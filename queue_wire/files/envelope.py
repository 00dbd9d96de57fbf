"""Envelopes: on queue-enqueue's fd 1, in todo/B/I, and in info/B/I.

    fd 1        F<sender>\\0 T<recipient>\\0 ... \\0              (qmail-queue(8))
    todo, intd  u<uid>\\0 p<pid>\\0 F<sender>\\0 T<recipient>\\0 ...   (no spaces; qmail's INTERNALS)
    info        F<sender>\\0                                    and what qmail does not read:
                P<class>\\0                                     for a message of another class than the first
                u<uid>\\0                                       of 20 digits, so that its length says nothing

In a `u` record the uid may be followed by a space and a submitter (queue_wire.submitter), 16 hexadecimal digits: for
whom a daemon has injected the message. qmail reads the digits of the uid and ignores what follows.

Addresses are bytes without NUL, at most ADDRESS_MAX long. Nothing else about them is checked here.
"""

from queue_wire.format_error import AddressTooLong, FormatError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# qmail-queue gives up at the 1003rd byte of an address (its ADDR), so 1,002 is the longest it takes.
ADDRESS_MAX = 1002
CLASS_MAX = 31  # Bytes of the name of a class (queue_wire.control.priorities).
SUBMITTER_BYTES = 16  # Hexadecimal digits of a submitter.
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


class Envelope:
    """The uid and pid of the injector, the sender, and the recipients in order; the submitter, empty for none.

    Not a NamedTuple, because queue-enqueue, which must start fast, does not import typing.
    """

    __slots__ = ("pid", "recipients", "sender", "submitter", "uid")

    def __init__(self, uid: int, pid: int, sender: bytes, recipients: list[bytes], submitter: bytes = b"") -> None:
        self.uid = uid
        self.pid = pid
        self.sender = sender
        self.recipients = recipients
        self.submitter = submitter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Envelope) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"Envelope{self._key()}"

    def _key(self) -> tuple[int, int, bytes, list[bytes], bytes]:
        return self.uid, self.pid, self.sender, self.recipients, self.submitter


def check_address(address: bytes) -> bytes:
    """Return `address`. Raises AddressTooLong, or FormatError if it contains a NUL."""
    if len(address) > ADDRESS_MAX:
        raise AddressTooLong(f"address of {len(address)} bytes, limit {ADDRESS_MAX}: {quoted(address)}")
    if b"\0" in address:
        raise FormatError(f"address holds a NUL: {quoted(address)}")
    return address


def pack_enqueue(sender: bytes, recipients: "Iterable[bytes]") -> bytes:
    """Return what queue-enqueue reads on its fd 1. It checks the addresses; nothing is checked here."""
    return b"F%s\0%s\0" % (sender, b"".join([b"T%s\0" % recipient for recipient in recipients]))


def pack_todo(envelope: Envelope) -> bytes:
    """Return the bytes of todo/B/I."""
    injector = pack_injector(envelope.uid, envelope.submitter)
    parts = [b"u%s\0p%d\0F%s\0" % (injector, envelope.pid, check_address(envelope.sender))]
    parts += [b"T%s\0" % check_address(recipient) for recipient in envelope.recipients]
    return b"".join(parts)


def unpack_todo(data: bytes) -> Envelope:
    """Return the envelope in the bytes of a whole todo/B/I.

    Raises FormatError for an unknown record (as qmail-send does), a missing or second sender, and a last record without
    its NUL. An envelope without recipients is valid.
    """
    reader = TodoReader()
    recipients = reader.feed(data)
    return Envelope(reader.uid, reader.pid, reader.end(), recipients, reader.submitter)


class TodoReader:
    """Reads todo/B/I in pieces, by the rules of `unpack_todo`. It buffers at most one record.

    `feed` returns the recipients that a piece completes. `end` returns the sender after the last piece.
    """

    __slots__ = ("_any", "_rest", "_sender", "pid", "submitter", "uid")

    def __init__(self) -> None:
        self.uid = self.pid = 0
        self.submitter = b""
        self._sender: bytes | None = None
        self._rest = b""
        self._any = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the recipients whose records end in `data`. Raises FormatError."""
        self._any = self._any or bool(data)
        records = (self._rest + data).split(b"\0")
        self._rest = records.pop()
        if len(self._rest) > ADDRESS_MAX + 1:
            # Longer than any valid record.
            raise AddressTooLong(f"address over {ADDRESS_MAX} bytes: {quoted(self._rest[1:])}")
        recipients = []
        for record in records:
            kind, value = record[:1], record[1:]
            if kind == b"T":
                recipients.append(check_address(value))
            elif kind == b"F" and self._sender is None:
                self._sender = check_address(value)
            elif kind == b"u":
                self.uid, self.submitter = unpack_injector(value)
            elif kind == b"p":
                self.pid = _number(value)
            else:
                raise FormatError(f"envelope: unknown record: {quoted(record)}")
        return recipients

    def end(self) -> bytes:
        """Return the sender. Raises FormatError if the last record is incomplete or there is no sender."""
        if self._rest or not self._any:
            raise FormatError("envelope: last record is not ended by a NUL" if self._any else "envelope: empty file")
        if self._sender is None:
            raise FormatError("envelope: no sender record")
        return self._sender


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise FormatError(f"envelope: not a number: {quoted(value)}")
    return int(value)


def pack_injector(uid: int, submitter: bytes) -> bytes:
    """Return the uid of an injector and the submitter, if there is one."""
    return b"%d %s" % (uid, submitter) if submitter else b"%d" % uid


def unpack_injector(value: bytes) -> tuple[int, bytes]:
    """Return the uid of an injector and the submitter, empty for none. Raises FormatError."""
    digits, space, submitter = value.partition(b" ")
    if space and not is_submitter(submitter):
        raise FormatError(f"envelope: not a submitter: {quoted(submitter)}")
    return _number(digits), submitter


def is_submitter(value: bytes) -> bool:
    """Return whether this may be a submitter."""
    return len(value) == SUBMITTER_BYTES and not value.strip(b"0123456789abcdef")


def drop_recipients(data: bytes, done: int) -> bytes:
    """Return the bytes of todo/B/I without some recipients: bit n of `done` is the n-th one, from 0."""
    kept = []
    bit = 0
    for record in data.split(b"\0")[:-1]:
        if record[:1] == b"T":
            bit += 1
            if done >> (bit - 1) & 1:
                continue
        kept.append(record + b"\0")
    return b"".join(kept)


def is_class_name(name: bytes) -> bool:
    """Return whether a class may have this name: a letter, then letters, digits and `-`."""
    return 0 < len(name) <= CLASS_MAX and name[:1] in _LETTERS and not name.strip(_LETTERS + b"0123456789-")


def pack_info(sender: bytes, priority: str = "", uid: int | None = None, submitter: bytes = b"") -> bytes:
    """Return the bytes of info/B/I; `priority` is the class, empty for the first one; `uid` is None if not known."""
    data = b"F%s\0" % check_address(sender)
    if priority:
        data += b"P%s\0" % priority.encode("ascii")
    if uid is None:
        return data
    return data + (b"u%020d %s\0" % (uid, submitter) if submitter else b"u%020d\0" % uid)


def unpack_info(data: bytes) -> bytes:
    """Return the sender in the bytes of info/B/I. Raises FormatError."""
    return unpack_whole_info(data)[0]


def unpack_whole_info(data: bytes) -> tuple[bytes, str, int | None, bytes]:
    """Return the sender, the class, the uid of the injector and the submitter in the bytes of info/B/I.

    The class is empty for the first one, the uid None if it is not known, the submitter empty if there is none. Raises
    FormatError.
    """
    sender, *rest = data.split(b"\0")
    if sender[:1] != b"F" or not rest or rest.pop():
        raise FormatError(f"info: not one sender record: {quoted(data)}")
    priority, uid, submitter = "", None, b""
    for record in rest:
        if record[:1] == b"P" and not priority and is_class_name(record[1:]):
            priority = record[1:].decode("ascii")
        elif record[:1] == b"u" and uid is None:
            uid, submitter = unpack_injector(record[1:])
        else:
            raise FormatError(f"info: not one sender record, a class and a uid: {quoted(data)}")
    return check_address(sender[1:]), priority, uid, submitter


class EnvelopeReader:
    """Reads the envelope that a client writes on queue-enqueue's fd 1, in pieces of any size.

    `feed` returns (sender, recipients) when the final NUL has arrived, and None before. It raises AddressTooLong, or
    FormatError if the first record is not F or a later one is not T. Bytes after the envelope are in `rest`. It
    accepts at most `most` bytes.
    """

    def __init__(self, most: int = 64 * 1024 * 1024) -> None:
        self.rest = b""
        self._sender: bytes | None = None
        self._recipients: list[bytes] = []
        self._room = most

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]] | None:
        *records, self.rest = (self.rest + data).split(b"\0")
        self._room -= len(data)
        if self._room < 0:
            raise FormatError("envelope: too large")
        for number, record in enumerate(records):
            if not record and self._sender is not None:
                self.rest = b"\0".join([*records[number + 1 :], self.rest])
                return self._sender, self._recipients
            self._take(record)
        if self.rest:
            self._check(self.rest)
        return None

    def _take(self, record: bytes) -> None:
        self._check(record)
        if self._sender is None:
            self._sender = record[1:]
        else:
            self._recipients.append(record[1:])

    def _check(self, record: bytes) -> None:
        expected = b"F" if self._sender is None else b"T"
        # The kind is checked before the length, as in qmail-queue.
        if record[:1] != expected:
            raise FormatError(f"envelope: expected {expected.decode()}, got {quoted(record)}")
        if len(record) > ADDRESS_MAX + 1:
            raise AddressTooLong(f"address over {ADDRESS_MAX} bytes: {quoted(record[1:])}")
