"""queue-local: delivers into mailboxes on this host.

`queue-local [--home HOME]`, started by queue-start. fd 0 gives jobs (queue_wire.job, one recipient each),
fd 1 takes reports (queue_wire.report), `ready` first. Each job is a process of its own that becomes the
recipient's user, where queue-local is root. Bad jobs are logged and answered; lost framing ends it with 111.
At the end of fd 0 nothing more is started; it ends when the deliveries in flight have, for which they get
control/localstoptimeout seconds.
"""

import functools
import gc
import os
import select
import signal
from collections.abc import Iterator

from queue_base.errors import TEMPORARY, Failure, Temporary, complain
from queue_base.home import Home, take_daemon_home
from queue_base.pipes import OutPipe, PeerLost
from queue_base.signals import ignore
from queue_local import settings
from queue_local.deliveries import Deliveries
from queue_local.delivery import deliver
from queue_local.forwards import Forwards
from queue_local.jobs import BadJob, Jobs, open_message
from queue_wire import report as verdict
from queue_wire.format_error import FormatError
from queue_wire.job import Job
from queue_wire.report import MESSAGE_SCOPE, Report, pack_ready, pack_report

PROGRAM = "queue-local"
USAGE = "usage: queue-local [--home HOME]"
HELP = f"""{USAGE}
Delivers into Maildirs, mailboxes, programs and forwards. It is started by queue-start.
"""


def start(home: Home, deliveries: Deliveries, job: Job) -> Report | None:
    """Start a job's delivery; return its report where it could not be started."""
    try:
        seconds, default = settings.timeout(home), settings.default_delivery(home)
        # Opened here, because a user may not read mess/.
        message = open_message(home, job.path)
        try:
            deliveries.start(job, functools.partial(deliver, home, job, default=default), message, seconds)
        finally:
            os.close(message)
    except Temporary as error:
        text = str(error).encode("utf-8", "surrogateescape") + b"\n"
        return Report(job.number, MESSAGE_SCOPE, [(verdict.TEMPORARY, text)])
    return None


def start_waiting(home: Home, jobs: Jobs, deliveries: Deliveries, forwards: Forwards) -> Iterator[Report]:
    """Start what has been read, as far as there is room; give the reports of what could not be. Raises FormatError.

    The rest waits in the pipe: queue-send sends no more than it was told that there is room for.
    """
    while jobs.open and deliveries.room > len(forwards):
        report = None
        try:
            job = jobs.next()
            if job is None:
                return
            report = start(home, deliveries, job)
        except BadJob as error:
            report = error.report
            what = "deferred" if report else "without a number it cannot be answered"
            complain(PROGRAM, f"alert: unable to understand a job: {error}; {what}")
        if report:
            yield report


def loop(home: Home, jobs: Jobs, deliveries: Deliveries, forwards: Forwards, reports: OutPipe) -> int:
    """Serve until the jobs end and every delivery has been reported; return the exit code. Raises PeerLost."""
    code, told = 0, False
    while jobs.open or deliveries or forwards or reports.held:
        poll = select.poll()
        room = deliveries.room > len(forwards)
        jobs.prepare(poll, room)
        if reports.held:
            poll.register(reports.descriptor, select.POLLOUT)
        ready = wait(poll, deliveries, forwards)
        for report in finished(home, ready, deliveries, forwards):
            reports.put(pack_report(report))
        jobs.run(ready, room)
        try:
            for report in start_waiting(home, jobs, deliveries, forwards):
                reports.put(pack_report(report))
        except FormatError as error:
            complain(PROGRAM, f"alert: unable to read jobs: {error}; no more are taken, those in flight are finished")
            jobs.stop()
            code = TEMPORARY
        if jobs.ended and not told:
            told = True
            finish(home, deliveries, forwards)
        reports.flush()
    return code


def finished(home: Home, ready: set[int], deliveries: Deliveries, forwards: Forwards) -> Iterator[Report]:
    """Give the reports of the deliveries that ended, where there is a forward after that is in the queue."""
    for ended in deliveries.run(ready):
        report = forwards.take(ended, settings.forward_timeout(home))
        if report:
            yield report
    # After that, so that what ended together is sent to the forwarder together.
    yield from forwards.run(ready)


def finish(home: Home, *parts: Deliveries | Forwards) -> None:
    """Bound the time that the deliveries in flight still have."""
    seconds = settings.stop_timeout(home)
    for part in parts:
        part.finish(seconds)


def drain(home: Home, deliveries: Deliveries) -> None:
    """Wait for the deliveries in flight, which nobody is left to hear of.

    Their forwards are not made: they are delivered again, and that would be a second copy for sure.
    """
    finish(home, deliveries)
    while deliveries:
        deliveries.run(wait(select.poll(), deliveries))


def wait(poll: select.poll, *parts: Deliveries | Forwards) -> set[int]:
    """Return the descriptors that are ready, none where the time of something is up first."""
    times = [seconds for part in parts if (seconds := part.prepare(poll)) is not None]
    return {descriptor for descriptor, _ in poll.poll(min(times) * 1000 + 1 if times else None)}


def serve(home: Home) -> int:
    """Run the loop on fd 0 and 1; return the exit code."""
    deliveries, forwards, reports = Deliveries(settings.capacity(home)), Forwards(home), OutPipe(1)
    reports.put(pack_ready(deliveries.limit))
    # The deliveries share this process's memory; its garbage collector must not touch, and so copy, all of it.
    gc.freeze()
    try:
        reports.flush()
        return loop(home, Jobs(0), deliveries, forwards, reports)
    except PeerLost:
        # queue-send is gone, as at the end of fd 0; its successor delivers again what it has not heard of.
        drain(home, deliveries)
        return 0
    finally:
        forwards.close()


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
