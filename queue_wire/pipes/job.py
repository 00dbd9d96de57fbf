"""queue-send to queue-remote and queue-local: one netstring per job, fields separated by NULs.

    number \\0 mess/B/I \\0 sender \\0 nexthop \\0 recipient [\\0 recipient ...]
    reread        read the control files again, and say what is in force (report.py)

The path is relative to queue/. For queue-local the nexthop is the recipient.
"""

import re
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import pack_netstring

REREAD = b"reread"
_PATH = re.compile(rb"mess/[0-9]+/[0-9]+")


class Job(NamedTuple):
    """One job. `path` is the message's, relative to queue/. There is at least one recipient."""

    number: int
    path: bytes
    sender: bytes
    nexthop: bytes
    recipients: list[bytes]


def pack_job(job: Job) -> bytes:
    """Return the job as a netstring, ready for the pipe."""
    return pack_netstring(b"%d\0%s\0%s\0%s\0%s" % (*job[:4], b"\0".join(job.recipients)))


def unpack_job(payload: bytes) -> Job:
    """Return the job in one netstring's payload. Raises FormatError.

    The path must be `mess/B/I` in digits, so that a damaged job cannot name another file.
    """
    number, *fields = payload.split(b"\0")
    if len(fields) < 4 or not number.isdigit() or len(number) > 18:
        raise FormatError(f"job: not number, path, sender, nexthop, recipients: {quoted(payload)}")
    path = fields[0]
    if not _PATH.fullmatch(path):
        raise FormatError(f"job: not a message path: {quoted(path)}")
    return Job(int(number), path, fields[1], fields[2], fields[3:])
