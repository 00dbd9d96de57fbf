"""sendmail -bs: replies in SMTP that there is no SMTP server here.

A server that greets with 554 waits for QUIT, and replies 503 to other commands (RFC 5321 section 3.1).
"""

from queue_base.control import read_me
from queue_base.durable import write_all
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_inject.sendmail.exit_codes import UNAVAILABLE
from queue_inject.source import Deadline, TimedSource, guard_descriptors

# The limit for the whole dialogue. A server waits this long for a command (RFC 5321 section 4.5.3.2.7).
SECONDS = 300.0
LINE_MAX = 4096
_WHY = b"5.3.2 there is no SMTP server here; use sendmail -t, sendmail RECIPIENT ... or queue-inject"


def refuse_smtp(home: Home) -> int:
    """Hold the dialogue on descriptors 0 and 1; return the exit code. Raises QueueTrouble, Temporary."""
    guard_descriptors(needed=2)
    me = read_me(home)
    _reply(b"554 %s %s" % (me, _WHY))
    rest = b""
    for data in TimedSource(0, "SMTP commands on standard input", Deadline(SECONDS)):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip().lower() == b"quit":
                _reply(b"221 2.0.0 %s" % me)
                return UNAVAILABLE
            _reply(b"503 " + _WHY)
        # A line without end is cut: its beginning shows that it is not QUIT.
        rest = rest[:LINE_MAX]
    return UNAVAILABLE


def _reply(text: bytes) -> None:
    try:
        write_all(1, text + b"\r\n")
    except OSError as error:
        raise Temporary(f"unable to write standard output: {reason(error)}") from error
