"""The lines of queue-smtpd's log about the session in which a message came.

The line `smtp N: queued ID` names the session and the message. With it go those that begin the session, and those of
this transaction: a session may have thousands of others.
"""

import re
from collections.abc import Callable, Iterator

from queue_admin.logs.log_files import Concerns, Line

Lines = Callable[[int, Concerns], Iterator[Line]]  # LogSource.lines

# In nanoseconds: how long after the birth the line `queued` is looked for, and how long before it the session begins.
LATER = 600 * 1_000_000_000
EARLIER = 3600 * 1_000_000_000
_LINE = re.compile(rb"smtp (\d{1,20}): ([a-z]+)")
_OPENING = (b"connect", b"tls", b"auth")
_ENDINGS = (b"queued", b"discarded", b"dropped", b"end")


def session_lines(lines: Lines, queue_id: str, birth: int) -> list[Line]:
    """Return the lines up to `queued`, none if there is no such line. `birth` is in microseconds since the epoch.

    Of a session that began more than an hour before, the begin is left out. Raises what `lines` raises.
    """
    needle = b" queued %s " % queue_id.encode("ascii")
    found = _find_queued(lines, needle, birth * 1000)
    return [] if found is None else _of_transaction(lines, found, needle, birth * 1000)


def _find_queued(lines: Lines, needle: bytes, birth: int) -> bytes | None:
    """Return the number of the session."""

    # The others come often, and say where the search is.
    def concerns(line: bytes) -> bool:
        return needle in line or b" connect " in line or b"status: " in line

    for when, text in lines(birth, concerns):
        if when > birth + LATER:
            return None
        about = _LINE.match(text)
        if about is not None and about[2] == b"queued" and needle in text:
            return about[1]
    return None


def _of_transaction(lines: Lines, session: bytes, needle: bytes, birth: int) -> list[Line]:
    opening: list[Line] = []
    transaction: list[Line] = []
    mine = b" smtp %s: " % session
    for when, text in lines(birth - EARLIER, lambda line: mine in line):
        about = _LINE.match(text)
        if about is None or about[1] != session:
            continue
        if about[2] == b"queued" and needle in text:
            return [*opening, *transaction, (when, text)]
        if about[2] in _OPENING:
            opening = [*(opening if about[2] != b"connect" else []), (when, text)]
        if about[2] in (b"connect", b"from", *_ENDINGS):
            transaction = []
        if about[2] not in (*_OPENING, *_ENDINGS):
            transaction.append((when, text))
    return []
