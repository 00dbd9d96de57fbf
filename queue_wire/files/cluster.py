"""N.cluster in queue/ondemand/DOMAIN: the records of mail that is stored for a domain, one for each recipient. Pure.

    header     `queue-suite cluster 1 SEED` and a newline; SEED has 16 hex digits
    record     mark        T waits, D done: one byte, changed in place
               length      of the body, 4 bytes
               check sum   CRC-32 of the body that begins with the seed, 4 bytes
               body        number of the message, its birth in microseconds, its size in bytes, the time at which it was
                           stored in seconds (8 bytes each), length of the sender (2 bytes), sender, recipient
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

from queue_wire.control.registry import CLUSTERSIZE
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_long_id, unpack_long_id

HEADER_SIZE = 39
# The bytes with which a cluster is closed, unless control/clustersize has another number.
CLUSTER_SIZE = CLUSTERSIZE.bounds[0]
# The most that one has: a job has at most 1,000 recipients, each with two addresses of 1,002 bytes.
CLUSTER_MAX = CLUSTERSIZE.bounds[2] + (4 << 20)
DONE = b"D"
SUFFIX = ".cluster"
# What a cluster is rewritten to, before it is renamed.
NEW_SUFFIX = ".new"
_HEADER = re.compile(rb"queue-suite cluster 1 ([0-9a-f]{16})\n")
_HEAD = struct.Struct("<cII")
_BODY = struct.Struct("<QQQQH")
_BODY_MAX = _BODY.size + 2 * ADDRESS_MAX
# A mark and a length that a record may have. Of zeros, of which a damaged file may have many, it finds nothing.
_LIKELY = re.compile(rb"(?s:.)(?:[\x22-\xff]\x00|(?s:.)[\x01-\x07])\x00\x00")
_NAME = re.compile(r"([1-9][0-9]{0,17})\.cluster")


class StoredRecipient(NamedTuple):
    """One recipient of a stored message. `birth` is in microseconds since the epoch, `size` in bytes.

    `since` is when it was stored, in seconds since the epoch; 0 if that is not known.
    """

    message: int
    birth: int
    size: int
    sender: bytes
    recipient: bytes
    since: int = 0

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
    """The contents of a cluster: the records, `end`, the length of the part that counts, and the seed."""

    records: list[ClusterRecord]
    end: int
    seed: int = 0

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
    head = _BODY.pack(stored.message, stored.birth, stored.size, stored.since, len(stored.sender))
    body = head + stored.sender + stored.recipient
    return _HEAD.pack(b"T", len(body), _check(body, seed)) + body


def unpack_cluster(data: bytes) -> Cluster:
    """Return what counts of a cluster's contents."""
    seed = unpack_cluster_header(data)
    records: list[ClusterRecord] = []
    if seed is None:
        return Cluster(records, 0)
    at = HEADER_SIZE
    while (found := _record_at(data, at, seed)) is not None:
        records.append(found)
        at += _length(data, at)
    return Cluster(records, at, seed)


def salvage_cluster(data: bytes) -> list[ClusterRecord]:
    """Return all records of a damaged cluster, also those behind the damage; none if its header is damaged."""
    seed = unpack_cluster_header(data)
    records: list[ClusterRecord] = []
    at = HEADER_SIZE
    while seed is not None and (likely := _LIKELY.search(data, at)) is not None:
        at = likely.start()
        found = _record_at(data, at, seed)
        if found is not None:
            records.append(found)
        at += 1 if found is None else _length(data, at)
    return records


def _record_at(data: bytes, at: int, seed: int) -> ClusterRecord | None:
    """Return the record that begins there, None if there is none."""
    start = at + _HEAD.size
    if start + _BODY.size > len(data):
        return None
    mark, length, check = _HEAD.unpack_from(data, at)
    if not _BODY.size <= length <= _BODY_MAX or start + length > len(data):
        return None
    body = data[start : start + length]
    if check != _check(body, seed):
        return None
    message, birth, size, since, sender = _BODY.unpack_from(body)
    addresses = body[_BODY.size :]
    return ClusterRecord(
        at, mark == DONE, StoredRecipient(message, birth, size, addresses[:sender], addresses[sender:], since)
    )


def _length(data: bytes, at: int) -> int:
    """Return the length of the record that begins there."""
    length: int = _HEAD.unpack_from(data, at)[1]
    return _HEAD.size + length


def cluster_number(name: str) -> int | None:
    """Return the number of a cluster by the name of its file, None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def link_name(cluster: int, long_id: str) -> str:
    """Return the name of the hard link in mess/ that a cluster's records of a message need."""
    return f"{cluster}.{long_id}"


def unpack_link_name(name: str) -> tuple[int, str] | None:
    """Return the number of the cluster and the long id in the name of a link, None for any other name."""
    cluster, _, long_id = name.partition(".")
    if not (cluster.isascii() and cluster.isdigit() and len(cluster) < 19):
        return None
    try:
        message, birth = unpack_long_id(long_id)
    except FormatError:
        return None
    if birth is None or link_name(int(cluster), pack_long_id(message, birth)) != name:
        return None
    return int(cluster), long_id


def _check(body: bytes, seed: int) -> int:
    return zlib.crc32(body, (seed ^ seed >> 32) & 0xFFFFFFFF)
