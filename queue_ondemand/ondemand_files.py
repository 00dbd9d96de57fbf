"""What queue-ondemand reads from control/. A change is noticed within a second, when there is something to do.

While one of the files cannot be used, there is an alert, and the values of the last reading stay in force. If there was
none, what is stored stays: it must neither expire by another time than its own, nor go by the DNS to the host of a
domain that is to fetch it. Other mail is tried as if no domain was an on-demand one.
"""

from typing import NamedTuple

from queue_base.control import read_me
from queue_base.control_files import ControlFiles, ControlValues, kept_by
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.admin.settings import pack_in_force
from queue_wire.control import registry
from queue_wire.control.destinationlimits import NO_LINES as NO_LIMITS
from queue_wire.control.destinationlimits import LimitLines, join_lines
from queue_wire.control.ondemand import DAY, OnDemandLine, OnDemandLines

PROGRAM = "queue-ondemand"
CHECK_SECONDS = 1.0
NO_LINES: OnDemandLines = {}
# What holds for stored mail before the first reading that has succeeded; `probe` is the time to look again.
_UNREAD = OnDemandLine(expire=100 * 365 * DAY, probe=10, turns=True)
# What holds for the stored mail of a domain without a line. Where it was to go is not known any more, and a domain that
# fetched it has perhaps no host of its own: it goes nowhere by itself.
_NO_LINE = OnDemandLine(probe=0, turns=True)


class OnDemandConfig(NamedTuple):
    """The values of the control files: addresses as bytes, times in seconds. `known`: they have been read.

    `limits` and `concurrency` are those of destinations.
    """

    me: bytes
    bouncefrom: bytes
    doublebounceto: bytes
    lines: OnDemandLines = NO_LINES
    interval: int = registry.ETRNINTERVAL.bounds[0]
    cluster_size: int = registry.CLUSTERSIZE.bounds[0]
    limits: LimitLines = NO_LIMITS
    concurrency: int = registry.DESTINATIONCONCURRENCY.bounds[0]
    known: bool = True

    def line(self, domain: bytes) -> OnDemandLine:
        """Return what is said of a domain, or what holds for one that has stored mail and no line any more."""
        return self.lines.get(domain) or (_NO_LINE if self.known else _UNREAD)


class OnDemandFiles:
    """The control files as they were read last: `current`."""

    def __init__(self, home: Home) -> None:
        """Read the files. Raises Temporary if there is no `me`."""
        self._files = ControlFiles(home, kept_by(PROGRAM), make_config)
        self._checked = 0.0
        me = read_me(home)
        self._unread = OnDemandConfig(me, b"MAILER-DAEMON@" + me, b"postmaster@" + me, known=False)
        self._read()

    @property
    def current(self) -> OnDemandConfig:
        """The values of the last reading that succeeded."""
        return self._files.current or self._unread

    def look(self, now: float) -> OnDemandConfig:
        """Return the values; the files are looked at if that is CHECK_SECONDS ago. `now` is monotonic."""
        if not now - self._checked < CHECK_SECONDS:
            self._checked = now
            self._read()
        return self.current

    def reread(self) -> bytes:
        """Read the files; return what is in force, and why they were refused, if they were (queue_wire.admin.settings).
        """
        self._read()
        return pack_in_force(self._files.in_force())

    def _read(self) -> None:
        before = self._files.fault
        try:
            for change in self._files.read():
                complain(PROGRAM, f"config {change}")
        except Temporary as error:
            if str(error) != before:
                complain(PROGRAM, f"alert: {error}; the old values stay until it is mended")


def make_config(values: ControlValues) -> OnDemandConfig:
    """Return the values of the files."""
    return OnDemandConfig(
        values.me,
        b"%s@%s" % (values[registry.BOUNCEFROM], values[registry.BOUNCEHOST]),
        b"%s@%s" % (values[registry.DOUBLEBOUNCETO], values[registry.DOUBLEBOUNCEHOST]),
        values[registry.ONDEMAND],
        values[registry.ETRNINTERVAL],
        values[registry.CLUSTERSIZE],
        limits=join_lines(values[registry.DESTINATIONLIMITS], values[registry.DESTINATIONRATE]),
        concurrency=values[registry.DESTINATIONCONCURRENCY],
    )
