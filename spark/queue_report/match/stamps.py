"""TAI64N stamps: `@`, 16 hex digits of seconds, 8 of nanoseconds, and a space."""

import binascii
import re

import numpy as np
from numpy.typing import NDArray

STAMP = 26  # Bytes, with the space.
LABEL = 4_611_686_018_427_387_914  # 2^62 + 10: the label of Unix second 0, as multilog reckons.
SECOND = 1_000_000_000
_SECONDS = 9_223_372_036  # 64 bits of nanoseconds hold a time that is nearer to 1970.
IS_STAMPED = re.compile(rb"@[0-9a-f]{24} ")
_LABEL_TYPE = np.dtype([("s", ">u8"), ("n", ">u4")])
# A lost block of a file reads as NULs; what stands behind it, if it has a stamp, is a line of its own.
BEHIND_NULS = re.compile(rb"(?<=\0)@[0-9a-f]{24} ")


def decode_stamps(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the Unix time in nanoseconds of each line (0 for none), and whether it has one.

    A line has none without a stamp, or where 64 bits do not hold its time (before 1677, after 2262).
    """
    good = ends - starts >= STAMP
    places = starts if good.all() else starts[good]
    head = data[places[:, None] + np.arange(STAMP)]
    digits = head[:, 1:25]
    is_digit = ((digits - 48) < 10) | ((digits - 97) < 6)  # Of 8 bits without a sign: what is less is large.
    sound = is_digit.all(axis=1) & (head[:, 0] == ord("@")) & (head[:, 25] == ord(" "))
    if not sound.all():
        digits = digits[sound]
    raw = np.frombuffer(binascii.unhexlify(digits.tobytes()), _LABEL_TYPE)
    # A difference that does not fit wraps around to a time far away, never to one that is near.
    seconds = (raw["s"].astype(np.uint64) - np.uint64(LABEL)).view(np.int64)
    nanoseconds = raw["n"].astype(np.int64)
    near = (seconds > -_SECONDS) & (seconds < _SECONDS) & (nanoseconds < SECOND)
    times = np.zeros(len(starts), np.int64)
    has = np.zeros(len(starts), np.bool_)
    found = np.flatnonzero(good)[sound]
    has[found] = near
    times[found] = np.where(near, seconds * SECOND + nanoseconds, 0)
    return times, has


def time_of(line: bytes) -> int | None:
    """Return the Unix time in nanoseconds of a line's stamp; None where it has none that can be told."""
    one = np.zeros(1, np.int64)
    times, has = decode_stamps(np.frombuffer(line, np.uint8), one, one + len(line))
    return int(times[0]) if has[0] else None
