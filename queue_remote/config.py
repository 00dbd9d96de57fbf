"""queue-remote's control files, read together and used together (queue_remote.setup says when).

    me              this host's name; required
    helohost        the name in EHLO, by sender's domain or nexthop; default: me
    outgoingip      the addresses to send from, an IPv4, an IPv6 or both, likewise; default: the system's choice
    smtproutes      relays that replace mail exchangers (queue_wire.control.smtproutes)
    ondemand        relays of single domains, which precede those of smtproutes (queue_wire.control.ondemand)
    localroutes     LMTP servers for local recipients (queue_wire.control.localroutes)
    timeoutconnect  seconds for one connection to be established; default 60
    timeoutremote   seconds for each reply, and for each piece of a message to be sent; default 1200. Both together are
                    the seconds of a job, apart from those that the message and the reply to it take
    connectionidle  seconds that a connection waits for the next job to its nexthop, 0 for none; default 5
    connectionmessages  messages that one connection carries at most; default 100
    resolver        DNS servers that replace those of /etc/resolv.conf: one address, address:port or
                    [address]:port a line
    tlspolicy       the TLS level of each nexthop (queue_remote.tls.tlspolicy); default: TLS if it is offered
    smtpauth        users and passwords for relays (queue_remote.smtpauth)
    dkim            keys that sign mail, by author's domain (queue_remote.message.dkim_keys)
    arc             key that seals forwarded mail (queue_remote.message.arc_key)
    remoteprogram   programs that deliver instead of queue-remote (queue_remote.program), likewise
    timeoutprogram  seconds that such a program may take; default 3600
    longlines       what is done with lines over 998 bytes: send, encode or fail; default send

A file that does not exist has its default, except `me`. smtpauth, dkim and arc name secrets, and have modules of their
own.
"""

import ipaddress
import os
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from queue_base.control import read_line, read_me, read_number, read_parsed, unable_to_parse
from queue_base.home import Home
from queue_remote.tls.tlspolicy import TlsPolicy, unpack_policies
from queue_wire.address import without_final_dot
from queue_wire.control.hostmap import find_key, unpack_hosts
from queue_wire.control.lines import NUMBERS, lines_without_colon, numbered_lines
from queue_wire.control.localroutes import unpack_local_routes
from queue_wire.control.nameservers import unpack_resolver
from queue_wire.control.ondemand import on_demand_routes, unpack_ondemand
from queue_wire.control.smtproutes import Relay, Routes, unpack_routes
from queue_wire.format_error import (
    FormatError,
    LineError,
    quoted,
)

FILES = (
    "me",
    "helohost",
    "outgoingip",
    "smtproutes",
    "ondemand",
    "localroutes",
    "timeoutconnect",
    "timeoutremote",
    "connectionidle",
    "connectionmessages",
    "resolver",
    "tlspolicy",
    "smtpauth",
    "dkim",
    "arc",
    "remoteprogram",
    "timeoutprogram",
    "longlines",
)
# The values of longlines.
SEND = b"send"
ENCODE = b"encode"
FAIL = b"fail"

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
    """The values of the control files: names and addresses as bytes, times in seconds.

    `routes` are those of smtproutes and ondemand together, `on_demand` those of ondemand. `resolver` and `tlspolicy`
    are None if there is no file. `strays` are the numbers of lines of smtproutes without a
    colon, which are ignored, as in qmail.
    """

    __slots__ = (
        "connect_timeout",
        "connection_idle",
        "connection_messages",
        "helohost",
        "local_routes",
        "long_lines",
        "me",
        "on_demand",
        "outgoingip",
        "program_timeout",
        "programs",
        "reply_timeout",
        "resolver",
        "routes",
        "strays",
        "tlspolicy",
    )

    def __init__(self, me: bytes) -> None:
        """Set the defaults. Raises FormatError if `me` is not a host name."""
        self.me = me
        self.helohost = Choices({}, {}, unpack_name(me))
        self.outgoingip = Choices({}, {}, SourceAddresses("", ""))
        self.routes: Routes = {}
        self.on_demand: Routes = {}
        self.local_routes: Routes = {}
        self.strays: list[int] = []
        self.resolver: list[Relay] | None = None
        self.tlspolicy: dict[bytes, TlsPolicy] | None = None
        self.programs = Choices[tuple[bytes, ...]]({}, {}, ())
        self.program_timeout = NUMBERS["timeoutprogram"][0]
        self.long_lines = SEND
        self.connect_timeout = NUMBERS["timeoutconnect"][0]
        self.reply_timeout = NUMBERS["timeoutremote"][0]
        self.connection_idle = NUMBERS["connectionidle"][0]
        self.connection_messages = NUMBERS["connectionmessages"][0]

    @property
    def job_seconds(self) -> float:
        """The seconds of a job, from its beginning to the reply to DATA, or until it has no further address to try."""
        return self.connect_timeout + self.reply_timeout


