"""One delivery daemon as queue-send sees it: jobs out, reports in, verdicts applied in order.

A turn reads at most one pipe-full of reports and starts at most STARTS_A_TURN jobs, so neither channel
can keep the loop from the other parts. Failures of a turn share one sync before their recipients are
marked done. A daemon that is gone, or whose reports have no framing, makes queue-send leave.
"""

import select

from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_send.messages import Messages
from queue_send.policy import Pass, Recipient
from queue_send.run import Run
from queue_send.verdicts import Verdicts
from queue_wire import logline
from queue_wire.address import verp_sender
from queue_wire.errors import FormatError
from queue_wire.job import Job, pack_job
from queue_wire.netstring import NetstringReader
from queue_wire.report import MESSAGE_SCOPE, Ready, Report, unpack_report

STARTS_A_TURN = 100
HELD_MOST = 1 << 20  # Bytes of jobs that the daemon has not read; over it, none is started.


class Flight:
    """A job that is out: its pass, its recipients, and the delivery number of the first of them."""

    __slots__ = ("attempt", "first", "recipients")

    def __init__(self, attempt: Pass, recipients: list[Recipient], first: int) -> None:
        self.attempt = attempt
        self.recipients = recipients
        self.first = first


class Channel:
    """`kind` is "local" or "remote"; `peer` the daemon's name; jobs and reports are descriptors."""

    def __init__(self, run: Run, messages: Messages, kind: str, peer: str, jobs: int, reports: int) -> None:
        self._run = run
        self._messages = messages
        self.kind = kind
        self._peer = peer
        self._policy = messages.policies[kind]
        self._jobs = OutPipe(jobs)
        self._reports = reports
        self._reader = NetstringReader()
        self._flights: dict[int, Flight] = {}
        self._verdicts = Verdicts(run, messages, kind)
        self._ready = 0  # Jobs that the daemon takes at once; it says so when it has started.
        self.lost = False

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
        due = self._policy.next_time()
        return 3600.0 if due is None or not self._may_start() else max(0.0, due - now)

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: reports, messages that fell due, jobs."""
        if self.lost:
            return
        try:
            if self._reports in ready:
                self._take_reports(read_available(self._reports) or b"", now)
            for _ in range(STARTS_A_TURN):
                if not self._may_start() or not self._start(now):
                    break
            self._jobs.flush()
        except PeerLost:
            self._lose()

    def _may_start(self) -> bool:
        return (
            not self._run.leaving
            and not self._run.log.full
            and len(self._flights) < self._ready
            and self._jobs.held < HELD_MOST
        )

    def _start(self, now: float) -> bool:
        """Load a message that is due, then start a job; return whether there was one to start."""
        message = self._policy.next_message(now)
        if message is not None:
            self._messages.open(message, self.kind, int(now))
        found = self._policy.next_job(self._run.controls.destinationrecipients)
        if found is None:
            return message is not None
        attempt, nexthop, recipients = found
        first = self._run.deliveries + 1
        self._run.deliveries += len(recipients)
        path = self._messages.job_path(attempt.message)
        addresses = [address for _, address in recipients]
        sender = verp_sender(attempt.sender, addresses[0])
        self._flights[first] = Flight(attempt, recipients, first)
        self._jobs.put(pack_job(Job(first, path, sender, nexthop, addresses)))
        channel = self.kind.encode()
        for delivery, address in enumerate(addresses, first):
            self._run.log.put(logline.starting_delivery(delivery, attempt.message, channel, address))
        return True

    def _take_reports(self, data: bytes, now: float) -> None:
        self._reader.feed(data)
        try:
            while (payload := self._reader.next()) is not None:
                self._take(payload)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            raise PeerLost(str(error)) from error
        finally:
            for attempt in self._verdicts.apply(now):
                self._messages.close(attempt, self.kind, int(now))

    def _take(self, payload: bytes) -> None:
        try:
            report = unpack_report(payload)
        except FormatError as error:
            self._run.log.warning(f"internal error: {self._peer} sent something impossible: {error}")
            number = payload.split(b"\0", 1)[0]
            if number.isdigit() and len(number) <= 18 and int(number) in self._flights:
                # It was about this job, which would otherwise be in flight for ever: no verdict is a mangled one.
                self._land(Report(int(number), MESSAGE_SCOPE, []))
            return
        if isinstance(report, Ready):
            self._ready = report.jobs
        else:
            self._land(report)

    def _land(self, report: Report) -> None:
        flight = self._flights.pop(report.number, None)
        if flight is None:
            self._run.log.warning("internal error: delivery report out of range")
            return
        self._policy.ended(flight.attempt, len(flight.recipients))
        self._verdicts.add(flight.attempt, flight.recipients, flight.first, report.verdicts)

    def _lose(self) -> None:
        self.lost = True
        self._run.lose(self._peer)
