"""The control files of queue-send, read at start and at HUP."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from queue_base.control import read_line, read_map, read_me, read_number, read_parsed, read_rules, unable_to_parse
from queue_base.errors import Failure, Temporary
from queue_base.home import Home
from queue_send.log import Log
from queue_send.notify.delay_ages import unpack_ages
from queue_send.scheduler.limits import Limits, LimitTable
from queue_send.scheduler.model import Settings
from queue_send.scheduler.retry import QUADRATIC, Schedule, unpack_schedule
from queue_wire.address import DOUBLE_BOUNCE_SENDER, ascii_domain, strip_prepend
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

WARNINGS_MOST = 20  # LimitLines without effect that get a warning each.
# Seconds between rounds of the watchdog, and of the search for expired mail. QUEUE_WATCHDOG_ROUND sets another number.
ROUND = 60.0


class SendConfig(NamedTuple):
    """The values of the control files (qmail-send(8)); times in seconds, addresses as bytes."""

    me: bytes
    bouncefrom: bytes
    doublebounceto: bytes
    concurrencylocal: int
    concurrencyremote: int
    processesremote: int
    queuelifetime: int
    bouncelifetime: int
    delaywarning: tuple[int, ...]
    destinations: Limits
    lines: LimitLines
    activelimit: int
    classifyafter: int
    retry: Schedule
    routes: Routes
    virtualdomains: Mapping[bytes, bytes]

    def settings(self, kind: str) -> Settings:
        """Returns the scheduler's settings for a channel, local or remote."""
        return Settings(
            concurrency=self.concurrencylocal if kind == "local" else self.concurrencyremote,
            active=self.activelimit,
            limits=self.destinations,
            table=LimitTable(self.lines, self.routes, kind == "local"),
            expiry_round=seconds_in_environment("QUEUE_WATCHDOG_ROUND", ROUND),
        )

    @property
    def longest(self) -> int:
        """The longest lifetime of any message."""
        return max(self.queuelifetime, self.bouncelifetime)

    def shown(self, kind: str, address: bytes) -> bytes:
        """Returns a recipient of a channel as people know it: without what virtualdomains puts before it."""
        return strip_prepend(address, self.virtualdomains) if kind == "local" else address

    def lifetime(self, sender: bytes) -> int:
        """Returns the lifetime of a message of this sender in seconds; that of bounces is bouncelifetime."""
        return self.bouncelifetime if sender in (b"", DOUBLE_BOUNCE_SENDER) else self.queuelifetime


def read_controls(home: Home, trouble: Callable[[str], None] | None = None) -> SendConfig:
    """Returns the values; the defaults are qmail's if it has the file.

    Raises Temporary if a file cannot be read or parsed. If `trouble` is given, it is called with the text instead and
    the default is used, so that an error in one file does not stop all mail; only without `me` Temporary is raised.
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
    return SendConfig(
        me=me,
        bouncefrom=line("bouncefrom", b"MAILER-DAEMON") + b"@" + bouncehost,
        doublebounceto=line("doublebounceto", b"postmaster") + b"@" + doublebouncehost,
        concurrencylocal=number("concurrencylocal", 10),
        concurrencyremote=number("concurrencyremote", 250),
        processesremote=number("processesremote", 1),
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
        classifyafter=number("classifyafter", 1),
        retry=value("retryschedule", schedule, QUADRATIC),
        routes=parsed("smtproutes", unpack_routes, {}),
        virtualdomains=value("virtualdomains", lambda name: read_map(home, name) or {}, {}),
    )


def find_idle_lines(home: Home, controls: SendConfig) -> Iterator[str]:
    """Yields a warning for each line of destinationlimits and destinationrate that can match nothing."""
    if controls.lines == NO_LINES:
        return
    try:
        rules = read_rules(home)
    except Temporary:
        return  # queue-todo logs what is wrong with them.
    found = list(warn_of(controls.lines, controls.routes, rules))
    for where, why in found[:WARNINGS_MOST]:
        yield f"unable to use control/{where}: {why}; the line has no effect"
    if len(found) > WARNINGS_MOST:
        yield f"{len(found) - WARNINGS_MOST} more lines of control/{LIMITS} and control/{RATES} have no effect"


def seconds_in_environment(name: str, default: float) -> float:
    """Returns the number of seconds that an environment variable has, at least 0.01; the default if it has none."""
    try:
        return max(0.01, float(os.environ.get(name, default)))
    except ValueError:
        return default


class ConfigFiles:
    """The control files as they were read last: `current`."""

    def __init__(self, home: Home, log: Log) -> None:
        """Reads the files. Raises Temporary if there is no `me`; trouble with another file is an alert."""
        self._home = home
        self._log = log
        self.current = read_controls(home, log.alert)
        self._warn()

    def reread(self) -> None:
        """Reads the files again, after HUP; if one cannot be read, logs an alert and keeps the old values."""
        try:
            self.current = read_controls(self._home)
        except Failure as error:
            self._log.alert(f"unable to reread controls: {error}; the old ones stay")
        else:
            self._warn()

    def _warn(self) -> None:
        for line in find_idle_lines(self._home, self.current):
            self._log.warning(line)
        if self.current.routes:
            # Loads the tables for domains beyond ASCII now: it takes 20 ms, too long for a turn of the loop.
            ascii_domain("\u00e4.example".encode())
