"""queue-ondemand: keeps mail of on-demand domains until it is asked for. `queue-ondemand [--home HOME]`.

It is started by queue-start if control/ondemand exists, or mail is stored. fd 0 gives jobs of queue-send, and fd 1
takes `ready`, reports and lines for the log, as with queue-remote (queue_wire.pipes.job, report). fd 3 and 4 are the
pipes to a queue-remote of its own. Exit codes: 0 at the end of fd 0, 111 if queue-remote is lost, or a pipe's data
cannot be parsed. At the end of fd 0 the groups that are being sent have EXIT_SECONDS to end, so that they are not sent
once more.
"""

import gc
import os
import select
import signal
import time

from queue_base.daemon import processes
from queue_base.daemon.disk_thread import DiskThread
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.signals import ignore, keep_children
from queue_base.errors import TEMPORARY, Failure, Temporary, Usage, complain, reason
from queue_base.home import Home, take_daemon_home
from queue_base.queue.layout import open_layout
from queue_ondemand.domain_store import DomainStore
from queue_ondemand.keeper import Keeper
from queue_ondemand.ondemand_files import PROGRAM, OnDemandFiles
from queue_ondemand.remote_link import RemoteLink
from queue_ondemand.run_requests import RunRequests
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import REREAD, unpack_job
from queue_wire.pipes.report import MESSAGE_SCOPE, Report, SettingsReport, pack_ready, pack_report, pack_settings
from queue_wire.pipes.report import TEMPORARY as DEFERRED

USAGE = "usage: queue-ondemand [--home HOME] [--queue NAME]"
HELP = f"""{USAGE}
Keeps mail of the domains in control/ondemand until it is asked for. It is started by queue-start.
"""
EXIT_SECONDS = 10.0
# Bytes that queue-send has not read; with more, no further report is taken, and so no run goes on.
UNWRITTEN_MAX = 1 << 20


