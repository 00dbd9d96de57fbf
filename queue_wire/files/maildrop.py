"""Files in maildrop/: mail from users who may not write to the queue, which queue-pickup copies into it.

    queue-maildrop 1 <length, 20 digits>\\n     HEADER_LENGTH bytes
    the message                                <length> bytes
    F<sender>\\0 T<recipient>\\0 ... \\0           the envelope, as on queue-enqueue's fd 1
    P<class>\\0                                 the class that was asked for; only if one was
    S<submitter>\\0                             for whom it is (queue_wire.submitter), if that was said; counts from
                                              those who may speak for others

The header is written last, so a truncated or overwritten file is never taken as complete. The envelope is at the end,
because clients send it last. `tmp.X` is an incomplete file, `mail.X` a complete one; X is 32 random hexadecimal digits.
An envelope has at most ENVELOPE_MAX bytes and RECIPIENTS_MAX recipients, because queue-pickup keeps it in memory.
"""

from queue_wire.files.envelope import EnvelopeReader, check_address, is_class_name, is_submitter, pack_enqueue
from queue_wire.format_error import FormatError, quoted

TEMPORARY_PREFIX = "tmp."
FINISHED_PREFIX = "mail."
HEADER_LENGTH = 38
ENVELOPE_MAX = 8 * 1024 * 1024
RECIPIENTS_MAX = 200_000
_MAGIC = b"queue-maildrop 1 "
_HEX = frozenset("0123456789abcdef")


def _has_form(name: str, prefix: str) -> bool:
    rest = name.removeprefix(prefix)
    return rest != name and len(rest) == 32 and _HEX.issuperset(rest)


def is_temporary(name: str) -> bool:
    """Return whether a file with this name is incomplete."""
    return _has_form(name, TEMPORARY_PREFIX)


def is_finished(name: str) -> bool:
    """Return whether a file with this name is complete."""
    return _has_form(name, FINISHED_PREFIX)


def pack_header(length: int) -> bytes:
    """Return the first HEADER_LENGTH bytes, for a message of `length` bytes."""
    return b"%s%020d\n" % (_MAGIC, length)


def unpack_header(data: bytes) -> int:
    """Return the message's length in bytes. Raises FormatError."""
    digits = data[len(_MAGIC) : -1]
    if len(data) != HEADER_LENGTH or not data.startswith(_MAGIC) or data[-1:] != b"\n" or not digits.isdigit():
        raise FormatError(f"maildrop: no header: {quoted(data)}")
    return int(digits)


def pack_envelope(sender: bytes, recipients: list[bytes], priority: str = "", submitter: bytes = b"") -> bytes:
    """Return the envelope with its final NUL, the class that is asked for, and the submitter; empty for none.

    Raises AddressTooLong, FormatError.
    """
    packed = pack_enqueue(check_address(sender), map(check_address, recipients))
    if priority:
        packed += b"P%s\0" % priority.encode("ascii")
    if submitter:
        packed += b"S%s\0" % submitter
    if len(packed) > ENVELOPE_MAX or len(recipients) > RECIPIENTS_MAX:
        found = f"{len(recipients)} recipients in {len(packed)} bytes"
        raise FormatError(f"maildrop: {found}, limits {RECIPIENTS_MAX} and {ENVELOPE_MAX}; send it several times")
    return packed


def unpack_envelope(data: bytes) -> tuple[bytes, list[bytes], str, bytes]:
    """Return sender, recipients, class and submitter of an envelope that ends with `data`. Raises FormatError."""
    # The sender, the end, the class and the submitter have a NUL each. Checked before an object is made for each
    # recipient.
    if data.count(b"\0") > RECIPIENTS_MAX + 4:
        raise FormatError(f"maildrop: more than {RECIPIENTS_MAX} recipients")
    reader = EnvelopeReader()
    envelope = reader.feed(data)
    if envelope is not None and len(envelope[1]) > RECIPIENTS_MAX:
        raise FormatError(f"maildrop: more than {RECIPIENTS_MAX} recipients")
    if envelope is None:
        raise FormatError(f"maildrop: envelope is not ended: {quoted(data[-40:])}")
    name, rest = _unpack_field(reader.rest, b"P")
    submitter, rest = _unpack_field(rest, b"S")
    if rest or (name and not is_class_name(name)) or (submitter and not is_submitter(submitter)):
        raise FormatError(f"maildrop: envelope has bytes after its end: {quoted(data[-40:])}")
    return *envelope, name.decode("ascii"), submitter


def _unpack_field(data: bytes, letter: bytes) -> tuple[bytes, bytes]:
    """Return what the field with a letter says, and what is behind it; empty, and all, if it is not there."""
    value, end, rest = data.partition(b"\0")
    return (value[1:], rest) if end and value[:1] == letter and value[1:] else (b"", data)
