"""The control files of queue-send, read at start and at HUP.

A value that cannot be used is an alert with file, line and range. At the start the default is used in its place, as in
qmail; later all old values stay until the file is mended and HUP comes.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from queue_base.control import check_modes
from queue_base.control_files import ControlValues, find_slips, kept_by, read_contents, read_rules, refuse_slips
from queue_base.errors import Failure, Temporary
from queue_base.home import Home
from queue_base.limits import ALONE, Limits, LimitTable, QueueShare
from queue_send.log import Log
from queue_send.scheduler.model import Settings
from queue_wire import logline
from queue_wire.address import DOUBLE_BOUNCE_SENDER, ascii_domain, strip_prepend
from queue_wire.control import registry
from queue_wire.control.destinationlimits import LIMITS, NO_LINES, RATES, LimitLines, join_lines, warn_of
from queue_wire.control.localroutes import UNREADABLE, find_local_route
from queue_wire.control.ondemand import OnDemandLines
from queue_wire.control.registry import BY_NAME, OF_QMAIL, describe_changes, is_copy, nearest_name
from queue_wire.control.schedule import Schedule, unpack_retry
from queue_wire.control.smtproutes import Routes

_CONCURRENCY = {"local": registry.CONCURRENCYLOCAL, "remote": registry.CONCURRENCYREMOTE}
WARNINGS_MAX = 20  # Lines without effect, and unknown names, that get a warning each.
# Seconds between rounds of the watchdog, and of the search for expired mail. QUEUE_WATCHDOG_ROUND sets another number.
ROUND = 60.0


class SendConfig(NamedTuple):
    """What is made of the control files (qmail-send(8)), all `values` together; addresses are bytes, times seconds."""

    values: ControlValues
    me: bytes
    bouncefrom: bytes
    doublebounceto: bytes
    delaywarning: tuple[int, ...]
    classifyafter: int
    concurrencylocal: int
    destinations: Limits
    lines: LimitLines
    priorities: tuple[str, ...]
    retry: Schedule
    routes: Routes
    localroutes: Routes
    virtualdomains: Mapping[bytes, bytes]
    ondemand: OnDemandLines

    def settings(self, kind: str, share: QueueShare = ALONE) -> Settings:
        """Return the scheduler's settings for a channel, local or remote; `share` is that of one of several queues."""
        return Settings(
            concurrency=share.channel_part(self.values[_CONCURRENCY[kind]]),
            active=self.values[registry.ACTIVELIMIT],
            limits=self.destinations,
            table=LimitTable(self.lines, self.routes, kind == "local", share),
            bulkshare=self.values[registry.BULKSHARE],
            expiry_round=seconds_in_environment("QUEUE_WATCHDOG_ROUND", ROUND),
        )

    @property
    def longest(self) -> int:
        """The longest lifetime of any message."""
        return max(self.values[registry.QUEUELIFETIME], self.values[registry.BOUNCELIFETIME])

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
        return self.values[registry.BOUNCELIFETIME if sender in (b"", DOUBLE_BOUNCE_SENDER) else registry.QUEUELIFETIME]


# Those that queue-send keeps. queue-start reads the first one: a change of it is a warning.
KEPT = (registry.PROCESSESREMOTE, registry.PRIORITIES, *kept_by("queue-send"))


def read_controls(home: Home, alert: Callable[[str], None] | None = None) -> SendConfig:
    """Return the values; the defaults are qmail's if it has the file.

    Raises Temporary if a file cannot be read or parsed. If `alert` is given, it is called with the text instead and the
    default is used, so that an error in one file does not stop all mail; only without `me` Temporary is raised.
    """
    broken = []

    def trouble(name: str, error: Temporary) -> None:
        if alert is None or name == "me":
            raise error
        broken.append(name)
        # queue-local would bounce the mail of those who have no mailbox there.
        fate = "local mail is deferred" if name == "localroutes" else "the default is used"
        alert(f"{error}; {fate} until it is mended and HUP comes")

    values = ControlValues(home, KEPT, read_contents(home, KEPT, trouble), trouble)
    values.contents.update(dict.fromkeys(broken))
    if alert is None:
        refuse_slips(home, values.contents)
    jitter = None if values.contents["retryjitter"] is None else values[registry.RETRYJITTER]
    return SendConfig(
        values=values,
        me=values.me,
        bouncefrom=values[registry.BOUNCEFROM] + b"@" + values[registry.BOUNCEHOST],
        doublebounceto=values[registry.DOUBLEBOUNCETO] + b"@" + values[registry.DOUBLEBOUNCEHOST],
        delaywarning=values[registry.DELAYWARNING],
        classifyafter=values[registry.CLASSIFYAFTER],
        concurrencylocal=values[registry.CONCURRENCYLOCAL],
        destinations=Limits(
            initial=values[registry.DESTINATIONINITIAL],
            most=values[registry.DESTINATIONCONCURRENCY],
            cohorts=values[registry.DESTINATIONCOHORTS],
            recipients=values[registry.DESTINATIONRECIPIENTS],
        ),
        lines=join_lines(values[registry.DESTINATIONLIMITS], values[registry.DESTINATIONRATE]),
        priorities=values[registry.PRIORITIES],
        retry=unpack_retry(values.contents["retryschedule"] or b"", jitter),
        routes=values[registry.SMTPROUTES],
        localroutes=UNREADABLE if "localroutes" in broken else values[registry.LOCALROUTES],
        virtualdomains=values[registry.VIRTUALDOMAINS],
        ondemand=values[registry.ONDEMAND],
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
    for kind, file in _CONCURRENCY.items():
        if not controls.values[file]:
            yield f"control/{file.name} is 0: no {kind} delivery starts until it is more and HUP comes"
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
        for name, error in find_slips(self.current.values.contents):
            log.alert(f"unable to use {home.control}/{name} {error}")
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
        changes = describe_changes(old.values.contents, self.current.values.contents)
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
