"""Where a server listens: `ADDRESS:PORT`, the first word of the lines of control files such as `smtpd`. Pure.

ADDRESS is an IPv4 address, an IPv6 address in brackets, or `*` for both.
"""

import re
from typing import NamedTuple

from queue_wire.control.networks import unpack_ip
from queue_wire.format_error import FormatError, quoted

_PLACE = re.compile(rb"(\*|[0-9.]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
EVERYWHERE = "*"


class ListeningPlace(NamedTuple):
    """A place. `address` is without brackets, and in its usual form; EVERYWHERE is `*`."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def unpack_place(word: bytes) -> ListeningPlace:
    """Return a place. Raises FormatError."""
    match = _PLACE.fullmatch(word)
    if match is None:
        raise FormatError(f"not ADDRESS:PORT: {quoted(word)}")
    text, port = match[1].decode(), int(match[2])
    address = unpack_ip(text.strip("[]"))
    # An IPv4 address in brackets, or one mapped into IPv6, is that of no listener.
    found = text if text == EVERYWHERE else str(address) if address and (address.version == 6) == ("[" in text) else ""
    if not 0 < port < 65536 or not found:
        raise FormatError(f"no such address or port: {quoted(word)}")
    return ListeningPlace(found, port)
