"""Lines that are in the log a second time: where files are doubled, or a log is given again. They count once.

Lines that follow each other with the same stamp are a run. Equal lines of one run count each, except one directly
behind its equal. If an earlier run has the same stamp, as in a copy of the log, then of each line only as many count as
this run has more than the earlier one. So only stamps that are not later than all before must be looked at closely.

A line is known by its stamp and its print, a CRC of 32 bits. As a sender can choose addresses so that the CRCs of two
lines are equal, lines beside each other are compared as a whole (or by BLAKE2, where the first one was in an earlier
block). Where an earlier run has the same stamp only prints are known: a line that is not in the log yet, has the same
nanosecond and the same CRC as one that is, and does not stand beside it, is taken for a repeat.
"""

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from queue_report.match.hashes import murmur3
from queue_report.match.state import Stamps

Times: TypeAlias = NDArray[np.int64]
Prints: TypeAlias = NDArray[np.int32]
# Given two stamps, stamps and prints of the lines between them (both included) that counted in earlier builds: the
# columns time_ns and print of the table `lines`. Lines with other stamps do no harm.
Seen: TypeAlias = Callable[[int, int], tuple[Times, Prints]]


def _digest(line: bytes) -> str:
    return blake2b(line, digest_size=16).hexdigest()


class Repeats:
    """Finds the lines of a stream that are repeats. stamps: of the lines before; changed. seen: those lines."""

    def __init__(self, stamps: Stamps, seen: Seen) -> None:
        self._stamps = stamps
        self._before, self._seen = stamps.latest, seen
        # What counted of this build, by block, with the earliest and the latest stamp.
        self._read: list[tuple[Times, Prints, int, int]] = []

    def find(self, times: Times, prints: Prints, line: Callable[[int], bytes]) -> NDArray[np.bool_] | None:
        """Return which lines are repeats, None for none. line: returns a line, which old lakes know by another print.

        At least one line is given, in the order of the log.
        """
        stamps = self._stamps
        first = stamps.run_ns is None
        earliest = int(times.min())
        later = times[1:] > times[:-1]
        if later.all() and (stamps.latest is None or times[0] > stamps.latest):
            repeats = None
            self._note_run(int(times[-1]), True, int(prints[-1]), {})
        else:
            repeats = self._look(times, prints, line, first)
        stamps.last_digest = _digest(line(len(times) - 1))
        latest = int(times.max())
        stamps.latest = latest if stamps.latest is None else max(latest, stamps.latest)
        counting = slice(None) if repeats is None else ~repeats
        self._read.append((times[counting], prints[counting], earliest, latest))
        return repeats

    def _note_run(self, time: int, fresh: bool, last: int, counted: dict[int, int]) -> None:
        stamps = self._stamps
        stamps.run_ns, stamps.run_fresh, stamps.last_print, stamps.run_prints = time, fresh, last, counted

    def _look(
        self, times: Times, prints: Prints, line: Callable[[int], bytes], first: bool
    ) -> NDArray[np.bool_] | None:
        stamps = self._stamps
        # Runs by number; 0 is the one that goes on from before, if it does.
        changes = np.empty(len(times), np.bool_)
        changes[0] = first or times[0] != stamps.run_ns
        changes[1:] = times[1:] != times[:-1]
        repeats = np.empty(len(times), np.bool_)
        repeats[0] = not changes[0] and prints[0] == stamps.last_print
        repeats[1:] = ~changes[1:] & (prints[1:] == prints[:-1])
        for place in np.flatnonzero(repeats).tolist():
            if place:
                repeats[place] = line(place) == line(place - 1)
            elif stamps.last_digest is not None:
                repeats[place] = _digest(line(place)) == stamps.last_digest
        beside = repeats.copy()
        starts = np.flatnonzero(changes)
        # The latest stamp before each run.
        lowest = np.iinfo(np.int64).min
        before = np.maximum.accumulate(np.concatenate(([lowest if stamps.latest is None else stamps.latest], times)))
        fresh = times[starts] > before[starts]
        going_on = np.array([] if changes[0] else [stamps.run_fresh], np.bool_)
        run_fresh = np.concatenate((going_on, fresh))
        runs = np.cumsum(changes) - (1 if changes[0] else 0)
        doubts = np.flatnonzero(~run_fresh[runs])
        counted: dict[int, int] = {}
        if len(doubts):
            counted = self._compare(times, prints, line, runs, beside, repeats, doubts, not changes[0])
        self._note_run(int(times[-1]), bool(run_fresh[-1]), int(prints[-1]), {} if run_fresh[-1] else counted)
        return repeats if repeats.any() else None

    def _compare(
        self, times: Times, prints: Prints, line: Callable[[int], bytes], runs: NDArray[np.int64],
        beside: NDArray[np.bool_], repeats: NDArray[np.bool_], doubts: NDArray[np.int64], goes_on: bool,
    ) -> dict[int, int]:  # fmt: skip
        """Find repeats in runs that are not fresh. Returns how many lines of each print the last such run has."""
        low, high = int(times[doubts].min()), int(times[doubts].max())
        known, old = self._lines_between(low, high)
        doubtful = np.zeros(len(times), np.bool_)
        doubtful[doubts] = True
        counted: dict[int, int] = dict(self._stamps.run_prints) if goes_on else {}
        # More lines of this block may be what a later one repeats.
        places = np.flatnonzero((times >= low) & (times <= high))
        run = 0 if goes_on else -1
        for place in places.tolist():
            if runs[place] != run:
                run, counted = int(runs[place]), {}
            if beside[place]:
                continue
            time, print_ = int(times[place]), int(prints[place])
            if doubtful[place]:
                counted[print_] = counted.get(print_, 0) + 1
                if counted[print_] <= known[time, print_] or (time in old and murmur3(line(place)) in old[time]):
                    repeats[place] = True
                    continue
            known[time, print_] += 1
        return counted

    def _lines_between(self, low: int, high: int) -> tuple[Counter[tuple[int, int]], dict[int, set[int]]]:
        """Return how often each line between two stamps counted, and the prints of lakes' lines by stamp."""
        known: Counter[tuple[int, int]] = Counter()
        old: dict[int, set[int]] = {}
        if self._before is not None and low <= self._before:
            times, prints = self._seen(low, high)
            inside = (times >= low) & (times <= high)
            for time, print_ in zip(times[inside].tolist(), prints[inside].tolist(), strict=True):
                known[time, print_] += 1
                old.setdefault(time, set()).add(print_)
        for times, prints, earliest, latest in self._read:
            if earliest <= high and latest >= low:
                inside = (times >= low) & (times <= high)
                known.update(zip(times[inside].tolist(), prints[inside].tolist(), strict=True))
        return known, old
