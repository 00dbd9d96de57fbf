"""One delivery daemon as queue-send sees it: jobs out, reports in, verdicts applied in order.

A turn deals with at most VERDICTS_A_TURN verdicts and starts at most STARTS_A_TURN jobs, and each of both has a time
in which to do so; neither channel can keep the loop from the other parts, whatever its mail and its peers are like. It
ends after LOADS_A_TURN messages that let no job start, so that mail for sick hosts does not keep the reports of others
waiting. Messages with many recipients are loaded beside the others, a step at a time. Failures of a turn share one
sync before their recipients are marked done. A daemon that is gone, or whose reports have no framing, makes
queue-send leave.
"""

import os
import select
import time
from collections.abc import Collection

from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_send.attempt import Group
from queue_send.messages import Messages
from queue_send.run import Run
from queue_wire import logline
from queue_wire.address import split_address, verp_sender
from queue_wire.admin.cause import DAEMON_FULL, EXITING, LOG_BLOCKED
from queue_wire.format_error import FormatError
from queue_wire.framing import NetstringReader
from queue_wire.job import Job, pack_job
from queue_wire.report import MESSAGE_SCOPE, Ready, Report, unpack_report

STARTS_A_TURN = 100
LOADS_A_TURN = 25  # Some 25 microseconds each.
VERDICTS_A_TURN = 200  # Some 30 microseconds each, with what comes of them; a job may have 1,000.
STARTING = 0.003  # Seconds of a turn for starting jobs, and loading what is short,
LOADING = 0.001  # for loading what is long,
TAKING = 0.002  # and for reading reports.
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
        self._unread = False  # Whether there may be whole reports in the reader.
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
        if not self._unread:
            poll.register(self._reports, select.POLLIN)
        if self._jobs.held:
            poll.register(self._jobs.descriptor, select.POLLOUT)
        loads = self._messages.is_loading(self.kind) and not self._waits
        if self._unread or loads or (self._decisions.verdicts.may_go_on and not self._run.leaving):
            return 0.0
        due = self._scheduler.next_time(now)
        return 3600.0 if due is None or self.stopped else max(0.0, due - now)

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: reports, messages that fell due, jobs."""
        if self.lost:
            return
        try:
            if self._unread or self._reports in ready:
                self._take_reports(now)
            if not self._waits:
                self._load_long(now)
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
    def _waits(self) -> bool:
        """Whether nothing is to be loaded: what is turned away, or fails at once, has lines in the log."""
        return self._run.leaving or self._run.log.full

    @property
    def stopped(self) -> bytes:
        """Why nothing is started on this channel, as a kind of queue_wire.admin.cause; empty where it may be."""
        if self._run.leaving:
            return EXITING
        if self._run.log.full:
            return LOG_BLOCKED
        return DAEMON_FULL if len(self._flights) >= self._ready or self._jobs.held >= HELD_MOST else b""

    def _load_long(self, now: float) -> None:
        """Do some steps of loading messages that have many recipients."""
        until = self._run.until(LOADING)
        while self._messages.load_on(self.kind, now) and time.monotonic() < until:
            pass

    def _start_jobs(self, now: float) -> None:
        """Load a message, if one may be, and start a job, again and again, until there is nothing or it is enough."""
        in_vain = 0
        until = self._run.until(STARTING)
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
            if time.monotonic() >= until:
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

    def _take_reports(self, now: float) -> None:
        """Take reports until there are no more, or it is enough for this turn."""
        if not self._unread:
            self._reader.feed(self._read_reports())
            self._unread = True
        room, until = VERDICTS_A_TURN, self._run.until(TAKING)
        try:
            while room > 0:
                payload = self._reader.next()
                if payload is None:
                    self._unread = False
                    break
                room -= max(1, self._take(payload, now))
                if time.monotonic() >= until:
                    break
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            raise PeerLost(str(error)) from error
        finally:
            self._decisions.apply()

    def _take(self, payload: bytes, now: float) -> int:
        """Take one report; return how many verdicts it has."""
        try:
            report = unpack_report(payload)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            number = payload.split(b"\0", 1)[0]
            if number.isdigit() and len(number) <= 18 and int(number) in self._flights:
                # It was about this job, which would otherwise be in flight for ever: no verdict is a mangled one.
                self._land(Report(int(number), MESSAGE_SCOPE, []), now)
            return 0
        if isinstance(report, Ready):
            self._ready = report.jobs
            return 0
        self._land(report, now)
        return len(report.verdicts)

    def _land(self, report: Report, now: float) -> None:
        group = self._flights.pop(report.number, None)
        if group is None:
            self._run.log.warning("internal error: delivery report out of range")
            return
        self._decisions.verdicts.add(group, report.number, report, now)

    def _lose(self) -> None:
        self.lost = True
        self._run.lose(self._peer)
