"""The control files that queue-send reads, at start and on HUP. Raises Temporary, naming the file."""

from collections.abc import Mapping
from typing import NamedTuple

from queue_base.control import read_line, read_map, read_me, read_number
from queue_base.home import Home


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
    virtualdomains: Mapping[bytes, bytes]


def read_controls(home: Home) -> Controls:
    """Return the values, with qmail's defaults where it has them."""
    me = read_me(home)
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
        virtualdomains=read_map(home, "virtualdomains") or {},
    )
