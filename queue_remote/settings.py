"""queue-remote's control files, read together and used together (queue_remote.controls says how long).

    me              this host's name; must be there
    helohost        what EHLO says, by sender's domain and nexthop (queue_remote.choices); default: me
    outgoingip      the addresses to send from, an IPv4, an IPv6 or both, likewise; default: the system's choice
    smtproutes      relays in place of mail exchangers (queue_wire.control.smtproutes)
    timeoutconnect  seconds for one connection to come about; default 60
    timeoutremote   seconds for each reply, and for each piece of a message to get off; default 1200
    connectionidle  seconds that a connection waits for the next job to its nexthop, 0 for no time; default 5
    connectionmessages  messages that one connection carries at most; default 100
    resolver        DNS servers to ask in place of /etc/resolv.conf's: one address, address:port or
                    [address]:port a line
    tlspolicy       how much TLS each nexthop needs (queue_remote.tls.tlspolicy); default: TLS where it is offered
    smtpauth        users and passwords for relays (queue_remote.smtpauth)
    dkim            who signs what (queue_remote.message.dkim_control)
    remoteprogram   programs that deliver in our place (queue_remote.program), by sender's domain and nexthop
    timeoutprogram  seconds that such a program may take; default 3600
    longlines       what becomes of lines over 998 bytes: send, encode or fail; default send

A file that is not there leaves its default, `me` excepted.
"""

import ipaddress
import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from queue_base.control import read_line, read_me, read_number, read_parsed, unable_to_parse
from queue_base.home import Home
from queue_remote.choices import Choices, unpack_choices, unpack_name
from queue_remote.credentials import Logins, read_logins
from queue_remote.message.dkim_keys import Keyring, read_keyring
from queue_remote.program import unpack_program
from queue_remote.tls.tlspolicy import TlsPolicy, unpack_policies
from queue_wire.control.lines import numbered_lines
from queue_wire.control.smtproutes import Relay, Routes, unpack_relay, unpack_routes
from queue_wire.format_error import FormatError, InLine, LineError, quoted

FILES = (
    "me",
    "helohost",
    "outgoingip",
    "smtproutes",
    "timeoutconnect",
    "timeoutremote",
    "connectionidle",
    "connectionmessages",
    "resolver",
    "tlspolicy",
    "smtpauth",
    "dkim",
    "remoteprogram",
    "timeoutprogram",
    "longlines",
)
DNS_PORT = 53
# What becomes of lines that are too long for SMTP.
SEND = b"send"
ENCODE = b"encode"
FAIL = b"fail"

Value = TypeVar("Value")


class Source(NamedTuple):
    """The addresses to send from, as text; empty where the system chooses."""

    four: str
    six: str


class Settings:
    """me as bytes, names for EHLO, addresses to send from, routes, times in seconds, DNS servers (None: system's).

    `strays` are the numbers of lines of smtproutes without a colon, which count for nothing, as in qmail.
    """

    __slots__ = (
        "connect_timeout",
        "connection_idle",
        "connection_messages",
        "helohost",
        "keyring",
        "logins",
        "long_lines",
        "me",
        "outgoingip",
        "program_timeout",
        "programs",
        "reply_timeout",
        "resolver",
        "routes",
        "strays",
        "tlspolicy",
    )

    def __init__(
        self,
        me: bytes,
        helohost: Choices[bytes],
        outgoingip: Choices[Source],
        routes: Routes,
        resolver: list[Relay] | None,
    ) -> None:
        self.me = me
        self.helohost = helohost
        self.outgoingip = outgoingip
        self.routes = routes
        self.resolver = resolver
        self.strays: list[int] = []
        self.tlspolicy: dict[bytes, TlsPolicy] | None = None
        self.logins = Logins({})
        self.keyring = Keyring({}, {}, [])
        self.programs = Choices[tuple[bytes, ...]]({}, {}, ())
        self.program_timeout = 3600
        self.long_lines = SEND
        self.connect_timeout = 60
        self.reply_timeout = 1200
        self.connection_idle = 5
        self.connection_messages = 100


