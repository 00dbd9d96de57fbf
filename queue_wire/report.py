"""queue-remote and queue-local to queue-send: one netstring a report, its fields separated by NULs.

    number \\0 scope \\0 verdict [\\0 verdict ...]     verdicts in the order of the job's recipients
    ready \\0 jobs                                    once, at start: how many jobs are taken at once

Scope is `m` (about the message or its recipients) or `h` (the nexthop could not be reached or
greeted). A verdict is one letter and text: K success, Z temporary, D permanent.
"""

from queue_wire.format_error import FormatError, quoted
from queue_wire.framing import pack_netstring

SUCCESS = b"K"
TEMPORARY = b"Z"
PERMANENT = b"D"
MESSAGE_SCOPE = b"m"
HOST_SCOPE = b"h"


class Report:
    """The outcome of one job: its number, the scope, and a (letter, text) for each recipient in order."""

    __slots__ = ("number", "scope", "verdicts")

    def __init__(self, number: int, scope: bytes, verdicts: list[tuple[bytes, bytes]]) -> None:
        self.number = number
        self.scope = scope
        self.verdicts = verdicts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"Report{self._key()}"

    def _key(self) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        return self.number, self.scope, self.verdicts


class Ready:
    """A delivery daemon's greeting: the number of jobs that it takes at once."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ready) and self.jobs == other.jobs

    def __repr__(self) -> str:
        return f"Ready({self.jobs})"


def pack_report(report: Report) -> bytes:
    """Return the report as a netstring; a NUL in a verdict's text becomes `_`."""
    verdicts = [letter + text.replace(b"\0", b"_") for letter, text in report.verdicts]
    return pack_netstring(b"\0".join([b"%d" % report.number, report.scope, *verdicts]))


def pack_ready(jobs: int) -> bytes:
    """Return the greeting as a netstring."""
    return pack_netstring(b"ready\0%d" % jobs)


def unpack_report(payload: bytes) -> Report | Ready:
    """Return the report or greeting in one netstring's payload. Raises FormatError.

    The number of verdicts is the caller's to check; an unknown letter is kept, as "report mangled".
    """
    number, *fields = payload.split(b"\0")
    if number == b"ready" and len(fields) == 1 and fields[0].isdigit() and len(fields[0]) < 10:
        return Ready(int(fields[0]))
    if len(fields) < 2 or not number.isdigit() or len(number) > 18:
        raise FormatError(f"report: not number, scope, verdicts: {quoted(payload)}")
    scope, *verdicts = fields
    if scope not in (MESSAGE_SCOPE, HOST_SCOPE):
        raise FormatError(f"report: unknown scope: {quoted(scope)}")
    return Report(int(number), scope, [(verdict[:1], verdict[1:]) for verdict in verdicts])
