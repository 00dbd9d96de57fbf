"""The progress bar of a batch, on stderr if that is a terminal."""

import os
import sys
import time

import click

from queue_inject.batch.injector import Result

# The bar is drawn at most this often, in seconds: a terminal is slow.
_PERIOD = 0.1


class ProgressBar:
    """`size` is the number of bytes of the input, or None if it is unknown."""

    def __init__(self, size: int | None) -> None:
        self._counts = [0, 0]
        self._place = 0
        self._due = 0.0
        # An iterable of unknown length makes a bar without an end.
        items = None if size is not None else iter(())
        known = size is not None
        self._bar = click.progressbar(items, length=size, file=sys.stderr, show_percent=known, show_eta=known)
        self._bar.__enter__()
        self._shares_terminal = os.isatty(1)

    def count(self, results: list[Result]) -> None:
        """Count results whose lines are about to be written."""
        failed = sum(result.exit_code != 0 for result in results)
        self._counts[0] += len(results) - failed
        self._counts[1] += failed
        if self._shares_terminal:
            # The lines replace the bar, which is drawn again below them.
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._due = 0.0

    def show(self, place: int) -> None:
        """Draw the bar for `place` bytes of input, unless it was drawn a moment ago."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _PERIOD
        queued, failed = self._counts
        self._bar.label = f"{queued} queued, {failed} failed" if failed else f"{queued} queued"
        self._bar.make_step(place - self._place)
        self._bar.render_progress()
        self._place = place

    def end(self) -> None:
        """Leave the bar as it is, and go to the next line."""
        self._due = 0.0
        self.show(self._place)
        self._bar.render_finish()
