"""control/smtpauth: users and passwords for AUTH, by nexthop or relay.

    relay.example.net:user:password          keys are queue_wire.control.hostmap's
    relay.example.net clear:user:password    PLAIN and LOGIN also without TLS
    [2001:db8::1]:user:password              a relay that is named by its address
    :user:password                           every relay that has no line of its own

The password is all that follows the second colon, colons included, without spaces at its end; a user has no colon.
"""

import re

from queue_smtp.auth import Credentials
from queue_wire.control.hostmap import host_key
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine

CLEAR = b"clear"

# The key ends at a space or at the first colon that is not in brackets.
_LINE = re.compile(rb"(\[[^\]]*\]|[^:\s\[]*)([ \t][^:]*)?:([^:]+):(.+)", re.DOTALL)


def unpack_logins(data: bytes) -> dict[bytes, Credentials]:
    """Return {key: credentials}; the last of two equal keys counts. Raises LineError, which shows no secret."""
    logins: dict[bytes, Credentials] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            key, credentials = _unpack_login(line)
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
