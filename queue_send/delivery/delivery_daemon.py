"""A delivery daemon as queue-send knows it: the pipes to one queue-local or queue-remote, and its jobs in flight.

If several queue-remotes run, a job goes to the process of its host's name. A host's mail then goes through one process,
which reuses its connections and knows its addresses and policies; and no other process holds idle connections to it,
which would come on top of the host's limits. The limits themselves are the scheduler's, and apply to all processes
together: a process has no share of them.
"""

import os
import select
from collections import deque
from collections.abc import Sequence
from zlib import crc32

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_send.scheduler.model import Entry
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.job import REREAD
from queue_wire.pipes.report import Report

_REREAD = pack_netstring(REREAD)
UNWRITTEN_MAX = 1 << 20  # Bytes of jobs that the daemon has not read; if there are more, it is given no job.


class DeliveryDaemon:
    """One process. `name` is its program; `in_flight` has its jobs by number, which is that of their first delivery.

    `finishes`: at an exit the end of its input makes it end its jobs within a time limit, and report on all.
    capacity: jobs that it takes at once, as it reported when it started; None before that.
    asked, answered: how often it was told to read its control files again, and has; settings: what was in force then.
    unread: there may be whole reports that were read from the pipe and not taken. lost: it will report on nothing more.

    A queue-remote also takes jobs of the local channel, for recipients that control/localroutes routes. Its pipes are
    those of the remote channel. `lent` has these jobs, and `lent_reports` the reports on them until the local channel
    takes them. So many jobs as `keep_places` says, at most half, are left to it.
    """

    __slots__ = (
        "_finishes",
        "_input_closed",
        "_input_lost",
        "_jobs",
        "_kept",
        "_reader",
        "answered",
        "asked",
        "capacity",
        "in_flight",
        "lent",
        "lent_reports",
        "lost",
        "name",
        "reports",
        "settings",
        "unread",
    )  # fmt: skip

    def __init__(self, name: str, jobs: int, reports: int, finishes: bool = False) -> None:
        """`jobs` and `reports` are descriptors."""
        self.name = name
        self.reports = reports
        self.capacity: int | None = None
        self.in_flight: dict[int, Entry] = {}
        self.lent: dict[int, Entry] = {}
        self.lent_reports: deque[Report] = deque()
        self._kept = 0
        self.asked = self.answered = 0
        self.settings = b""
        self.unread = False
        self.lost = False
        self._jobs = OutPipe(jobs)
        self._reader = NetstringReader()
        self._finishes = finishes
        self._input_closed = False
        self._input_lost = False

    @property
    def full(self) -> bool:
        """Whether it takes no more jobs now, or has not greeted."""
        capacity = self.capacity or 0
        if self._kept or self.lent:
            capacity -= max(min(self._kept, capacity // 2), len(self.lent))
        return len(self.in_flight) >= capacity or self._jobs.unwritten >= UNWRITTEN_MAX

    @property
    def full_of_lent(self) -> bool:
        """Whether it takes no more jobs of the local channel now, or has not greeted."""
        jobs = len(self.in_flight) + len(self.lent)
        return jobs >= (self.capacity or 0) or self._jobs.unwritten >= UNWRITTEN_MAX

    def keep_places(self, jobs: int) -> None:
        """Leave places for jobs of the local channel."""
        self._kept = jobs

    @property
    def unwritten(self) -> int:
        """Bytes of jobs that are not in the pipe yet."""
        return self._jobs.unwritten

    def start(self, number: int, entry: Entry, job: bytes) -> None:
        """Give it a job, a netstring, which `write` writes."""
        self.in_flight[number] = entry
        self._jobs.put(job)

    def start_lent(self, number: int, entry: Entry, job: bytes) -> None:
        """Give it a job of the local channel."""
        self.lent[number] = entry
        self._jobs.put(job)

    def is_running(self, number: int) -> bool:
        """Whether it has a job with this number."""
        return number in self.in_flight or number in self.lent

    def reread(self) -> bool:
        """Tell it to read its control files again, which `write` writes; return whether it still reads its input."""
        if self.lost or self._input_closed:
            return False
        self.asked += 1
        self._jobs.put(_REREAD)
        return True

    def take_settings(self, lines: bytes) -> None:
        """Take its answer: what is in force."""
        self.answered += 1
        self.settings = lines

    def renew(self, jobs: int, reports: int) -> None:
        """Take the pipes of a process that was started in the place of one that is lost and has no jobs any more."""
        self.close()
        self._jobs, self.reports, self._reader = OutPipe(jobs), reports, NetstringReader()
        self.capacity, self.answered = None, self.asked
        self.unread = self.lost = self._input_closed = self._input_lost = False

    def close(self) -> None:
        """Close the pipes of a process that is lost: it ends, if it has not."""
        if not self._input_closed:
            self._input_closed = True
            self._jobs.close()
        if self.reports >= 0:
            os.close(self.reports)
            self.reports = -1

    def prepare(self, poll: "select.poll") -> None:
        """Register the pipes that it waits for."""
        if self.lost:
            return
        if not self.unread:
            poll.register(self.reports, select.POLLIN)
        if self._jobs.unwritten:
            poll.register(self._jobs.descriptor, select.POLLOUT)

    def read(self) -> None:
        """Read the reports that have come. Raises PeerLost if it has ended before the end of its input."""
        try:
            self._reader.feed(read_available(self.reports) or b"")
            self.unread = True
        except PeerLost:
            if not self._input_lost and (self.in_flight or self.lent or not self._input_closed):
                raise
            self.lost = True

    def next_report(self) -> bytes | None:
        """Return the payload of the next report that was read; None if there is none. Raises FormatError."""
        payload = self._reader.next()
        if payload is None:
            self.unread = False
        return payload

    def write(self, last: bool) -> None:
        """Write as many jobs as the pipe takes; `last`: no more will come.

        Raises PeerLost once, if it reads no more jobs; the reports that it wrote before are still to be read.
        """
        if self._input_closed:
            return
        try:
            self._jobs.flush()
        except PeerLost:
            self._input_closed = self._input_lost = True
            self._jobs.close()
            raise
        if last and self._finishes and not self._jobs.unwritten:
            self._input_closed = True
            self._jobs.close()


def choose_daemon(daemons: Sequence[DeliveryDaemon], host: bytes, lent: bool = False) -> DeliveryDaemon:
    """Return the daemon for a job: always the same for a host, unless that is full; then the next one that is not.

    `lent`: the job is the local channel's.
    """
    count = len(daemons)
    first = crc32(host) % count
    for index in range(first, first + count):
        daemon = daemons[index % count]
        if not (daemon.full_of_lent if lent else daemon.full):
            return daemon
    return daemons[first]
