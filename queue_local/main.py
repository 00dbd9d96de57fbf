"""queue-local: delivers mail on this host: Maildir, mbox, program, forward.

`queue-local [--home HOME]`, started by queue-start. fd 0 gives jobs (queue_wire.pipes.job) with one recipient each, and
orders to read the control files again; fd 1 takes `ready` and then reports (queue_wire.pipes.report). Each job runs in
a process of its own, which changes to the recipient's user if queue-local is root. Beside them runs the recipient
checker, which tells queue-smtpd whether a recipient has a mailbox (queue_local.rcpt). Jobs that cannot be parsed are
logged and answered; if netstring framing is lost, no more jobs are read, and the exit code is 111. At the end of fd 0
no delivery is started any more; queue-local exits when the deliveries in flight have ended, for which they have
control/localstoptimeout seconds.
"""

import functools
import gc
import os
import select
import signal
from collections.abc import Iterator

from queue_base.daemon.pipes import OutPipe, PeerLost
from queue_base.daemon.signals import ignore
from queue_base.errors import TEMPORARY, Failure, Temporary, complain
from queue_base.home import Home, take_daemon_home
from queue_local import config
from queue_local.config import DeliveryFiles
from queue_local.deliveries import Deliveries
from queue_local.forwarding import Forwards
from queue_local.jobs import BadJob, Jobs, open_message
from queue_local.local_delivery import deliver
from queue_local.rcpt.check_service import RecipientChecker
from queue_wire.format_error import FormatError
from queue_wire.pipes import report as verdict
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import MESSAGE_SCOPE, Report, SettingsReport, pack_ready, pack_report, pack_settings

PROGRAM = "queue-local"
USAGE = "usage: queue-local [--home HOME] [--queue NAME]"
HELP = f"""{USAGE}
Delivers into Maildirs, mailboxes, programs and forwards. It is started by queue-start.
"""


def start(home: Home, files: DeliveryFiles, deliveries: Deliveries, job: Job) -> Report | None:
    """Start the delivery of a job; return a report if it could not be started, None otherwise."""
    try:
        seconds, default, limits, srs = files.read()
        # Opened here, because the user may not read mess/.
        message = open_message(home, job.path)
        try:
            work = functools.partial(deliver, home, job, default=default, limits=limits, srs=srs)
            deliveries.start(job, work, message, seconds)
        finally:
            os.close(message)
    except Temporary as error:
        text = str(error).encode("utf-8", "surrogateescape") + b"\n"
        return Report(job.number, MESSAGE_SCOPE, [(verdict.TEMPORARY, text)])
    return None


def start_waiting(
    home: Home, files: DeliveryFiles, jobs: Jobs, deliveries: Deliveries, forwards: Forwards
) -> Iterator[Report]:
    """Start the jobs that have been read, as far as there is room; yield reports of those that could not be started.

    Raises FormatError if framing is lost. The other jobs wait in the pipe: queue-send sends no more than fit.
    """
    while jobs.open and deliveries.room > len(forwards):
        report = None
        try:
            job = jobs.next()
            if job is None:
                return
            report = start(home, files, deliveries, job)
        except BadJob as error:
            report = error.report
            what = "deferred" if report else "without a number it cannot be answered"
            complain(PROGRAM, f"alert: unable to understand a job: {error}; {what}")
        if report:
            yield report


def loop(
    home: Home, jobs: Jobs, deliveries: Deliveries, forwards: Forwards, checker: RecipientChecker, reports: OutPipe
) -> int:
    """Serve until the jobs end and every delivery is reported; return the exit code. Raises PeerLost."""
    code, finishing, files = 0, False, DeliveryFiles(home)
    while jobs.open or deliveries or forwards or reports.unwritten:
        poll = select.poll()
        room = deliveries.room > len(forwards)
        jobs.prepare(poll, room)
        if reports.unwritten:
            poll.register(reports.descriptor, select.POLLOUT)
        ready = wait(poll, deliveries, forwards, checker)
        checker.run(ready)
        for report in finished(files, ready, deliveries, forwards):
            reports.put(pack_report(report))
        jobs.run(ready, room)
        while jobs.rereads:
            jobs.rereads -= 1
            reports.put(pack_settings(SettingsReport(files.reread())))
        try:
            for report in start_waiting(home, files, jobs, deliveries, forwards):
                reports.put(pack_report(report))
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read jobs: {error}; no more are taken, those in flight are finished")
            jobs.stop()
            code = TEMPORARY
        if jobs.ended and not finishing:
            finishing = True
            finish(home, deliveries, forwards)
        reports.flush()
    return code


def finished(files: DeliveryFiles, ready: set[int], deliveries: Deliveries, forwards: Forwards) -> Iterator[Report]:
    """Yield the reports of deliveries that have ended. A delivery with a forward is reported when that is queued."""
    for ended in deliveries.run(ready):
        report = forwards.take(ended, files.seconds)
        if report:
            yield report
    # Afterwards, so that the forwards of one turn are sent to the forwarder together.
    yield from forwards.run(ready)


def finish(home: Home, *parts: Deliveries | Forwards) -> None:
    """Limit the time of the deliveries in flight to control/localstoptimeout."""
    seconds = config.stop_timeout(home)
    for part in parts:
        part.finish(seconds)


def drain(home: Home, deliveries: Deliveries) -> None:
    """Wait for the deliveries in flight after queue-send is gone.

    Their forwards are not queued: the recipients are delivered again later, and would certainly get a second copy.
    """
    finish(home, deliveries)
    while deliveries:
        deliveries.run(wait(select.poll(), deliveries))


def wait(poll: select.poll, *parts: Deliveries | Forwards | RecipientChecker) -> set[int]:
    """Return the descriptors that are ready, none if a timeout of a part comes first."""
    times = [seconds for part in parts if (seconds := part.prepare(poll)) is not None]
    return {descriptor for descriptor, _ in poll.poll(min(times) * 1000 + 1 if times else None)}


def serve(home: Home) -> int:
    """Run the loop on fd 0 and 1; return the exit code."""
    deliveries, forwards, reports = Deliveries(config.capacity(home)), Forwards(home), OutPipe(1)
    checker = RecipientChecker(home)
    reports.put(pack_ready(deliveries.limit))
    # The deliveries share the memory of this process. Garbage collection would write to all of it, and so copy it.
    gc.freeze()
    try:
        reports.flush()
        return loop(home, Jobs(0), deliveries, forwards, checker, reports)
    except PeerLost:
        # queue-send is gone, as at the end of fd 0. Its successor repeats the deliveries that were not reported.
        drain(home, deliveries)
        return 0
    finally:
        forwards.close()
        checker.close()


def main(argv: list[str]) -> int:
    """Run the daemon; return 0 at the end of fd 0, else an exit code of queue_base.errors."""
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        return serve(home)
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
