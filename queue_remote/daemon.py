"""The daemon: jobs in on fd 0, reports out on fd 1, any number of deliveries at once on one event loop.

It stops for one thing: the end of fd 0. Then nobody is left to write down a verdict, so the deliveries in
flight are dropped at once; one that is cut before its closing dot is not delivered, and all of them are
tried again. Signals do not stop it, since queue-send wants the reports of what is in flight; HUP makes it
read the control files again. A job that cannot be understood, or that goes wrong, is logged and deferred.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
import traceback

from queue_base.errors import Temporary, complain, reason
from queue_base.home import Home
from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_remote.controls import Controls
from queue_remote.delivery import deliver
from queue_remote.message.file import open_message
from queue_remote.pool import Pool
from queue_remote.program import Programs
from queue_remote.setup import Setup
from queue_remote.ways import join_reports, split_job
from queue_smtp.text import internal_error, no_controls, no_message, no_time_left
from queue_smtp.transaction import Transaction
from queue_wire.format_error import FormatError
from queue_wire.framing import NetstringReader
from queue_wire.job import Job, unpack_job
from queue_wire.report import MESSAGE_SCOPE, TEMPORARY, Report, pack_ready, pack_report

PROGRAM = "queue-remote"
JOBS = 0
REPORTS = 1
# One job is little more than its recipients' addresses: 1 MB where destinationrecipients is 1,000, its most.
JOB_MAX = 16 * 1024 * 1024
# Started in one turn of the loop: each opens a connection, which takes 0.1 ms.
STARTED_MOST = 50


class Daemon:
    """The state of the program. `exit_code` is None until it is to stop."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.exit_code: int | None = None
        self._home = home
        self._controls = Controls(home, PROGRAM)
        self._loop = loop
        self._reader = NetstringReader(JOB_MAX)
        self._reports = OutPipe(REPORTS)
        self._flushing = False
        self._starting = False
        self._pool = Pool(1)
        self._programs = Programs(home, PROGRAM)
        # The event loop itself holds its tasks only weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, jobs: int) -> None:
        """Watch fd 0 and the signals, and say that `jobs` are taken at once. Raises OSError."""
        self._pool = Pool(jobs)
        os.set_blocking(JOBS, False)
        self._loop.add_reader(JOBS, self._on_jobs)
        self._loop.add_signal_handler(signal.SIGHUP, self._controls.reread)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not ignored as such: programs that we run would inherit that.
            self._loop.add_signal_handler(number, _stay)
        self._loop.set_exception_handler(_on_stray_exception)
        self._controls.reread()
        self._put(pack_ready(jobs))

    def _stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._programs.kill()
        self._controls.conversions.kill()
        # Verdicts that are known already may still find their reader.
        with contextlib.suppress(PeerLost):
            self._reports.flush()
        self._loop.remove_reader(JOBS)
        # Idle connections part in good order; a turn of the loop is enough to send what fits.
        self._pool.part()
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)

    def _on_jobs(self) -> None:
        try:
            data = read_available(JOBS)
        except PeerLost:
            self._stop(0)
            return
        if data is None:
            return
        self._reader.feed(data)
        if not self._starting:
            self._start_jobs()

    def _start_jobs(self) -> None:
        self._starting = False
        if self.exit_code is not None:
            return
        try:
            for _ in range(STARTED_MOST):
                payload = self._reader.next()
                if payload is None:
                    return
                self._start_job(payload)
            self._starting = True
            self._loop.call_soon(self._start_jobs)
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read jobs: {error}; stopping, deliveries in flight are tried again")
            self._stop(111)

    def _start_job(self, payload: bytes) -> None:
        try:
            job = unpack_job(payload)
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read a job: {error}; it is deferred")
            self._answer_bad_job(payload)
            return
        task = self._loop.create_task(self._run_job(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer_bad_job(self, payload: bytes) -> None:
        """Defer what there is in a bad job, if it says its number; without an answer it would stay in flight."""
        number, *fields = payload.split(b"\0")
        if number.isdigit() and len(number) <= 18:
            verdicts = [(TEMPORARY, internal_error("unable to understand the job"))] * max(1, len(fields) - 3)
            self._put(pack_report(Report(int(number), MESSAGE_SCOPE, verdicts)))

    async def _run_job(self, job: Job) -> None:
        try:
            report = await self._deliver(job)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            complain(PROGRAM, f"alert: unable to deliver job {job.number}: {what}; it will be tried again")
            report = _temporary(job, internal_error(what))
        self._put(pack_report(report))

    async def _deliver(self, job: Job) -> Report:
        try:
            setup = self._controls.setup()
        except Temporary as error:
            self._controls.complain(error)
            return _temporary(job, no_controls(str(error)))
        parts = split_job(job, setup.settings)
        if len(parts) == 1:
            return await self._deliver_together(setup, job)
        # By lot, so that a way that hangs does not leave the same others out at each attempt.
        random.shuffle(parts)
        deadline = time.monotonic() + setup.settings.connect_timeout + setup.settings.reply_timeout
        reports: list[tuple[Report, list[int]]] = []
        # One after the other: a job has as many descriptors as the limit allows for.
        for part, numbers in parts:
            late = bool(reports) and time.monotonic() > deadline
            report = _temporary(part, no_time_left()) if late else await self._deliver_together(setup, part)
            reports.append((report, numbers))
        return join_reports(job, reports)

    async def _deliver_together(self, setup: Setup, job: Job) -> Report:
        """Deliver to recipients who all go the same way."""
        try:
            message = open_message(f"{self._home.queue}/{os.fsdecode(job.path)}")
        except OSError as error:
            return _temporary(job, no_message(f"{os.fsdecode(job.path)}: {reason(error)}"))
        try:
            words = setup.settings.programs.choose(job.sender, job.nexthop)
            if words:
                return await self._programs.deliver(words, job, message, setup.settings.program_timeout)
            transaction = Transaction(job.sender, job.recipients, message.size)
            scope = await deliver(setup, self._pool, job.sender, job.nexthop, transaction, message)
            return Report(job.number, scope, transaction.verdicts())
        finally:
            message.close()

    def _put(self, data: bytes) -> None:
        # What comes in one turn of the loop goes out in one write.
        self._reports.put(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        try:
            self._reports.flush()
        except PeerLost:
            # queue-send is gone, as at the end of fd 0; its successor tries again what it has not heard of.
            self._stop(0)
            return
        if self._reports.held:
            self._loop.add_writer(REPORTS, self._flush)
        elif self._flushing:
            self._loop.remove_writer(REPORTS)
        self._flushing = self._reports.held > 0


def _temporary(job: Job, text: bytes) -> Report:
    return Report(job.number, MESSAGE_SCOPE, [(TEMPORARY, text)] * len(job.recipients))


def _stay() -> None:
    """queue-send wants the reports of what is in flight; it ends us by closing fd 0."""


def _on_stray_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    complain(PROGRAM, f"alert: {context.get('message')}: {context.get('exception')!r}; going on")
