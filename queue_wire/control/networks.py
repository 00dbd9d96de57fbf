"""Lists of networks, one a line, such as `relayclients`, and the networks that limits count by. Pure.

A line is an address, or an address and a prefix length: `192.0.2.0/24`, `2001:db8::/32`. An IPv4 address that comes as
IPv6 (`::ffff:192.0.2.1`) is the IPv4 address.
"""

import ipaddress
from functools import lru_cache

from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, quoted

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Whoever gets an IPv6 address has 2 ** 64 of them.
_PREFIXES_OF_ONE = {4: 32, 6: 64}
_PREFIXES_OF_MANY = {4: 24, 6: 48}
# A server looks at the address of a client again and again, and to parse it takes 20 microseconds.
_CLIENTS_KEPT = 4096


def unpack_networks(data: bytes) -> tuple[Network, ...]:
    """Return the networks of a control file. Raises LineError, also for an address that has bits behind its prefix."""
    found = []
    for number, line in numbered_lines(data):
        with InLine(number):
            found.append(unpack_network(line))
    return tuple(found)


def unpack_network(text: bytes) -> Network:
    """Return a network. Raises FormatError."""
    try:
        return ipaddress.ip_network(text.decode("ascii"))
    except (UnicodeDecodeError, ValueError) as error:
        raise FormatError(f"not an address or network: {quoted(text)}") from error


@lru_cache(_CLIENTS_KEPT)
def unpack_ip(text: str) -> Address | None:
    """Return an address, None if the text is none, as that of a Unix socket."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_listed(address: str, networks: tuple[Network, ...]) -> bool:
    """Return whether an address is in one of the networks."""
    found = unpack_ip(address)
    return found is not None and any(found.version == one.version and found in one for one in networks)


@lru_cache(_CLIENTS_KEPT)
def counted_networks(address: str) -> tuple[str, str]:
    """Return what limits count a client by: its own network (/32, /64), and the one around it (/24, /48)."""
    found = unpack_ip(address)
    if found is None:
        return address, address
    return _around(found, _PREFIXES_OF_ONE[found.version]), _around(found, _PREFIXES_OF_MANY[found.version])


def _around(address: Address, prefix: int) -> str:
    return str(ipaddress.ip_network(f"{address}/{prefix}", False))
