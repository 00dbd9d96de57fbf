"""Spark's hashes, which lakes contain: of recipients in `pending.seen`, and of lines (`print`) in lakes made before."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Words = NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
))  # fmt: skip
_STRIPE = 32  # Bytes.
_NOTHING = np.uint64(0)


def _turn(values: _Words, bits: int) -> _Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(sums: _Words | np.uint64, words: _Words) -> _Words:
    return _turn(sums + words * _P2, 31) * _P1


def _xxhash64(texts: Sequence[bytes], seeds: _Words) -> _Words:
    """Return XXH64 of texts that have equally many whole stripes."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    stripes = int(sizes[0]) // _STRIPE
    width = (stripes + 1) * _STRIPE
    padded = np.frombuffer(b"".join(one.ljust(width, b"\0") for one in texts), np.uint8).reshape(-1, width)
    if stripes:
        words = padded.view("<u8")
        sums = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        for place in range(4 * stripes):
            sums[place % 4] = _round(sums[place % 4], words[:, place])
        first, second, third, fourth = sums
        found = _turn(first, 1) + _turn(second, 7) + _turn(third, 12) + _turn(fourth, 18)
        for one in sums:
            found = (found ^ _round(_NOTHING, one)) * _P1 + _P4
    else:
        found = seeds + _P5
    found = found + sizes.astype(np.uint64)
    # What is behind the last whole stripe: words of eight bytes, of four, and bytes.
    tail, sizes = np.ascontiguousarray(padded[:, stripes * _STRIPE :]), sizes - stripes * _STRIPE
    words, halves, rows = tail.view("<u8"), tail.view("<u4"), np.arange(len(texts))
    for place in range(_STRIPE // 8 - 1):
        step = _turn(found ^ _round(_NOTHING, words[:, place]), 27) * _P1 + _P4
        found = np.where(sizes >= 8 * place + 8, step, found)
    at = sizes & ~7
    step = _turn(found ^ halves[rows, at >> 2] * _P1, 23) * _P2 + _P3
    found = np.where(sizes & 4, step, found)
    at += sizes & 4
    for _ in range(3):
        byte = tail[rows, np.minimum(at, _STRIPE - 1)].astype(np.uint64)
        found = np.where(at < sizes, _turn(found ^ byte * _P5, 11) * _P1, found)
        at += 1
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return found ^ (found >> np.uint64(32))


_SEEDS = {channel: _xxhash64([channel], np.full(1, 42, np.uint64))[0] for channel in (b"local", b"remote")}


def hash_addresses(addresses: Sequence[bytes]) -> list[int]:
    """Return the hash of each `local R` or `remote R`, of its two words, as Spark's xxhash64(channel, recipient)."""
    if not addresses:
        return []
    channels, _, recipients = zip(*(address.partition(b" ") for address in addresses), strict=True)
    seeds = np.array([_SEEDS[channel] for channel in channels], np.uint64)
    stripes = np.fromiter(map(len, recipients), np.int64, len(recipients)) // _STRIPE
    found = np.empty(len(addresses), np.uint64)
    for count in np.unique(stripes):
        places = np.flatnonzero(stripes == count)
        found[places] = _xxhash64([recipients[place] for place in places.tolist()], seeds[places])
    hashes: list[int] = found.view(np.int64).tolist()
    return hashes


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
