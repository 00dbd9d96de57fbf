"""/etc/resolv.conf, as resolv.conf(5) and glibc have it. Pure.

A line that cannot be used is passed by, whatever bytes it has, so one slip does not take the other servers away. Only
`nameserver` and the options `rotate` and `edns0` are read: mail has no use for search domains.
"""

import ipaddress
from typing import NamedTuple

from queue_wire.format_error import quoted

WORDS_MAX = 100  # Of a line.


class ResolvConf(NamedTuple):
    """The addresses of DNS servers, the options, and for each line that cannot be used a text that says so."""

    servers: list[str]
    options: frozenset[bytes]
    faults: list[str]


def unpack_resolv_conf(data: bytes) -> ResolvConf:
    """Return what the file says."""
    servers: list[str] = []
    options: set[bytes] = set()
    faults: list[str] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split(None, WORDS_MAX)
        if line[:1] in (b"#", b";") or not words:
            continue
        if words[0] == b"options":
            options.update(words[1:])
        elif words[0] == b"nameserver":
            text = words[1].decode("ascii", "replace") if len(words) > 1 else ""
            try:
                ipaddress.ip_address(text)
            except ValueError:
                faults.append(f"line {number}: not the address of a DNS server: {quoted(b' '.join(words[1:]))}")
            else:
                servers.append(text)
    return ResolvConf(servers, frozenset(options), faults)
