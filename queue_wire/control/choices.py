"""Control files of queue-remote whose values are chosen by the sender's domain or by the nexthop. Pure.

helohost names this host in EHLO. outgoingip has the addresses to send from: an IPv4, an IPv6 or both. remoteprogram has
programs that deliver instead of queue-remote.
"""

import ipaddress
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from queue_wire.address import without_final_dot
from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, LineError, quoted

Value = TypeVar("Value")


class Choices(NamedTuple, Generic[Value]):
    """A control file whose values are chosen by the sender's domain or by the nexthop.

    @domain:value    for mail from that domain; @.domain: from any domain below it
    domain:value     for mail to that nexthop; .domain and the empty key as in queue_wire.control.hostmap
    value            for all other mail

    The sender's line precedes the nexthop's. An empty sender has no domain.
    """

    senders: dict[bytes, Value]
    nexthops: dict[bytes, Value]
    default: Value

    def choose(self, sender: bytes, nexthop: bytes) -> Value:
        """Return the value for mail from an address to a nexthop."""
        if self.senders and sender:
            key = find_key(self.senders, sender.rpartition(b"@")[2])
            if key is not None:
                return self.senders[key]
        if self.nexthops:
            key = find_key(self.nexthops, nexthop)
            if key is not None:
                return self.nexthops[key]
        return self.default


class SourceAddresses(NamedTuple):
    """The addresses to send from, as text; empty if the system chooses."""

    four: str
    six: str


def unpack_helohost(data: bytes) -> Choices[bytes]:
    """Return the names, empty for `me`. Raises LineError."""
    return _unpack_choices(data, unpack_name, b"")


def unpack_outgoingip(data: bytes) -> Choices[SourceAddresses]:
    """Return the addresses. Raises LineError."""
    return _unpack_choices(data, _unpack_source, SourceAddresses("", ""))


def unpack_programs(data: bytes) -> Choices[tuple[bytes, ...]]:
    """Return the words of each program, none if queue-remote delivers itself. Raises LineError."""
    return _unpack_choices(data, _unpack_words, _unpack_words(b""))


def _unpack_choices(data: bytes, unpack: Callable[[bytes], Value], default: Value) -> Choices[Value]:
    """Return the choices in a control file. Raises LineError if `unpack` raises FormatError for a value.

    A line that is a value as a whole is the default, so an IPv6 address needs no key; the first such line counts.
    """
    bare: list[Value] = []
    senders: dict[bytes, tuple[int, bytes]] = {}
    nexthops: dict[bytes, tuple[int, bytes]] = {}
    for number, line in numbered_lines(data):
        try:
            bare.append(unpack(line))
            continue
        except FormatError as error:
            key, colon, value = line.partition(b":")
            if not colon:
                raise LineError(number, str(error)) from error
        if key.startswith(b"@"):
            senders[key[1:]] = number, value
        else:
            nexthops[key] = number, value
    return Choices(unpack_hosts(senders, unpack), unpack_hosts(nexthops, unpack), bare[0] if bare else default)


def unpack_name(text: bytes) -> bytes:
    """Return a name for EHLO: a host name, or an address in brackets. Raises FormatError."""
    text = without_final_dot(text.strip(b" \t"))
    literal = text.startswith(b"[") and text.endswith(b"]")
    # It is sent as it is, so it must be one word.
    word = text.isascii() and text.decode("ascii").isprintable() and b" " not in text
    if not text or not word or (b":" in text and not literal):
        raise FormatError(f"not a host name: {quoted(text)}")
    return text


def _unpack_words(text: bytes) -> tuple[bytes, ...]:
    """Return the words of a program, none if queue-remote delivers itself. Raises FormatError."""
    words = tuple(text.split())
    if words and not words[0].startswith(b"/"):
        raise FormatError(f"not the whole path of a program: {quoted(text)}")
    return words


def _unpack_source(text: bytes) -> SourceAddresses:
    """Return one address, or one of each family in any order. Raises FormatError."""
    try:
        addresses = [ipaddress.ip_address(word.decode("ascii")) for word in text.split()]
    except ValueError as error:
        raise FormatError(f"not an IPv4 or IPv6 address: {quoted(text)}") from error
    by_family = {address.version: str(address) for address in addresses}
    if not addresses or len(by_family) != len(addresses):
        raise FormatError(f"not one address, or one of each family: {quoted(text)}")
    return SourceAddresses(by_family.get(4, ""), by_family.get(6, ""))
