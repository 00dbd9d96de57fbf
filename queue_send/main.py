"""queue-send: the scheduler. `queue-send [--home HOME]`, started by queue-start, which opens its pipes.

It decides which delivery starts when, writes the DONE marks, bounces what failed, and writes the log to stdout. TERM
finishes deliveries in flight and exits, ALRM makes all mail due, HUP reads the control files again.
"""

import os
import select
import signal
import time
from contextlib import suppress
from functools import partial

from queue_base.daemon import processes
from queue_base.daemon.clock import CLOCK_FILE, Clock, keep_spans, read_spans
from queue_base.daemon.disk_thread import DiskThread
from queue_base.daemon.lock import take_sendmutex
from queue_base.daemon.signals import Signals
from queue_base.daemon.supervisor import Supervisor, take_variables
from queue_base.errors import Failure, Temporary, Usage, complain
from queue_base.home import Home, take_help, take_home, take_queue
from queue_base.queue.layout import open_layout
from queue_send.admin.admin_socket import AdminSocket
from queue_send.admin.bounce_orders import BounceOrders
from queue_send.admin.figure_list import FigureList
from queue_send.admin.orders import Orders
from queue_send.admin.queries import Queries
from queue_send.admin.rereads import Rereads
from queue_send.admin.watchdog import Watchdog
from queue_send.cleaner import Cleaner
from queue_send.config import ConfigFiles, seconds_in_environment
from queue_send.counters import Counters
from queue_send.delivery.channel import Channel
from queue_send.delivery.delivery_daemon import DeliveryDaemon
from queue_send.delivery.keeper_pipes import KeeperPipes
from queue_send.delivery.result_writer import ResultWriter
from queue_send.disk_retry import DiskRetry
from queue_send.events import Events
from queue_send.log import EXIT_WAIT, Log
from queue_send.loop import Part, Shutdown, TimeBudget, WritingPart
from queue_send.messages.announced import Announced
from queue_send.messages.backlog import Backlog
from queue_send.messages.life_cycle import Messages
from queue_send.messages.message_files import Store
from queue_send.notify.bounce import Bouncer
from queue_send.notify.delay import DelayNotifier
from queue_send.peers import Notices, TodoCommands
from queue_send.readiness import Readiness
from queue_send.running_queues import RunningQueues
from queue_send.shared_parts import SharedParts
from queue_wire import logline

# Seconds for queue-todo to finish its group after EXIT. A disk that hangs must not prevent the exit of queue-send.
TODO_WAIT = 60.0

USAGE = "usage: queue-send [--home HOME] [--queue NAME] [--remotes N] [--ondemand]"
HELP = f"""{USAGE}
The scheduler; its stdout is the log. TERM ends it, ALRM makes all mail due, HUP rereads the control files.
It is started by queue-start; --remotes is the number of queue-remotes (control/processesremote);
--ondemand says that queue-ondemand runs (control/ondemand).
"""


