"""The control files of queue-send, read at start and at HUP.

A value that cannot be used is an alert with file, line and range. At the start the default is used in its place, as in
qmail; later all old values stay until the file is mended and HUP comes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from queue_base.control import check_modes, read_control, read_me, read_rules, unable_to_parse
from queue_base.errors import Failure, Temporary
from queue_base.home import Home
from queue_base.limits import ALONE, Limits, LimitTable, QueueShare
from queue_send.log import Log
from queue_send.scheduler.model import Settings
from queue_wire import logline
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
from queue_wire.control.lines import NUMBERS, lines_without_colon, unpack_line, unpack_number
from queue_wire.control.localroutes import UNREADABLE, find_local_route, unpack_local_routes
from queue_wire.control.ondemand import OnDemandLines, unpack_ondemand
from queue_wire.control.priorities import DEFAULT_CLASSES, unpack_priorities
from queue_wire.control.registry import BY_NAME, NO_COLON, OF_QMAIL, describe_changes, is_copy, nearest_name
from queue_wire.control.rewrite import unpack_prepends
from queue_wire.control.schedule import Schedule, unpack_ages, unpack_schedule
from queue_wire.control.smtproutes import Routes, unpack_routes
from queue_wire.format_error import FormatError, InLine, LineError

Value = TypeVar("Value")

WARNINGS_MAX = 20  # Lines without effect, and unknown names, that get a warning each.
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
    priorities: tuple[str, ...]
    bulkshare: int
    retry: Schedule
    routes: Routes
    localroutes: Routes
    virtualdomains: Mapping[bytes, bytes]
    ondemand: OnDemandLines
    # What each file had; None for one that does not exist.
    contents: Mapping[str, bytes | None]

    def settings(self, kind: str, share: QueueShare = ALONE) -> Settings:
        """Return the scheduler's settings for a channel, local or remote; `share` is that of one of several queues."""
        return Settings(
            concurrency=share.channel_part(self.concurrencylocal if kind == "local" else self.concurrencyremote),
            active=self.activelimit,
            limits=self.destinations,
            table=LimitTable(self.lines, self.routes, kind == "local", share),
            bulkshare=self.bulkshare,
            expiry_round=seconds_in_environment("QUEUE_WATCHDOG_ROUND", ROUND),
        )

    @property
    def longest(self) -> int:
        """The longest lifetime of any message."""
        return max(self.queuelifetime, self.bouncelifetime)

    def shown(self, kind: str, address: bytes) -> bytes:
        """Return a recipient of a channel as people know it: without what virtualdomains puts before it."""
        return strip_prepend(address, self.virtualdomains) if kind == "local" else address

    def local_route(self, address: bytes) -> bytes | None:
        """Return the name of the LMTP servers for a local recipient; None if queue-local delivers its mail."""
        if not self.localroutes:
            return None
        servers = find_local_route(self.localroutes, strip_prepend(address, self.virtualdomains))
        return None if servers is None else servers.name

    def lifetime(self, sender: bytes) -> int:
        """Return the lifetime of a message of this sender in seconds; that of bounces is bouncelifetime."""
        return self.bouncelifetime if sender in (b"", DOUBLE_BOUNCE_SENDER) else self.queuelifetime


def read_controls(home: Home, trouble: Callable[[str], None] | None = None) -> SendConfig:
    """Return the values; the defaults are qmail's if it has the file.

    Raises Temporary if a file cannot be read or parsed. If `trouble` is given, it is called with the text instead and
    the default is used, so that an error in one file does not stop all mail; only without `me` Temporary is raised.
    """
    me = read_me(home)
    contents: dict[str, bytes | None] = {"me": read_control(home, "me")}

    def parsed(
        name: str, unpack: Callable[[bytes], Value], default: Value, broken: tuple[Value, str] | None = None
    ) -> Value:
        """Return the value; `broken` is what is used if the file cannot be used, and what that is called."""
        try:
            contents[name] = data = read_control(home, name)
            return default if data is None else unpack(data)
        except FormatError as error:
            failure = unable_to_parse(home, name, error)
        except Temporary as error:
            failure = error
        if trouble is None:
            raise failure
        contents[name] = None
        instead, then = broken or (default, "the default is used")
        trouble(f"{failure}; {then} until it is mended and HUP comes")
        return instead

    def line(name: str, default: bytes) -> bytes:
        return parsed(name, unpack_line, default)

    def number(name: str) -> int:
        return parsed(name, lambda data: unpack_number(data, name), NUMBERS[name][0])

    def schedule(data: bytes) -> Schedule:
        with InLine(1):
            return unpack_schedule(unpack_line(data), jitter)

    def colons(unpack: Callable[[bytes], Value]) -> Callable[[bytes], Value]:
        """Return what refuses a line without a colon, unless this is the start: qmail ignores such lines."""

        def checked(data: bytes) -> Value:
            if trouble is None and (strays := lines_without_colon(data)):
                raise LineError(strays[0], NO_COLON)
            return unpack(data)

        return checked

    percent = number("retryjitter")
    jitter = None if contents["retryjitter"] is None else percent
    retry = parsed("retryschedule", schedule, unpack_schedule(b"quadratic", jitter))
    bouncehost, doublebouncehost = line("bouncehost", me), line("doublebouncehost", me)
    return SendConfig(
        me=me,
        bouncefrom=line("bouncefrom", b"MAILER-DAEMON") + b"@" + bouncehost,
        doublebounceto=line("doublebounceto", b"postmaster") + b"@" + doublebouncehost,
        concurrencylocal=number("concurrencylocal"),
        concurrencyremote=number("concurrencyremote"),
        processesremote=number("processesremote"),
        queuelifetime=number("queuelifetime"),
        bouncelifetime=number("bouncelifetime"),
        delaywarning=parsed("delaywarning", unpack_ages, ()),
        destinations=Limits(
            initial=number("destinationinitial"),
            most=number("destinationconcurrency"),
            cohorts=number("destinationcohorts"),
            recipients=number("destinationrecipients"),
        ),
        lines=join_lines(parsed(LIMITS, unpack_limits, []), parsed(RATES, unpack_rates, [])),
        activelimit=number("activelimit"),
        classifyafter=number("classifyafter"),
        priorities=parsed("priorities", unpack_priorities, DEFAULT_CLASSES),
        bulkshare=number("bulkshare"),
        retry=retry,
        routes=parsed("smtproutes", colons(unpack_routes), {}),
        # queue-local would bounce the mail of those who have no mailbox there.
        localroutes=parsed("localroutes", unpack_local_routes, {}, (UNREADABLE, "local mail is deferred")),
        virtualdomains=parsed("virtualdomains", colons(unpack_prepends), {}),
        ondemand=parsed("ondemand", unpack_ondemand, {}),
        contents=contents,
    )