def read_config(home: Home) -> RemoteConfig:
    """Return the values of the control files. Raises Temporary, naming the file that cannot be read or parsed."""
    try:
        config = RemoteConfig(read_me(home))
    except FormatError as error:
        raise unable_to_parse(home, "me", LineError(1, str(error))) from error
    config.helohost = _read_choices(home, "helohost", unpack_name, config.helohost)
    config.outgoingip = _read_choices(home, "outgoingip", unpack_source, config.outgoingip)
    config.resolver = read_parsed(home, "resolver", unpack_resolver)
    config.routes, config.strays = read_parsed(home, "smtproutes", _unpack_routes) or ({}, [])
    config.on_demand = read_parsed(home, "ondemand", _unpack_on_demand) or {}
    config.routes = {**config.routes, **config.on_demand}
    config.local_routes = read_parsed(home, "localroutes", unpack_local_routes) or {}
    config.tlspolicy = _read_tlspolicy(home)
    config.connect_timeout = read_number(home, "timeoutconnect")
    config.reply_timeout = read_number(home, "timeoutremote")
    config.connection_idle = read_number(home, "connectionidle")
    config.connection_messages = read_number(home, "connectionmessages")
    config.program_timeout = read_number(home, "timeoutprogram")
    config.long_lines = _read_long_lines(home)
    config.programs = _read_choices(home, "remoteprogram", unpack_program, config.programs)
    return config


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


def _read_choices(home: Home, name: str, unpack: Callable[[bytes], Value], default: Choices[Value]) -> Choices[Value]:
    found = read_parsed(home, name, lambda data: unpack_choices(data, unpack, default.default))
    return default if found is None else found


def _read_long_lines(home: Home) -> bytes:
    word = read_line(home, "longlines", SEND).strip().lower() or SEND
    if word not in (SEND, ENCODE, FAIL):
        raise unable_to_parse(home, "longlines", LineError(1, f"not send, encode or fail: {quoted(word)}"))
    return word


def _read_tlspolicy(home: Home) -> dict[bytes, TlsPolicy] | None:
    """Return the policies by key, None if there is no file. A relative path of a CA file is relative to control/."""
    policies = read_parsed(home, "tlspolicy", unpack_policies)
    if policies is None:
        return None
    control = os.fsencode(home.control)
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


def _unpack_on_demand(data: bytes) -> Routes:
    """Return the relays of on-demand domains. Raises FormatError.

    An error in a file that names no relay keeps no mail from its way. queue-ondemand reports it.
    """
    try:
        return on_demand_routes(unpack_ondemand(data))
    except FormatError:
        if b"relay" in data:
            raise
        return {}


def _unpack_routes(data: bytes) -> tuple[Routes, list[int]]:
    """Return the routes, and the numbers of lines without a colon. Raises FormatError."""
    return unpack_routes(data), lines_without_colon(data)