def read_settings(home: Home) -> Settings:
    """Return what the control files say. Raises Temporary, naming the file that cannot be read or parsed."""
    me = read_me(home)
    names = _choices(home, "helohost", unpack_name, _own_name(home, me))
    sources = _choices(home, "outgoingip", _unpack_source, Source("", ""))
    settings = Settings(me, names, sources, {}, read_parsed(home, "resolver", _unpack_resolver))
    settings.routes, settings.strays = read_parsed(home, "smtproutes", _unpack_routes) or ({}, [])
    settings.tlspolicy = _tlspolicy(home)
    settings.connect_timeout = read_number(home, "timeoutconnect", settings.connect_timeout)
    settings.reply_timeout = read_number(home, "timeoutremote", settings.reply_timeout)
    settings.connection_idle = read_number(home, "connectionidle", settings.connection_idle)
    settings.connection_messages = read_number(home, "connectionmessages", settings.connection_messages)
    settings.program_timeout = read_number(home, "timeoutprogram", settings.program_timeout)
    settings.long_lines = _long_lines(home)
    settings.logins = read_logins(home)
    settings.keyring = read_keyring(home)
    settings.programs = _choices(home, "remoteprogram", unpack_program, ())
    return settings


def _long_lines(home: Home) -> bytes:
    word = read_line(home, "longlines", SEND).strip().lower() or SEND
    if word not in (SEND, ENCODE, FAIL):
        raise unable_to_parse(home, "longlines", LineError(1, f"not send, encode or fail: {quoted(word)}"))
    return word


def _own_name(home: Home, me: bytes) -> bytes:
    try:
        return unpack_name(me)
    except FormatError as error:
        raise unable_to_parse(home, "me", LineError(1, str(error))) from error


def _choices(home: Home, name: str, unpack: Callable[[bytes], Value], default: Value) -> Choices[Value]:
    found = read_parsed(home, name, lambda data: unpack_choices(data, unpack, default))
    return Choices({}, {}, default) if found is None else found


def _unpack_source(text: bytes) -> Source:
    """Return one address, or one of each family in any order. Raises FormatError."""
    try:
        addresses = [ipaddress.ip_address(word.decode("ascii")) for word in text.split()]
    except ValueError as error:
        raise FormatError(f"not an IPv4 or IPv6 address: {quoted(text)}") from error
    by_family = {address.version: str(address) for address in addresses}
    if not addresses or len(by_family) != len(addresses):
        raise FormatError(f"not one address, or one of each family: {quoted(text)}")
    return Source(by_family.get(4, ""), by_family.get(6, ""))


def _unpack_routes(data: bytes) -> tuple[Routes, list[int]]:
    """Return the routes, and the numbers of lines without a colon. Raises FormatError."""
    return unpack_routes(data), [number for number, line in numbered_lines(data) if b":" not in line]


def _tlspolicy(home: Home) -> dict[bytes, TlsPolicy] | None:
    """Return the policies by key, None where there is no file; a file of CAs is looked for in control/."""
    policies = read_parsed(home, "tlspolicy", unpack_policies)
    if policies is None:
        return None
    control = os.fsencode(home.control)
    return {
        key: policy._replace(ca=os.path.join(control, policy.ca)) if policy.ca else policy
        for key, policy in policies.items()
    }


def _unpack_resolver(data: bytes) -> list[Relay] | None:
    """Return the DNS servers, None for the system's. Raises FormatError."""
    servers = []
    for number, line in numbered_lines(data):
        with InLine(number):
            servers.append(_dns_server(line.strip()))
    return servers or None


def _dns_server(line: bytes) -> Relay:
    """Return a DNS server's address and port. Raises FormatError."""
    if line.count(b":") > 1 and not line.startswith(b"["):
        line = b"[%s]" % line  # An IPv6 address, without a port.
    server = unpack_relay(line, DNS_PORT)
    try:
        ipaddress.ip_address(server.host.decode("ascii"))
    except ValueError as error:
        raise FormatError(f"not an address, address:port or [address]:port: {quoted(line)}") from error
    return server
