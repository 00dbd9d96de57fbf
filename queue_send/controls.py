"""The control files that queue-send reads, at start and on HUP. Raises Temporary, naming the file."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from queue_base.control import read_line, read_lines, read_map, read_me, read_number
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_send.destination import Limits
from queue_send.rates import Rate, unpack_rates
from queue_send.retry import Schedule, unpack_schedule
from queue_wire.errors import FormatError
from queue_wire.smtproutes import Routes, unpack_routes

Value = TypeVar("Value")


class Controls(NamedTuple):
    """Values of the control files (qmail-send(8)); times in seconds, addresses as bytes."""

    me: bytes
    bouncefrom: bytes
    doublebounceto: bytes
    concurrencylocal: int
    concurrencyremote: int
    queuelifetime: int
    bouncelifetime: int
    destinationrecipients: int
    destinationrate: Mapping[bytes, Rate]
    destinations: Limits
    activelimit: int
    retry: Schedule
    routes: Routes
    virtualdomains: Mapping[bytes, bytes]


def read_controls(home: Home) -> Controls:
    """Return the values, with qmail's defaults where it has them."""
    me = read_me(home)
    rates = read_lines(home, "destinationrate") or []
    bouncehost = read_line(home, "bouncehost", me)
    doublebouncehost = read_line(home, "doublebouncehost", me)
    return Controls(
        me=me,
        bouncefrom=read_line(home, "bouncefrom", b"MAILER-DAEMON") + b"@" + bouncehost,
        doublebounceto=read_line(home, "doublebounceto", b"postmaster") + b"@" + doublebouncehost,
        concurrencylocal=read_number(home, "concurrencylocal", 10),
        concurrencyremote=read_number(home, "concurrencyremote", 120),
        queuelifetime=read_number(home, "queuelifetime", 604800),
        bouncelifetime=read_number(home, "bouncelifetime", 86400),
        destinationrecipients=max(1, read_number(home, "destinationrecipients", 50)),
        destinationrate=_parse(home, "destinationrate", lambda: unpack_rates(rates)),
        destinations=Limits(
            initial=max(1, read_number(home, "destinationinitial", 2)),
            most=max(1, read_number(home, "destinationconcurrency", 20)),
            cohorts=max(1, read_number(home, "destinationcohorts", 3)),
        ),
        activelimit=max(1, read_number(home, "activelimit", 20000)),
        retry=_read_schedule(home),
        routes=_parse(home, "smtproutes", lambda: unpack_routes(read_map(home, "smtproutes") or {})),
        virtualdomains=read_map(home, "virtualdomains") or {},
    )


def _read_schedule(home: Home) -> Schedule:
    jitter = read_number(home, "retryjitter", -1)
    line = read_line(home, "retryschedule", b"quadratic")
    return _parse(home, "retryschedule", lambda: unpack_schedule(line, None if jitter < 0 else jitter))


def _parse(home: Home, name: str, parse: Callable[[], Value]) -> Value:
    """Return what `parse` does; a file that cannot be parsed is Temporary and is named."""
    try:
        return parse()
    except FormatError as error:
        raise Temporary(f"unable to parse {home.control}/{name}: {error}") from error
