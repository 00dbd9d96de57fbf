"""Whether this injector may take a message now: enough disk, and no mark of queue-todo against it (queue_base.inflow).

The ordinary path costs a read of control/queueminfree, a statvfs and a stat. Nothing is on the disk yet while an
injector waits, or when it is refused before it begins.
"""

import os
import time

from queue_base.draft import CONFIG, REFUSED, WRITE, QueueTrouble
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.inflow import find_shortage, read_least, refuse_mark, slow_mark

# Postfix's in_flow_delay. Each injector waits between half of it and all of it, so that they come apart.
SLOW_SECONDS = 1.0
LATER = "try again later"


class Intake:
    """`path` is a directory on the file system that takes the messages."""

    __slots__ = ("_home", "_least", "_refuse", "_slow", "path")

    def __init__(self, home: Home, path: str) -> None:
        self._home = home
        self._least: int | None = None
        self._refuse = refuse_mark(home)
        self._slow = slow_mark(home)
        self.path = path

    def admit(self) -> None:
        """Wait for a moment if queue-todo asks for it; call it before each group of drafts that share a commit.

        Raises QueueTrouble where it asks to take nothing.
        """
        self._least = None
        if not self._slow.holds():
            return
        if self._refuse.holds():
            raise QueueTrouble(REFUSED, f"unable to queue message: todo/ of {self._home.queue} is behind; {LATER}")
        time.sleep(SLOW_SECONDS * (0.5 + os.urandom(1)[0] / 512))

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Raise QueueTrouble where the disk is short, or would be with `coming` bytes more.

        `place` is a path or descriptor there, by default `path`.
        """
        if self._least is None:
            try:
                self._least = read_least(self._home)
            except Temporary as error:
                raise QueueTrouble(CONFIG, f"unable to queue message: {error}; {LATER}") from error
        shortage = find_shortage(self.path if place is None else place, self.path, self._least, coming)
        if shortage:
            raise QueueTrouble(WRITE, f"unable to queue message: the disk is almost full: {shortage}; {LATER}")

    def closed(self) -> str | None:
        """Return what is wrong where the disk is short, or its limit unknown; reads the control file, never waits."""
        self._least = None
        try:
            self._least = read_least(self._home)
        except Temporary as error:
            return str(error)
        return find_shortage(self.path, self.path, self._least)

    @property
    def slow(self) -> bool:
        """Whether queue-todo asks to wait."""
        return self._slow.holds()

    @property
    def refused(self) -> bool:
        """Whether it asks to take nothing."""
        return self._refuse.holds()
