"""What queue-ondemand reads from control/. A change is noticed within a second, when there is something to do.

While one of the files cannot be used, there is an alert, and the values of the last reading stay in force. If there was
none, what is stored stays: it must neither expire by another time than its own, nor go by the DNS to the host of a
domain that is to fetch it. Other mail is tried as if no domain was an on-demand one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from queue_base.control import read_control, read_me, unable_to_parse
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.admin.settings import in_force, pack_in_force
from queue_wire.control.destinationlimits import NO_LINES as NO_LIMITS
from queue_wire.control.destinationlimits import LimitLines, join_lines, unpack_limits, unpack_rates
from queue_wire.control.lines import NUMBERS, SIZES, unpack_line, unpack_number, unpack_size
from queue_wire.control.ondemand import DAY, OnDemandLine, OnDemandLines, unpack_ondemand
from queue_wire.control.registry import describe_changes
from queue_wire.format_error import FormatError

PROGRAM = "queue-ondemand"
NAMES = (
    "me", "ondemand", "etrninterval", "clustersize", "bouncefrom", "bouncehost", "doublebounceto", "doublebouncehost"
)  # fmt: skip
# Those of destinations, which runs obey.
LIMITS = ("destinationconcurrency", "destinationlimits", "destinationrate")
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
    interval: int = NUMBERS["etrninterval"][0]
    cluster_size: int = SIZES["clustersize"][0]
    limits: LimitLines = NO_LIMITS
    concurrency: int = NUMBERS["destinationconcurrency"][0]
    known: bool = True

    def line(self, domain: bytes) -> OnDemandLine:
        """Return what is said of a domain, or what holds for one that has stored mail and no line any more."""
        return self.lines.get(domain) or (_NO_LINE if self.known else _UNREAD)


class OnDemandFiles:
    """The control files as they were read last: `current`."""

    def __init__(self, home: Home) -> None:
        """Read the files. Raises Temporary if there is no `me`."""
        self._home = home
        self._contents: dict[str, bytes | None] = {}
        self._fault = ""
        self._checked = 0.0
        me = read_me(home)
        self.current = OnDemandConfig(me, b"MAILER-DAEMON@" + me, b"postmaster@" + me, known=False)
        self._read()

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
        return pack_in_force(in_force(self._contents, self._fault))

    def _read(self) -> None:
        try:
            contents = {name: read_control(self._home, name) for name in (*NAMES, *LIMITS)}
            if contents == self._contents:
                self._fault = ""
                return
            found = _unpack_contents(self._home, read_me(self._home), contents)
        except Temporary as error:
            if str(error) != self._fault:
                self._fault = str(error)
                complain(PROGRAM, f"alert: {error}; the old values stay until it is mended")
            return
        if self._contents:
            for change in describe_changes(self._contents, contents):
                complain(PROGRAM, f"config {change}")
        self._contents, self.current, self._fault = contents, found, ""


def _unpack_contents(home: Home, me: bytes, contents: Mapping[str, bytes | None]) -> OnDemandConfig:
    lines: OnDemandLines = NO_LINES
    interval, cluster_size = NUMBERS["etrninterval"][0], SIZES["clustersize"][0]
    concurrency = NUMBERS["destinationconcurrency"][0]
    limits, rates = unpack_limits(b""), unpack_rates(b"")
    words = {"bouncefrom": b"MAILER-DAEMON", "bouncehost": me, "doublebounceto": b"postmaster", "doublebouncehost": me}
    for name, data in contents.items():
        if data is None or name == "me":
            continue
        try:
            if name == "ondemand":
                lines = unpack_ondemand(data)
            elif name == "etrninterval":
                interval = unpack_number(data, name)
            elif name == "clustersize":
                cluster_size = unpack_size(data, name)
            elif name == "destinationconcurrency":
                concurrency = unpack_number(data, name)
            elif name == "destinationlimits":
                limits = unpack_limits(data)
            elif name == "destinationrate":
                rates = unpack_rates(data)
            else:
                words[name] = unpack_line(data)
        except FormatError as error:
            raise unable_to_parse(home, name, error) from error
    return OnDemandConfig(
        me,
        b"%s@%s" % (words["bouncefrom"], words["bouncehost"]),
        b"%s@%s" % (words["doublebounceto"], words["doublebouncehost"]),
        lines,
        interval,
        cluster_size,
        limits=join_lines(limits, rates),
        concurrency=concurrency,
    )
