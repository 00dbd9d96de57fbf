"""The pipes to queue-ondemand's own queue-remote: jobs out, reports in. queue-start has started it, as account queuer.

It speaks the protocol of queue-send's queue-remotes (queue_wire.pipes.job, report). Jobs have numbers of their own; who
has started one gets its report with that number.
"""

import select

from queue_base.daemon.pipes import OutPipe, read_available
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.job import PROBE, REREAD, Job, pack_job
from queue_wire.pipes.report import Ready, Report, SettingsReport, unpack_report


class RemoteLink:
    """`capacity`: jobs that it takes at once, None before it has said so."""

    def __init__(self, jobs: int, reports: int) -> None:
        """`jobs` and `reports` are descriptors."""
        self.capacity: int | None = None
        self._out = OutPipe(jobs)
        self._reports = reports
        self._reader = NetstringReader()
        self._number = 0

    def start(self, path: bytes, sender: bytes, nexthop: bytes, recipients: list[bytes]) -> int:
        """Give it a job, which `flush` writes; return its number."""
        self._number += 1
        self._out.put(pack_job(Job(self._number, path, sender, nexthop, recipients)))
        return self._number

    def probe(self, domain: bytes) -> int:
        """Have it connect to a domain's host, and send nothing; return the number."""
        return self.start(PROBE, b"", domain, [b"@" + domain])

    def reread(self) -> None:
        """Have it read its control files again."""
        self._out.put(pack_netstring(REREAD))

    def prepare(self, poll: "select.poll") -> None:
        """Register the pipes."""
        poll.register(self._reports, select.POLLIN)
        if self._out.unwritten:
            poll.register(self._out.descriptor, select.POLLOUT)

    def flush(self) -> None:
        """Write the jobs that the pipe takes. Raises PeerLost."""
        self._out.flush()

    def read(self, ready: dict[int, int]) -> list[Report]:
        """Return the reports that have come. Raises PeerLost, FormatError."""
        if self._reports not in ready:
            return []
        self._reader.feed(read_available(self._reports) or b"")
        found = []
        while (payload := self._reader.next()) is not None:
            report = unpack_report(payload)
            if isinstance(report, Ready):
                self.capacity = report.jobs
            elif isinstance(report, Report):
                found.append(report)
            elif not isinstance(report, SettingsReport):
                raise FormatError("report: a log line of queue-remote")
        return found
