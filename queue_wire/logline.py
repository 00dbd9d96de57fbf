"""The lines of the log, identical to qmail-send's where it has them. Each function returns a line without newline.

Text from outside is escaped as in qmail: newline becomes `/`; `%`, bytes below 33 and bytes above 126 become `_`. A
line has at most LINE_MAX bytes; a longer one loses the end of its text from outside.
"""

import datetime

LINE_MAX = 1000

_ESCAPED = bytes(
    ord("/") if byte == 10 else ord("_") if byte < 33 or byte > 126 or byte == ord("%") else byte
    for byte in range(256)
)
_RESULTS = {b"K": b"success", b"Z": b"deferral", b"D": b"failure"}


def escape(text: bytes) -> bytes:
    """Return `text` as printable ASCII without spaces."""
    return text.translate(_ESCAPED)


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as `2026-11-20T13:11:21Z` (UTC); as a number if no date has it."""
    try:
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(int(seconds))


def _line(head: bytes, text: bytes, tail: bytes = b"") -> bytes:
    """Return head, escaped text, tail; the text is cut so that the line fits in LINE_MAX."""
    return head + text[: LINE_MAX - len(head) - len(tail)].translate(_ESCAPED) + tail


def status(local: int, local_limit: int, remote: int, remote_limit: int, leaving: bool) -> bytes:
    """Deliveries in flight and their limits; `leaving` after TERM."""
    line = b"status: local %d/%d remote %d/%d" % (local, local_limit, remote, remote_limit)
    return line + b" exitasap" if leaving else line


EXITING = b"status: exiting"


def new_message(message: int) -> bytes:
    """A message was found in todo/."""
    return b"new msg %d" % message


def info_message(message: int, size: int, sender: bytes, pid: int, uid: int) -> bytes:
    """The size of mess/B/I, the sender, and the pid and uid of the injector."""
    return _line(b"info msg %d: bytes %d from <" % (message, size), sender, b"> qp %d uid %d" % (pid, uid))


def injector(line: bytes) -> int | None:
    """Return the pid of the injector in a line of info_message; None for any other line."""
    if not line.startswith(b"info msg "):
        return None
    pid = line.rpartition(b"> qp ")[2].partition(b" ")[0]
    return int(pid) if pid.isdigit() and len(pid) <= 18 else None


def starting_delivery(delivery: int, message: int, channel: bytes, recipient: bytes) -> bytes:
    """A delivery starts; channel is `local` or `remote`."""
    return _line(b"starting delivery %d: msg %d to %s " % (delivery, message, channel), recipient)


def delivery_result(delivery: int, letter: bytes, text: bytes) -> bytes:
    """A delivery ended with K, Z or D. Any other letter is logged as a mangled report."""
    result = _RESULTS.get(letter)
    if result is None:
        return b"delivery %d: report mangled, will defer" % delivery
    return _line(b"delivery %d: %s: " % (delivery, result), text)


def bounce_message(message: int, pid: int) -> bytes:
    """A bounce of the message was injected by process `pid`."""
    return b"bounce msg %d qp %d" % (message, pid)


def delay_message(message: int, pid: int) -> bytes:
    """A delay notice for the message was injected by process `pid`."""
    return b"delay msg %d qp %d" % (message, pid)


def triple_bounce(message: int) -> bytes:
    """A double bounce bounced; it is discarded."""
    return b"triple bounce: discarding bounce/%d" % message


def end_message(message: int) -> bytes:
    """The message is finished; its files will be removed."""
    return b"end msg %d" % message


def corrupt_message(message: int, reason: str) -> bytes:
    """The message is marked as corrupt. The reason keeps its spaces."""
    return _spaced(b"corrupt msg %d: " % message, reason)


def delete_message(message: int) -> bytes:
    """The administrator has deleted the message: it ends without another delivery."""
    return b"delete msg %d: by the administrator" % message


def hold_message(message: int, reason: bytes) -> bytes:
    """The message is frozen, or will be returned without another delivery. The reason keeps its spaces."""
    return _spaced(b"hold msg %d: " % message, reason.decode("utf-8", "backslashreplace"))


def requeue_message(message: int, old: str, new: str) -> bytes:
    """The message has another birth, and so another long id, by the administrator."""
    return b"requeue msg %d: %s is %s now" % (message, old.encode(), new.encode())


def release_message(message: int) -> bytes:
    """The message is no longer held or corrupt."""
    return b"release msg %d" % message


def destination_dead(nexthop: bytes, probe: int, turned_away: int) -> bytes:
    """A nexthop is dead: its mail is deferred without an attempt. The next probe is in `probe` seconds."""
    return _line(b"dest ", nexthop, b" dead: probe in %d s, %d recipients deferred" % (probe, turned_away))


def destination_alive(nexthop: bytes, turned_away: int) -> bytes:
    """A dead nexthop accepted a probe. `turned_away` recipients were deferred without an attempt meanwhile."""
    return _line(b"dest ", nexthop, b" alive: %d recipients were deferred without an attempt" % turned_away)


def inflow(word: str, waiting: int, seconds: int) -> bytes:
    """Injectors are now `slow`, `refused` or `free`. `waiting` messages are in todo/, the next one for `seconds`."""
    what = f"{waiting} messages wait in todo, the next one for {seconds} s"
    return _spaced(b"inflow ", f"{word}: {what}")


def inflow_space(path: str) -> bytes:
    """The disk has space for more mail again."""
    return _spaced(b"inflow ", f"free: there is room on {path} again")


def config_change(text: str) -> bytes:
    """A control file was read again, and this has changed."""
    return _spaced(b"config ", text)


def alert(text: str) -> bytes:
    """An event that needs a person."""
    return _spaced(b"alert: ", text)


def warning(text: str) -> bytes:
    """A failure that will be tried again."""
    return _spaced(b"warning: ", text)


def _spaced(head: bytes, text: str) -> bytes:
    """As _line, for our own text: each word is escaped, and the spaces are kept."""
    words = text.encode("utf-8", "backslashreplace").split(b" ")
    return (head + b" ".join(escape(word) for word in words))[:LINE_MAX]


def stored_on_demand(domain: bytes, long_id: str, size: int, sender: bytes, recipient: bytes) -> bytes:
    """A recipient of a message was stored for an on-demand domain."""
    head = b"ondemand %s stored %s: bytes %d from <%s> to " % (domain, long_id.encode(), size, escape(sender)[:300])
    return _line(head, recipient)


def run_started(domain: bytes, cause: bytes) -> bytes:
    """The delivery of what is stored for a domain begins; the cause is `etrn`, `probe`, `flush` or `expiry`."""
    return b"ondemand %s started: %s" % (domain, cause)


def on_demand_result(domain: bytes, long_id: str, letter: bytes, recipient: bytes, text: bytes) -> bytes:
    """The result of a stored recipient: with K and D it is done, with Z it stays."""
    word = _RESULTS.get(letter, b"deferral")
    kind = b"stays" if word == b"deferral" else b"done"
    to = escape(recipient)[:300]
    return _line(b"ondemand %s %s %s: to %s %s: " % (domain, kind, long_id.encode(), to, word), text)


def run_ended(domain: bytes, delivered: int, failed: int, deferred: int) -> bytes:
    """A run is over: the recipients that have the mail, those that failed, and those that were tried and stay."""
    return b"ondemand %s ended: delivered %d failed %d deferred %d" % (domain, delivered, failed, deferred)


def on_demand_requeue(domain: bytes, long_id: str, pid: int, recipient: bytes) -> bytes:
    """A stored recipient went back into the queue, with the message that process `pid` has injected."""
    return _line(b"ondemand %s requeued %s: qp %d to " % (domain, long_id.encode(), pid), recipient)


def on_demand_bounce(domain: bytes, long_id: str, pid: int) -> bytes:
    """A bounce of a stored message was injected by process `pid`; 0: its sender is that of a double bounce."""
    if not pid:
        return b"ondemand %s discarded %s: triple bounce" % (domain, long_id.encode())
    return b"ondemand %s bounced %s: qp %d" % (domain, long_id.encode(), pid)
