"""control/smtpauth (queue_remote.smtpauth): which credentials a relay or nexthop gets, if the file is kept well.

A file that others can read is not used: mail that needs a line of it is deferred, and all other mail goes on.
"""

from collections.abc import Mapping

from queue_base.control import read_control, unable_to_parse
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_remote.private import find_fault
from queue_remote.route.lookup import Unroutable
from queue_remote.route.order import Target
from queue_remote.smtpauth import unpack_logins
from queue_smtp.auth import Credentials
from queue_smtp.text import no_credentials
from queue_wire.control.hostmap import find_key
from queue_wire.format_error import FormatError
from queue_wire.report import MESSAGE_SCOPE, TEMPORARY


class Logins:
    """The lines of the file, None where we may not read it; `fault` is why they are not used, None where they are."""

    __slots__ = ("_lines", "fault")

    def __init__(self, lines: Mapping[bytes, Credentials] | None, fault: str | None = None) -> None:
        self._lines = lines
        self.fault = fault

    def key(self, nexthop: bytes) -> bytes | None:
        """Return the key of the line for a nexthop that a relay takes mail for, None where there is none."""
        return find_key(self._lines or {}, nexthop)

    def find(self, nexthop: bytes, relayed: bool, target: Target) -> Credentials | None:
        """Return the credentials for a target, None for no AUTH. Raises Unroutable where they may not be used.

        Where smtproutes has chosen the relay, its name or address comes first, then the nexthop, then the line for
        every relay. A mail exchanger was chosen by DNS: it gets a password only by the nexthop's own line, so that
        nobody's MX record earns one.
        """
        if self._lines is None:
            # Any mail may need a line of it.
            raise Unroutable(TEMPORARY, no_credentials(str(self.fault)), MESSAGE_SCOPE)
        if not self._lines:
            return None
        key = None
        if relayed:
            for name in target.names:
                key = key or find_key(self._lines, name)
        key = key or find_key(self._lines, nexthop)
        if key is None or (key == b"" and not relayed):
            return None
        if self.fault is not None:
            raise Unroutable(TEMPORARY, no_credentials(self.fault), MESSAGE_SCOPE)
        return self._lines[key]


def read_logins(home: Home) -> Logins:
    """Return what control/smtpauth says. Raises Temporary where it cannot be read or parsed."""
    path = f"{home.control}/smtpauth"
    try:
        data = read_control(home, "smtpauth")
    except Temporary as error:
        if isinstance(error.__cause__, PermissionError):
            return Logins(None, "we may not read it; its group should be that of queue/mess, with mode 0640")
        raise
    if data is None:
        return Logins({})
    try:
        return Logins(unpack_logins(data), find_fault(home, path))
    except FormatError as error:
        raise unable_to_parse(home, "smtpauth", error) from error
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
