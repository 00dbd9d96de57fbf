"""Which messages of a batch need not be sent again: what --skip takes, and what a batch that ends early names.

    N[,M|,A-B]...         the first N messages, then message M, or messages A to B

Most batches are done up to one number. Others are not: several queues take messages of one group at the same time, and
one of them may fail; queue-intake may end while it takes a group, and maildrop/ takes the rest of it.
"""

import re
from bisect import bisect_right
from operator import itemgetter

_DIGITS_MAX = 18
_NUMBER = f"[0-9]{{1,{_DIGITS_MAX}}}"
_TEXT = re.compile(rf"{_NUMBER}(,{_NUMBER}(-{_NUMBER})?)*", re.ASCII)


class DoneMessages:
    """Numbers of messages, from 1 on, as ranges; the first range begins at 0, which is no message."""

    def __init__(self, first: int = 0) -> None:
        """The first messages are done: so many."""
        self._ranges = [[0, first]]

    def __contains__(self, number: int) -> bool:
        return number <= self._ranges[self._before(number)][1]

    def __str__(self) -> str:
        first, *others = self._ranges
        return ",".join([str(first[1]), *[str(low) if low == high else f"{low}-{high}" for low, high in others]])

    @property
    def last(self) -> int:
        """The largest number, 0 if there is none."""
        return self._ranges[-1][1]

    def _before(self, number: int) -> int:
        """Return the place of the last range that begins at `number` or before it."""
        return bisect_right(self._ranges, number, key=itemgetter(0)) - 1

    def add(self, low: int, high: int) -> None:
        """Add the messages from `low` to `high`."""
        ranges = self._ranges
        begin = self._before(low)
        if ranges[begin][1] < low - 1:
            begin += 1
            ranges.insert(begin, [low, high])
        end = self._before(high + 1) + 1
        ranges[begin:end] = [[ranges[begin][0], max(high, ranges[end - 1][1])]]


def unpack_done(text: str) -> DoneMessages | None:
    """Return the messages that a text names, or None if it is no such text."""
    if not _TEXT.fullmatch(text):
        return None
    first, *others = text.split(",")
    done = DoneMessages(int(first))
    for other in others:
        low, _, high = other.partition("-")
        if int(low) < 1 or (high and int(high) < int(low)):
            return None
        done.add(int(low), int(high or low))
    return done
