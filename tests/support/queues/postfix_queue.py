"""Postfix queue files, written by hand (postfix/global/rec_type.h): what qshape reads of a message."""

import os
from pathlib import Path

CONTENT = b"N\x05hello"


def record(kind: bytes, data: bytes) -> bytes:
    """Return a record: its type, its length in sevens of bits, the lowest first, and its data."""
    length, size = len(data), b""
    while True:
        size += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
        length >>= 7
        if not length:
            return kind + size + data


def queue_file(arrived: int, sender: bytes, left: list[bytes], done: list[bytes]) -> bytes:
    """Return a message's file; the record of a recipient that is done is `D`."""
    envelope = [record(b"S", sender), *(record(b"R", one) for one in left), *(record(b"D", one) for one in done)]
    size = b"%15d %15d %15d %15d %15d" % (len(CONTENT), 600, len(left), 0, len(CONTENT))
    records = [record(b"C", size), record(b"T", b"%d 0" % arrived), *envelope]
    return b"".join(records) + record(b"M", b"") + CONTENT + record(b"X", b"") + record(b"E", b"")


def put_file(queue: Path, number: int, data: bytes) -> None:
    """Write a file of a queue under a queue id."""
    path = queue / f"{number:08X}"
    path.write_bytes(data)
    os.chmod(path, 0o700)
