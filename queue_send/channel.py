"""One delivery daemon as queue-send sees it: jobs out, reports in, verdicts applied in order.

A turn reads at most one pipe-full of reports and starts at most STARTS_A_TURN jobs, so neither channel
can keep the loop from the other parts. It ends after LOADS_A_TURN messages that let no job start, so that mail
for sick hosts does not keep the reports of others waiting. Failures of a turn share one sync before their recipients
are marked done. A daemon that is gone, or whose reports have no framing, makes queue-send leave.
"""

import os
import select
from collections.abc import Collection

from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_send.attempt import Group
from queue_send.messages import Messages
from queue_send.run import Run
from queue_wire import logline
from queue_wire.address import split_address, verp_sender
from queue_wire.cause import DAEMON, LEAVING, LOG
from queue_wire.errors import FormatError
from queue_wire.job import Job, pack_job
from queue_wire.netstring import NetstringReader
from queue_wire.report import MESSAGE_SCOPE, Ready, Report, unpack_report

STARTS_A_TURN = 100
LOADS_A_TURN = 25  # Some 25 microseconds each.
HELD_MOST = 1 << 20  # Bytes of jobs that the daemon has not read; over it, none is started.


class Channel:
    """`kind` is "local" or "remote"; `peer` the daemon's name; jobs and reports are descriptors.

    `finishes`: at the end of its jobs the daemon bounds the time of those that it has, and reports on all of them.
    """

    def __init__(
        self, run: Run, messages: Messages, kind: str, peer: str, jobs: int, reports: int, finishes: bool = False
    ) -> None:
        self._run = run
        self._messages = messages
        self.kind = kind
        self._peer = peer
        self._scheduler = messages.schedulers[kind]
        self._decisions = messages.decisions[kind]
        self._jobs = OutPipe(jobs)
        self._reports = reports
        self._finishes = finishes
        self._reader = NetstringReader()
        self._flights: dict[int, Group] = {}  # by the number of the job, which is that of its first delivery
        self._ready = 0  # Jobs that the daemon takes at once; it says so when it has started.
        self.lost = False
        self._told_to_finish = False

    @property
    def busy(self) -> bool:
        """Whether there are verdicts to wait for."""
        return bool(self._flights) and not self.lost

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for reports, for room in the pipe, and until the next message falls due."""
        if self.lost:
            return 3600.0
        poll.register(self._reports, select.POLLIN)
        if self._jobs.held:
            poll.register(self._jobs.descriptor, select.POLLOUT)
        due = self._scheduler.next_time(now)
        return 3600.0 if due is None or self.stopped else max(0.0, due - now)

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: reports, messages that fell due, jobs."""
        if self.lost:
            return
        try:
            if self._reports in ready:
                self._take_reports(self._read_reports(), now)
            self._start_jobs(now)
            self._decisions.apply()
            if self._jobs.held:
                self._run.log.flush()
            self._jobs.flush()
            if self._run.leaving and self._finishes and not self._told_to_finish and not self._jobs.held:
                self._told_to_finish = True
                os.close(self._jobs.descriptor)
        except PeerLost:
            self._lose()

    @property
    def flights(self) -> Collection[Group]:
        """What was given to the daemon and has no report yet."""
        return self._flights.values()

    @property
    def stopped(self) -> bytes:
        """Why nothing is started on this channel, as a kind of queue_wire.cause; empty where it may be."""
        if self._run.leaving:
            return LEAVING
        if self._run.log.full:
            return LOG
        return DAEMON if len(self._flights) >= self._ready or self._jobs.held >= HELD_MOST else b""

    def _start_jobs(self, now: float) -> None:
        """Load a message, if one may be, and start a job, again and again, until there is nothing or it is enough."""
        in_vain = 0
        for _ in range(STARTS_A_TURN):
            if self.stopped or in_vain >= LOADS_A_TURN:
                return
            loaded = self._messages.load(self.kind, now)
            group = self._scheduler.next_job(now)
            if group is not None:
                self._start(group)
            elif loaded:
                in_vain += 1
            else:
                return

    def _start(self, group: Group) -> None:
        addresses = [address for _, address in group.recipients]
        first = self._run.number_deliveries(len(addresses))
        path = self._messages.job_path(group.attempt.message)
        sender = verp_sender(group.attempt.sender, addresses[0])
        # The group's own name may be a relay's; queue-remote looks the route up by itself.
        nexthop = addresses[0] if self.kind == "local" else split_address(addresses[0])[1].lower()
        self._flights[first] = group
        self._jobs.put(pack_job(Job(first, path, sender, nexthop, addresses)))
        channel = self.kind.encode()
        for delivery, address in enumerate(addresses, first):
            self._run.log.put(logline.starting_delivery(delivery, group.attempt.message, channel, address))

    def _read_reports(self) -> bytes:
        """Return what has come. Raises PeerLost, but not where the daemon was told to finish and has."""
        try:
            return read_available(self._reports) or b""
        except PeerLost:
            if self._flights or not self._told_to_finish:
                raise
            self.lost = True
            return b""

    def _take_reports(self, data: bytes, now: float) -> None:
        self._reader.feed(data)
        try:
            while (payload := self._reader.next()) is not None:
                self._take(payload, now)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            raise PeerLost(str(error)) from error
        finally:
            self._decisions.apply()

    def _take(self, payload: bytes, now: float) -> None:
        try:
            report = unpack_report(payload)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            number = payload.split(b"\0", 1)[0]
            if number.isdigit() and len(number) <= 18 and int(number) in self._flights:
                # It was about this job, which would otherwise be in flight for ever: no verdict is a mangled one.
                self._land(Report(int(number), MESSAGE_SCOPE, []), now)
            return
        if isinstance(report, Ready):
            self._ready = report.jobs
        else:
            self._land(report, now)

    def _land(self, report: Report, now: float) -> None:
        group = self._flights.pop(report.number, None)
        if group is None:
            self._run.log.warning("internal error: delivery report out of range")
            return
        self._decisions.verdicts.add(group, report.number, report, now)

    def _lose(self) -> None:
        self.lost = True
        self._run.lose(self._peer)
