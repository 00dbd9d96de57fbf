"""Statuses in bulk: a third of all lines, of which there are few different ones."""

import numpy as np
from numpy.typing import NDArray

from queue_report.match.block import Block
from queue_report.match.grammar import parse_event
from queue_report.match.rules import Rules
from queue_report.match.state import Level

EXITING, NO_STATUS, _NONE = -1, -2, -3
_MAX = 1 << 16


class Statuses:
    """Numbers the levels that statuses tell of. Call `tidy` between blocks: the numbers hold until then."""

    def __init__(self) -> None:
        self._texts: dict[bytes, int] = {}
        self._levels: dict[Level, int] = {}

    def tidy(self) -> None:
        """Forget all, if there are very many."""
        if len(self._texts) > _MAX:
            self._texts, self._levels = {}, {}

    def number_texts(self, texts: list[bytes]) -> NDArray[np.int64]:
        """Return the number of each status's level; EXITING, or NO_STATUS for what is none."""
        known = self._texts
        try:
            return np.array([known[text] for text in texts], np.int64)
        except KeyError:
            return np.array([known[text] if text in known else self._learn(text) for text in texts], np.int64)

    def _learn(self, text: bytes) -> int:
        event = parse_event(text)
        if event is None:
            return NO_STATUS  # Not remembered: there may be very many.
        kind, values = event
        number = EXITING if kind == "exiting" else self.number(values)  # type: ignore[arg-type]
        self._texts[text] = number
        return number

    def number(self, level: Level) -> int:
        return self._levels.setdefault(level, len(self._levels))

    def levels(self) -> NDArray[np.int32]:
        """Return the levels by number, a row each."""
        return np.array(list(self._levels), np.int32).reshape(-1, 4)


class Levels:
    """The statuses of a block. Most are taken many at once; the rules see those that they may have a word on.

    count: how many there are.
    """

    def __init__(self, statuses: Statuses, rules: Rules, block: Block, texts: list[bytes]) -> None:
        statuses.tidy()
        self._statuses, self._rules = statuses, rules
        is_status = block.find_texts(b"status: ")
        places = np.flatnonzero(is_status)
        numbers = statuses.number_texts([texts[place] for place in places.tolist()])
        self._levels = statuses.levels()
        real = numbers >= 0
        self.count = int(real.sum())
        self._places, self._numbers = places[real], numbers[real]
        self._times = block.times[self._places]
        idle = ((self._levels[:, 0] == 0) & (self._levels[:, 2] == 0))[self._numbers]
        self._for_rules = ~is_status
        self._for_rules[places[~real]] = True
        self._for_rules[self._places[idle]] = True
        self._idle = dict(zip(self._places[idle].tolist(), np.flatnonzero(idle).tolist(), strict=True))
        self._done = 0

    def lines_for_rules(self) -> list[int]:
        """Return the lines of the block that the rules must see: all but most statuses."""
        return np.flatnonzero(self._for_rules).tolist()

    def is_level(self, line: int) -> bool:
        """Return whether a line that the rules see is a status, which says that nothing is in flight."""
        return line in self._idle

    def take(self, line: int) -> Level:
        """Return what such a status says; the rules will see to it."""
        self._done = self._idle[line] + 1
        return self._level(self._idle[line])

    def _level(self, place: int) -> Level:
        a, b, c, d = self._levels[self._numbers[place]].tolist()
        return a, b, c, d

    def advance(self, line: int | None) -> None:
        """Take the statuses before a line (None: all that are left)."""
        end = len(self._places) if line is None else int(np.searchsorted(self._places, line))
        if self._done < end:
            self._take_many(self._times[self._done : end], self._numbers[self._done : end])
            self._done = end

    def _take_many(self, times: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Add the stretches of equal levels that end, and note which one goes on."""
        state = self._rules.state
        since, current = _NONE, _NONE
        if state.level is not None:
            since, current = state.level[0], self._statuses.number(state.level[1])
        changes = np.flatnonzero(numbers != np.concatenate(([current], numbers[:-1])))
        if not len(changes):
            return
        at, which = times[changes], numbers[changes]
        a, b, c, d = self._levels[which[-1]].tolist()
        if state.level is None:
            begins, held = at[:-1], self._levels[which[:-1]]
        else:
            begins = np.concatenate(([since], at[:-1]))
            held = np.concatenate((np.array([state.level[1]], np.int32), self._levels[which[:-1]]))
        if len(begins):
            self._rules.found.stretches.append((begins, at[len(at) - len(begins) :], held))
        state.level = int(at[-1]), (a, b, c, d)
