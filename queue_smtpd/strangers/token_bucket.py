"""Token buckets: how often something may happen, for each of many keys. The caller has the time.

A key may do `burst` things at once, and as many in each minute in the long run. Processes that are forked after the
buckets were made share them. They take no lock: where two of them count for a key in the same microsecond, one thing
may stay uncounted.

Memory is fixed, and nothing is ever scanned. A key has its place in one of a few buckets of a set, which a secret hash
of it chooses. If all are taken, the one that has the most tokens is forgotten: it matters least.
"""

import mmap

# Of each kind of thing 65,536 keys, in 1.5 MB, of which the kernel gives what is used.
SETS = 16384
_WAYS = 4
_MINUTE = 60.0
_PRINT_MASK = (1 << 64) - 1


class TokenBuckets:
    """The buckets of one rate. `burst` may be changed at any time; 0 is no limit."""

    __slots__ = ("_filled", "_prints", "_sets", "_tokens", "burst")

    def __init__(self, burst: int, sets: int = SETS) -> None:
        self.burst = burst
        self._sets = sets
        size = sets * _WAYS * 8
        # Of each key its hash (0: none), and the tokens that it had at a time.
        self._prints = memoryview(mmap.mmap(-1, size)).cast("Q")
        self._tokens = memoryview(mmap.mmap(-1, size)).cast("d")
        self._filled = memoryview(mmap.mmap(-1, size)).cast("d")

    def take(self, key: str, now: float, amount: int = 1) -> bool:
        """Return whether a thing may happen, and count it if so."""
        if not self.burst:
            return True
        fingerprint, place = self._find(key, now)
        tokens = self._left(fingerprint, place, now)
        if tokens < amount:
            return False
        self._prints[place] = fingerprint
        self._tokens[place] = tokens - amount
        self._filled[place] = now
        return True

    def empty(self, key: str, now: float) -> bool:
        """Return whether nothing more may happen now."""
        if not self.burst:
            return False
        fingerprint, place = self._find(key, now)
        return self._left(fingerprint, place, now) < 1

    def _find(self, key: str, now: float) -> tuple[int, int]:
        """Return the hash of a key, and its place, or the one that it may take."""
        # Python hashes text with a secret of the process, which forked processes share.
        fingerprint = (hash(key) & _PRINT_MASK) or 1
        first = fingerprint % self._sets * _WAYS
        fullest, most = first, -1.0
        for place in range(first, first + _WAYS):
            found = self._prints[place]
            if found == fingerprint:
                return fingerprint, place
            tokens = self._left(found, place, now)
            if tokens > most:
                fullest, most = place, tokens
        return fingerprint, fullest

    def _left(self, fingerprint: int, place: int, now: float) -> float:
        """Return the tokens of a key at its place; all of them if another one has the place."""
        burst = float(self.burst)
        if not fingerprint or self._prints[place] != fingerprint:
            return burst
        # A clock that was set back takes nothing away.
        return min(burst, self._tokens[place] + max(0.0, now - self._filled[place]) * burst / _MINUTE)