class QueueSend:
    """The parts of the loop, and the signals."""

    def __init__(self, home: Home, remotes: int, on_demand: bool = False) -> None:
        """Read the control files and open the queue; `remotes` queue-remotes run, and queue-ondemand if `on_demand`.

        Raises Temporary, OSError.
        """
        self._signals = Signals(signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP)
        # queue-start has blocked these until now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.KEPT_SIGNALS)
        layout, clock_file = open_layout(home.queue), f"{home.queue}/{CLOCK_FILE}"
        log, budget = Log(exit_wait=seconds_in_environment("QUEUE_LOG_WAIT", EXIT_WAIT)), TimeBudget()
        clock = Clock(earlier=read_spans(clock_file))
        config, disk, counters = ConfigFiles(home, log), DiskThread(), Counters()
        keep_spans(clock_file, clock.spans)
        retry, shutdown, events = DiskRetry(log), Shutdown(log), Events()
        commands = TodoCommands(processes.TODO_COMMANDS)
        announced = Announced(layout, log, config, shutdown, commands.send)
        store = Store(layout, announced, config.current.priorities)
        parts = SharedParts(store, log, clock, config, disk, retry, budget, shutdown, events, counters)
        bouncer, delays = Bouncer(home, parts), DelayNotifier(home, parts)
        results, bounce_orders = ResultWriter(layout, log, clock, disk, events), BounceOrders(parts)
        cleaner = Cleaner(processes.CLEAN_IDS, processes.CLEAN_ANSWERS, log, shutdown)
        channel = partial(Channel, parts=parts, delays=delays, results=results, cleaner=cleaner)
        remote_daemons = [DeliveryDaemon("queue-remote", *pipes) for pipes in processes.remote_pipes(remotes)]
        local_daemon = DeliveryDaemon("queue-local", processes.LOCAL_JOBS, processes.LOCAL_REPORTS, finishes=True)
        pipes = processes.ONDEMAND_JOBS, processes.ONDEMAND_REPORTS
        keeper = DeliveryDaemon("queue-ondemand", *pipes) if on_demand else None
        channels = [
            channel("local", [local_daemon], lenders=remote_daemons), channel("remote", remote_daemons, keeper=keeper),
        ]  # fmt: skip
        messages = Messages(parts, channels, bouncer, delays, results, bounce_orders, cleaner)
        notices = partial(Notices, messages=messages, log=log, budget=budget, shutdown=shutdown)
        todo = notices("queue-todo", processes.TODO_NOTICES, commands)
        pickup = notices("queue-pickup", processes.PICKUP_NOTICES, None)
        # With several queues it is a service of its own, and has no pipe to the queue-send of any.
        intake = None if home.several else notices(
            "queue-intake", processes.INTAKE_NOTICES, TodoCommands(processes.INTAKE_COMMANDS)
        )  # fmt: skip
        backlog = Backlog(layout, messages.found, messages.discover, messages.all_found, budget, shutdown, retry)
        rereads = Rereads(config, channels, todo, intake, local_daemon, remote_daemons, log, keeper)
        orders = Orders(messages, parts, todo.send_reread, commands.resubmit)
        figures = FigureList(counters, messages, cleaner, clock, disk, log)
        queries = Queries(messages, cleaner, clock, config, figures, lambda: todo.settings)
        admin = AdminSocket(home, orders, queries, rereads, log, shutdown)
        monitor = AdminSocket(home, orders, queries, rereads, log, shutdown, only_counts=True)
        readiness = Readiness(Supervisor(take_variables()), channels, todo, rereads, shutdown)
        watchdog = Watchdog(messages, parts)
        # With one queue there is nobody to share with.
        running = [RunningQueues(home, config, channels, log)] if home.several else []
        again = []
        if keeper is not None:
            # It is not open where somebody else than queue-start has started us.
            with suppress(OSError):
                again = [KeeperPipes(processes.ONDEMAND_AGAIN, channels[1], log, shutdown)]
        self._counters = counters
        self._log, self._budget, self._clock, self._disk = log, budget, clock, disk
        self._shutdown, self._cleaner = shutdown, cleaner
        self._messages, self._channels, self._todo, self._admin = messages, channels, todo, admin
        self._commands, self._rereads, self._readiness = commands, rereads, readiness
        # Messages carries out the events of a turn before the orders of the administrator. Announced is last, because
        # what queue-todo is told depends on what was done.
        self._parts: list[Part] = [
            todo, pickup, *([intake] if intake else []), backlog, disk, retry, announced.disk, delays, *channels,
            bouncer, bounce_orders, cleaner, messages,
            rereads, admin, monitor, watchdog, readiness, *running, *again, announced,
        ]  # fmt: skip
        # Marks before removals, which clear them.
        self._writers: list[WritingPart] = [announced, todo, *([intake] if intake else []), *channels, cleaner]
        self._exit_by = 0.0
        self._clock_file = clock_file
        self._log.status(messages.status(leaving=False))

    def turn(self) -> None:
        """Make one turn of the loop: wait until a part has something to do, then run all parts."""
        poll, clock = select.poll(), self._clock
        poll.register(self._signals.descriptor, select.POLLIN)
        now = clock.now()
        wait = min([part.prepare(poll, now) for part in self._parts])
        wait = min(wait, self._log.prepare(poll, now))
        if self._shutdown.begun and not self._is_delivering:
            wait = min(wait, max(0.0, self._log.limit_wait()))
        # After that time only what is in flight is waited for.
        if (left := self._exit_by - time.monotonic()) > 0:
            wait = min(wait, left)
        ready = dict(poll.poll(wait * 1000))
        if clock.look():
            keep_spans(self._clock_file, clock.spans)
        # Signals are taken in every turn, also if `ready` lacks their descriptor: one may have come after the poll.
        self._handle(self._signals.take())
        self._budget.begin()
        now = clock.now()
        for part in self._parts:
            part.run(ready, now)
        self._log.status(self._messages.status(self._shutdown.begun))
        # So that a kill cannot lose the line of something that was done, unless the log is blocked.
        self._log.run(ready, now)
        for writer in self._writers:
            writer.write()
        self._counters.add_turn(time.monotonic() - self._budget.begun, now)

    def _handle(self, signals: set[int]) -> None:
        if signals & {signal.SIGTERM, signal.SIGINT}:
            self._shutdown.begin()
        if signal.SIGALRM in signals:
            self._messages.flush(self._clock.now())
        if signal.SIGHUP in signals:
            self._readiness.reload()
            self._rereads.reread(self._clock.now())

    def may_exit(self) -> bool:
        """Return whether queue-send is to exit, nothing is in flight, and queue-todo has ended or TODO_WAIT is over.

        The first call after TERM tells queue-todo to exit. queue-send reads its notices until then, because the log
        lines of messages that it has classified must not be lost: the next run finds such messages on the disk, but
        does not log them. After that it does what waits for answers that queue-todo has not given.
        """
        if not self._shutdown.begun:
            return False
        self._commands.send_exit()
        self._exit_by = self._exit_by or time.monotonic() + TODO_WAIT
        todo_ended = self._todo.lost or time.monotonic() > self._exit_by
        if not todo_ended or self._is_delivering or self._disk.busy or self._cleaner.busy:
            return False
        return not self._messages.settle_announced()

    @property
    def _is_delivering(self) -> bool:
        """Whether jobs are in flight, or messages of our own are being injected."""
        return any(channel.busy for channel in self._channels) or self._messages.injects

    def finish(self) -> int:
        """Write the rest of the log; return the exit code, 111 if a peer was lost, or lines of the log."""
        self._admin.close()
        self._messages.report_unclassified()
        self._log.put(logline.EXITING)
        self._log.finish()
        return 111 if self._shutdown.peer_lost or self._log.given_up else 0


