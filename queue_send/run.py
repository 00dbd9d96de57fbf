"""What the parts of the loop share: the controls, the log, the count of deliveries, and whether we are leaving."""

import random

from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.syncing import Syncing
from queue_send.again import Again
from queue_send.controls import Controls, find_idle_lines, read_controls
from queue_send.log import Log


class Run:
    """One run of queue-send. `deliveries` is the number of the last delivery that was started."""

    def __init__(self, home: Home, log: Log) -> None:
        """Read the controls. Raises Temporary where there is no `me`; another file's trouble is an alert."""
        self.home = home
        self.log = log
        self.controls: Controls = read_controls(home, log.alert)
        self._warn()
        self.syncing = Syncing()
        self.again = Again(log)
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

    def _warn(self) -> None:
        """Tell of lines that were read and can do nothing."""
        for line in find_idle_lines(self.home, self.controls):
            self.log.warning(line)

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
