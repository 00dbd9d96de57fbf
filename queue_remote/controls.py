"""The control files as they are now: read again when one of them has changed, or after HUP.

qmail-remote reads them for every delivery; here a look at their times once a second is enough. Files that
cannot be read or parsed make every job a deferral, and each job tries them again; the log hears of it once.
"""

import os
import time

from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_remote.message.converting import Conversions
from queue_remote.settings import FILES
from queue_remote.setup import Setup, read_setup
from queue_remote.tls.sts import StsCache

LOOK_SECONDS = 1.0

_Stamp = tuple[int, int, int, int]


class Controls:
    """Hands out what goes by the current control files."""

    def __init__(self, home: Home, program: str) -> None:
        self._home = home
        self._program = program
        self.conversions = Conversions()
        self._sts = StsCache()
        self._setup: Setup | None = None
        self._stamps: list[_Stamp | None] = []
        # The files that control/dkim names.
        self._keys: list[str] = []
        self._looked = 0.0
        self._complained = False

    def setup(self) -> Setup:
        """Return what to go by for a job. Raises Temporary, naming the file."""
        now = time.monotonic()
        if self._setup is None or now - self._looked >= LOOK_SECONDS:
            self._looked = now
            stamps = self._look(self._keys)
            if self._setup is None or stamps != self._stamps:
                self._setup = None
                # Taken before reading: a change during it is seen at the next look.
                self._stamps = stamps
                self._setup = read_setup(self._home, self._sts, self.conversions)
                self._complained = False
                keys = self._setup.settings.keyring.files
                if keys != self._keys:
                    self._keys = keys
                    self._stamps = stamps[: len(FILES)] + self._look(keys)[len(FILES) :]
                for alert in self._setup.alerts():
                    complain(self._program, f"alert: {alert}")
        return self._setup

    def reread(self) -> None:
        """Read the files now; trouble is logged."""
        self._setup = None
        self._complained = False
        try:
            self.setup()
        except Temporary as error:
            self.complain(error)

    def _look(self, keys: list[str]) -> list[_Stamp | None]:
        return [_stamp(path) for path in [*(f"{self._home.control}/{name}" for name in FILES), *keys]]

    def complain(self, error: Temporary) -> None:
        """Log trouble with the control files, unless that is known already."""
        if not self._complained:
            self._complained = True
            complain(self._program, f"alert: {error}; mail is deferred until it can be read")


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # With the time of the last change of mode and owner, which count for files with secrets.
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns
