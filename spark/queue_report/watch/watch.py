"""The loop of a resident build: waits, builds, tidies the lake, writes the page, and prints a line about each.

Trouble is a line and a pause: what a batch could do once is taken for possible again, as a disk is mounted again. Only
permanent trouble before the first batch that succeeds ends the loop, since the arguments are wrong then, and a lake
that a later version has written, since the supervisor starts that. What is printed:

    batch 7: 1000 lines of 1 queue, 981 rows, 0.31 s
    batch 8: nothing new, 0.02 s
    tidy: 120 files put together, 0 expired, 1.20 s
    page: written, 0.84 s
    warning: unable to build lake /srv/lake: no space left on device; …; trying again in 120 s
    status: exiting
"""

from collections.abc import Callable
from typing import Protocol, TextIO

from queue_base.errors import Failure, Temporary
from queue_report.lake.build import Summary
from queue_report.lake.lake import LaterLake
from queue_report.schema.columns import UNREADABLE
from queue_report.watch.clock import Clock, Wish
from queue_report.watch.timetable import Timetable

# A session of Spark that nobody has used for so long (seconds) is ended: its memory is free then.
IDLE = 600.0


class Work(Protocol):
    """What is done for a lake. Trouble is Temporary or Permanent."""

    def build(self, tidy: bool) -> Summary:
        """Read what is new; `tidy`: put small files together and drop old dates too."""

    def write_page(self) -> bool:
        """Write the page anew; return False where none is wanted."""

    def used(self) -> float | None:
        """Return when the session of Spark was last used, None where none runs; in seconds of the clock."""

    def let_go(self) -> None:
        """End the session of Spark; the next use begins another one."""

    def memory(self) -> int:
        """Return the bytes by which more memory is taken than allowed, after what can be given back was; or 0."""


class Watch:
    """The loop. run() returns whether the process takes too much memory and is to start itself again."""

    def __init__(self, work: Work, clock: Clock, every: float, out: TextIO) -> None:
        self._work = work
        self._clock = clock
        self._out = out
        self._batches = 0
        self._works = False
        self._warned: list[str] = []
        self._timetable = Timetable(every, clock.now())

    def run(self) -> bool:
        try:
            while True:
                used = self._work.used()
                idle = None if used is None else used + IDLE
                due = self._timetable.due
                wish = self._clock.wait(due if idle is None else min(due, idle))
                if wish is Wish.STOP:
                    self._say("status: exiting")
                    return False
                if wish is Wish.BATCH or self._clock.now() >= due:
                    self._round()
                elif idle is not None:
                    self._work.let_go()
                    self._say(f"session: ended, not used for {IDLE:.0f} s")
                if over := self._work.memory():
                    self._say(f"restarting: {over / 1e6:.0f} MB too much memory are in use")
                    return True
        finally:
            self._work.let_go()

    def _round(self) -> None:
        """Make a batch, and what is due after it."""
        self._batches += 1
        table, began = self._timetable, self._clock.now()
        table.begin(began)
        try:
            summary = self._work.build(False)
        except Failure as error:
            if isinstance(error, LaterLake) or not (self._works or isinstance(error, Temporary)):
                raise
            pause = table.fail(self._clock.now())
            self._say(f"warning: {error}; trying again in {pause:.0f} s")
            return
        self._works = True
        ended = self._clock.now()
        skipped = table.end(ended, sum(summary.lines.values()))
        late = f"; it took longer than every {table.every:g} s: {skipped} skipped" if skipped else ""
        self._say(f"batch {self._batches}: {describe_batch(summary)}, {ended - began:.2f} s{late}")
        self._warn(summary)
        if table.is_tidy_due(self._clock.now()):
            self._try("tidy", self._tidy)
            table.tidied(self._clock.now())
        if table.is_page_due(self._clock.now()):
            began = self._clock.now()
            self._try("page", lambda: "written" if self._work.write_page() else "")
            table.page_written(began, self._clock.now())

    def _tidy(self) -> str:
        summary = self._work.build(True)
        self._warn(summary)
        said = f"{summary.compacted} files put together, {summary.expired} expired"
        if not summary.lines:
            return said
        # The log has grown since the batch.
        self._timetable.changed()
        return f"{describe_batch(summary)}, {said}"

    def _warn(self, summary: Summary) -> None:
        """Print the warnings that the build before did not have."""
        for warning in summary.warnings:
            if warning not in self._warned:
                self._say(f"warning: {warning}")
        self._warned = summary.warnings

    def _try(self, what: str, work: Callable[[], str]) -> None:
        """Do something that batches do not depend on; its trouble is a warning."""
        began = self._clock.now()
        try:
            done = work()
        except LaterLake:
            raise
        except Failure as error:
            self._say(f"warning: {error}; {what} comes later")
            return
        if done:
            self._say(f"{what}: {done}, {self._clock.now() - began:.2f} s")

    def _say(self, line: str) -> None:
        text = line.replace("\n", "/")
        self._out.write(f"{text}\n")
        self._out.flush()


def describe_batch(summary: Summary) -> str:
    """Return what a batch has done, in a few words."""
    if not summary.lines:
        return "nothing new"
    queues = "1 queue" if summary.streams == 1 else f"{summary.streams} queues"
    # What is pending is written anew each time, so it tells nothing.
    rows = sum(number for table, number in summary.rows.items() if table != "pending")
    said = f"{sum(summary.lines.values())} lines of {queues}, {rows} rows"
    bad = summary.lines.get(UNREADABLE, 0)
    return f"{said}, {bad} quarantined" if bad else said
