"""Flushes of some recipients of messages: which recipients are tried before the next attempt of their message.

A channel of a message has one next attempt, the mtime of its file. The recipients that are not chosen keep it, and the
chosen ones have it, too, if they are deferred again. So a partial flush is an attempt in which the others count as
deferred, and after which the file gets the next attempt that it had.

The backlog has an extra entry for each of these messages, due at once, with the next attempt that the file has. A
message that is due by its file anyway is tried whole. At most FLUSHED_MAX messages of a channel wait so.
"""

from queue_wire.admin.returning import RecipientSelector

FLUSHED_MAX = 20_000  # Messages, some 200 bytes each.


class PartialFlush:
    """The flush of one message. `waiting`: selectors whose recipients are to be tried; `trying`: are being tried.

    due: the next attempt of the others, on the disk's clock, once the attempt has begun. whole: all recipients are to
    be tried after all. round: how often everything had been made due when it was ordered.
    """

    __slots__ = ("due", "round", "trying", "waiting", "whole")

    def __init__(self, selector: RecipientSelector, round: int) -> None:
        self.waiting: tuple[RecipientSelector, ...] = (selector,)
        self.trying: tuple[RecipientSelector, ...] = ()
        self.due = 0
        self.whole = False
        self.round = round


class PartialFlushes:
    """The partial flushes of one channel, by message."""

    def __init__(self) -> None:
        self._flushes: dict[int, PartialFlush] = {}
        self._round = 0  # How often everything was made due.

    @property
    def full(self) -> bool:
        """Whether no more messages may be added."""
        return len(self._flushes) >= FLUSHED_MAX

    def is_trying(self, message: int) -> bool:
        """Return whether some recipients of a message are being tried, and the others are not."""
        flush = self._flushes.get(message)
        return flush is not None and bool(flush.trying)

    def add(self, message: int, selector: RecipientSelector) -> bool:
        """Add recipients of a message; return whether the backlog needs an entry for them."""
        flush = self._flushes.get(message)
        if flush is None:
            self._flushes[message] = PartialFlush(selector, self._round)
            return True
        if selector not in flush.waiting:
            flush.waiting += (selector,)
        return bool(flush.trying)

    def begin(self, message: int, due: int, by_time: bool, whole: bool) -> PartialFlush | None:
        """Return the flush of a message that is loaded now; None if all its recipients are to be tried.

        `due` is its next attempt on the disk's clock. `by_time`: the entry of the backlog was for this next attempt;
        otherwise a later part of the message is loaded. `whole`: all are due.
        """
        flush = self._flushes.get(message)
        if flush is None:
            return None
        if not by_time:
            return flush if flush.trying else None
        if whole or self._is_whole(flush):
            del self._flushes[message]
            return None
        flush.trying += tuple(each for each in flush.waiting if each not in flush.trying)
        flush.waiting, flush.due = (), due
        return flush

    def end(self, message: int, over: bool) -> tuple[bool, bool]:
        """End an attempt at chosen recipients; return whether all are to be tried now, else whether some others are.

        `over`: the attempt has no later part.
        """
        flush = self._flushes.get(message)
        if flush is None:
            return False, False
        whole = self._is_whole(flush)
        if whole or (over and not flush.waiting):
            del self._flushes[message]
        elif over:
            flush.trying = ()
            return False, True
        return whole, False

    def widen(self, message: int) -> bool:
        """Have all recipients of a message tried; return whether that follows the attempt at some that has begun."""
        flush = self._flushes.get(message)
        if flush is None:
            return False
        if not flush.trying:
            del self._flushes[message]
            return False
        flush.whole = True
        return True

    def widen_all(self) -> None:
        """Have all recipients of every message tried."""
        self._round += 1

    def forget(self, message: int) -> None:
        """Forget the flush of a message: all its recipients were tried, or it has ended."""
        self._flushes.pop(message, None)

    def _is_whole(self, flush: PartialFlush) -> bool:
        return flush.whole or flush.round != self._round
