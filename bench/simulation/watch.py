"""What a host that goes down sees of a scheduler: attempts while it is known to be dead, and the rush on its return.

The rules are those of queue_send.scheduler.destination, written down once more, so that they are checked from outside.
"""

PROBE_FIRST, PROBE_MAX = 60.0, 3600.0
WINDOW_FIRST, WINDOW_MAX = 2.0, 20.0
KNOWN_AFTER = 6  # Failures in a row after which a host counts as dead, where the scheduler has no word for it.
MINUTE = 60.0


class Watch:
    """One host. `declares` says whether the scheduler tells of deaths; if not, failures in a row do."""

    def __init__(self, declares: bool) -> None:
        self.probes = self.wasted = self.excess = 0
        self.burst_jobs = self.burst_window = self.burst_starts = 0
        self.over_window = 0
        self.was_dead = False
        self._declares = declares
        self._flying = 0
        self._window = WINDOW_MAX
        self._in_a_row = 0
        self._dead = False
        self._interval = PROBE_FIRST
        self._probe_due = 0.0
        self._probing = False
        self._came_up: float | None = None
        self._was_down = False
        self._starts = 0

    def started(self, now: float, down: bool) -> None:
        """An attempt begins; `down` says whether it is in vain."""
        self._flying += 1
        if self._dead:
            self._probe(now, down)
        elif self._declares and self._flying > int(self._window + 1e-6):
            self.over_window += 1
        if down:
            self._was_down = True
            self._came_up = None
        elif self._was_down:
            self._was_down = False
            self._came_up, self._starts = now, 0
        if self._came_up is not None and now < self._came_up + MINUTE:
            self._starts += 1
            self.burst_starts = max(self.burst_starts, self._starts)
            if self._flying > self.burst_jobs:
                self.burst_jobs, self.burst_window = self._flying, int(self._window + 1e-6)

    def _probe(self, now: float, down: bool) -> None:
        self.wasted += down
        if now >= self._probe_due and not self._probing:
            self.probes += 1
            self._probing = True
            if not self._declares:  # Where nobody waits for the outcome, the next probe is counted from here.
                self._fail_probe(now)
        else:
            self.excess += down

    def _fail_probe(self, now: float) -> None:
        self._probing = False
        self._interval = min(2 * self._interval, PROBE_MAX)
        self._probe_due = now + self._interval

    def ended(self, good: bool, now: float) -> None:
        """An attempt ended."""
        self._flying -= 1
        if good:
            self._in_a_row = 0
            self._window = min(WINDOW_MAX, self._window + 1.0 / self._window)
            if not self._declares and self._dead:
                self.revived()
            return
        self._in_a_row += 1
        if self._dead and self._probing:
            self._fail_probe(now)
        if not self._declares and not self._dead and self._in_a_row >= KNOWN_AFTER:
            self.died(now)

    def died(self, now: float) -> None:
        """The host is dead, says the scheduler."""
        self._dead = self.was_dead = True
        self._probing = False
        self._interval = PROBE_FIRST
        self._probe_due = now + PROBE_FIRST

    def revived(self) -> None:
        """The host is alive again, says the scheduler."""
        self._dead = self._probing = False
        self._window = WINDOW_FIRST
