"""Looks through maildrop/, so many names at a time: notes finished files, removes abandoned ones, sets others aside."""

import os
import time

from queue_base.errors import reason
from queue_inject.pickup.corrupt import Aside
from queue_inject.pickup.maildrop import Maildrop
from queue_inject.pickup.untrusted import OURS, kind
from queue_wire.maildrop import is_finished, is_temporary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A file under construction that is older than this has no writer any more: the writer's limit is 24 hours.
ABANDONED_SECONDS = 36 * 3600
# So many names between two looks at the clock.
_STEP = 64


class Scan:
    """`running` until all names that were there at its beginning were seen. `warn` is told of what cannot be read."""

    def __init__(self, directory: str, drop: Maildrop, aside: Aside, warn: "Callable[[str], None]") -> None:
        self._directory = directory
        self._drop = drop
        self._aside = aside
        self._warn = warn
        self._entries: Iterator[os.DirEntry[str]] | None = None
        self._readable = True
        self._now = 0.0

    @property
    def running(self) -> bool:
        return self._entries is not None

    def begin(self) -> None:
        """Begin, or begin again."""
        self._now = time.time()
        self._drop.begin_scan()
        self._aside.begin()
        try:
            self._drop.opened(anew=True)
            self._entries = os.scandir(self._directory)
        except OSError as error:
            self._fail(error)

    def run(self, seconds: float) -> None:
        """Look at names for about so long."""
        end = time.monotonic() + seconds
        try:
            while self._entries is not None:
                for _ in range(_STEP):
                    entry = next(self._entries, None)
                    if entry is None:
                        self._entries = None
                        self._aside.end()
                        break
                    self._see(entry)
                if time.monotonic() >= end:
                    break
        except OSError as error:
            self._fail(error)
        else:
            self._readable = True

    def _fail(self, error: OSError) -> None:
        self._entries = None
        if self._readable:
            self._warn(f"unable to read {self._directory}: {reason(error)}; trying again later")
        self._readable = False

    def _see(self, entry: os.DirEntry[str]) -> None:
        # What a name is comes with the name: nothing but regular files is looked at more closely.
        name = entry.name
        regular = entry.is_file(follow_symlinks=False)
        if regular and is_finished(name):
            self._drop.add(name)
        elif regular and is_temporary(name):
            self._remove_abandoned(name)
        else:
            self._set_aside(name, regular)

    def _remove_abandoned(self, name: str) -> None:
        try:
            found = self._drop.opened().look(name)
            # Its owner can set the one time, but not the other.
            if min(found.st_mtime, found.st_ctime) < self._now - ABANDONED_SECONDS:
                os.unlink(f"{self._directory}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in OURS:  # The next scan looks again.
                self._aside.put(name, None, reason(error))

    def _set_aside(self, name: str, regular: bool) -> None:
        try:
            found = self._drop.opened().look(name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in OURS:
                self._aside.put(name, None, reason(error))
            return
        why = "queue-inject leaves no file of such a name" if regular else f"it is {kind(found.st_mode)}"
        self._aside.put(name, found.st_uid, why)
