"""The values of queue-remote's control files, read together and used together (queue_remote.setup says when).

A file that does not exist has its default, except `me`. smtpauth, dkim and arc name secrets, and have modules of their
own.
"""

import ipaddress
import os
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from queue_base.control_files import ControlValues
from queue_remote.tls.tlspolicy import TlsPolicy, unpack_policies
from queue_wire.address import without_final_dot
from queue_wire.control import registry
from queue_wire.control.control_file import ControlFile
from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import lines_without_colon, numbered_lines
from queue_wire.control.ondemand import on_demand_routes
from queue_wire.control.smtproutes import Routes
from queue_wire.format_error import FormatError, LineError, quoted

# The values of longlines.
SEND, ENCODE, FAIL = b"send", b"encode", b"fail"

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


class RemoteConfig:
    """What is made of the control files, all `values` together.

    `routes` are those of smtproutes and ondemand together, `on_demand` those of ondemand. `tlspolicy` is None if there
    is no file. `strays` are the numbers of lines of smtproutes without a colon, which are ignored, as in qmail.
    """

    __slots__ = (
        *("helohost", "job_seconds", "local_routes", "me", "on_demand", "outgoingip", "programs"),
        *("resolver", "routes", "strays", "tlspolicy", "values"),
    )

    def __init__(self, values: ControlValues) -> None:
        """Take one reading. Raises Temporary, naming the file that cannot be parsed."""
        self.values = values
        self.me = values.me
        try:
            name = unpack_name(values.me)
        except FormatError as error:
            raise values.unable_to_parse(registry.ME, LineError(1, str(error))) from error
        self.helohost = _choices(values, registry.HELOHOST, unpack_name, name)
        self.outgoingip = _choices(values, registry.OUTGOINGIP, unpack_source, SourceAddresses("", ""))
        self.programs = _choices(values, registry.REMOTEPROGRAM, unpack_program, unpack_program(b""))
        self.on_demand = on_demand_routes(values[registry.ONDEMAND])
        self.routes: Routes = {**values[registry.SMTPROUTES], **self.on_demand}
        self.strays = lines_without_colon(values.contents["smtproutes"] or b"")
        self.local_routes = values[registry.LOCALROUTES]
        self.resolver = values[registry.RESOLVER]
        self.tlspolicy = _policies(values)
        # The seconds of a job, from its beginning to the reply to DATA, or until it has no further address to try.
        self.job_seconds: float = values[registry.TIMEOUTCONNECT] + values[registry.TIMEOUTREMOTE]


def unpack_choices(data: bytes, unpack: Callable[[bytes], Value], default: Value) -> Choices[Value]:
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


def unpack_program(text: bytes) -> tuple[bytes, ...]:
    """Return the words of a program, none if queue-remote delivers itself. Raises FormatError."""
    words = tuple(text.split())
    if words and not words[0].startswith(b"/"):
        raise FormatError(f"not the whole path of a program: {quoted(text)}")
    return words


def _choices(
    values: ControlValues, file: ControlFile[bytes], unpack: Callable[[bytes], Value], default: Value
) -> Choices[Value]:
    found = values.parsed(file, lambda data: unpack_choices(data, unpack, default))
    return Choices({}, {}, default) if found is None else found


def _policies(values: ControlValues) -> dict[bytes, TlsPolicy] | None:
    """Return the policies by key, None if there is no file. A relative path of a CA file is relative to control/."""
    policies = values.parsed(registry.TLSPOLICY, unpack_policies)
    if policies is None:
        return None
    control = os.fsencode(values.home.control)
    return {
        key: policy._replace(ca=os.path.join(control, policy.ca)) if policy.ca else policy
        for key, policy in policies.items()
    }


def unpack_source(text: bytes) -> SourceAddresses:
    """Return one address, or one of each family in any order. Raises FormatError."""
    try:
        addresses = [ipaddress.ip_address(word.decode("ascii")) for word in text.split()]
    except ValueError as error:
        raise FormatError(f"not an IPv4 or IPv6 address: {quoted(text)}") from error
    by_family = {address.version: str(address) for address in addresses}
    if not addresses or len(by_family) != len(addresses):
        raise FormatError(f"not one address, or one of each family: {quoted(text)}")
    return SourceAddresses(by_family.get(4, ""), by_family.get(6, ""))
