"""control/outgoingip and control/helohost: values chosen by the sender's domain or by the nexthop.

    @domain:value    for mail from that domain; @.domain: from any below it
    domain:value     for mail to that nexthop, .domain and the empty key as in queue_wire.control.hostmap
    value            for everything else

The sender's line comes first. An empty sender has no domain.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, LineError, quoted

Value = TypeVar("Value")


class Choices(NamedTuple, Generic[Value]):
    """Values by sender's domain and by nexthop, and the one for everything else."""

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


def unpack_choices(data: bytes, unpack: Callable[[bytes], Value], default: Value) -> Choices[Value]:
    """Return the choices in a control file. Raises LineError where `unpack` raises FormatError for what is no value.

    A line that is a value as a whole stands for everything else, so an IPv6 address needs no key; the first one counts.
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
    text = text.strip(b" \t")
    literal = text.startswith(b"[") and text.endswith(b"]")
    # It goes on the wire as it is, so it must be one word.
    word = text.isascii() and text.decode("ascii").isprintable() and b" " not in text
    if not text or not word or (b":" in text and not literal):
        raise FormatError(f"not a host name: {quoted(text)}")
    return text
