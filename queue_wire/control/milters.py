"""`control/milters`: the milters that queue-smtpd asks about mail, in their order; and `control/headerfaults`. Pure.

    PLACE [ROLE...] [default=ACTION] [authserv=ID] [connect=SECONDS] [command=SECONDS] [content=SECONDS]

PLACE is `inet:HOST:PORT`, with an IPv6 address in brackets, or `unix:/PATH`. With roles of listeners (`mx`,
`submission`, `submissions`) only these have the milter. ACTION says what becomes of mail if it cannot be asked:
`tempfail` or `accept`. ID is the authserv-id of its Authentication-Results (RFC 8601) where that is not `me`. The
seconds are those for a connection, for the answer to a command, and for the whole message.
"""

import re
from typing import NamedTuple

from queue_wire.control.lines import line_words, numbered_lines, unpack_lines
from queue_wire.control.listeners import Role
from queue_wire.format_error import FormatError, InLine, quoted

MILTERS_MAX = 16
ACCEPT, COPY, HOLD, REFUSE = b"accept", b"copy", b"hold", b"refuse"
SECONDS_MAX = 540
_PLACE = re.compile(rb"inet:(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})|(?:unix|local):(/[!-~]+)")
_ROLES = {role.value: role for role in Role}
_SECONDS = ("connect", "command", "content")
AUTHSERV = re.compile(rb"[A-Za-z0-9_.@+-]+")
# The length of a path in struct sockaddr_un.
_PATH_MAX = 107


class MilterLine(NamedTuple):
    """One line. `path` is that of a Unix socket; it is empty for `host` and `port`. No `roles` are all of them.

    `accepts`: mail is taken if the milter cannot be asked. `authserv` is in lower case, empty if it is `me`.
    """

    name: str
    host: str
    port: int
    path: str
    roles: tuple[Role, ...] = ()
    accepts: bool = False
    connect: int = 30
    command: int = 30
    content: int = 300
    authserv: bytes = b""


class FilterSetup(NamedTuple):
    """The filters of a listener: its milters, and what control/headerfaults says of a header that breaks RFC 5322.

    `program` is the path of one that queues the message in the place of queue-intake, empty for none.
    """

    milters: tuple[MilterLine, ...] = ()
    headerfaults: bytes = ACCEPT
    program: str = ""

    @property
    def any(self) -> bool:
        """Whether there is something to filter."""
        return bool(self.milters) or self.headerfaults != ACCEPT or bool(self.program)

    def of(self, role: Role) -> "FilterSetup":
        """Return the filters that listeners of a role have."""
        return self._replace(milters=tuple(each for each in self.milters if not each.roles or role in each.roles))


def unpack_arc_authserv(data: bytes) -> bytes:
    """Return the authserv-id that control/arc names, in lower case; empty if that is `me`, or nothing is sealed.

    queue-remote reads the rest of it, and says what is wrong there.
    """
    words = b" ".join(unpack_lines(data)).lower().split()
    return words[1] if len(words) == 2 else b""


def unpack_milters(data: bytes) -> list[MilterLine]:
    """Return the milters in their order. Raises LineError."""
    found: list[MilterLine] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            if len(found) == MILTERS_MAX:
                raise FormatError(f"more than {MILTERS_MAX} milters")
            found.append(_unpack_milter(line))
    return found


def _unpack_milter(line: bytes) -> MilterLine:
    place, *words = line_words(line)
    match = _PLACE.fullmatch(place)
    port = int(match[2] or 1) if match else 0
    if match is None or not 0 < port < 65536 or len(match[3] or b"") > _PATH_MAX:
        raise FormatError(f"neither inet:HOST:PORT nor unix:/PATH: {quoted(place)}")
    host, path = (match[1] or b"").decode().strip("[]"), (match[3] or b"").decode()
    found = MilterLine(place.decode(), host, 0 if path else port, path)
    for word in words:
        found = _take_word(found, word.decode("ascii", "replace"))
    return found


def _take_word(line: MilterLine, word: str) -> MilterLine:
    name, equals, value = word.partition("=")
    if not equals and name in _ROLES:
        return line._replace(roles=(*line.roles, _ROLES[name]))
    if name == "default" and value in ("accept", "tempfail"):
        return line._replace(accepts=value == "accept")
    if name == "authserv" and AUTHSERV.fullmatch(value.encode()):
        return line._replace(authserv=value.lower().encode())
    if name in _SECONDS and value.isascii() and value.isdigit() and len(value) < 4 and 0 < int(value) <= SECONDS_MAX:
        seconds = {each: getattr(line, each) for each in _SECONDS} | {name: int(value)}
        return line._replace(connect=seconds["connect"], command=seconds["command"], content=seconds["content"])
    raise FormatError(
        f"neither a role, default=accept, default=tempfail, authserv=ID, nor {', '.join(_SECONDS)} with 1 to "
        f"{SECONDS_MAX} seconds:"
        f" {quoted(word.encode())}"
    )
