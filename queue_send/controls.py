"""The control files that queue-send reads, at start and on HUP. Raises Temporary, naming the file."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from queue_base.control import read_line, read_lines, read_map, read_me, read_number
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_send.delay_ages import unpack_ages
from queue_send.destination import Limits
from queue_send.events import Settings
from queue_send.rates import Rate, unpack_rates
from queue_send.retry import QUADRATIC, Schedule, unpack_schedule
from queue_wire.address import DOUBLE_BOUNCE_SENDER
from queue_wire.errors import FormatError
from queue_wire.smtproutes import Routes, unpack_routes

Value = TypeVar("Value")

RECIPIENTS_MOST = 1000  # In one job; with addresses of 1,002 bytes that is a job of 1 MB.


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
    destinationrecipients: int
    destinationrate: Mapping[bytes, Rate]
    destinations: Limits
    activelimit: int
    retry: Schedule
    routes: Routes
    virtualdomains: Mapping[bytes, bytes]

    def settings(self, kind: str) -> Settings:
        """Return the limits of a channel, local or remote."""
        return Settings(
            concurrency=self.concurrencylocal if kind == "local" else self.concurrencyremote,
            active=self.activelimit,
            recipients=self.destinationrecipients,
            limits=self.destinations,
            rates=self.destinationrate,
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
            failure = Temporary(f"unable to parse {home.control}/{name}: {error}")
        except Temporary as error:
            failure = error
        if trouble is None:
            raise failure
        trouble(f"{failure}; the default is used until it is mended and HUP comes")
        return default

    def line(name: str, default: bytes) -> bytes:
        return value(name, lambda name: read_line(home, name, default), default)

    def number(name: str, default: int, least: int = 0) -> int:
        return max(least, value(name, lambda name: read_number(home, name, default), default))

    def schedule(name: str) -> Schedule:
        jitter = number("retryjitter", -1, -1)
        return unpack_schedule(read_line(home, name, b"quadratic"), None if jitter < 0 else jitter)

    bouncehost, doublebouncehost = line("bouncehost", me), line("doublebouncehost", me)
    return Controls(
        me=me,
        bouncefrom=line("bouncefrom", b"MAILER-DAEMON") + b"@" + bouncehost,
        doublebounceto=line("doublebounceto", b"postmaster") + b"@" + doublebouncehost,
        concurrencylocal=number("concurrencylocal", 10),
        concurrencyremote=number("concurrencyremote", 250),
        queuelifetime=number("queuelifetime", 604800),
        bouncelifetime=number("bouncelifetime", 86400),
        delaywarning=value("delaywarning", lambda name: unpack_ages(read_lines(home, name) or []), ()),
        destinationrecipients=min(number("destinationrecipients", 50, 1), RECIPIENTS_MOST),
        destinationrate=value("destinationrate", lambda name: unpack_rates(read_lines(home, name) or []), {}),
        destinations=Limits(
            initial=number("destinationinitial", 2, 1),
            most=number("destinationconcurrency", 20, 1),
            cohorts=number("destinationcohorts", 3, 1),
        ),
        activelimit=number("activelimit", 20000, 1),
        retry=value("retryschedule", schedule, QUADRATIC),
        routes=value("smtproutes", lambda name: unpack_routes(read_map(home, name) or {}), {}),
        virtualdomains=value("virtualdomains", lambda name: read_map(home, name) or {}, {}),
    )
