"""DONE marks of messages that are delivered before they are classified: the records of queue/marks.

Such a message has no local/B/I and remote/B/I in which a T could become D. Its marks are a record in a slot of a file:

    bytes  0  QSM1        the format
           4  number      unsigned
          12  birth       microseconds since the epoch, signed
          20  size        length of todo/B/I in bytes
          24  check       CRC-32 of todo/B/I
          28  done        a bit for each recipient in the order of todo/B/I; the lowest one of byte 28 is the first
          59  logged      1 if the message's `new msg` and `info msg` were in the log when the record was written
          60  check sum   CRC-32 of bytes 0 to 59, which begins with the seed
All numbers are little-endian. A record has 64 bytes at a multiple of 64, so it lies in one sector. The file begins with
a header of the same size.

The seed comes from the kernel's boot id. So a record counts until the machine stops, which includes each SIGKILL: what
a process wrote is then in the kernel's memory, in order. After a power cut the file may hold any older version of each
record, even that of a message that has ended and whose number is used again; then no record counts, and a recipient
that is done may get the message once more.

A record belongs to one envelope: number, birth, size and check. Births are as coarse as the file system's times, so
they alone do not tell two messages of one number apart.
"""

import struct
import zlib
from typing import NamedTuple

SLOT_SIZE = 64
SLOTS = 16384
RECIPIENTS_MAX = 248  # A message with more is classified before it is delivered.
EMPTY = bytes(SLOT_SIZE)
HEADER = b"queue-suite marks 1\n".ljust(SLOT_SIZE, b"\0")
FILE_SIZE = SLOT_SIZE * (SLOTS + 1)

_BODY = struct.Struct("<4sQqII31s?")
_SUM = struct.Struct("<I")
_FORMAT = b"QSM1"


class EnvelopeIdentity(NamedTuple):
    """One envelope in todo/: the number, the birth in microseconds, the length and the CRC-32 of todo/B/I."""

    message: int
    birth: int
    size: int
    check: int


class DoneMarks(NamedTuple):
    """The recipients of an envelope that are done: bit n of `done` is the n-th recipient of todo/B/I, from 0.

    `logged`: the log has the lines of the message's arrival.
    """

    envelope: EnvelopeIdentity
    done: int
    logged: bool = False

    def join(self, other: "DoneMarks") -> "DoneMarks":
        """Return what two records of one envelope say."""
        return DoneMarks(self.envelope, self.done | other.done, self.logged or other.logged)


def identify(message: int, birth: int, data: bytes) -> EnvelopeIdentity:
    """Return the identity of the envelope `data`, the bytes of todo/B/I."""
    return EnvelopeIdentity(message, birth, len(data), zlib.crc32(data))


def make_seed(boot_id: bytes) -> int:
    """Return the seed for the check sums of records, from the content of /proc/sys/kernel/random/boot_id."""
    return zlib.crc32(boot_id.strip())


def pack_marks(marks: DoneMarks, seed: int) -> bytes:
    """Return the record. `done` has at most RECIPIENTS_MAX bits."""
    message, birth, size, check = marks.envelope
    body = _BODY.pack(_FORMAT, message, birth, size, check, marks.done.to_bytes(31, "little"), marks.logged)
    return body + _SUM.pack(zlib.crc32(body, seed))


def unpack_marks(record: bytes, seed: int) -> DoneMarks | None:
    """Return the marks in a record, None if it is empty, torn, of another format, or of an earlier boot."""
    if len(record) != SLOT_SIZE or record[:4] != _FORMAT:
        return None
    body = record[:-4]
    if _SUM.unpack(record[-4:])[0] != zlib.crc32(body, seed):
        return None
    _, message, birth, size, check, done, logged = _BODY.unpack(body)
    return DoneMarks(EnvelopeIdentity(message, birth, size, check), int.from_bytes(done, "little"), logged)


def offset_of(slot: int) -> int:
    """Return the offset of a slot, 0 to SLOTS - 1, in the file."""
    return SLOT_SIZE * (slot + 1)


def unpack_file(data: bytes, seed: int) -> dict[int, DoneMarks]:
    """Return the valid records by slot, in the bytes of the file; none if its header is another one."""
    if data[:SLOT_SIZE] != HEADER:
        return {}
    found = {}
    end = min(FILE_SIZE, len(data))
    # Most slots are empty, so the beginnings of records are looked for, and not at each slot.
    at = data.find(_FORMAT, SLOT_SIZE, end)
    while at >= 0:
        slot, inside = divmod(at, SLOT_SIZE)
        marks = unpack_marks(data[at : at + SLOT_SIZE], seed) if not inside else None
        if marks is not None:
            found[slot - 1] = marks
        at = data.find(_FORMAT, (slot + 1) * SLOT_SIZE, end)
    return found
