"""local/B/I and remote/B/I: a record `T<recipient>\\0` for each recipient; T becomes D when it is done.

The mark is one byte that is written in place, so a recipient is identified by the offset of its record.
"""

from queue_wire.format_error import FormatError, quoted

DONE_MARK = b"D"


def pack_recipients(recipients: list[bytes]) -> bytes:
    """Return the bytes of a file in which no recipient is done."""
    return b"".join([b"T%s\0" % recipient for recipient in recipients])


def pack_marked(recipients: list[tuple[bytes, bool]]) -> bytes:
    """Return the bytes of a file with (address, done) of each recipient."""
    return b"".join([b"%s%s\0" % (DONE_MARK if done else b"T", address) for address, done in recipients])


def unpack_recipients(data: bytes) -> list[tuple[int, bool, bytes]]:
    """Return (offset of the record, done, address) in file order. Raises FormatError.

    An empty file has no recipients. A record without its NUL, or of another kind than T and D, is an error.
    """
    if not data:
        return []
    if data[-1:] != b"\0":
        raise FormatError("recipients: last record is not ended by a NUL")
    found = []
    offset = 0
    for record in data[:-1].split(b"\0"):
        kind = record[:1]
        if kind != b"T" and kind != DONE_MARK:
            raise FormatError(f"recipients: unknown record at byte {offset}: {quoted(record)}")
        found.append((offset, kind == DONE_MARK, record[1:]))
        offset += len(record) + 1
    return found


def unpack_pending(data: bytes) -> list[tuple[int, bytes]]:
    """Return (offset of the record, address) of the recipients that are not done. Raises FormatError."""
    return [(offset, address) for offset, done, address in unpack_recipients(data) if not done]


def unpack_piece(data: bytes, at: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return the recipients not yet done in a piece of a file, and the offset of the next piece. Raises FormatError.

    `at` is the offset of the piece, where a record begins; `end` is the length of the file. Files that may be long are
    read in pieces. A record that is longer than a piece is an error.
    """
    if at + len(data) >= end:
        return _shifted(unpack_pending(data), at), at + len(data)
    whole = data.rfind(b"\0") + 1
    if not whole:
        raise FormatError(f"recipients: no end of the record at byte {at}: {quoted(data)}")
    return _shifted(unpack_pending(data[:whole]), at), at + whole


def _shifted(recipients: list[tuple[int, bytes]], by: int) -> list[tuple[int, bytes]]:
    return [(offset + by, address) for offset, address in recipients] if by else recipients
