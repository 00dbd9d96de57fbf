"""`control/intake`: where queue-intake listens for hosts of the network, and which of them may hand in mail. Pure.

    ADDRESS:PORT PROTOCOL NETWORK...

ADDRESS is an IPv4 address, an IPv6 address in brackets, or `*` for both. PROTOCOL is `qmtp` (port 209) or `qmqp` (port
628). A NETWORK is an address, or an address and a prefix length: `192.0.2.0/24`, `2001:db8::/32`. There must be one:
these hosts may send mail to everybody.
"""

from typing import NamedTuple

from queue_wire.control.lines import line_words, numbered_lines
from queue_wire.control.networks import Network, unpack_network
from queue_wire.control.places import ListeningPlace, unpack_place
from queue_wire.format_error import FormatError, InLine, quoted

QMTP, QMQP = "qmtp", "qmqp"
# Each takes a descriptor, and queue-start passes them on below the number 64.
LISTENERS_MAX = 32


class IntakeListener(NamedTuple):
    """One line. `protocol` is QMTP or QMQP."""

    place: ListeningPlace
    protocol: str
    networks: tuple[Network, ...]


def unpack_intake(data: bytes) -> list[IntakeListener]:
    """Return the listeners in their order. Raises LineError, also for a place that stands twice."""
    found: list[IntakeListener] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            listener = unpack_listener(line)
            if listener.place in [one.place for one in found]:
                raise FormatError(f"a second listener for {listener.place}")
            if len(found) == LISTENERS_MAX:
                raise FormatError(f"more than {LISTENERS_MAX} listeners")
            found.append(listener)
    return found


def unpack_listener(line: bytes) -> IntakeListener:
    """Return one listener. Raises FormatError."""
    place, *words = line_words(line)
    found = unpack_place(place)
    if not words or words[0] not in (QMTP.encode(), QMQP.encode()):
        raise FormatError(f"no protocol, {QMTP} or {QMQP}: {quoted(line)}")
    if not words[1:]:
        raise FormatError(f"no networks, such as 192.0.2.0/24: {quoted(line)}")
    return IntakeListener(found, words[0].decode(), tuple(map(unpack_network, words[1:])))
