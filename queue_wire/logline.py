"""The log: qmail-send's lines, to the letter. Each function returns one line without its newline.

Text from outside is escaped as qmail does: newline becomes `/`; `%`, bytes below 33 and above 126
become `_`. No line is longer than LINE_MAX; the outside text is what gives way. LOGS.md lists them all.
"""

import datetime

LINE_MAX = 1000

_ESCAPED = bytes(
    ord("/") if byte == 10 else ord("_") if byte < 33 or byte > 126 or byte == ord("%") else byte
    for byte in range(256)
)
_RESULTS = {b"K": b"success", b"Z": b"deferral", b"D": b"failure"}


def escape(text: bytes) -> bytes:
    """Return `text` without a space, a newline or anything that is not printable ASCII."""
    return text.translate(_ESCAPED)


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as `2026-11-20T13:11:21Z` (UTC); as a number if no date has it."""
    try:
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(int(seconds))


def _line(head: bytes, text: bytes, tail: bytes = b"") -> bytes:
    """Return head, escaped text cut to what fits, tail."""
    return head + escape(text[: LINE_MAX - len(head) - len(tail)]) + tail


def status(local: int, local_limit: int, remote: int, remote_limit: int, leaving: bool) -> bytes:
    """Deliveries in flight and their limits; `leaving` once TERM has come."""
    line = b"status: local %d/%d remote %d/%d" % (local, local_limit, remote, remote_limit)
    return line + b" exitasap" if leaving else line


EXITING = b"status: exiting"


def new_message(message: int) -> bytes:
    """A message was found in todo/."""
    return b"new msg %d" % message


def info_message(message: int, size: int, sender: bytes, pid: int, uid: int) -> bytes:
    """What is known of a message: bytes of mess/B/I, sender, and pid and uid of its injector."""
    return _line(b"info msg %d: bytes %d from <" % (message, size), sender, b"> qp %d uid %d" % (pid, uid))


def injector(line: bytes) -> int | None:
    """Return the pid in a line of info_message; None for any other line."""
    if not line.startswith(b"info msg "):
        return None
    pid = line.rpartition(b"> qp ")[2].partition(b" ")[0]
    return int(pid) if pid.isdigit() and len(pid) <= 18 else None


def starting_delivery(delivery: int, message: int, channel: bytes, recipient: bytes) -> bytes:
    """A delivery starts; channel is `local` or `remote`."""
    return _line(b"starting delivery %d: msg %d to %s " % (delivery, message, channel), recipient)


def delivery_result(delivery: int, letter: bytes, text: bytes) -> bytes:
    """A delivery ended with K, Z or D; any other letter is a mangled report."""
    result = _RESULTS.get(letter)
    if result is None:
        return b"delivery %d: report mangled, will defer" % delivery
    return _line(b"delivery %d: %s: " % (delivery, result), text)


def bounce_message(message: int, pid: int) -> bytes:
    """A bounce of the message was injected by process `pid`."""
    return b"bounce msg %d qp %d" % (message, pid)


def delay_message(message: int, pid: int) -> bytes:
    """A notice that the message is delayed was injected by process `pid`."""
    return b"delay msg %d qp %d" % (message, pid)


def triple_bounce(message: int) -> bytes:
    """A bounce of a double bounce: discarded."""
    return b"triple bounce: discarding bounce/%d" % message


def end_message(message: int) -> bytes:
    """Nothing is left to do for the message; its files are about to go."""
    return b"end msg %d" % message


def corrupt_message(message: int, reason: str) -> bytes:
    """The message is parked in corrupt/; the reason keeps its spaces but nothing else unprintable."""
    return _spaced(b"corrupt msg %d: " % message, reason)


def hold_message(message: int, reason: bytes) -> bytes:
    """The message is frozen, or is to end without another delivery; the reason keeps its spaces."""
    return _spaced(b"hold msg %d: " % message, reason.decode("utf-8", "backslashreplace"))


def release_message(message: int) -> bytes:
    """The message is no longer held or parked."""
    return b"release msg %d" % message


def destination_dead(nexthop: bytes, probe: int, turned_away: int) -> bytes:
    """A nexthop is dead: its mail is deferred without an attempt; the next probe is in `probe` seconds."""
    return _line(b"dest ", nexthop, b" dead: probe in %d s, %d recipients deferred" % (probe, turned_away))


def destination_alive(nexthop: bytes, turned_away: int) -> bytes:
    """A dead nexthop took a probe; so many recipients were deferred without an attempt in between."""
    return _line(b"dest ", nexthop, b" alive: %d recipients were deferred without an attempt" % turned_away)


def inflow(word: str, waiting: int, seconds: int) -> bytes:
    """Injectors are from now on `slow`, `refused` or `free`; so many messages wait, the next one for so long."""
    what = f"{waiting} messages wait in todo, the next one for {seconds} s"
    return _spaced(b"inflow ", f"{word}: {what}")


def inflow_space(path: str) -> bytes:
    """The disk has room for more mail again."""
    return _spaced(b"inflow ", f"free: there is room on {path} again")


def alert(text: str) -> bytes:
    """Something that needs a person."""
    return _spaced(b"alert: ", text)


def warning(text: str) -> bytes:
    """Something that will be tried again."""
    return _spaced(b"warning: ", text)


def _spaced(head: bytes, text: str) -> bytes:
    """As _line, for our own words: each is escaped, the spaces between them stay."""
    words = text.encode("utf-8", "backslashreplace").split(b" ")
    return (head + b" ".join(escape(word) for word in words))[:LINE_MAX]
