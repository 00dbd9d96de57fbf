"""The control files that queue-send reads, at start and on HUP. Raises Temporary, naming the file."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from queue_base.control import read_line, read_map, read_me, read_number, read_parsed, unable_to_parse
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.rules import read_rules
from queue_send.delay_ages import unpack_ages
from queue_send.destination import Limits
from queue_send.events import Settings
from queue_send.named import Named
from queue_send.retry import QUADRATIC, Schedule, unpack_schedule
from queue_wire.address import DOUBLE_BOUNCE_SENDER
from queue_wire.control.destinationlimits import (
    LIMITS,
    NO_LINES,
    RATES,
    LimitLines,
    join_lines,
    unpack_limits,
    unpack_rates,
    warn_of,
)
from queue_wire.control.smtproutes import Routes, unpack_routes
from queue_wire.format_error import FormatError, LineError

Value = TypeVar("Value")

WARNINGS_MOST = 20  # Lines that are warned of one by one.


class Controls(NamedTuple):
    """Values of the control files (qmail-send(8)); times in seconds, addresses as bytes."""

    me: bytes
    bouncefrom: bytes
    doublebounceto: bytes
    concurrencylocal: int
    concurrencyremote: int
    queuelifetime: int
    bouncelifetime: int
    delaywarning: tuple[int, ...]
    destinations: Limits
    lines: LimitLines
    activelimit: int
    retry: Schedule
    routes: Routes
    virtualdomains: Mapping[bytes, bytes]

    def settings(self, kind: str) -> Settings:
        """Return the limits of a channel, local or remote."""
        return Settings(
            concurrency=self.concurrencylocal if kind == "local" else self.concurrencyremote,
            active=self.activelimit,
            limits=self.destinations,
            named=Named(self.lines, self.routes, kind == "local"),
        )

    @property
    def longest(self) -> int:
        """The lifetime that no message goes beyond, whoever sent it."""
        return max(self.queuelifetime, self.bouncelifetime)

    def lifetime(self, sender: bytes) -> int:
        """Return for how many seconds a message of this sender is tried; bounces have a time of their own."""
        return self.bouncelifetime if sender in (b"", DOUBLE_BOUNCE_SENDER) else self.queuelifetime


def read_controls(home: Home, trouble: Callable[[str], None] | None = None) -> Controls:
    """Return the values, with qmail's defaults where it has them.

    A file that cannot be read or parsed is Temporary; or, where `trouble` is given, it is told of it and the default
    counts, so that a slip in one file keeps no mail from moving. Without `me` there is nothing to go on with.
    """
    me = read_me(home)

    def value(name: str, read: Callable[[str], Value], default: Value) -> Value:
        try:
            return read(name)
        except FormatError as error:
            failure = unable_to_parse(home, name, error)
        except Temporary as error:
            failure = error
        if trouble is None:
            raise failure
        trouble(f"{failure}; the default is used until it is mended and HUP comes")
        return default

    def parsed(name: str, unpack: Callable[[bytes], Value], default: Value) -> Value:
        def read(name: str) -> Value:
            found = read_parsed(home, name, unpack)
            return default if found is None else found

        return value(name, read, default)

    def line(name: str, default: bytes) -> bytes:
        return value(name, lambda name: read_line(home, name, default), default)

    def number(name: str, default: int, least: int = 0) -> int:
        return max(least, value(name, lambda name: read_number(home, name, default), default))

    def schedule(name: str) -> Schedule:
        jitter = number("retryjitter", -1, -1)
        line = read_line(home, name, b"quadratic")
        try:
            return unpack_schedule(line, None if jitter < 0 else jitter)
        except FormatError as error:
            raise LineError(1, str(error)) from error

    bouncehost, doublebouncehost = line("bouncehost", me), line("doublebouncehost", me)
    return Controls(
        me=me,
        bouncefrom=line("bouncefrom", b"MAILER-DAEMON") + b"@" + bouncehost,
        doublebounceto=line("doublebounceto", b"postmaster") + b"@" + doublebouncehost,
        concurrencylocal=number("concurrencylocal", 10),
        concurrencyremote=number("concurrencyremote", 250),
        queuelifetime=number("queuelifetime", 604800),
        bouncelifetime=number("bouncelifetime", 86400),
        delaywarning=parsed("delaywarning", unpack_ages, ()),
        destinations=Limits(
            initial=number("destinationinitial", 2),
            most=number("destinationconcurrency", 20),
            cohorts=number("destinationcohorts", 3),
            recipients=number("destinationrecipients", 50),
        ),
        lines=join_lines(parsed(LIMITS, unpack_limits, []), parsed(RATES, unpack_rates, [])),
        activelimit=number("activelimit", 20000, 1),
        retry=value("retryschedule", schedule, QUADRATIC),
        routes=parsed("smtproutes", unpack_routes, {}),
        virtualdomains=value("virtualdomains", lambda name: read_map(home, name) or {}, {}),
    )


def find_idle_lines(home: Home, controls: Controls) -> Iterator[str]:
    """Yield a warning for each line of destinationlimits and destinationrate that can match nothing."""
    if controls.lines == NO_LINES:
        return
    try:
        rules = read_rules(home)
    except Temporary:
        return  # queue-todo says what is wrong with them.
    found = list(warn_of(controls.lines, controls.routes, rules))
    for where, why in found[:WARNINGS_MOST]:
        yield f"unable to use control/{where}: {why}; the line has no effect"
    if len(found) > WARNINGS_MOST:
        yield f"{len(found) - WARNINGS_MOST} more lines of control/{LIMITS} and control/{RATES} have no effect"
