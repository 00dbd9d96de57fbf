"""`control/smtpd`: where queue-smtpd listens, and for whom. Pure.

    ADDRESS:PORT ROLE [OPTION...]

ADDRESS is an IPv4 address, an IPv6 address in brackets, or `*` for both. ROLE says who is expected:

    mx             mail for this host's domains, from everybody (port 25)
    submission     mail from users, who must authenticate, after STARTTLS (port 587, RFC 6409)
    submissions    the same, with TLS from the first byte (port 465, RFC 8314)
    qmtp           as mx, by QMTP (port 209)
    odmr           hosts that take their domains' mail with ATRN, as users of ondemandusers (port 366, RFC 2645)
    odmrs          the same, with TLS from the first byte

Options: `bare` accepts bare CR and LF, `proxy` expects a PROXY header from the hosts of `proxyclients`, `noauth` offers
no AUTH, `authname` names the user of AUTH in Received, `priority=CLASS` gives the mail a class of control/priorities.
"""

import enum
from collections.abc import Sequence
from typing import NamedTuple

from queue_wire.control.lines import line_words, numbered_lines
from queue_wire.control.places import unpack_place
from queue_wire.files.envelope import is_class_name
from queue_wire.format_error import FormatError, InLine, quoted


class Role(enum.Enum):
    """What a listener is for."""

    MX = "mx"
    SUBMISSION = "submission"
    SUBMISSIONS = "submissions"
    QMTP = "qmtp"
    ODMR = "odmr"
    ODMRS = "odmrs"

    @property
    def for_users(self) -> bool:
        """Whether it is for users, who must authenticate."""
        return self not in (Role.MX, Role.QMTP)


# TLS begins with the first byte.
IMPLICIT_TLS = (Role.SUBMISSIONS, Role.ODMRS)
# Mail goes out, and none comes in.
ON_DEMAND = (Role.ODMR, Role.ODMRS)


class Listener(NamedTuple):
    """One line. `address` is without brackets; `*` is everywhere."""

    address: str
    port: int
    role: Role
    bare: bool = False
    proxy: bool = False
    noauth: bool = False
    priority: str = ""
    authname: bool = False


_ROLES = {role.value: role for role in Role}
_OPTIONS = ("bare", "proxy", "noauth", "authname")
_PRIORITY = "priority="


def unpack_listeners(data: bytes) -> list[Listener]:
    """Return the listeners in their order. Raises LineError, also for a place that stands twice."""
    found: list[Listener] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            listener = unpack_listener(line)
            if (listener.address, listener.port) in [(one.address, one.port) for one in found]:
                raise FormatError(f"a second listener for {quoted(line)}")
            found.append(listener)
    return found


def unpack_listener(line: bytes) -> Listener:
    """Return one listener. Raises FormatError."""
    place, *words = line_words(line)
    address, port = unpack_place(place)
    if not words:
        raise FormatError(f"no role behind the place, one of {', '.join(_ROLES)}: {quoted(line)}")
    role, *options = [word.decode("ascii", "replace") for word in words]
    return unpack_service(role, options)._replace(address=address, port=port)


def unpack_service(name: str, options: Sequence[str]) -> Listener:
    """Return a listener with this role and these options, and without a place. Raises FormatError."""
    role = _ROLES.get(name)
    if role is None:
        raise FormatError(f"{_quoted(name)} is not a role; it is one of {', '.join(_ROLES)}")
    priority = ""
    for option in options:
        if option.startswith(_PRIORITY) and is_class_name(option.removeprefix(_PRIORITY).encode()):
            priority = option.removeprefix(_PRIORITY)
        elif option not in _OPTIONS:
            every = f"{', '.join(_OPTIONS)}, {_PRIORITY}CLASS"
            raise FormatError(f"{_quoted(option)} is not an option of a role; it is one of {every}")
    bare, proxy, noauth, authname = (option in options for option in _OPTIONS)
    if role in ON_DEMAND and (bare or noauth or authname or priority):
        raise FormatError(f"{name} takes no mail, and needs AUTH: it has no option but proxy")
    return Listener("", 0, role, bare, proxy, noauth, priority, authname)


def _quoted(word: str) -> str:
    return quoted(word.encode("utf-8", "surrogateescape"))
