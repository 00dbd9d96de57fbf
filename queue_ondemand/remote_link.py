"""The pipes to queue-ondemand's own queue-remote: jobs out, reports in. queue-start has started it, as account queuer.

It speaks the protocol of queue-send's queue-remotes (queue_wire.pipes.job, report). Jobs have numbers of their own; who
has started one gets its report with that number. Jobs go over a Unix socket, since the connections of hosts that ask
with ATRN are passed to it, too.
"""

import os
import select
import socket
from collections import deque
from itertools import islice

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.daemon.unix_sockets import send_with_descriptor
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.job import PROBE, RELEASE, REREAD, Job, ReversedHost, pack_job, pack_reversed
from queue_wire.pipes.report import LogLine, Report, unpack_report

_CHUNK = 65536


class RemoteLink:
    """It has begun when the first job comes: queue-remote waits for that before it imports most of its code."""

    def __init__(self, jobs: int, reports: int) -> None:
        """`jobs` and `reports` are descriptors; `jobs` is that of a Unix socket."""
        self._socket = socket.socket(fileno=os.dup(jobs))
        self._socket.setblocking(False)
        self._unwritten = bytearray()
        self._written = 0
        # Connections that are to be passed, each with the byte of the stream that has this number.
        self._passed: deque[tuple[int, int]] = deque()
        self._reports = reports
        self._reader = NetstringReader()
        self._number = 0

    def start(self, path: bytes, sender: bytes, nexthop: bytes, recipients: list[bytes]) -> int:
        """Give it a job, which `flush` writes; return its number."""
        self._number += 1
        self._unwritten += pack_job(Job(self._number, path, sender, nexthop, recipients))
        return self._number

    def probe(self, domain: bytes) -> int:
        """Have it connect to a domain's host, and send nothing; return the number."""
        return self.start(PROBE, b"", domain, [b"@" + domain])

    def reverse(self, host: ReversedHost, descriptor: int) -> None:
        """Have it deliver jobs over a host's connection, up to `release`. The descriptor is closed once passed."""
        self._passed.append((self._written + len(self._unwritten), descriptor))
        self._unwritten += pack_reversed(host._replace(inode=os.fstat(descriptor).st_ino))

    def release(self, domain: bytes) -> int:
        """Have it close the connection of a domain; return the number."""
        return self.start(RELEASE, b"", domain, [b"@" + domain])

    def reread(self) -> None:
        """Have it read its control files again."""
        self._unwritten += pack_netstring(REREAD)

    def prepare(self, poll: "select.poll") -> None:
        """Register the pipes."""
        poll.register(self._reports, select.POLLIN)
        if self._unwritten:
            poll.register(self._socket.fileno(), select.POLLOUT)

    def flush(self) -> None:
        """Write the jobs that the socket takes. Raises PeerLost."""
        while self._unwritten:
            # A descriptor comes with the first byte of what is sent, so that ends where the next one is due.
            due = [place - self._written for place, _ in islice(self._passed, 2)]
            piece = bytes(self._unwritten[: min([_CHUNK, *filter(None, due)])])
            try:
                if due and not due[0]:
                    done = send_with_descriptor(self._socket, piece, self._passed[0][1])
                    os.close(self._passed.popleft()[1])
                else:
                    done = self._socket.send(piece)
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(str(error)) from error
            del self._unwritten[:done]
            self._written += done

    def read(self, ready: dict[int, int]) -> list[Report]:
        """Return the reports that have come. Raises PeerLost, FormatError."""
        if self._reports not in ready:
            return []
        self._reader.feed(read_available(self._reports) or b"")
        found = []
        while (payload := self._reader.next()) is not None:
            report = unpack_report(payload)
            if isinstance(report, Report):
                found.append(report)
            elif isinstance(report, LogLine):
                raise FormatError("report: a log line of queue-remote")
        return found
