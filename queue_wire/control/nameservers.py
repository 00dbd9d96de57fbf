"""`control/resolver`: DNS servers that replace those of /etc/resolv.conf. Pure.

A line is an address, `address:port` or `[address]:port`.
"""

import ipaddress

from queue_wire.control.lines import numbered_lines
from queue_wire.control.smtproutes import Relay, unpack_relay
from queue_wire.format_error import FormatError, InLine, quoted

DNS_PORT = 53


def unpack_resolver(data: bytes) -> list[Relay] | None:
    """Return the DNS servers, None for the system's. Raises FormatError."""
    servers = []
    for number, line in numbered_lines(data):
        with InLine(number):
            servers.append(_unpack_dns_server(line.strip()))
    return servers or None


def _unpack_dns_server(line: bytes) -> Relay:
    """Return a DNS server's address and port. Raises FormatError."""
    if line.count(b":") > 1 and not line.startswith(b"["):
        line = b"[%s]" % line  # An IPv6 address, without a port.
    server = unpack_relay(line, DNS_PORT)
    try:
        ipaddress.ip_address(server.host.decode("ascii"))
    except ValueError as error:
        raise FormatError(f"not an address, address:port or [address]:port: {quoted(line)}") from error
    return server