def find_idle_lines(home: Home, controls: SendConfig) -> Iterator[str]:
    """Yield a warning for each line of destinationlimits and destinationrate that can match nothing."""
    if controls.lines == NO_LINES:
        return
    try:
        rules = read_rules(home)
    except Temporary:
        return  # queue-todo logs what is wrong with them.
    found = list(warn_of(controls.lines, controls.routes, rules, controls.localroutes))
    for where, why in found[:WARNINGS_MAX]:
        yield f"unable to use control/{where}: {why}; the line has no effect"
    if len(found) > WARNINGS_MAX:
        yield f"{len(found) - WARNINGS_MAX} more lines of control/{LIMITS} and control/{RATES} have no effect"


def seconds_in_environment(name: str, default: float) -> float:
    """Return the number of seconds that an environment variable has, at least 0.01; the default if it has none."""
    try:
        return max(0.01, float(os.environ.get(name, default)))
    except ValueError:
        return default


def find_strange_values(home: Home, controls: SendConfig) -> Iterator[str]:
    """Yield a warning for each value that may be a mistake, and each file that is probably a misspelt one."""
    for name, kind in (("concurrencylocal", "local"), ("concurrencyremote", "remote")):
        if controls.contents[name] is not None and getattr(controls, name) == 0:
            yield f"control/{name} is 0: no {kind} delivery starts until it is more and HUP comes"
    for name in find_misspelt(os.listdir(home.control)):
        yield f"unable to use control/{name}: there is no such control file; the nearest name is {nearest_name(name)}"


def find_misspelt(names: Iterable[str]) -> list[str]:
    """Return the names that are no control file, but look like one; at most WARNINGS_MAX."""
    strange = [name for name in sorted(names) if name not in BY_NAME and name not in OF_QMAIL and not is_copy(name)]
    return [name for name in strange[: 10 * WARNINGS_MAX] if nearest_name(name) is not None][:WARNINGS_MAX]


class ConfigFiles:
    """The control files as they were read last: `current`. `share` is the part of their limits that this queue has."""

    def __init__(self, home: Home, log: Log) -> None:
        """Read the files. Raises Temporary if there is no `me`; trouble with another file is an alert."""
        self._home = home
        self._log = log
        self.share = ALONE
        self.current = read_controls(home, log.alert)
        for name in ("smtproutes", "virtualdomains"):
            for number in lines_without_colon(self.current.contents[name] or b"")[:1]:
                log.alert(f"unable to use {home.control}/{name} line {number}: {NO_COLON}")
        self._warn()

    def settings(self, kind: str) -> Settings:
        """Return the scheduler's settings for a channel: the part that this queue has."""
        return self.current.settings(kind, self.share)

    def reread(self) -> str:
        """Read the files again, after HUP, and log what has changed; return what is wrong, empty if nothing is.

        If one cannot be used, it logs an alert and keeps all old values.
        """
        old = self.current
        try:
            check_modes(self._home)
            self.current = read_controls(self._home)
        except Failure as error:
            self._log.alert(f"unable to reread controls: {error}; the old ones stay")
            return str(error)
        changes = describe_changes(old.contents, self.current.contents)
        for change in changes or ["unchanged"]:
            self._log.put(logline.config_change(change))
        self._warn()
        return ""

    def _warn(self) -> None:
        for line in [*find_idle_lines(self._home, self.current), *find_strange_values(self._home, self.current)]:
            self._log.warning(line)
        if self.current.routes:
            # Loads the tables for domains beyond ASCII now: it takes 20 ms, too long for a turn of the loop.
            ascii_domain("\u00e4.example".encode())
