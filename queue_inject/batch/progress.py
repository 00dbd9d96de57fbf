"""The progress bar of a batch, on stderr, where that is a terminal."""

import os
import sys
import time

import click

from queue_inject.batch.group import Result

# Not more often, in seconds: a terminal is slow.
_PERIOD = 0.1


class Progress:
    """`size` is how many bytes the input has, None where nobody knows."""

    def __init__(self, size: int | None) -> None:
        self._counts = [0, 0]
        self._place = 0
        self._due = 0.0
        # An iterable of unknown length makes a bar without an end.
        items = None if size is not None else iter(())
        known = size is not None
        self._bar = click.progressbar(items, length=size, file=sys.stderr, show_percent=known, show_eta=known)
        self._bar.__enter__()
        self._over = os.isatty(1)

    def count(self, results: list[Result]) -> None:
        """Note what became of messages, whose lines are about to be written."""
        failed = sum(result.exit_code != 0 for result in results)
        self._counts[0] += len(results) - failed
        self._counts[1] += failed
        if self._over:
            # The lines come in the bar's place; it is drawn again below them.
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._due = 0.0

    def show(self, place: int) -> None:
        """Draw the bar, `place` bytes of the input being read, where it is time to."""
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
