"""Tells whether a host name or an address is this machine's own, so that mail does not loop."""

import ipaddress
import time

import psutil

from queue_wire.address import address_key

# The list of interfaces changes; reading it takes about 0.2 ms.
REFRESH_SECONDS = 60.0


def own_names(*names: bytes) -> frozenset[bytes]:
    """Return those names, in lower case, that identify this host: not `localhost` or names without a dot."""
    known = {address_key(name) for name in names}
    return frozenset(name for name in known if b"." in name and not name.startswith(b"localhost."))


class ThisHost:
    """This host's name (control/me) and the addresses of its interfaces, read again every REFRESH_SECONDS."""

    def __init__(self, name: bytes) -> None:
        self._name = address_key(name)
        self._addresses: frozenset[str] = frozenset()
        self._read_at = -REFRESH_SECONDS

    def is_name(self, host: bytes) -> bool:
        return address_key(host) == self._name

    def is_address(self, address: str) -> bool:
        """Return whether an IPv4 or IPv6 address is this host's; loopback and unspecified addresses are."""
        now = time.monotonic()
        if now - self._read_at >= REFRESH_SECONDS:
            self._read_at = now
            try:
                self._addresses = _interface_addresses()
            except OSError:
                pass  # Without netlink, as in a sandbox, only names and loopback addresses tell. Mail goes on.
        parsed = ipaddress.ip_address(address)
        # A connection to ::ffff:127.0.0.1 goes to 127.0.0.1.
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return plain.is_loopback or plain.is_unspecified or str(plain) in self._addresses


def _interface_addresses() -> frozenset[str]:
    found = set()
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            # Link-local IPv6 addresses carry their interface, as fe80::1%eth0. Hardware addresses raise ValueError.
            try:
                found.add(str(ipaddress.ip_address(entry.address.partition("%")[0])))
            except ValueError:
                continue
    return frozenset(found)
