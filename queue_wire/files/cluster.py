"""N.cluster in queue/ondemand/DOMAIN: the records of mail that is stored for a domain, one for each recipient. Pure.

    header     `queue-suite cluster 1 SEED` and a newline; SEED has 16 hex digits
    record     mark        T waits, D done: one byte, changed in place
               length      of the body, 4 bytes
               check sum   CRC-32 of the body that begins with the seed, 4 bytes
               body        number of the message, its birth in microseconds, its size in bytes (8 bytes each), length of
                           the sender (2 bytes), sender, recipient
All numbers are little-endian.

Records are appended, and count once the file was synced. After a power cut the rest of a file may be missing, or hold
anything, even old contents of the disk. So its records end before the first one whose length or check sum is wrong. The
seed is random, so that a record of another cluster does not count in this one.

mess/N.I-BIRTH beside it is a hard link of the message: I-BIRTH is the long id, N the number of the cluster whose
records need it.
"""

import re
import struct
import zlib
from typing import NamedTuple

from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.ids import pack_long_id

HEADER_SIZE = 39
CLUSTER_SIZE = 256 * 1024  # A cluster is closed when it has so many bytes.
# The most that it has: a job has at most 1,000 recipients, each with two addresses of 1,002 bytes.
CLUSTER_MOST = CLUSTER_SIZE + (4 << 20)
DONE = b"D"
SUFFIX = ".cluster"
# What a cluster is rewritten to, before it is renamed.
NEW_SUFFIX = ".new"
_HEADER = re.compile(rb"queue-suite cluster 1 ([0-9a-f]{16})\n")
_HEAD = struct.Struct("<cII")
_BODY = struct.Struct("<QQQH")
_BODY_MOST = _BODY.size + 2 * ADDRESS_MAX
_NAME = re.compile(r"([1-9][0-9]{0,17})\.cluster")


class StoredRecipient(NamedTuple):
    """One recipient of a stored message. `birth` is in microseconds since the epoch, `size` in bytes."""

    message: int
    birth: int
    size: int
    sender: bytes
    recipient: bytes

    @property
    def long_id(self) -> str:
        """The long id of the message."""
        return pack_long_id(self.message, self.birth)


class ClusterRecord(NamedTuple):
    """A record in a cluster, and the offset at which it begins."""

    offset: int
    done: bool
    stored: StoredRecipient


class Cluster(NamedTuple):
    """The contents of a cluster: the records, and `end`, the length of the part that counts."""

    records: list[ClusterRecord]
    end: int

    @property
    def pending(self) -> list[ClusterRecord]:
        """The records that are not done."""
        return [record for record in self.records if not record.done]


def pack_cluster_header(seed: int) -> bytes:
    """Return the header; the seed has 64 bits."""
    return b"queue-suite cluster 1 %016x\n" % seed


def unpack_cluster_header(data: bytes) -> int | None:
    """Return the seed in a header, None if it is not whole."""
    found = _HEADER.match(data)
    return None if found is None else int(found[1], 16)


def pack_stored(stored: StoredRecipient, seed: int) -> bytes:
    """Return the record of a recipient that waits, in a cluster with this seed."""
    body = _BODY.pack(stored.message, stored.birth, stored.size, len(stored.sender)) + stored.sender + stored.recipient
    return _HEAD.pack(b"T", len(body), _check(body, seed)) + body


def unpack_cluster(data: bytes) -> Cluster:
    """Return what counts of a cluster's contents."""
    seed = unpack_cluster_header(data)
    records: list[ClusterRecord] = []
    if seed is None:
        return Cluster(records, 0)
    at = HEADER_SIZE
    while at + _HEAD.size <= len(data):
        mark, length, check = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        body = data[start : start + length] if _BODY.size <= length <= _BODY_MOST else b""
        if not body or len(body) < length or check != _check(body, seed):
            break
        message, birth, size, sender = _BODY.unpack_from(body)
        addresses = body[_BODY.size :]
        stored = StoredRecipient(message, birth, size, addresses[:sender], addresses[sender:])
        records.append(ClusterRecord(at, mark == DONE, stored))
        at = start + length
    return Cluster(records, at)


def cluster_number(name: str) -> int | None:
    """Return the number of a cluster by the name of its file, None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def link_name(cluster: int, long_id: str) -> str:
    """Return the name of the hard link in mess/ that a cluster's records of a message need."""
    return f"{cluster}.{long_id}"


def _check(body: bytes, seed: int) -> int:
    return zlib.crc32(body, (seed ^ seed >> 32) & 0xFFFFFFFF)
