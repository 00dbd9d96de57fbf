"""Control files that say something by nexthop, and how all of them are looked up: smtproutes, tlspolicy and the like.

    domain:value     for the domain itself
    .domain:value    for every name below it
    :value           for everything else

The most particular line counts: the name itself, then what follows each of its dots, with the dot, then the empty
key (qmail-remote(8)). Case and a final dot do not count, and U-labels are the same as their A-labels.
"""

from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from queue_wire.address import ascii_domain
from queue_wire.format_error import FormatError, InLine

Value = TypeVar("Value")


def unpack_hosts(entries: Mapping[bytes, tuple[int, bytes]], unpack: Callable[[bytes], Value]) -> dict[bytes, Value]:
    """Return {key: unpack(value)} for the map of a control file (queue_wire.control.lines.numbered_map).

    Raises LineError for what `unpack` raises FormatError for.
    """
    found = {}
    for key, (number, value) in entries.items():
        with InLine(number):
            found[host_key(key)] = unpack(value)
    return found


def host_key(key: bytes) -> bytes:
    """Return the key of a line as find_key looks for it: in lower case, without a final dot, A-labels."""
    # A key that matches nothing would be passed over without a word, and with it what it asks for.
    key = key.strip(b" \t")
    return _key(key.removesuffix(b".") if len(key) > 1 else key)


def find_key(entries: Container[bytes], host: bytes) -> bytes | None:
    """Return the key of the line that counts for a host, None where there is none."""
    host = _key(host).removesuffix(b".")
    start = 0
    while start >= 0:
        if host[start:] in entries:
            return host[start:]
        start = host.find(b".", start + 1)
    return b"" if b"" in entries else None


def _key(host: bytes) -> bytes:
    if host.isascii():
        return host.lower()
    dot = b"." if host.startswith(b".") else b""
    try:
        return dot + ascii_domain(host.removeprefix(b"."))
    except FormatError:
        # No such domain can exist; its mail fails when it is looked up.
        return host
