"""What has the most messages: a count of messages, recipients and bytes by some key. Pure.

A queue may have a key for each message: those beyond KEYS_MAX are counted together, as OTHERS. Those with many
messages come early in any order of messages, so they have a place of their own.
"""

import re
from typing import NamedTuple

KEYS_MAX = 100_000
OTHERS = b"(others)"
# What differs from one report of the same trouble to the next.
_PARTICULARS = re.compile(
    rb"<[^>]*>|\S+@\S+"
    rb"|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*"
    rb"|\b(?=\w*\d)\w{8,}\b"
)
_REASON_MAX = 160


class RankedRow(NamedTuple):
    """The counts of a key; `recipients` are those that are left."""

    key: bytes
    messages: int
    recipients: int
    size: int


class Ranking:
    """The counts."""

    def __init__(self) -> None:
        self._counts: dict[bytes, list[int]] = {}
        self.total = [0, 0, 0]

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, keys: dict[bytes, int], size: int) -> None:
        """Count a message of `size` bytes for each of its keys, with the number of its recipients there."""
        self._add(self.total, sum(keys.values()), size)
        for key, recipients in keys.items():
            self._add(self._counts_of(key), recipients, size)

    def merge(self, other: "Ranking") -> None:
        """Add the counts of other messages."""
        for place, count in enumerate(other.total):
            self.total[place] += count
        for key, more in other._counts.items():
            counts = self._counts_of(key)
            for place, count in enumerate(more):
                counts[place] += count

    def _counts_of(self, key: bytes) -> list[int]:
        """Return the counts of a key, or those of OTHERS if it is one too many."""
        counts = self._counts.get(key)
        if counts is None:
            place = key if len(self._counts) < KEYS_MAX else OTHERS
            counts = self._counts.setdefault(place, [0, 0, 0])
        return counts

    @staticmethod
    def _add(counts: list[int], recipients: int, size: int) -> None:
        counts[0] += 1
        counts[1] += recipients
        counts[2] += size

    def rows(self, most: int | None = None) -> list[RankedRow]:
        """Return the keys with the most messages, then recipients, then bytes."""
        rows = [RankedRow(key, *counts) for key, counts in self._counts.items()]
        rows.sort(key=lambda row: (-row.messages, -row.recipients, -row.size, row.key))
        return rows[:most]


def reason_key(text: bytes) -> bytes:
    """Return the text of a result without what differs each time: addresses, numbers of hosts, long numbers."""
    line = b" ".join(text.split())[: 4 * _REASON_MAX]
    return _PARTICULARS.sub(b"*", line)[:_REASON_MAX]
