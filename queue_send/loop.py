"""What the parts of queue-send's loop share: their interface, the time budget of a turn, and the shutdown."""

import select
import time
from typing import Protocol

from queue_send.log import Log

TURN = 0.012  # Seconds of work in one turn of the loop. After that each part still does one small step.


class Part(Protocol):
    """A part of the loop. It registers what it waits for, then does a bounded amount of work; it never blocks."""

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register descriptors; return the seconds after which `run` has work even if no descriptor is ready."""

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do the work of one turn. `ready` are descriptors with their poll events."""


class WritingPart(Protocol):
    """A part of the loop whose actions the log tells of. They are carried out when its lines have been written."""

    def write(self) -> None:
        """Do what `run` has decided, at the end of a turn: write marks, and what peers are told. Never blocks."""


class TimeBudget:
    """The seconds of work that are left in a turn."""

    def __init__(self) -> None:
        self._ends = float("inf")
        self.begun = 0.0

    def begin(self) -> None:
        """Start the budget of the next turn."""
        self.begun = time.monotonic()
        self._ends = self.begun + TURN

    def until(self, seconds: float) -> float:
        """Return when a part that gets `seconds` of this turn must stop, in the time of time.monotonic.

        A part works in steps of at most a millisecond. After each step it looks at the time, and after `until` it
        continues in the next turn. So no user, message or peer delays the others.
        """
        return min(time.monotonic() + seconds, self._ends)


class Shutdown:
    """Whether queue-send is to exit. From then on nothing new is started; what is in flight is finished."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.begun = False
        self.peer_lost = False

    def begin(self) -> None:
        """Begin the exit, on TERM: queue-send exits when nothing is in flight."""
        self.begun = True

    def lose(self, peer: str) -> None:
        """Begin the exit because a peer is gone; log an alert. The supervisor starts all programs again."""
        self._log.alert(f"oh no! lost {peer} connection! dying...")
        self.peer_lost = True
        self.begun = True
