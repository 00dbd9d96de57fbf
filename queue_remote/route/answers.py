"""DNS answers, and a bounded cache of them.

An answer is kept for as long as it says it may be (RFC 1035 section 3.2.1, RFC 2308 section 5), and not longer than
an hour, or five minutes for "there is none": whoever mends a zone shall not wait for a day. What is kept is only what
routing needs: about 0.5 kB an answer, where dnspython's own cache keeps the parsed reply, 4 kB and more.
"""

import time
from typing import Any, NamedTuple

CACHE_SIZE = 10000
# Of one name and type; a hostile zone must not fill the memory.
RECORDS_MOST = 64
FOUND_SECONDS = 3600.0
NOTHING_SECONDS = 300.0

# Name in lower case without final dot, type, whether AD was asked for.
Key = tuple[bytes, str, bool]


class Answer(NamedTuple):
    """What DNS says of a name and type.

    `records`: MX as (preference, name as bytes), A and AAAA as text, other types as dnspython's rdata. `exists` is
    False where the name is not there at all (NXDOMAIN). `secure`: the resolver says that DNSSEC vouches for it (the AD
    bit; False where it was not asked for). `canonical` is the name at the end of the CNAME chain.
    """

    records: tuple[Any, ...]
    exists: bool
    secure: bool
    canonical: bytes


class AnswerCache:
    """The answers that were used last."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._kept: dict[Key, tuple[float, Answer]] = {}

    def get(self, key: Key) -> Answer | None:
        """Return what is known, None where nothing is any more."""
        found = self._kept.pop(key, None)
        if found is None or found[0] <= time.monotonic():
            return None
        self._kept[key] = found  # At the end again: what is used least comes first.
        return found[1]

    def put(self, key: Key, answer: Answer, ttl: float) -> None:
        """Keep an answer for `ttl` seconds, or less; not at all where that is 0."""
        seconds = min(ttl, FOUND_SECONDS if answer.records else NOTHING_SECONDS)
        if seconds <= 0:
            return
        while len(self._kept) >= self._size:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = time.monotonic() + seconds, answer
