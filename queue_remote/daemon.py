"""The daemon: takes jobs on fd 0, delivers any number at once on one event loop, and writes reports on fd 1.

It exits at the end of fd 0. Then no process is left to record a verdict, so deliveries in flight are dropped: one that
has not sent its final dot is not delivered, and all of them are tried again. TERM and INT do not stop it, because
queue-send waits for the reports of what is in flight; HUP makes it read the control files again. A job that cannot be
parsed, or that fails by a bug, is deferred with an alert.
"""

import asyncio
import contextlib
import functools
import os
import random
import signal
import socket
import stat
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.unix_sockets import receive_with_descriptors
from queue_base.errors import Temporary, complain, reason
from queue_base.home import Home
from queue_remote.config import SEND
from queue_remote.delivery import deliver, deliver_reversed, probe
from queue_remote.job_parts import JobPart, PartOutcome, SmallerGroups, join_outcomes, split_job
from queue_remote.message.file import Message, open_message
from queue_remote.message.small import SmallMessage, read_small
from queue_remote.options import ConnectionKey
from queue_remote.program import Programs
from queue_remote.report_text import Verdict, internal_error, no_controls, no_message, no_time_left, not_connected
from queue_remote.setup import CurrentSetup, Setup
from queue_remote.smtp.connection import Connection
from queue_remote.smtp.pool import Pool
from queue_remote.smtp.reversed_hosts import ReversedHosts
from queue_remote.smtp.transaction import Transaction
from queue_wire.control.registry import LONGLINES, TIMEOUTPROGRAM, TIMEOUTREMOTE
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import PROBE, RELEASE, REREAD, Job, ReversedHost, unpack_job, unpack_reversed
from queue_wire.pipes.report import (
    HOST_SCOPE,
    MESSAGE_SCOPE,
    SUCCESS,
    TEMPORARY,
    PartialReport,
    Report,
    SettingsReport,
    SlowJob,
    pack_partial_report,
    pack_ready,
    pack_report,
    pack_settings,
    pack_slow_job,
)

PROGRAM = "queue-remote"
JOBS = 0
REPORTS = 1
# A job is little more than its recipients' addresses: 1 MB if destinationrecipients is 1,000, its maximum.
JOB_MAX = 16 * 1024 * 1024
# Bytes that are read at once from a socket, as from a pipe.
RECEIVED_MAX = 65536
# Jobs started in one turn of the loop: each opens a connection, which takes 0.1 ms.
STARTED_MAX = 50
# queue-send is told where a job is that is in flight for this long: before it counts as slow there, after 15 s.
TOLD_SECONDS = 8.0
# Between two looks at the jobs in flight.
LOOK_SECONDS = 3.0


class JobInFlight:
    """When a job was begun, the transaction that it is at, and the address that queue-send was told.

    `taken`: the places of the recipients who have the message, as queue-send was told.
    """

    __slots__ = ("begun", "taken", "told", "transaction")

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.told = b""
        self.transaction: Transaction | None = None
        self.taken: set[int] = set()


