"""The oldest message and the number of unclassified ones, found by a slow walk that no scrape waits for.

queue-send knows the next attempt of a waiting message, not its birth. So the births are read from the disk, some
microseconds for each message: `OldestWalk` does it in small steps, and `Background` runs the steps in a thread that
rests nine times as long as it works. Messages on hold and parked ones do not count: they may be as old as they like.
"""

import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from queue_admin.messages.stored_mail import COUNTED_MOST
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_wire.ids import is_id

PIECE = 500  # Messages of one step.
REST = 9.0  # How many times as long as a step the thread rests after it.
EVERY = 60.0  # Seconds from the end of a walk to the next one, at least.


class Walked(NamedTuple):
    """What a walk has found: the birth of the oldest message in seconds since the epoch, None for an empty queue.

    `unclassified` is the number of messages in todo/, and `at` the time of the end of the walk. `stored` is how many
    messages are stored for on-demand domains, counted for each domain; COUNTED_MOST if there are more.
    """

    oldest: float | None
    unclassified: int
    at: float
    stored: int = 0


class OldestWalk:
    """One walk. `steps` does it; `found` is its result, None before its end."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._oldest: float | None = None
        self._unclassified = self._stored = 0
        self.found: Walked | None = None

    def steps(self) -> Iterator[None]:
        """Look at PIECE messages, then yield, until all have been seen. A file that cannot be looked at is left out."""
        marked = set()
        for kind in ("hold", "corrupt"):
            for directory in self._layout.directories(kind):
                marked |= set(_names(directory))
                yield
        for directory in self._layout.directories("info"):
            for piece in _pieces(_names(directory)):
                self._look([f"{directory}/{name}" for name in piece if name not in marked])
                yield
        for directory in self._layout.directories("todo"):
            for piece in _pieces(_names(directory)):
                self._unclassified += len(piece)
                self._look([self._layout.mess(int(name)) for name in piece if name not in marked])
                yield
        for domain in _all_names(f"{self._layout.queue}/ondemand"):
            if self._stored < COUNTED_MOST:
                names = _all_names(f"{self._layout.queue}/ondemand/{domain}/mess")
                self._stored += sum(1 for _ in islice(names, COUNTED_MOST - self._stored))
                yield
        self.found = Walked(self._oldest, self._unclassified, time.time(), self._stored)

    def finish_within(self, seconds: float) -> Walked | None:
        """Do all steps, for so many seconds at most; return what was found, None if there was no time for it."""
        end = time.monotonic() + seconds
        for _ in self.steps():
            if time.monotonic() > end:
                break
        return self.found

    def _look(self, paths: list[str]) -> None:
        for path in paths:
            try:
                birth = os.lstat(path).st_mtime
            except OSError:
                continue
            if self._oldest is None or birth < self._oldest:
                self._oldest = birth


def walk_within(home: Home, seconds: float) -> Walked | None:
    """Return what a walk finds, None if there was no time for it, or the disk is not there."""
    try:
        return OldestWalk(open_layout(home.queue)).finish_within(seconds)
    except Failure:
        return None


class Background:
    """A thread that walks for ever; `found` is the result of the last walk, None before the end of the first.

    A queue whose disk is not there is looked for again; `found` is None then.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stop = threading.Event()
        self.found: Walked | None = None
        self._thread = threading.Thread(target=self._work, name="oldest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                walk = OldestWalk(open_layout(self._home.queue))
            except Failure:
                self.found = None
                if self._stop.wait(EVERY):
                    return
                continue
            begun = time.monotonic()
            for _ in walk.steps():
                if self._stop.wait(REST * (time.monotonic() - begun)):
                    return
                begun = time.monotonic()
            self.found = walk.found
            if self._stop.wait(EVERY):
                return


def _names(directory: str) -> list[str]:
    """Return the names of messages in a directory; none if it cannot be read."""
    try:
        return [name for name in os.listdir(directory) if is_id(name)]
    except OSError:
        return []


def _all_names(directory: str) -> Iterator[str]:
    """Yield the names in a directory; none if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            yield from (entry.name for entry in entries)
    except OSError:
        return


def _pieces(names: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), PIECE):
        yield names[at : at + PIECE]
