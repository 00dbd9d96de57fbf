"""control/smtpauth: users and passwords for AUTH, by nexthop or relay.

    relay.example.net:user:password          keys are queue_wire.control.hostmap's
    relay.example.net clear:user:password    PLAIN and LOGIN also without TLS
    [2001:db8::1]:user:password              a relay that is named by its address
    :user:password                           every relay that has no line of its own

The password is the whole text after the second colon, colons included, without trailing spaces; a user has no colon.
A file that others can read is not used: mail that needs a line of it is deferred, other mail is delivered.
"""

import os
import re
from collections.abc import Mapping

from queue_base.control import read_control, unable_to_parse
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.secret_files import find_fault
from queue_remote.report_text import no_credentials
from queue_remote.route.order import Target
from queue_remote.route.unroutable import Unroutable
from queue_smtp.auth import Credentials
from queue_wire.control.hostmap import find_key, host_key, refuse_impossible
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine
from queue_wire.pipes.report import MESSAGE_SCOPE, TEMPORARY

CLEAR = b"clear"

# The key ends at a space or at the first colon outside of brackets.
_LINE = re.compile(rb"(\[[^\]]*\]|[^:\s\[]*)([ \t][^:]*)?:([^:]+):(.+)", re.DOTALL)


class Logins:
    """The lines of the file, None if it may not be read; `fault` is why they are not used, None if they are."""

    __slots__ = ("_lines", "fault")

    def __init__(self, lines: Mapping[bytes, Credentials] | None, fault: str | None = None) -> None:
        self._lines = lines
        self.fault = fault

    def key(self, nexthop: bytes) -> bytes | None:
        """Return the key of the line for a nexthop whose mail a relay takes, None if there is none."""
        return find_key(self._lines or {}, nexthop)

    def find(self, nexthop: bytes, relayed: bool, target: Target) -> Credentials | None:
        """Return the credentials for a target, None for no AUTH. Raises Unroutable if they may not be used.

        For a relay of smtproutes, a line with its name or address comes first, then the nexthop's, then the line for
        every relay. That line is not for servers of LMTP, and none is for a Unix socket. A mail exchanger gets a
        password only by the nexthop's own line, because whoever controls a domain's MX records chooses the exchanger.
        """
        if self._lines is None:
            # Any mail may need a line of it.
            raise Unroutable(TEMPORARY, no_credentials(str(self.fault)), MESSAGE_SCOPE)
        if not self._lines or target.is_socket:
            return None
        key = None
        if relayed:
            for name in target.names:
                key = key or find_key(self._lines, name)
        key = key or find_key(self._lines, nexthop)
        if key is None or (key == b"" and (not relayed or target.lmtp)):
            return None
        if self.fault is not None:
            raise Unroutable(TEMPORARY, no_credentials(self.fault), MESSAGE_SCOPE)
        return self._lines[key]


def read_logins(home: Home) -> Logins:
    """Return the logins in control/smtpauth. Raises Temporary if it cannot be read or parsed."""
    path = f"{home.control}/smtpauth"
    try:
        data = read_control(home, "smtpauth")
    except Temporary as error:
        if isinstance(error.__context__, PermissionError):
            return Logins(None, "we may not read it; its group should be that of queue/mess, with mode 0640")
        raise
    if data is None:
        return Logins({})
    try:
        return Logins(unpack_logins(data), find_fault(home, os.stat(path)))
    except FormatError as error:
        raise unable_to_parse(home, "smtpauth", error) from error
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error


def unpack_logins(data: bytes) -> dict[bytes, Credentials]:
    """Return {key: credentials}; the last of two equal keys counts. Raises LineError, which shows no secret."""
    logins: dict[bytes, Credentials] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            key, credentials = _unpack_login(line)
            refuse_impossible(key.strip(b" \t"))
            logins[host_key(key)] = credentials
    return logins


def _unpack_login(line: bytes) -> tuple[bytes, Credentials]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise FormatError("not nexthop:user:password")
    key, words, user, password = match.groups(b"")
    flags = words.split()
    if any(flag != CLEAR for flag in flags):
        raise FormatError(f"nothing but {CLEAR.decode()} can stand between the nexthop and its colon")
    return key, Credentials(user, password, CLEAR in flags)
