"""queue-remote: delivers messages by SMTP.

    queue-remote [--home HOME]                                    queue-send's daemon (queue_remote.daemon)
    queue-remote [--home HOME] HOST SENDER RECIPIENT... <message  one delivery (queue_remote.alone)
    queue-remote --trace ...                                      the same, and the dialogue on fd 2
    queue-remote [--home HOME] --route NEXTHOP                    where its mail would go (queue_remote.explain)
    queue-remote [--home HOME] --check [NAME]                     faults of control files (queue_remote.control_check)

Exit codes of the daemon: 0 at the end of fd 0, 111 if a pipe is lost or its data cannot be parsed, 100 for a wrong
option. A single delivery exits 0 and reports on fd 1. --route exits 0, or 100 or 111 if there is no route.

What takes time to import is imported by the function that needs it. The daemon that queue-ondemand gives jobs waits for
the first one before: mail on demand may never come, and the other daemons start sooner.
"""

import contextlib
import gc
import os
import select
import signal
import stat
from collections.abc import Coroutine
from typing import Any, TypeVar

from queue_base.daemon.processes import (
    count_deliveries,
    fill_standard_descriptors,
    raise_file_limit,
    require_files,
)
from queue_base.daemon.signals import ignore, keep_children
from queue_base.durable import write_all
from queue_base.errors import TEMPORARY as EXIT_TEMPORARY
from queue_base.errors import Failure, Temporary, Usage, complain, reason
from queue_base.home import Home, take_help, take_home, take_queue
from queue_wire.pipes.report import PERMANENT

T = TypeVar("T")

PROGRAM = "queue-remote"
FILES_MIN = 32
USAGE = """usage: queue-remote [--home HOME] [--queue NAME]
       queue-remote [--home HOME] [--trace] HOST SENDER RECIPIENT... <message
       queue-remote [--home HOME] --route NEXTHOP
       queue-remote [--home HOME] --check [NAME <contents]
The first is the daemon that queue-send gives jobs on fd 0; the second delivers one message by SMTP;
the third prints where mail for a domain would go, and why (for queuectl route);
the fourth prints what is wrong in control files (for queuectl config).
--trace prints the dialogue with the server on stderr, with milliseconds since the start.
"""


def is_wanted() -> bool:
    """Wait until there is something on fd 0, if it is queue-ondemand's socket; return whether the other end is there.
    """
    if not stat.S_ISSOCK(os.fstat(0).st_mode):
        return True
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return not poll.poll()[0][1] & select.POLLHUP


def run_daemon(home: Home) -> int:
    ignore(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    if not is_wanted():
        return 0
    import asyncio

    import uvloop

    from queue_remote.daemon import RemoteDaemon

    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    daemon = RemoteDaemon(home, loop)
    try:
        daemon.start(count_deliveries(raise_file_limit()))
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to watch fd 0: {reason(error)}; it must be a pipe from queue-send")
        return EXIT_TEMPORARY
    # Objects that exist now live as long as the process, so the collector need not visit them.
    gc.freeze()
    loop.run_forever()
    # Deliveries in flight are dropped, as by a kill; to close the loop would take time for each of them.
    os._exit(EXIT_TEMPORARY if daemon.exit_code is None else daemon.exit_code)


def put_reports(reports: bytes) -> None:
    # qmail-remote too exits 0 if its reports cannot be written.
    with contextlib.suppress(OSError):
        write_all(1, reports)


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns. An interrupt kills the process, without a traceback."""
    import asyncio

    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise


def run_alone(home: Home, operands: list[str], tracing: bool) -> int:
    from queue_remote.alone import deliver_alone, pack_alone
    from queue_remote.report_text import INVOKED_IMPROPERLY
    from queue_remote.smtp.trace import Trace

    if len(operands) < 3:
        put_reports(pack_alone([], (PERMANENT, INVOKED_IMPROPERLY)))
        return 0
    host, sender, *recipients = map(os.fsencode, operands)
    run_loop(deliver_alone(home, host, sender, recipients, put_reports, Trace(2) if tracing else None))
    return 0


def run_route(home: Home, operands: list[str]) -> int:
    from queue_remote.explain import explain

    if len(operands) != 1:
        raise Usage("--route needs one nexthop; try --help")
    exit_code, lines = run_loop(explain(home, os.fsencode(operands[0])))
    put_lines(lines)
    return exit_code


def run_check(home: Home, operands: list[str]) -> int:
    from queue_remote.control_check import check

    if len(operands) > 1:
        raise Usage("--check needs one name at most; try --help")
    put_lines(check(home, operands[0] if operands else None))
    return 0


def put_lines(lines: bytes) -> None:
    """Write on standard output. Raises Temporary."""
    try:
        write_all(1, lines)
    except OSError as error:
        raise Temporary(f"unable to write standard output: {reason(error)}") from error


def main(argv: list[str]) -> int:
    fill_standard_descriptors()
    keep_children()
    try:
        tracing = argv[1:2] == ["--trace"]
        home, operands = take_queue(*take_home(argv[2:] if tracing else argv[1:]))
        if take_help(operands, USAGE):
            return 0
        require_files(FILES_MIN)
        if operands[:1] == ["--trace"]:
            tracing = True
            operands = operands[1:]
        if operands[:1] == ["--route"]:
            return run_route(home, operands[1:])
        if operands[:1] == ["--check"]:
            return run_check(home, operands[1:])
        if operands and operands[0].startswith("--") and operands[0] != "--":
            raise Usage(f"{operands[0]} is not an option; try --help")
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
    if operands[:1] == ["--"]:
        operands = operands[1:]
    if operands or tracing:
        return run_alone(home, operands, tracing)
    return run_daemon(home)
