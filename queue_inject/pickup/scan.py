"""Scans maildrop/ in slices of time: collects finished files, removes abandoned ones, and sets other files aside."""

import os
import time
from collections.abc import Callable, Iterator

from queue_base.errors import reason
from queue_base.queue.sightings import Sightings
from queue_inject.pickup.collector import Collector
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.file_checks import describe_kind
from queue_inject.pickup.untrusted_directory import OURS, Directory
from queue_wire.files.maildrop import is_finished, is_temporary

# An unfinished file of this age has no writer any more: the time limit of a writer is 24 hours.
ABANDONED_SECONDS = 36 * 3600
# The number of names between two looks at the clock.
_STEP = 64


class MaildropScan:
    """A scan, which can be repeated. It is `running` until it has seen all names that were there when it began."""

    def __init__(
        self, directory: Directory, collector: Collector, corrupt: CorruptMail, warn: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._collector = collector
        self._corrupt = corrupt
        self._warn = warn
        self._entries: Iterator[os.DirEntry[str]] | None = None
        self._sightings = Sightings()
        self._readable = True
        self._now = 0.0

    @property
    def running(self) -> bool:
        return self._entries is not None

    def begin(self) -> None:
        """Begin the scan, or begin it again."""
        self._now = time.time()
        self._sightings.begin()
        self._collector.begin_scan()
        self._corrupt.begin_scan()
        try:
            # maildrop/ may be another directory by now.
            self._directory.reopen()
            self._entries = os.scandir(self._directory.path)
        except OSError as error:
            self._fail(error)

    def run(self, seconds: float) -> None:
        """Go on with the scan for about `seconds`."""
        end = time.monotonic() + seconds
        try:
            while self._entries is not None:
                for _ in range(_STEP):
                    entry = next(self._entries, None)
                    if entry is None:
                        self._entries = None
                        self._corrupt.end_scan()
                        break
                    self._examine(entry)
                if time.monotonic() >= end:
                    break
        except OSError as error:
            self._fail(error)
        else:
            self._readable = True

    def _fail(self, error: OSError) -> None:
        self._entries = None
        if self._readable:
            self._warn(f"unable to read {self._directory.path}: {reason(error)}; trying again later")
        self._readable = False

    def _examine(self, entry: os.DirEntry[str]) -> None:
        # scandir has the type of each file; only regular files are examined further.
        name = entry.name
        regular = entry.is_file(follow_symlinks=False)
        if regular and is_finished(name):
            self._collector.add(name)
        elif regular and is_temporary(name):
            self._remove_abandoned(name)
        else:
            self._set_aside(name, regular)

    def _remove_abandoned(self, name: str) -> None:
        try:
            found = self._directory.look(name)
            # The owner can set mtime, but not ctime.
            old = min(found.st_mtime, found.st_ctime) < self._now - ABANDONED_SECONDS
            if old and self._sightings.add(name, found.st_ctime_ns):
                os.unlink(f"{self._directory.path}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in OURS:  # The next scan looks again.
                self._corrupt.set_aside(name, None, reason(error))

    def _set_aside(self, name: str, regular: bool) -> None:
        try:
            found = self._directory.look(name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in OURS:
                self._corrupt.set_aside(name, None, reason(error))
            return
        why = "queue-inject leaves no file of such a name" if regular else f"it is {describe_kind(found.st_mode)}"
        self._corrupt.set_aside(name, found.st_uid, why)
