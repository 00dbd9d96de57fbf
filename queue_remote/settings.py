"""queue-remote's control files, read together and used together (queue_remote.controls says how long).

    me              this host's name; must be there
    helohost        what EHLO says; default: me
    smtproutes      relays in place of mail exchangers (queue_wire.smtproutes)
    timeoutconnect  seconds for one connection to come about; default 60
    timeoutremote   seconds for each reply, and for each piece of a message to get off; default 1200
    resolver        DNS servers to ask in place of /etc/resolv.conf's: one address, address:port or
                    [address]:port a line

A file that is not there leaves its default, `me` excepted.
"""

import ipaddress

from queue_base.control import read_line, read_lines, read_map, read_me, read_number
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_wire.errors import FormatError, quoted
from queue_wire.smtproutes import Relay, Routes, unpack_relay, unpack_routes

FILES = ("me", "helohost", "smtproutes", "timeoutconnect", "timeoutremote", "resolver")
DNS_PORT = 53


class Settings:
    """me and helohost as bytes, routes, timeouts in seconds, DNS servers (None: the system's)."""

    __slots__ = ("connect_timeout", "helohost", "me", "reply_timeout", "resolver", "routes")

    def __init__(self, me: bytes, helohost: bytes, routes: Routes, resolver: list[Relay] | None) -> None:
        self.me = me
        self.helohost = helohost
        self.routes = routes
        self.resolver = resolver
        self.connect_timeout = 60
        self.reply_timeout = 1200


def read_settings(home: Home) -> Settings:
    """Return what the control files say. Raises Temporary, naming the file that cannot be read or parsed."""
    me = read_me(home)
    settings = Settings(me, _helohost(home, me), _routes(home), _resolver(home))
    settings.connect_timeout = read_number(home, "timeoutconnect", settings.connect_timeout)
    settings.reply_timeout = read_number(home, "timeoutremote", settings.reply_timeout)
    return settings


def _helohost(home: Home, me: bytes) -> bytes:
    name = read_line(home, "helohost", me) or me
    # It goes on the wire as it is, so it must be one word.
    if not name.isascii() or not name.decode("ascii").isprintable() or b" " in name:
        raise Temporary(f"unable to parse {home.control}/helohost: not a host name: {quoted(name)}")
    return name


def _routes(home: Home) -> Routes:
    try:
        return unpack_routes(read_map(home, "smtproutes") or {})
    except FormatError as error:
        raise Temporary(f"unable to parse {home.control}/smtproutes: {error}") from error


def _resolver(home: Home) -> list[Relay] | None:
    lines = read_lines(home, "resolver")
    if not lines:
        return None
    try:
        return [_dns_server(line.strip()) for line in lines]
    except ValueError as error:
        raise Temporary(f"unable to parse {home.control}/resolver: {error}") from error


def _dns_server(line: bytes) -> Relay:
    """Return a DNS server's address and port. Raises ValueError (FormatError is one)."""
    if line.count(b":") > 1 and not line.startswith(b"["):
        line = b"[%s]" % line  # An IPv6 address, without a port.
    server = unpack_relay(line, DNS_PORT)
    ipaddress.ip_address(server.host.decode("ascii"))
    return server
