"""What a process of queue-smtpd tells of itself to root and the queue's owner, on its status socket, and does for them.

The socket is an abstract one (unix(7)), `@queue-smtpd/DEV-INODE/PID.RANDOM`: DEV and INODE are those of queue/, in hex.
So it needs no place in which account `queued` may write, and whoever asks finds the sockets of all processes in
/proc/net/unix. The name proves nothing: both sides look who the other one is.

    request    counters LF, or sessions LF
    answer     a ProcessStatus, then if it was asked for a SessionStatus for each connection; each in JSON on a line
    request    settings LF, or reread LF, which has it read its control files first
    answer     what is in force of them (queue_wire.admin.settings), and an empty line
"""

import json
from typing import Any, NamedTuple

from queue_wire.format_error import FormatError, quoted

COUNTERS = b"counters\n"
SESSIONS = b"sessions\n"
SETTINGS = b"settings\n"
REREAD = b"reread\n"
LINE_MAX = 65536

# What a session is doing: the handshake; the pause before the greeting; nothing, until the next command; a transaction;
# sending a message; waiting for queue-intake's answer to it; for the lookup of a recipient or of a password; its
# connection is being closed; it takes its mail with ATRN.
STATES = ("tls", "greeting", "command", "transaction", "message", "queueing", "lookup", "closing", "reversed")
# Who was refused: commands that others send are `other`.
VERBS = ("connect", "early talker", "MAIL", "RCPT", "DATA", "AUTH", "message", "other")
# How a session ended (at XCLIENT another one begins); others are `refused`: the server had enough of it.
ENDS = ("QUIT", "connection lost", "timeout", "stop", "turned away", "XCLIENT", "ATRN", "refused")
# What a filter has said to a command or a message; `defers`: refuses it for now; `failed`: it could not be asked.
VERDICTS = ("accepts", "refuses", "defers", "discards", "holds", "copies", "failed")
COUNTED = (
    "connections", "messages", "recipients", "bytes", "dropped", "discarded", "tls", "tls-failed", "auth",
    "auth-failed", *(f"refused-{verb}-{digit}" for verb in VERBS for digit in "45"), *(f"end-{end}" for end in ENDS),
    *(f"filter-{verdict}" for verdict in VERDICTS),
)  # fmt: skip


class ProcessStatus(NamedTuple):
    """A process: its pid, that it is process `place` of `of`, when it started (seconds since the epoch).

    limit: its share of the connections that all processes take. sessions: connections now. states: these by what they
    do (STATES).
    counters: since the start (COUNTED); those that are 0 may be missing.
    """

    pid: int
    place: int
    of: int
    started: float
    limit: int
    sessions: int
    states: dict[str, int]
    counters: dict[str, int]


class SessionStatus(NamedTuple):
    """A session: the number of its log lines, its client, the port of the server, its state and age in seconds.

    messages: that were queued. tls: the version, or empty. user: of AUTH, or empty.
    """

    number: int
    client: str
    name: str
    port: int
    state: str
    seconds: int
    messages: int
    tls: str
    user: str


_PROCESS = {
    "pid": "number", "place": "number", "of": "number", "started": "time", "limit": "number", "sessions": "number",
    "states": "numbers", "counters": "numbers",
}  # fmt: skip
_SESSION = {
    "number": "number", "client": "text", "name": "text", "port": "number", "state": "text", "seconds": "number",
    "messages": "number", "tls": "text", "user": "text",
}  # fmt: skip


def pack_status(status: ProcessStatus | SessionStatus) -> bytes:
    """Return the line of a status, with its newline."""
    return json.dumps(status._asdict(), ensure_ascii=True).encode() + b"\n"


def unpack_process(line: bytes) -> ProcessStatus:
    """Return the process of a line. Raises FormatError."""
    return ProcessStatus(**_fields(line, _PROCESS))


def unpack_session(line: bytes) -> SessionStatus:
    """Return the session of a line. Raises FormatError."""
    return SessionStatus(**_fields(line, _SESSION))


def _fields(line: bytes, kinds: dict[str, str]) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"status of queue-smtpd: not JSON: {quoted(line[:100])}") from error
    if not isinstance(found, dict) or found.keys() != kinds.keys():
        raise FormatError(f"status of queue-smtpd: other fields than {' '.join(kinds)}: {quoted(line[:100])}")
    for name, value in found.items():
        if not _fits(value, kinds[name]):
            raise FormatError(f"status of queue-smtpd: {name} is no {kinds[name]}: {quoted(line[:100])}")
    return found


def _fits(value: Any, kind: str) -> bool:
    if kind == "time":
        return isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value < 2**53
    if kind == "text":
        return isinstance(value, str)
    if kind == "number":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return isinstance(value, dict) and all(_fits(number, "number") for number in value.values())
