"""control/relayrecipients: the recipients that exist in domains whose mail is relayed, or goes to an LMTP server.

    ann@example.net      this one exists
    @example.com         every recipient of the domain does

A domain without a line has every recipient.
"""

from collections.abc import Set
from typing import NamedTuple

from queue_wire.address import address_key, split_address
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, quoted


class RelayRecipients(NamedTuple):
    """The lines and the domains that have any, as `address_key` makes them."""

    lines: Set[bytes] = frozenset()
    domains: Set[bytes] = frozenset()


def unpack_relay_recipients(data: bytes) -> RelayRecipients:
    """Return the recipients. Raises LineError."""
    lines, domains = set(), set()
    for number, line in numbered_lines(data):
        address = address_key(line.strip())
        domain = split_address(address)[1]
        with InLine(number):
            if not domain:
                raise FormatError(f"neither user@domain nor @domain: {quoted(line)}")
        lines.add(address)
        domains.add(domain)
    return RelayRecipients(frozenset(lines), frozenset(domains))


def has_lines(recipients: RelayRecipients, address: bytes) -> bool:
    """Return whether the file has the recipients of an address's domain."""
    return split_address(address_key(address))[1] in recipients.domains


def exists_behind(recipients: RelayRecipients, address: bytes) -> bool:
    """Return whether a relayed recipient exists, as far as the file knows."""
    key = address_key(address)
    domain = split_address(key)[1]
    return domain not in recipients.domains or key in recipients.lines or b"@" + domain in recipients.lines
