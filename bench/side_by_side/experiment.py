"""What an experiment is, and what it is given: the place of its rounds, mail systems, and ways to measure them."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from disk import in_memory, read_disk
from processes import NOTHING, Usage
from side_by_side.figures import Figure
from side_by_side.mail import Routes
from side_by_side.side import Side

CPU = Figure("CPU", "µs a message")
WRITTEN = Figure("written by processes", "kB a message")
DISK = Figure("written to the disk", "kB a message")
FLUSHES = Figure("flushes of the disk", "a message")
SYNCS = Figure("syncs", "a message")
MEMORY = Figure("memory, at most", "MB")
COSTS = (CPU, WRITTEN, DISK, FLUSHES, SYNCS, MEMORY)
_SAMPLE_EVERY = 0.2


class Measured(NamedTuple):
    """The figures of a round, by name; rates of each 100 ms, and the seconds at which a burst began and ended."""

    figures: Mapping[str, float]
    rates: Sequence[float] = ()
    marks: Sequence[float] = ()


class Meter:
    """Measures what the daemons of a side, and the disk, do from its making to `stop`."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._disk = read_disk(side.place)
        self._used = side.used()

    def stop(self, messages: int, injectors: Usage = NOTHING) -> dict[str, float]:
        """Return the costs of a message."""
        used = self._side.used() - self._used + injectors
        return costs(messages, used, self._side.place, read_disk(self._side.place) - self._disk)


def costs(messages: int, used: Usage, place: Path, disk: Sequence[int]) -> dict[str, float]:
    """Return CPU time of a message, and on a disk what was written for it."""
    found = {CPU.name: used.cpu / messages * 1e6}
    if not in_memory(place):
        flushes, written = disk
        found |= {
            WRITTEN.name: used.written / messages / 1000,
            DISK.name: written / messages / 1000,
            FLUSHES.name: flushes / messages,
        }
    return found


class Ground:
    """Where the rounds of an experiment run: below `place`, with `scratch` in memory. Use it as a context manager.

    `traced` has the syncs counted, `memory_of` what memory daemons take; both slow a round down, which is not timed.
    A home on a disk stays until all rounds are over: ext4 looks through the inodes that were removed in the last
    seconds for each new file, which would be the next home's cost.
    """

    def __init__(self, place: Path, scratch: Path) -> None:
        self.place = Path(tempfile.mkdtemp(dir=place))
        self.place.chmod(0o711)
        self.scratch = scratch
        self.traced = False
        self.watches_memory = False
        self._kept: dict[str, Side] = {}
        self.peak = 0
        self.syncs = 0

    def __enter__(self) -> "Ground":
        return self

    def __exit__(self, *exc: object) -> None:
        for side in self._kept.values():
            side.stop()
        shutil.rmtree(self.place, ignore_errors=True)

    @contextlib.contextmanager
    def side(self, kind: type[Side], routes: Routes) -> Iterator[Side]:
        """Give a new, empty mail system; it is stopped at the end."""
        side = self._make(kind, large=False)
        side.route(routes)
        self.peak = self.syncs = 0
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(side, over))
        if self.watches_memory:
            watch.start()
        try:
            yield side
        except Exception:
            print(f"{side.name}: its log ends:\n{side.follow().tail()}", file=sys.stderr)
            raise
        finally:
            over.set()
            if self.watches_memory:
                watch.join()
            side.stop()
            self.syncs = side.syncs()
            if in_memory(side.place):
                shutil.rmtree(side.place)

    def kept_side(self, kind: type[Side]) -> tuple[Side, bool]:
        """Return the mail system for a million messages that all rounds share, and whether it is new."""
        is_new = kind.name not in self._kept
        if is_new:
            self._kept[kind.name] = self._make(kind, large=True)
        return self._kept[kind.name], is_new

    def _make(self, kind: type[Side], large: bool) -> Side:
        place = Path(tempfile.mkdtemp(prefix=f"{kind.name}-", dir=self.place))
        place.chmod(0o711)
        return kind(place, self.scratch, self.traced, large)

    def settle(self) -> None:
        """Have written what is dirty, so that no later round waits for it."""
        if not in_memory(self.place):
            subprocess.run(["sync", "-f", str(self.place)], check=True)

    def _watch(self, side: Side, over: threading.Event) -> None:
        while not over.wait(_SAMPLE_EVERY):
            with contextlib.suppress(AssertionError):  # It does not run.
                self.peak = max(self.peak, side.memory())


class Experiment(NamedTuple):
    """`run` makes one round for a side with so many messages; `messages` is for the full form, `least` for any.

    `traced` is how many messages the round has in which syncs are counted, 0 for none.
    """

    name: str
    title: str
    messages: int
    figures: tuple[Figure, ...]
    run: Callable[[Ground, type[Side], int], Measured]
    traced: int = 0
    least: int = 20
