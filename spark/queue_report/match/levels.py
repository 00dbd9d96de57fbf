"""Statuses in bulk: a third of all lines, of which there are few different ones."""

import numpy as np
from numpy.typing import NDArray

from queue_report.match.found import Found
from queue_report.match.grammar import parse_event
from queue_report.match.state import Level, State

_NOTHING = -1  # The number of no level: nothing is known, as between two runs of queue-send.
_MAX = 1 << 16


class Levels:
    """Numbers the levels that statuses tell of; the numbers hold until `tidy` is called."""

    def __init__(self) -> None:
        self._texts: dict[bytes, int] = {}
        self._levels: dict[Level, int] = {}

    def tidy(self) -> None:
        """Forget all, if there are very many."""
        if len(self._texts) > _MAX:
            self._texts, self._levels = {}, {}

    def number_texts(self, texts: list[bytes]) -> NDArray[np.int64]:
        """Return the number of the level of each text that begins as a status; less than 0 for what is none."""
        known = self._texts
        try:
            return np.array([known[text] for text in texts], np.int64)
        except KeyError:
            return np.array([known[text] if text in known else self._learn(text) for text in texts], np.int64)

    def _learn(self, text: bytes) -> int:
        event = parse_event(text)
        if event is None or event[0].name != "status":
            return _NOTHING  # Not remembered: there may be very many.
        number = self._texts[text] = self._number(event[1])  # type: ignore[arg-type]
        return number

    def _number(self, level: Level) -> int:
        return self._levels.setdefault(level, len(self._levels))

    def are_idle(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these levels say that nothing is in flight."""
        levels = self._all()
        idle: NDArray[np.bool_] = ((levels[:, 0] == 0) & (levels[:, 2] == 0))[numbers]
        return idle

    def _all(self) -> NDArray[np.int32]:
        """Return the levels by number, a row each."""
        return np.array(list(self._levels), np.int32).reshape(-1, 4)

    def add(
        self, state: State, found: Found, places: NDArray[np.int64], times: NDArray[np.int64],
        numbers: NDArray[np.int64], ends: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Add the stretches of equal levels that end in a block, and note in the state which one goes on.

        places, times, numbers: of the statuses. ends: where a run of queue-send has ended, and until when it had a
        level; each is before what is at its place.
        """
        if ends:
            order = np.argsort(np.concatenate(([place for place, _ in ends], places)), kind="stable")
            times = np.concatenate(([until for _, until in ends], times))[order]
            numbers = np.concatenate((np.full(len(ends), _NOTHING), numbers))[order]
        since, current = 0, _NOTHING
        if state.level is not None:
            since, current = state.level[0], self._number(state.level[1])
        changes = np.flatnonzero(numbers != np.concatenate(([current], numbers[:-1])))
        if not len(changes):
            return
        until, which = times[changes], numbers[changes]
        begin, held = np.concatenate(([since], until[:-1])), np.concatenate(([current], which[:-1]))
        levels, known = self._all(), held != _NOTHING
        if known.any():
            found.stretches.append((begin[known], until[known], levels[held[known]]))
        state.level = None
        if which[-1] != _NOTHING:
            a, b, c, d = levels[which[-1]].tolist()
            state.level = int(until[-1]), (a, b, c, d)
