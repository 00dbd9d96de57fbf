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
no AUTH, `priority=CLASS` gives the mail a class of control/priorities.
"""

import enum
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


_ROLES = {role.value: role for role in Role}
_OPTIONS = ("bare", "proxy", "noauth")
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
    names = [word.decode("ascii", "replace") for word in words]
    if not names or names[0] not in _ROLES:
        raise FormatError(f"no role, one of {', '.join(_ROLES)}: {quoted(line)}")
    priority = ""
    for name in names[1:]:
        if name.startswith(_PRIORITY) and is_class_name(name.removeprefix(_PRIORITY).encode()):
            priority = name.removeprefix(_PRIORITY)
        elif name not in _OPTIONS:
            raise FormatError(f"no option, one of {', '.join(_OPTIONS)}, {_PRIORITY}CLASS: {quoted(name.encode())}")
    bare, proxy, noauth = (option in names[1:] for option in _OPTIONS)
    role = _ROLES[names[0]]
    if role in ON_DEMAND and (bare or noauth or priority):
        raise FormatError(f"{role.value} takes no mail, and needs AUTH: no option but proxy: {quoted(line)}")
    return Listener(address, port, role, bare, proxy, noauth, priority)
