"""Control files with a value for each nexthop, such as smtproutes and tlspolicy, and the lookup in them.

    domain:value     for the domain itself
    .domain:value    for all names below it
    :value           for all other names

The most specific line is used: that of the name, then those of its parents, from the longest to the shortest, each with
its leading dot, then that with the empty key (qmail-remote(8)). Case and a final dot are ignored, and U-labels are
equal to their A-labels.
"""

import re
from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from queue_wire.address import address_key, domain_key
from queue_wire.control.lines import unpack_lines
from queue_wire.format_error import FormatError, InLine, quoted

Value = TypeVar("Value")

_HOST = re.compile(rb"[!-~]*")


def unpack_hosts(entries: Mapping[bytes, tuple[int, bytes]], unpack: Callable[[bytes], Value]) -> dict[bytes, Value]:
    """Return {key: unpack(value)} for the map of a control file (queue_wire.control.lines.numbered_map).

    Raises LineError for a key that no host has, and if `unpack` raises FormatError.
    """
    found = {}
    for key, (number, value) in entries.items():
        with InLine(number):
            refuse_impossible(key.strip(b" \t"))
            found[host_key(key)] = unpack(value)
    return found


def unpack_host_set(data: bytes) -> frozenset[bytes]:
    """Return the lines of rcpthosts: domains, and `.domain` for all names below one, as find_key looks them up."""
    return frozenset([host_key(line) for line in unpack_lines(data)])


def refuse_impossible(key: bytes) -> None:
    """Raise FormatError for a key, a host or an address, that can match nothing because of bytes in its host.

    Without that a no-break space, which nobody sees, would take all effect from a line.
    """
    host = address_key(key).rpartition(b"@")[2]
    if not _HOST.fullmatch(host):
        raise FormatError(f"no host has these bytes in its name, so the line would have no effect: {quoted(key)}")


def host_key(key: bytes) -> bytes:
    """Return the key of a line in the form that find_key looks up."""
    # With these bytes the key would match nothing, and its line would be ignored without a warning.
    return domain_key(key.strip(b" \t"))


def find_key(entries: Container[bytes], host: bytes) -> bytes | None:
    """Return the key of the line for a host, or None if there is none."""
    host = domain_key(host)
    start = 0
    while start >= 0:
        if host[start:] in entries:
            return host[start:]
        start = host.find(b".", start + 1)
    return b"" if b"" in entries else None
