"""Whether an address or a host name is this machine's own, so that mail never goes round in a loop."""

import ipaddress
import time

import psutil

# Interfaces come and go; looking costs about 0.2 ms.
REFRESH_SECONDS = 60.0


def own_names(*names: bytes) -> frozenset[bytes]:
    """Return the names, in lower case, by which this host can be told from all others: not `localhost` and the like."""
    known = {name.lower().removesuffix(b".") for name in names}
    return frozenset(name for name in known if b"." in name and not name.startswith(b"localhost."))


class Ourselves:
    """This host's name (control/me, bytes) and addresses, looked up again now and then."""

    def __init__(self, name: bytes) -> None:
        self._name = name.lower()
        self._addresses: frozenset[str] = frozenset()
        self._looked = -REFRESH_SECONDS

    def is_name(self, host: bytes) -> bool:
        return host.lower().removesuffix(b".") == self._name

    def is_address(self, address: str) -> bool:
        """`address` is an IPv4 or IPv6 address as text. Loopback and "any" addresses count as ours."""
        now = time.monotonic()
        if now - self._looked >= REFRESH_SECONDS:
            self._looked = now
            self._addresses = _interface_addresses()
        parsed = ipaddress.ip_address(address)
        # A connection to ::ffff:127.0.0.1 is one to 127.0.0.1.
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return plain.is_loopback or plain.is_unspecified or str(plain) in self._addresses


def _interface_addresses() -> frozenset[str]:
    found = set()
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            # Link-local IPv6 addresses come with their interface, as fe80::1%eth0; hardware addresses fail.
            try:
                found.add(str(ipaddress.ip_address(entry.address.partition("%")[0])))
            except ValueError:
                continue
    return frozenset(found)