class OnDemandDaemon:
    """The parts of the loop."""

    def __init__(self, home: Home, jobs: int) -> None:
        """Read the control files and the names of what is stored. Raises Temporary, PeerLost.

        `jobs`: how many are taken at once.
        """
        layout = open_layout(home.queue)
        self._files = OnDemandFiles(home)
        self._disk = DiskThread()
        self._remote = RemoteLink(processes.KEEPER_JOBS, processes.KEEPER_REPORTS)
        self._out = OutPipe(1)
        self._jobs = NetstringReader()
        # queue-send waits for this before it starts any job. Those for queue-ondemand may wait for the names.
        self._out.put(pack_ready(jobs))
        self._out.flush()
        store = DomainStore(home.queue)
        for trouble in store.troubles:
            what = "what is stored there is kept, and not delivered"
            complain(PROGRAM, f"alert: unable to read {trouble.filename}: {reason(trouble)}; {what}")
        self._keeper = Keeper(home, layout, store, self._files, self._disk, self._remote, self._out.put)
        self._requests: RunRequests | None = None
        try:
            self._requests = RunRequests(home, self._keeper.answer, self._keeper.turn)
        except OSError as error:
            why = f"unable to listen in {home.queue}/intake: {reason(error)}"
            complain(PROGRAM, f"alert: {why}; nobody can ask for mail, and probes go on")
        os.set_blocking(0, False)

    def turn(self) -> None:
        """Make one turn of the loop. Raises PeerLost if queue-send is gone, Temporary if queue-remote is."""
        poll = select.poll()
        now = time.monotonic()
        poll.register(0, select.POLLIN)
        if self._out.unwritten:
            poll.register(self._out.descriptor, select.POLLOUT)
        wait = self._wait(poll, now)
        if self._requests is not None:
            wait = min(wait, self._requests.prepare(poll, now))
        ready = dict(poll.poll(wait * 1000 + 1))
        now = time.monotonic()
        self._go_on(ready, now)
        if 0 in ready:
            self._take_jobs(read_available(0) or b"", now)
        self._keeper.wake(now)
        if self._requests is not None:
            self._requests.run(ready, now)
        self._out.flush()
        self._flush_remote()

    def finish(self) -> None:
        """Wait for what is being sent, EXIT_SECONDS at most."""
        self._keeper.leaving = True
        if self._requests is not None:
            self._requests.close()
        until = time.monotonic() + EXIT_SECONDS
        while (self._keeper.busy or self._disk.busy) and time.monotonic() < until:
            poll = select.poll()
            now = time.monotonic()
            wait = min(until - now, self._wait(poll, now))
            self._go_on(dict(poll.poll(wait * 1000 + 1)), time.monotonic())

    def _wait(self, poll: "select.poll", now: float) -> float:
        """Register what runs wait for; return the seconds to wait at most."""
        wait = self._disk.prepare(poll, now)
        if self._out.unwritten < UNWRITTEN_MAX:
            self._remote.prepare(poll)
        for process in self._keeper.returns:
            wait = min(wait, process.prepare(poll))
        if self._keeper.leaving:
            return wait  # What falls due is not begun any more.
        if self._keeper.has_steps:
            return 0.0
        due = [when - now for when in self._keeper.next_times() if when is not None]
        return max(0.0, min(wait, *due)) if due else wait

    def _go_on(self, ready: dict[int, int], now: float) -> None:
        """Take reports, results of the disk, and ends of processes. Raises Temporary."""
        try:
            for report in self._remote.read(ready):
                self._keeper.take_report(report, now)
        except (PeerLost, FormatError) as error:
            raise Temporary(f"unable to go on without queue-remote: {error}") from error
        self._disk.run(ready, now)
        for process in list(self._keeper.returns):
            code = process.ended(ready)
            if code is not None:
                self._keeper.reap(process, code)

    def _flush_remote(self) -> None:
        try:
            self._remote.flush()
        except PeerLost as error:
            raise Temporary(f"unable to go on without queue-remote: {error}") from error

    def _take_jobs(self, data: bytes, now: float) -> None:
        """Take jobs. Raises Temporary if what comes is no netstring."""
        self._jobs.feed(data)
        try:
            while (payload := self._jobs.next()) is not None:
                self._take_job(payload, now)
        except FormatError as error:
            raise Temporary(f"unable to read jobs: {error}; stopping") from error

    def _take_job(self, payload: bytes, now: float) -> None:
        if payload == REREAD:
            self._remote.reread()
            self._out.put(pack_settings(SettingsReport(self._keeper.reread())))
            return
        try:
            job = unpack_job(payload)
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read a job: {error}; it is deferred")
            number, *fields = payload.split(b"\0")
            if number.isdigit() and len(number) <= 18:
                verdicts = [(DEFERRED, b"internal error: unable to understand the job\n")] * max(1, len(fields) - 3)
                self._out.put(pack_report(Report(int(number), MESSAGE_SCOPE, verdicts)))
            return
        self._keeper.take_job(job, now)


def check_descriptors() -> None:
    """Check that queue-start opened the pipes, and close them on exec. Raises Usage."""
    for descriptor in (processes.KEEPER_JOBS, processes.KEEPER_REPORTS):
        try:
            os.set_inheritable(descriptor, False)
        except OSError as error:
            why = f"{reason(error)}; queue-start starts queue-ondemand"
            raise Usage(f"unable to use descriptor {descriptor}: {why}") from error


def serve(home: Home) -> int:
    """Run the loop; return the exit code."""
    try:
        daemon = OnDemandDaemon(home, processes.count_deliveries(processes.raise_file_limit()))
    except PeerLost:
        return 0
    gc.freeze()
    try:
        while True:
            daemon.turn()
    except PeerLost:
        daemon.finish()
        return 0


def main(argv: list[str]) -> int:
    """Run the daemon; return 0 at the end of fd 0, else an exit code of queue_base.errors."""
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        check_descriptors()
        ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        keep_children()
        os.umask(0o027)
        return serve(home)
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to use {error.filename or 'the queue'}: {reason(error)}")
        return TEMPORARY
