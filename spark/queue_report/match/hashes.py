"""Spark's hashes, which lakes contain: of recipients in `pending.seen`, and of lines (`print`) in lakes made before."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def _turn(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(sum_: int, word: int) -> int:
    return _turn((sum_ + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxhash64(data: bytes, seed: int) -> int:
    """Return XXH64 of data as a signed number."""
    seed &= _MASK
    size, at = len(data), 0
    if size >= 32:
        sums = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at <= size - 32:
            for lane in range(4):
                sums[lane] = _round(sums[lane], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        found = sum(_turn(one, bits) for one, bits in zip(sums, (1, 7, 12, 18), strict=True)) & _MASK
        for one in sums:
            found = ((found ^ _round(0, one)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while at <= size - 8:
        found = (_turn(found ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= size - 4:
        found = (_turn(found ^ (int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _turn(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    found = (found ^ (found >> 33)) * _P2 & _MASK
    found = (found ^ (found >> 29)) * _P3 & _MASK
    found ^= found >> 32
    return found - (1 << 64) if found >> 63 else found


_SEEDS = {channel: xxhash64(channel, 42) for channel in (b"local", b"remote")}
_SHORT = 32  # Bytes; longer texts are hashed by lanes.


@lru_cache(1 << 16)
def hash_address(address: bytes) -> int:
    """Return the hash of `local R` or `remote R`, of its two words, as Spark's xxhash64(channel, recipient)."""
    channel, _, recipient = address.partition(b" ")
    return xxhash64(recipient, _SEEDS[channel])


def hash_addresses(addresses: Sequence[bytes]) -> list[int]:
    """Return hash_address of each address, many at once."""
    recipients = [address[address.index(b" ") + 1 :] for address in addresses]
    sizes = np.fromiter(map(len, recipients), np.int64, len(recipients))
    padded = np.frombuffer(b"".join(one[:_SHORT].ljust(_SHORT, b"\0") for one in recipients), np.uint8)
    padded = padded.reshape(-1, _SHORT)
    seeds = [_SEEDS[address[: address.index(b" ")]] & _MASK for address in addresses]
    found = np.array(seeds, np.uint64) + np.uint64(_P5) + sizes.astype(np.uint64)
    words = padded.view("<u8")
    for place in range(_SHORT // 8):
        step = _turn_all(found ^ _turn_all(words[:, place] * np.uint64(_P2), 31) * np.uint64(_P1), 27)
        found = np.where(sizes >= 8 * place + 8, step * np.uint64(_P1) + np.uint64(_P4), found)
    at = sizes & ~7
    rows = np.arange(len(sizes))
    half = padded.view("<u4")[rows, np.minimum(at >> 2, _SHORT // 4 - 1)].astype(np.uint64)
    step = _turn_all(found ^ half * np.uint64(_P1), 23) * np.uint64(_P2) + np.uint64(_P3)
    has_half = sizes & 4 > 0
    found = np.where(has_half, step, found)
    at = np.where(has_half, at + 4, at)
    for _ in range(3):
        byte = padded[rows, np.minimum(at, _SHORT - 1)].astype(np.uint64)
        found = np.where(at < sizes, _turn_all(found ^ byte * np.uint64(_P5), 11) * np.uint64(_P1), found)
        at = at + 1
    found = (found ^ (found >> np.uint64(33))) * np.uint64(_P2)
    found = (found ^ (found >> np.uint64(29))) * np.uint64(_P3)
    found ^= found >> np.uint64(32)
    hashes: list[int] = found.view(np.int64).tolist()
    for place in np.flatnonzero(sizes >= _SHORT).tolist():
        hashes[place] = hash_address(addresses[place])
    return hashes


def _turn_all(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def murmur3(data: bytes, seed: int = 42) -> int:
    """Return Spark's hash(data) of 32 bits as a signed number: the print of a line in lakes made before."""
    found, mask = seed, 0xFFFFFFFF
    whole = len(data) & ~3
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    # Spark takes each byte that is left as a word, with its sign.
    words += [(byte - 256 if byte > 127 else byte) & mask for byte in data[whole:]]
    for word in words:
        word = word * 0xCC9E2D51 & mask
        word = ((word << 15) | (word >> 17)) & mask
        found ^= word * 0x1B873593 & mask
        found = ((found << 13) | (found >> 19)) & mask
        found = (found * 5 + 0xE6546B64) & mask
    found ^= len(data)
    found = (found ^ (found >> 16)) * 0x85EBCA6B & mask
    found = (found ^ (found >> 13)) * 0xC2B2AE35 & mask
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found