def take_options(words: list[str]) -> tuple[int, bool]:
    """Return how many queue-remotes run, and whether queue-ondemand does, by the words of the command line after
    --home. Raises Usage.
    """
    on_demand = words[-1:] == ["--ondemand"]
    return take_remotes(words[:-1] if on_demand else words), on_demand


def take_remotes(words: list[str]) -> int:
    """Return how many queue-remotes run. Raises Usage."""
    if not words:
        return 1
    if words[0] != "--remotes" or len(words) > 2:
        wrong = words[2] if words[0] == "--remotes" else words[0]
        raise Usage(f"{wrong} is not an option; {USAGE}; it is started by queue-start")
    if len(words) != 2 or words[1] not in map(str, range(1, processes.REMOTES_MAX + 1)):
        raise Usage(f"--remotes needs a number from 1 to {processes.REMOTES_MAX}; {USAGE}")
    return int(words[1])


def take_descriptors(home: Home, remotes: int, on_demand: bool = False) -> None:
    """Check that queue-start opened the pipes, and close them on exec. Raises Usage, Failure."""
    others = [descriptor for pipes in processes.remote_pipes(remotes)[1:] for descriptor in pipes]
    if on_demand:
        others += [processes.ONDEMAND_JOBS, processes.ONDEMAND_REPORTS]
        with suppress(OSError):
            os.set_inheritable(processes.ONDEMAND_AGAIN, False)
    without = {processes.INTAKE_COMMANDS, processes.INTAKE_NOTICES} if home.several else set()
    ours = [each for each in range(processes.LOCAL_JOBS, processes.SENDMUTEX) if each not in without]
    for descriptor in [*ours, *others]:
        try:
            os.set_inheritable(descriptor, False)
        except OSError as error:
            raise Usage(f"unable to use descriptor {descriptor}: not open; queue-start starts queue-send") from error
    try:
        os.set_inheritable(processes.SENDMUTEX, False)
    except OSError:
        # Started by hand with pipes but without the lock: takes it until the exit.
        take_sendmutex(home)


def main(argv: list[str]) -> int:
    """Run queue-send; return 0 after TERM, 111 after the loss of a peer or of lines of the log, else a code of
    queue_base.errors.
    """
    try:
        home, words = take_queue(*take_home(argv[1:]))
        if take_help(words, HELP):
            return 0
        remotes, on_demand = take_options(words)
        os.umask(0o027)
        take_descriptors(home, remotes, on_demand)
        try:
            daemon = QueueSend(home, remotes, on_demand)
        except OSError as error:
            raise Temporary(f"unable to start: {error}") from error
    except Failure as error:
        complain("queue-send", f"alert: cannot start: {error}")
        return error.exit_code
    while not daemon.may_exit():
        daemon.turn()
    return daemon.finish()
