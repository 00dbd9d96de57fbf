"""Token buckets: how often something may happen, for each of many keys. The caller has the time.

A key may do `burst` things at once, and `rate` things a second in the long run. What a key has done is forgotten when
its bucket is full again, so memory is needed only for those who were active lately. If there are more of them than
MOST, those that have the most tokens are forgotten first: they are the ones that matter least.
"""

from typing import NamedTuple

MOST = 100_000


class Rate(NamedTuple):
    """`burst` at once, and as many in each `seconds`. A burst of 0 is no limit."""

    burst: int
    seconds: float


class TokenBuckets:
    """The buckets of one rate. `take` returns whether a thing may happen, and counts it if so."""

    __slots__ = ("_buckets", "_most", "_rate")

    def __init__(self, rate: Rate, most: int = MOST) -> None:
        self._rate = rate
        self._most = most
        # Of each key: tokens, and the time when it had so many.
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float, amount: int = 1) -> bool:
        rate = self._rate
        if not rate.burst:
            return True
        tokens = self._tokens(key, now)
        if tokens < amount:
            return False
        self._buckets[key] = tokens - amount, now
        if len(self._buckets) > self._most:
            self._forget(now)
        return True

    def _tokens(self, key: str, now: float) -> float:
        burst, seconds = self._rate
        found = self._buckets.get(key)
        if found is None:
            return burst
        tokens, then = found
        # A clock that was set back takes nothing away.
        return min(float(burst), tokens + max(0.0, now - then) * burst / seconds)

    def _forget(self, now: float) -> None:
        """Forget the full buckets, and then the fullest until a tenth of the places is free."""
        left = [(self._tokens(key, now), key) for key in self._buckets]
        left.sort()
        kept = [key for tokens, key in left[: self._most * 9 // 10] if tokens < self._rate.burst]
        self._buckets = {key: self._buckets[key] for key in kept}
