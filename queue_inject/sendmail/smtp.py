"""sendmail -bs: says, in SMTP, that there is no SMTP server here.

A server that greets with 554 still waits for QUIT, and answers all else with 503 (RFC 5321 section 3.1).
"""

from queue_base.control import read_me
from queue_base.durable import write_all
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_inject.sendmail.exit_codes import UNAVAILABLE
from queue_inject.source import Deadline, Source, guard_descriptors

# For the whole dialogue; a server waits as long for a command (RFC 5321 section 4.5.3.2.7).
SECONDS = 300.0
LINE_MAX = 4096
_WHY = b"5.3.2 there is no SMTP server here; use sendmail -t, sendmail RECIPIENT ... or queue-inject"


def refuse_smtp(home: Home) -> int:
    """Hold the dialogue on descriptors 0 and 1; return the exit code. Raises QueueTrouble, Temporary."""
    guard_descriptors(needed=2)
    me = read_me(home)
    _say(b"554 %s %s" % (me, _WHY))
    rest = b""
    for data in Source(0, "SMTP commands on standard input", Deadline(SECONDS)):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip().lower() == b"quit":
                _say(b"221 2.0.0 %s" % me)
                return UNAVAILABLE
            _say(b"503 " + _WHY)
        # Of a line without end only so much is kept as shows that it is not QUIT.
        rest = rest[:LINE_MAX]
    return UNAVAILABLE


def _say(reply: bytes) -> None:
    try:
        write_all(1, reply + b"\r\n")
    except OSError as error:
        raise Temporary(f"unable to write standard output: {reason(error)}") from error
