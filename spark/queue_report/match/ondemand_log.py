"""The lines of queue-ondemand, `ondemand DOMAIN …`, as stored recipients and runs.

A stored recipient begins with `stored`, and ends with `done` or `requeued`. If it was stored twice, as after a crash,
the last one ends first. A line about one that is not open is of one that was stored before the log began, or that ends
a second time.

A run of a domain begins with `started` and ends with `ended`; one that carries out an order of the administrator, or
looks for expired mail, has only the latter. A run that is open when the next one of its domain starts was killed.
"""

from queue_report.match.found import Found, LineRow, Row
from queue_report.match.rows import born_of
from queue_report.match.state import OpenRun, OpenStored, State, StoredKey

RECIPIENT_MAX = 300  # Bytes of a recipient that `done` has.


def _key(domain: bytes, long_id: bytes, recipient: bytes) -> StoredKey:
    """Return what a stored recipient is known by in all its lines."""
    return domain, long_id, recipient[:RECIPIENT_MAX]


def stored(
    state: State, found: Found, at: int, domain: bytes, long_id: bytes, size: int, sender: bytes, recipient: bytes
) -> None:
    state.push(_key(domain, long_id, recipient), OpenStored(at, sender, size))


def done(
    state: State, found: Found, at: int, domain: bytes, long_id: bytes, recipient: bytes, result: bytes, reason: bytes
) -> None:
    _end_stored(state, found, at, _key(domain, long_id, recipient), result, reason)
    _count_in_run(state, domain, result)


def stays(state: State, found: Found, at: int, domain: bytes, long_id: bytes, recipient: bytes, reason: bytes) -> None:
    one = state.stored.get(_key(domain, long_id, recipient))
    if one is not None:
        one.deferrals += 1
    _count_in_run(state, domain, b"deferral")


def requeued(state: State, found: Found, at: int, domain: bytes, long_id: bytes, qp: int, recipient: bytes) -> None:
    _end_stored(state, found, at, _key(domain, long_id, recipient), b"requeued", b"qp_%d" % qp)


def _end_stored(state: State, found: Found, at: int, key: StoredKey, result: bytes, reason: bytes) -> None:
    """A stored recipient ends: the one that was stored last."""
    domain, long_id, recipient = key
    row: Row = {"domain": domain, "long_id": long_id, "id": born_of(long_id)[0], "recipient": recipient, "done_ns": at}
    row |= {"result": result, "reason": reason, "deferrals": 0}
    one = state.stored.pop(key, None)
    if one is not None:
        row |= {"start_ns": one.start_ns, "sender": one.sender, "bytes": one.size, "deferrals": one.deferrals}
        if one.below is not None:
            state.stored[key] = one.below
    found.rows["stored"].append(row)


def _count_in_run(state: State, domain: bytes, result: bytes) -> None:
    state.runs.setdefault(domain, OpenRun(None, None)).count(result)


def started(state: State, found: Found, at: int, domain: bytes, cause: bytes) -> None:
    run = state.runs.get(domain)
    # Of one that was killed and has no beginning, nothing is known.
    if run is not None and run.start_ns is not None:
        _end_run(found, domain, run, {})
    state.runs[domain] = OpenRun(at, cause)


def ended(state: State, found: Found, at: int, domain: bytes, delivered: int, failed: int, deferred: int) -> None:
    run = state.runs.pop(domain, None) or OpenRun(None, None)
    _end_run(found, domain, run, {"done_ns": at, "delivered": delivered, "failed": failed, "deferred": deferred})


def _end_run(found: Found, domain: bytes, run: OpenRun, end: Row) -> None:
    row: Row = {"domain": domain, "cause": run.cause, "start_ns": run.start_ns, "successes": run.successes}
    found.rows["runs"].append({**row, "failures": run.failures, "deferrals": run.deferrals, "done_ns": None, **end})


LINES: tuple[LineRow, ...] = (
    ("ondemand", "ondemand {domain$} stored {id$}: bytes {bytes} from <{sender$}> to {recipient$}", stored),
    ("ondemand", "ondemand {domain$} done {id$}: to {recipient$} {result=success|failure}: {reason$}", done),
    ("ondemand", "ondemand {domain$} stays {id$}: to {recipient$} deferral: {reason$}", stays),
    ("ondemand", "ondemand {domain$} requeued {id$}: qp {qp} to {recipient$}", requeued),
    ("ondemand", "ondemand {domain$} started: {cause$}", started),
    ("ondemand", "ondemand {domain$} ended: delivered {delivered} failed {failed} deferred {deferred}", ended),
    ("ondemand", "ondemand {domain$} {text$$}", None),
)
