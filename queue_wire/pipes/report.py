"""queue-remote and queue-local to queue-send: one netstring per report, fields separated by NULs.

    number \\0 scope \\0 verdict [\\0 verdict ...]     verdicts in the order of the job's recipients
    ready \\0 jobs                                    once, at start: the number of jobs taken at once
    settings \\0 lines                               answer to `reread`: what is in force (queue_wire.admin.settings)
    log \\0 line                                     queue-ondemand: a line for the log
    slow \\0 number \\0 address                       queue-remote: where a job is that is in flight for some seconds
    partial \\0 number \\0 verdict [\\0 verdict ...]   queue-remote: who of a job in flight has the message already

Scope is `m` (about the message or its recipients) or `h` (the nexthop could not be reached or greeted). queue-remote
adds to `h` the route by which it tried: the name of the relays, or the domain where mail exchangers count.
A verdict is one letter and text: K success, Z temporary, D permanent. In `partial` it is a success, or empty; the
report that ends the job has all of them.
"""

import re
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.logline import LINE_MAX
from queue_wire.pipes.framing import pack_netstring

SUCCESS = b"K"
TEMPORARY = b"Z"
PERMANENT = b"D"
MESSAGE_SCOPE = b"m"
HOST_SCOPE = b"h"
_LINE = re.compile(rb"ondemand [ -~]*")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_ADDRESS = re.compile(rb"[!-~]{1,108}")  # As long as the path of a Unix socket may be.


class Report(NamedTuple):
    """The outcome of one job: its number, the scope, and (letter, text) for each recipient in order.

    `route` is how the host was tried, if the scope is HOST_SCOPE; empty if the daemon has no routes.
    """

    number: int
    scope: bytes
    verdicts: list[tuple[bytes, bytes]]
    route: bytes = b""


class Ready(NamedTuple):
    """The first message of a delivery daemon: the number of jobs that it takes at once."""

    jobs: int


class SettingsReport(NamedTuple):
    """What a delivery daemon has in force of its control files, as pack_in_force has it."""

    lines: bytes


class LogLine(NamedTuple):
    """A line for the log of queue-send, as queue_wire.logline makes it."""

    line: bytes


class SlowJob(NamedTuple):
    """The number of a job that is in flight for some seconds, and the address of the server that it is at, or tries."""

    number: int
    address: bytes


class PartialReport(NamedTuple):
    """A job in flight: in order a success for each recipient who has the message now; the others' letters are empty."""

    number: int
    verdicts: list[tuple[bytes, bytes]]


def pack_report(report: Report) -> bytes:
    """Return the report as a netstring; a NUL in a verdict's text becomes `_`."""
    scope = report.scope + report.route
    if len(report.verdicts) == 1:
        [(letter, text)] = report.verdicts
        return pack_netstring(b"%d\0%s\0%s%s" % (report.number, scope, letter, text.replace(b"\0", b"_")))
    verdicts = [letter + text.replace(b"\0", b"_") for letter, text in report.verdicts]
    return pack_netstring(b"\0".join([b"%d" % report.number, scope, *verdicts]))


def pack_ready(jobs: int) -> bytes:
    """Return the greeting as a netstring."""
    return pack_netstring(b"ready\0%d" % jobs)


def pack_settings(report: SettingsReport) -> bytes:
    """Return what is in force as a netstring."""
    return pack_netstring(b"settings\0" + report.lines.replace(b"\0", b"_"))


def pack_log_line(line: bytes) -> bytes:
    """Return a line for the log as a netstring."""
    return pack_netstring(b"log\0" + line)


def pack_slow_job(job: SlowJob) -> bytes:
    """Return the word about a job as a netstring."""
    return pack_netstring(b"slow\0%d\0%s" % (job.number, job.address))


def pack_partial_report(report: PartialReport) -> bytes:
    """Return the successes so far as a netstring; a NUL in a verdict's text becomes `_`."""
    verdicts = [letter + text.replace(b"\0", b"_") for letter, text in report.verdicts]
    return pack_netstring(b"\0".join([b"partial", b"%d" % report.number, *verdicts]))


def unpack_report(payload: bytes) -> Report | Ready | SettingsReport | LogLine | SlowJob | PartialReport:
    """Return what is in one netstring's payload. Raises FormatError.

    The caller checks the number of verdicts. An unknown letter is kept, so that the log says "report mangled".
    """
    fields = payload.split(b"\0")
    number = fields[0]
    if number == b"ready" and len(fields) == 2 and fields[1].isdigit() and len(fields[1]) < 10:
        return Ready(int(fields[1]))
    if number == b"settings" and len(fields) == 2:
        return SettingsReport(fields[1])
    if number == b"log" and len(fields) == 2 and len(fields[1]) <= LINE_MAX and _LINE.fullmatch(fields[1]):
        return LogLine(fields[1])
    if number == b"slow" and len(fields) == 3 and _NUMBER.fullmatch(fields[1]) and _ADDRESS.fullmatch(fields[2]):
        return SlowJob(int(fields[1]), fields[2])
    if number == b"partial" and len(fields) > 2 and _NUMBER.fullmatch(fields[1]):
        if any(verdict[:1] not in (b"", SUCCESS) for verdict in fields[2:]):
            raise FormatError(f"report: a part that is no success: {quoted(payload)}")
        return PartialReport(int(fields[1]), [(verdict[:1], verdict[1:]) for verdict in fields[2:]])
    if len(fields) < 3 or not number.isdigit() or len(number) > 18:
        raise FormatError(f"report: not number, scope, verdicts: {quoted(payload)}")
    scope, route = fields[1][:1], fields[1][1:]
    if scope != HOST_SCOPE and fields[1] != MESSAGE_SCOPE:
        raise FormatError(f"report: unknown scope: {quoted(fields[1])}")
    return Report(int(number), scope, [(verdict[:1], verdict[1:]) for verdict in fields[2:]], route)
