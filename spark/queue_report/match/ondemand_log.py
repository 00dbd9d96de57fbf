"""The lines of queue-ondemand, `ondemand DOMAIN …`, as stored recipients and runs.

A stored recipient begins with `stored`, and ends with `done` or `requeued`. If it was stored twice, as after a crash,
the last one ends first: so what a segment of the log has of it does not depend on what was before. A line about one
that is not open is of one that was stored before the log began, or that ends a second time.

A run of a domain begins with `started` and ends with `ended`; one that carries out an order of the administrator, or
looks for expired mail, has only the latter. A run that is open when the next one of its domain starts was killed.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from queue_report.match.rows import Columns, Rows, fill
from queue_report.match.smtp_log import born_of

# Domain, long id, recipient.
StoredKey: TypeAlias = tuple[bytes, bytes, bytes]
# A row by column name, but for host and queue; texts may be bytes.
Row: TypeAlias = dict[str, Any]
RECIPIENT_MAX = 300  # Bytes of a recipient that `done` has.
_RESULTS = {b"success": "success", b"failure": "failure", b"deferral": "deferral", b"requeued": "requeued"}


class OpenStored:
    """A recipient that is stored. There may be a million. `below`: the same one, which was stored before."""

    __slots__ = ("below", "deferrals", "sender", "size", "start_ns")

    def __init__(self, start_ns: int, sender: bytes, size: int, deferrals: int = 0) -> None:
        self.start_ns, self.sender, self.size, self.deferrals = start_ns, sender, size, deferrals
        self.below: OpenStored | None = None


class OpenRun:
    """A run that has not ended. start_ns, cause: None for one that has no `started`. The counts are of its lines."""

    __slots__ = ("cause", "deferrals", "failures", "start_ns", "successes")

    def __init__(self, start_ns: int | None, cause: bytes | None) -> None:
        self.start_ns, self.cause = start_ns, cause
        self.successes = self.failures = self.deferrals = 0

    def count(self, result: str) -> None:
        """Count a line of a recipient."""
        self.successes += result == "success"
        self.failures += result == "failure"
        self.deferrals += result == "deferral"


OpenRecipients: TypeAlias = dict[StoredKey, OpenStored]
OpenRuns: TypeAlias = dict[bytes, OpenRun]


class OnDemandRows:
    """Rows that are complete."""

    def __init__(self) -> None:
        self.stored: list[Row] = []
        self.runs: list[Row] = []

    def clear(self) -> None:
        self.stored.clear()
        self.runs.clear()

    def add_to(self, rows: Rows, place: Mapping[str, str]) -> None:
        """Add them to the rows of the tables."""
        for table, found in (("stored", self.stored), ("runs", self.runs)):
            if found:
                names = {name for row in found for name in row}
                columns: Columns = {name: [row.get(name) for row in found] for name in names}
                rows[table] = fill(table, columns, place, len(found))


def key_of(domain: bytes, long_id: bytes, recipient: bytes) -> StoredKey:
    """Return what a stored recipient is known by in all its lines."""
    return domain, long_id, recipient[:RECIPIENT_MAX]


def push(stored: OpenRecipients, key: StoredKey, one: OpenStored) -> None:
    """A recipient is stored."""
    one.below = stored.get(key)
    stored[key] = one


def end_stored(
    stored: OpenRecipients, found: OnDemandRows, at: int, key: StoredKey, result: str, reason: bytes
) -> None:
    """A stored recipient ends: the one that was stored last."""
    one = stored.pop(key, None)
    if one is not None and one.below is not None:
        stored[key] = one.below
    domain, long_id, recipient = key
    row: Row = {"domain": domain, "long_id": long_id, "id": born_of(long_id)[0], "recipient": recipient, "done_ns": at}
    row.update(result=result, reason=reason, deferrals=0, start_ns=None, sender=None, bytes=None)
    if one is not None:
        row.update(start_ns=one.start_ns, sender=one.sender, bytes=one.size, deferrals=one.deferrals)
    found.stored.append(row)


def end_run(runs: OpenRuns, found: OnDemandRows, at: int | None, domain: bytes, counts: tuple[int, int, int]) -> None:
    """A run ends; `at` is None if it was killed. counts: delivered, failed and deferred, as its end has them."""
    run = runs.pop(domain, None)
    if at is None and (run is None or run.start_ns is None):
        return  # Of one that was killed and has no beginning, nothing is known.
    run = run or OpenRun(None, None)
    row: Row = {"domain": domain, "cause": run.cause, "start_ns": run.start_ns, "done_ns": at}
    row.update(successes=run.successes, failures=run.failures, deferrals=run.deferrals)
    row.update(zip(("delivered", "failed", "deferred"), counts if at is not None else (None, None, None), strict=True))
    found.runs.append(row)


def result_of(word: bytes) -> str:
    """Return a result as the tables have it."""
    return _RESULTS[word]
