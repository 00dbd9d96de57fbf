"""The oldest message, the number of unclassified ones, and what is stored on demand, found by a slow walk.

queue-send knows the next attempt of a waiting message, not its birth. So the births are read from the disk, some
microseconds for each message: `OldestWalk` does it in small steps, and `Background` runs the steps in a thread that
rests nine times as long as it works, so no scrape waits for it. Messages on hold and parked ones do not count: they may
be as old as they like.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from queue_admin.messages.stored_mail import StoredDomain, stored_domains
from queue_base.control import read_value
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_wire.control.ondemand import OnDemandLines
from queue_wire.control.registry import ONDEMAND
from queue_wire.ids import is_id

PIECE = 500  # Messages of one step.
REST = 9.0  # How many times as long as a step the thread rests after it.
EVERY = 60.0  # Seconds from the end of a walk to the next one, at least.
# How the domains whose mail is stored get it; `none` have no line in control/ondemand any more.
METHODS = ("etrn", "atrn", "none")


class StoredTotals:
    """What is stored for all domains of a method. `oldest` is a birth in seconds since the epoch, None without mail."""

    __slots__ = ("bytes", "domains", "oldest", "recipients")

    def __init__(self) -> None:
        self.domains = self.recipients = self.bytes = 0
        self.oldest: float | None = None


class Walked(NamedTuple):
    """What a walk has found: the birth of the oldest message in seconds since the epoch, None for an empty queue.

    `unclassified` is the number of messages in todo/, and `at` the time of the end of the walk. `stored` has the mail
    on demand by the METHODS of its domains; it is empty if there is none, and no domain is to have some.
    """

    oldest: float | None
    unclassified: int
    at: float
    stored: Mapping[str, StoredTotals] = {}


class OldestWalk:
    """One walk. `steps` does it; `found` is its result, None before its end."""

    def __init__(self, layout: Layout, home: Home | None = None) -> None:
        """Without a home, what is stored on demand is left out."""
        self._layout = layout
        self._home = home
        self._stored: dict[str, StoredTotals] = {}
        self._oldest: float | None = None
        self._unclassified = 0
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
        if self._home is not None:
            yield from self._count_stored(self._home)
        self.found = Walked(self._oldest, self._unclassified, time.time(), self._stored)

    def _count_stored(self, home: Home) -> Iterator[None]:
        """Count what is stored on demand. What cannot be read is left out."""
        try:
            lines: OnDemandLines = read_value(home, ONDEMAND)
        except Failure:
            lines = {}  # queue-ondemand says what is wrong.
        try:
            domains = stored_domains(home)
        except Failure:
            return
        if not lines and not domains:
            return
        self._stored = {method: StoredTotals() for method in METHODS}
        for name in domains:
            line = lines.get(name)
            totals = self._stored["none" if line is None else "atrn" if line.turns else "etrn"]
            yield from _add_domain(totals, StoredDomain(home, name, {}))

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
        return OldestWalk(open_layout(home.queue), home).finish_within(seconds)
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
                walk = OldestWalk(open_layout(self._home.queue), self._home)
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


def _add_domain(totals: StoredTotals, domain: StoredDomain) -> Iterator[None]:
    """Add what is stored for a domain, in steps."""
    has_some = False
    for count, message in enumerate(domain.messages(), 1):
        if not has_some:
            has_some = True
            totals.domains += 1
        totals.recipients += len(message.recipients)
        totals.bytes += message.first.size
        birth = message.first.birth / 1e6
        totals.oldest = birth if totals.oldest is None else min(birth, totals.oldest)
        if not count % PIECE:
            yield
    yield


def _names(directory: str) -> list[str]:
    """Return the names of messages in a directory; none if it cannot be read."""
    try:
        return [name for name in os.listdir(directory) if is_id(name)]
    except OSError:
        return []


def _pieces(names: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(names), PIECE):
        yield names[at : at + PIECE]
