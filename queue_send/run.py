"""What the parts of the loop share: the controls, the log, the count of deliveries, and whether we are leaving."""

import random
import time

from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.syncing import Syncing
from queue_send.again import Again
from queue_send.clock import Clock
from queue_send.controls import Controls, find_idle_lines, read_controls
from queue_send.log import Log
from queue_wire.address import ascii_domain

TURN = 0.012  # Seconds of work in one turn of the loop, after which each part still does one small step.


class Run:
    """One run of queue-send. `deliveries` is the number of the last delivery that was started."""

    def __init__(self, home: Home, log: Log) -> None:
        """Read the controls. Raises Temporary where there is no `me`; another file's trouble is an alert."""
        self.home = home
        self.log = log
        self.controls: Controls = read_controls(home, log.alert)
        self._warn()
        self._load_tables()
        self.clock = Clock()
        self.syncing = Syncing()
        self.again = Again(log)
        self._turn_ends = float("inf")
        self.deliveries = 0
        self.random = random.Random()
        self.leaving = False
        self.broken = False

    def reread(self) -> None:
        """HUP: take the new controls, or keep the old ones with an alert."""
        try:
            self.controls = read_controls(self.home)
        except Failure as error:
            self.log.alert(f"unable to reread controls: {error}; the old ones stay")
        else:
            self._warn()
        self._load_tables()

    def _warn(self) -> None:
        """Tell of lines that were read and can do nothing."""
        for line in find_idle_lines(self.home, self.controls):
            self.log.warning(line)

    def _load_tables(self) -> None:
        """Have the tables at hand that a domain beyond ASCII is looked up with among the routes: they take 20 ms."""
        if self.controls.routes:
            ascii_domain("\u00e4.example".encode())

    def begin_turn(self) -> None:
        """A turn of the loop begins."""
        self._turn_ends = time.monotonic() + TURN

    def until(self, seconds: float) -> float:
        """Return until when a part may go on that has so many seconds in a turn, by time.monotonic.

        No user, message or peer is to keep the loop from the others: a part does one step of work, of a millisecond
        at the most, then asks the time. It comes back in the next turn for what is left.
        """
        return min(time.monotonic() + seconds, self._turn_ends)

    def number_deliveries(self, count: int) -> int:
        """Return the number of the first of `count` deliveries that start now."""
        first = self.deliveries + 1
        self.deliveries += count
        return first

    def leave(self) -> None:
        """TERM: start nothing new, wait for what is in flight."""
        self.leaving = True

    def lose(self, peer: str) -> None:
        """A peer is gone: say so, and leave; the supervisor starts the whole set again."""
        self.log.alert(f"oh no! lost {peer} connection! dying...")
        self.broken = True
        self.leaving = True