class RemoteDaemon:
    """The daemon's state. `exit_code` is None until it stops."""

    def __init__(self, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        self.exit_code: int | None = None
        self._home = home
        self._setup = CurrentSetup(home, PROGRAM)
        self._loop = loop
        self._reader = NetstringReader(JOB_MAX)
        self._reports = OutPipe(REPORTS)
        self._flushing = False
        self._starting = False
        self._pool = Pool(1)
        self._reversed = ReversedHosts(self._pool)
        # fd 0 if queue-ondemand gives the jobs, which passes descriptors, too; those that no connection is made of yet.
        self._socket: socket.socket | None = None
        self._passed: list[int] = []
        self._programs = Programs(home, PROGRAM)
        # By their numbers, the oldest first.
        self._in_flight: dict[int, JobInFlight] = {}
        self._looking = False
        # The event loop itself has only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, jobs: int) -> None:
        """Watch fd 0 and the signals, and report that `jobs` are taken at once. Raises OSError."""
        self._pool = Pool(jobs)
        self._reversed = ReversedHosts(self._pool)
        if stat.S_ISSOCK(os.fstat(JOBS).st_mode):
            self._socket = socket.socket(fileno=os.dup(JOBS))
        os.set_blocking(JOBS, False)
        self._loop.add_reader(JOBS, self._on_jobs)
        self._loop.add_signal_handler(signal.SIGHUP, self._setup.reread)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not SIG_IGN, which the programs that we run would inherit.
            self._loop.add_signal_handler(number, _ignore)
        self._loop.set_exception_handler(_on_stray_exception)
        self._setup.reread()
        self._put(pack_ready(jobs))

    def _stop(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._programs.kill()
        self._setup.conversions.kill()
        # queue-send may still read the verdicts that are known.
        with contextlib.suppress(PeerLost):
            self._reports.flush()
        self._loop.remove_reader(JOBS)
        # One turn of the loop sends QUIT on idle connections, as far as they accept it.
        self._pool.close_idle()
        self._loop.call_soon(self._loop.call_soon, self._loop.stop)

    def _on_jobs(self) -> None:
        try:
            data = read_available(JOBS) if self._socket is None else self._receive(self._socket)
        except PeerLost:
            self._stop(0)
            return
        if data is None:
            return
        self._reader.feed(data)
        self._pool.share.measure()
        if not self._starting:
            self._start_jobs()

    def _receive(self, jobs: socket.socket) -> bytes | None:
        """Return the data that can be read now, None if there is none yet. Raises PeerLost at the end."""
        try:
            data, descriptors = receive_with_descriptors(jobs, RECEIVED_MAX)
        except BlockingIOError:
            return None
        except OSError as error:
            raise PeerLost(str(error)) from error
        self._passed += descriptors
        if not data:
            raise PeerLost("end of file")
        return data

    def _start_jobs(self) -> None:
        self._starting = False
        if self.exit_code is not None:
            return
        try:
            for _ in range(STARTED_MAX):
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
        if payload == REREAD:
            self._setup.reread()
            self._put(pack_settings(SettingsReport(self._setup.in_force())))
            return
        host = unpack_reversed(payload)
        if host is not None:
            self._add_reversed(host)
            return
        try:
            job = unpack_job(payload)
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read a job: {error}; it is deferred")
            self._answer_bad_job(payload)
            return
        self._in_flight[job.number] = JobInFlight()
        if not self._looking:
            self._look_later()
        try:
            if job.path in (PROBE, RELEASE) or self._is_reversed(job) or not self._deliver_at_once(job):
                self._start_task(job)
        except Exception as error:
            self._defer_by_bug(job, error)

    def _look_later(self) -> None:
        self._looking = True
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Tell queue-send at which addresses the jobs are that are in flight for long."""
        self._looking = False
        before = time.monotonic() - TOLD_SECONDS
        for number, job in self._in_flight.items():
            if job.begun > before:
                break
            address = b"" if job.transaction is None else job.transaction.address
            if address not in (b"", job.told):
                job.told = address
                self._put(pack_slow_job(SlowJob(number, address)))
        if self._in_flight:
            self._look_later()

    def _report(self, report: Report) -> None:
        self._in_flight.pop(report.number, None)
        self._put(pack_report(report))

    def _report_successes(self, job: Job, places: Sequence[int], verdicts: list[Verdict]) -> None:
        """Tell queue-send who has the message, since the job goes on: if it is cut off, they must not get it again."""
        taken = self._in_flight[job.number].taken
        found: list[Verdict] = [(b"", b"")] * len(job.recipients)
        before = len(taken)
        for place, verdict in zip(places, verdicts, strict=True):
            if verdict[0] == SUCCESS and place not in taken:
                taken.add(place)
                found[place] = verdict
        if len(taken) > before:
            self._put(pack_partial_report(PartialReport(job.number, found)))

    def _add_reversed(self, host: ReversedHost) -> None:
        """Use a connection whose descriptor has come. Without it the jobs for the host are deferred."""
        descriptor = self._take_passed(host.inode)
        try:
            setup = self._setup.get()
        except Temporary as error:
            self._setup.complain(error)
            if descriptor is not None:
                os.close(descriptor)
            self._reversed.add(host, None, b"", 0.0)
            return
        key = setup.options.find(b"", host.domains[0])
        self._reversed.add(host, descriptor, key.options.helohost, setup.config.values[TIMEOUTREMOTE])

    def _take_passed(self, inode: int) -> int | None:
        """Return the descriptor of a socket that was passed, None if it has not come: there was no room for it."""
        for place, descriptor in enumerate(self._passed):
            if os.fstat(descriptor).st_ino == inode:
                return self._passed.pop(place)
        return None

    def _is_reversed(self, job: Job) -> bool:
        """Return whether a job is for the host of a reversed connection: not a first attempt."""
        return job.path.startswith(b"ondemand/") and job.nexthop in self._reversed

    def _start_task(self, job: Job, until: float = 0.0, begun: Transaction | None = None) -> None:
        """Start a task for a job; `until` is its limit and `begun` the transaction that it has had, if it has."""
        task = self._loop.create_task(self._run_job(job, until, begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer_bad_job(self, payload: bytes) -> None:
        """Defer a job that cannot be parsed, if its number can; without a report it would stay in flight."""
        number, *fields = payload.split(b"\0")
        if number.isdigit() and len(number) <= 18:
            verdicts = [(TEMPORARY, internal_error("unable to understand the job"))] * max(1, len(fields) - 3)
            self._put(pack_report(Report(int(number), MESSAGE_SCOPE, verdicts)))

    async def _run_job(self, job: Job, until: float, begun: Transaction | None) -> None:
        try:
            report = await self._deliver(job, until, begun)
        except Exception as error:
            self._defer_by_bug(job, error)
        else:
            self._report(report)

    def _defer_by_bug(self, job: Job, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        complain(PROGRAM, f"alert: unable to deliver job {job.number}: {what}; it will be tried again")
        self._report(_defer_job(job, internal_error(what)))

    def _deliver_at_once(self, job: Job) -> bool:
        """Give a small message to a connection that is open, without a task; return whether that was possible.

        It is not if anything has to be waited for, or looks wrong: a task does it then, from the beginning.
        """
        try:
            setup = self._setup.get()
        except Temporary:
            return False
        if len(job.recipients) == 1:
            key = setup.options.find(job.sender, job.nexthop)
        else:
            parts = split_job(setup, job)
            if len(parts) > 1:
                return False
            key = setup.options.key(parts[0].options)
        if key.options.program:
            return False
        connection = self._pool.join(key) or self._pool.take(key)
        if connection is None:
            return False
        transaction = None
        try:
            message = self._read_small(setup, job)
            if message is not None and (not message.eight_bit or b"8BITMIME" in connection.client.extensions):
                until = time.monotonic() + setup.config.job_seconds
                transaction = Transaction(job.sender, job.recipients, message.size, message.eight_bit, until)
                transaction.header_utf8 = message.header_utf8
        finally:
            if transaction is None or transaction.done:
                self._pool.give(key, connection)
        if transaction is None or transaction.done:
            return False
        assert message is not None
        transaction.content = message.wire
        self._in_flight[job.number].transaction = transaction
        transaction.over = functools.partial(self._on_over, job, key, connection, transaction)
        connection.carry(transaction)
        self._pool.offer(key, connection)
        return True

    def _read_small(self, setup: Setup, job: Job) -> SmallMessage | None:
        """Return the message of a job if it is small, and needs no other form, no signature and no seal."""
        try:
            message = read_small(f"{self._home.queue}/{os.fsdecode(job.path)}")
        except OSError:
            return None
        if message is None:
            return None
        if b"@" not in job.nexthop:
            if setup.signing.active and setup.signing.needed(message.stored, job.sender):
                return None
            if setup.sealing.active and setup.sealing.needed(message.stored):
                return None
        return None if setup.config.values[LONGLINES] != SEND and message.has_long_lines() else message

    def _on_over(self, job: Job, key: ConnectionKey, connection: Connection, transaction: Transaction) -> None:
        """Report on a job that a connection has carried. If it was not attempted, a task tries other connections."""
        self._pool.give(key, connection)
        if transaction.too_many:
            self._start_task(job, transaction.until, transaction)
        elif transaction.done:
            self._report(Report(job.number, MESSAGE_SCOPE, transaction.verdicts()))
        else:
            self._start_task(job, transaction.until)

    async def _deliver(self, job: Job, until: float, begun: Transaction | None) -> Report:
        try:
            setup = self._setup.get()
        except Temporary as error:
            self._setup.complain(error)
            return _defer_job(job, no_controls(str(error)))
        if job.path == PROBE:
            key = setup.options.find(job.sender, job.nexthop)
            if key.options.program:
                return Report(job.number, MESSAGE_SCOPE, [(SUCCESS, b"")])  # It says more with a message.
            scope, verdict = await probe(setup, self._pool, job.nexthop, key)
            return Report(job.number, scope, [verdict])
        if job.path == RELEASE:
            clean = await self._reversed.release(job.nexthop)
            return Report(job.number, MESSAGE_SCOPE, [(SUCCESS if clean else TEMPORARY, b"")])
        until = until or time.monotonic() + setup.config.job_seconds
        if self._is_reversed(job):
            return await self._deliver_reversed(setup, job, until)
        parts = split_job(setup, job)
        if begun is not None and (len(parts) > 1 or parts[0].options.program):
            # The control files were changed meanwhile. Who is left is tried again by them.
            return Report(job.number, MESSAGE_SCOPE, begun.verdicts())
        if len(parts) > 1:
            # In random order, so that a nexthop that hangs does not keep the same others waiting at each attempt.
            random.shuffle(parts)
        outcomes: list[tuple[JobPart, PartOutcome]] = []
        # One after the other: the limit of jobs at once assumes that a job has one connection.
        for part in parts:
            if outcomes and time.monotonic() > until:
                outcome = _defer(len(part.recipients), no_time_left())
            else:
                outcome = await self._deliver_part(setup, job, part, begun, until)
            outcomes.append((part, outcome))
            if len(outcomes) < len(parts):
                self._report_successes(job, part.numbers, outcome.verdicts)
        return join_outcomes(job, outcomes)

    async def _deliver_reversed(self, setup: Setup, job: Job, until: float) -> Report:
        try:
            connection = await self._reversed.find(job.nexthop)
        except OSError as error:
            return _defer_job(job, not_connected([(job.nexthop, reason(error))], False))._replace(scope=HOST_SCOPE)

        async def send(transaction: Transaction, message: Message) -> bytes:
            return await deliver_reversed(setup, connection, job.sender, transaction, message)

        everyone = range(len(job.recipients))
        return Report(job.number, *await self._deliver_groups(job, everyone, send, None, until))

    async def _deliver_part(
        self, setup: Setup, job: Job, part: JobPart, begun: Transaction | None, until: float
    ) -> PartOutcome:
        if part.options.program:
            try:
                message = self._open_message(job)
            except OSError as error:
                return _defer(len(part.recipients), _unreadable(job, error))
            try:
                arguments = [part.nexthop, job.sender, *part.recipients]
                seconds = setup.config.values[TIMEOUTPROGRAM]
                return await self._programs.deliver(part.options.program, arguments, message, seconds)
            finally:
                message.close()
        key = setup.options.key(part.options)

        async def send(transaction: Transaction, message: Message) -> bytes:
            return await deliver(setup, self._pool, part.nexthop, key, job.sender, transaction, message)

        return await self._deliver_groups(job, part.numbers, send, begun, until)

    async def _deliver_groups(
        self,
        job: Job,
        places: Sequence[int],
        send: Callable[[Transaction, Message], Awaitable[bytes]],
        begun: Transaction | None,
        until: float,
    ) -> PartOutcome:
        """Deliver to recipients that are delivered alike; in smaller groups, up to a time, if the server wants that.

        `places` are theirs in the job.
        """
        scope = MESSAGE_SCOPE
        recipients = [job.recipients[place] for place in places]
        if begun is None:
            try:
                scope, begun = await self._deliver_group(job, recipients, send, until)
            except OSError as error:
                return _defer(len(recipients), _unreadable(job, error))
        groups = SmallerGroups(begun)
        while time.monotonic() < until and (group := groups.next()):
            self._report_successes(job, places, groups.verdicts)
            some = [recipients[place] for place in group]
            try:
                _, transaction = await self._deliver_group(job, some, send, until)
            except OSError:
                break
            groups.take(group, transaction)
        return PartOutcome(scope, groups.verdicts)

    async def _deliver_group(
        self,
        job: Job,
        recipients: list[bytes],
        send: Callable[[Transaction, Message], Awaitable[bytes]],
        until: float,
    ) -> tuple[bytes, Transaction]:
        """Carry out a transaction; return the report's scope, and it. Raises OSError if the message cannot be read."""
        message = self._open_message(job)
        try:
            transaction = Transaction(job.sender, recipients, message.size, until=until)
            self._in_flight[job.number].transaction = transaction
            return await send(transaction, message), transaction
        finally:
            message.close()

    def _open_message(self, job: Job) -> Message:
        return open_message(f"{self._home.queue}/{os.fsdecode(job.path)}")

    def _put(self, data: bytes) -> None:
        # The reports of one turn of the loop are written together.
        self._reports.put(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        try:
            self._reports.flush()
        except PeerLost:
            # queue-send has exited, as at the end of fd 0. Its successor tries again what was not reported.
            self._stop(0)
            return
        if self._reports.unwritten:
            self._loop.add_writer(REPORTS, self._flush)
        elif self._flushing:
            self._loop.remove_writer(REPORTS)
        self._flushing = self._reports.unwritten > 0


def _defer(recipients: int, text: bytes) -> PartOutcome:
    return PartOutcome(MESSAGE_SCOPE, [(TEMPORARY, text)] * recipients)


def _unreadable(job: Job, error: OSError) -> bytes:
    return no_message(f"{os.fsdecode(job.path)}: {reason(error)}")


def _defer_job(job: Job, text: bytes) -> Report:
    return Report(job.number, *_defer(len(job.recipients), text))


def _ignore() -> None:
    """TERM and INT: queue-send stops the daemon by closing fd 0."""


def _on_stray_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    complain(PROGRAM, f"alert: {context.get('message')}: {context.get('exception')!r}; going on")
