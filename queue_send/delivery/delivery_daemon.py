"""A delivery daemon as queue-send knows it: the pipes to one queue-local or queue-remote, and its jobs in flight.

If several queue-remotes run, a job goes to the process of its host's name. A host's mail then goes through one process,
which reuses its connections and knows its addresses and policies; and no other process holds idle connections to it,
which would come on top of the host's limits. The limits themselves are the scheduler's, and apply to all processes
together: a process has no share of them.
"""

import os
import select
from collections.abc import Sequence
from zlib import crc32

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_send.scheduler.model import Entry
from queue_wire.pipes.framing import NetstringReader

UNWRITTEN_MOST = 1 << 20  # Bytes of jobs that the daemon has not read; if there are more, it is given no job.


class DeliveryDaemon:
    """One process. `name` is its program; `in_flight` has its jobs by number, which is that of their first delivery.

    `finishes`: at an exit the end of its input makes it end its jobs within a time limit, and report on all.
    capacity: jobs that it takes at once, as it reported when it started; None before that.
    unread: there may be whole reports that were read from the pipe and not taken. lost: its pipes are closed.
    """

    __slots__ = (
        "_finishes", "_input_closed", "_jobs", "_reader", "capacity", "in_flight", "lost", "name", "reports", "unread",
    )  # fmt: skip

    def __init__(self, name: str, jobs: int, reports: int, finishes: bool = False) -> None:
        """`jobs` and `reports` are descriptors."""
        self.name = name
        self.reports = reports
        self.capacity: int | None = None
        self.in_flight: dict[int, Entry] = {}
        self.unread = False
        self.lost = False
        self._jobs = OutPipe(jobs)
        self._reader = NetstringReader()
        self._finishes = finishes
        self._input_closed = False

    @property
    def full(self) -> bool:
        """Whether it takes no more jobs now, or has not greeted."""
        return len(self.in_flight) >= (self.capacity or 0) or self._jobs.unwritten >= UNWRITTEN_MOST

    @property
    def unwritten(self) -> int:
        """Bytes of jobs that are not in the pipe yet."""
        return self._jobs.unwritten

    def start(self, number: int, entry: Entry, job: bytes) -> None:
        """Gives it a job, a netstring, which `write` writes."""
        self.in_flight[number] = entry
        self._jobs.put(job)

    def prepare(self, poll: "select.poll") -> None:
        """Registers the pipes that it waits for."""
        if self.lost:
            return
        if not self.unread:
            poll.register(self.reports, select.POLLIN)
        if self._jobs.unwritten:
            poll.register(self._jobs.descriptor, select.POLLOUT)

    def read(self) -> None:
        """Reads the reports that have come. Raises PeerLost, unless it has ended after the end of its input."""
        try:
            self._reader.feed(read_available(self.reports) or b"")
            self.unread = True
        except PeerLost:
            if self.in_flight or not self._input_closed:
                raise
            self.lost = True

    def next_report(self) -> bytes | None:
        """Returns the payload of the next report that was read; None if there is none. Raises FormatError."""
        payload = self._reader.next()
        if payload is None:
            self.unread = False
        return payload

    def write(self, last: bool) -> None:
        """Writes as many jobs as the pipe takes; `last`: no more will come. Raises PeerLost."""
        self._jobs.flush()
        if last and self._finishes and not self._input_closed and not self._jobs.unwritten:
            self._input_closed = True
            os.close(self._jobs.descriptor)


def choose_daemon(daemons: Sequence[DeliveryDaemon], host: bytes) -> DeliveryDaemon:
    """Returns the daemon for a job: always the same for a host, unless that is full; then the next one that is not."""
    count = len(daemons)
    first = crc32(host) % count
    for index in range(first, first + count):
        if not daemons[index % count].full:
            return daemons[index % count]
    return daemons[first]
