"""queue-send to queue-remote and queue-local: one netstring per job, fields separated by NULs.

    number \\0 path \\0 sender \\0 nexthop \\0 recipient [\\0 recipient ...]
    reread        read the control files again, and say what is in force (report.py)
    reversed \\0 inode \\0 address \\0 domain [\\0 domain ...]
                  jobs for these domains are delivered over a connection at whose other end a server is already (ATRN);
                  its descriptor comes with the first byte (SCM_RIGHTS), and is the one with this inode number: if the
                  receiver has no room for a descriptor, that of another host must not take its place

The path is relative to queue/: mess/B/I. queue-ondemand gives queue-remote jobs with the path of a stored message
(queue_wire.files.cluster), or `probe`, which only asks whether the nexthop can be reached and greeted, or `release`:
the reversed connection of the nexthop is not needed any more, and is closed. Success says that it could carry more. For
queue-local the nexthop is the recipient.
"""

import re
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import pack_netstring

REREAD = b"reread"
# The path of a job that connects to its nexthop, and sends nothing.
PROBE = b"probe"
# The path of a job that closes a reversed connection.
RELEASE = b"release"
_PATH = re.compile(
    rb"mess/[0-9]+/[0-9]+|ondemand/[a-z0-9_-][a-z0-9._-]*/mess/[0-9]+\.[0-9]+-[0-9a-z]+|probe|release"
)
_REVERSED = b"reversed"


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

    The path must be one of those above, so that a damaged job cannot name another file.
    """
    number, *fields = payload.split(b"\0")
    if len(fields) < 4 or not number.isdigit() or len(number) > 18:
        raise FormatError(f"job: not number, path, sender, nexthop, recipients: {quoted(payload)}")
    path = fields[0]
    if not _PATH.fullmatch(path):
        raise FormatError(f"job: not a message path: {quoted(path)}")
    return Job(int(number), path, fields[1], fields[2], fields[3:])


class ReversedHost(NamedTuple):
    """A host that is the server on its own connection: its address, and the domains whose mail it takes.

    `inode` is that of the connection's socket.
    """

    address: bytes
    domains: list[bytes]
    inode: int = 0


def pack_reversed(host: ReversedHost) -> bytes:
    """Return the netstring that announces a reversed connection."""
    return pack_netstring(b"\0".join([_REVERSED, b"%d" % host.inode, host.address, *host.domains]))


def unpack_reversed(payload: bytes) -> ReversedHost | None:
    """Return the host of a reversed connection, None if the payload of a netstring is something else."""
    if not payload.startswith(_REVERSED):
        return None
    word, *fields = payload.split(b"\0")
    if word != _REVERSED or len(fields) < 3 or not fields[0].isdigit() or len(fields[0]) > 20:
        return None
    return ReversedHost(fields[1], fields[2:], int(fields[0]))
