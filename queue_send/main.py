"""queue-send: the scheduler. `queue-send [--home HOME]`, started by queue-start, which hands it its pipes.

It decides which delivery starts when, keeps the DONE marks, bounces what failed, and writes the log to
stdout. TERM finishes deliveries in flight and exits, ALRM makes everything due now, HUP rereads the control files.
"""

import os
import select
import signal
import time
from typing import Protocol

from queue_base import processes
from queue_base.errors import Failure, Temporary, Usage, complain
from queue_base.home import Home, take_daemon_home
from queue_base.layout import open_layout
from queue_base.lock import take_sendmutex
from queue_base.signals import Signals
from queue_send.answering import Answering
from queue_send.backlog import Backlog
from queue_send.bouncer import Bouncer
from queue_send.channel import Channel
from queue_send.cleaner import Cleaner
from queue_send.control import Control
from queue_send.delays import Delays
from queue_send.log import Log
from queue_send.messages import Messages
from queue_send.peers import Notices
from queue_send.run import Run
from queue_send.watchdog import Watchdog
from queue_wire import logline

# Seconds for queue-todo to finish its group after X; a disk that hangs must not keep us from ending.
TODO_WAIT = 60.0

USAGE = "usage: queue-send [--home HOME]"
HELP = f"""{USAGE}
The scheduler; its stdout is the log. TERM ends it, ALRM makes all mail due, HUP rereads the control files.
It is started by queue-start.
"""


class Part(Protocol):
    """A part of the loop: says what it waits for, then does a bounded amount of work."""

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register descriptors; return the seconds after which `run` has something to do all the same."""

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do one turn; never wait."""


class Sender:
    """The parts of the loop, and what signals do to them."""

    def __init__(self, home: Home) -> None:
        self._signals = Signals(signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP)
        # queue-start has kept these for us.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.KEPT_SIGNALS)
        layout = open_layout(home.queue)
        self._run = Run(home, Log())
        self._bouncer = Bouncer(self._run)
        self._delays = Delays(self._run)
        self._cleaner = Cleaner(self._run, processes.CLEAN_IDS, processes.CLEAN_ANSWERS)
        self._messages = Messages(self._run, layout, self._bouncer, self._delays, self._cleaner)
        self._channels = [
            Channel(
                self._run, self._messages, "local", "queue-local", processes.LOCAL_JOBS, processes.LOCAL_REPORTS, True
            ),
            Channel(
                self._run, self._messages, "remote", "queue-remote", processes.REMOTE_JOBS, processes.REMOTE_REPORTS
            ),
        ]
        arrive = self._messages.arrive
        self._todo = Notices(
            self._run, "queue-todo", processes.TODO_NOTICES, processes.TODO_COMMANDS, arrive, self._announce
        )
        self._pickup = Notices(self._run, "queue-pickup", processes.PICKUP_NOTICES, None, arrive)
        backlog = Backlog(self._run, layout, self._messages)
        self._messages.orders.attach(self._todo.reread)
        answering = Answering(self._run, self._messages, self._channels, self._bouncer, self._cleaner)
        self._control = Control(self._run, self._messages.orders, answering)
        self._parts: list[Part] = [
            self._todo, self._pickup, backlog, self._run.syncing, self._run.again, *self._channels, self._bouncer,
            self._delays, self._messages.orders.returning, self._cleaner, self._control,
            Watchdog(self._run, self._messages, self._channels),
        ]  # fmt: skip
        self._patience = 0.0
        self._run.log.status(self._messages.status())

    def _announce(self, pid: int) -> None:
        self._bouncer.announce(pid)
        self._delays.announce(pid)

    def turn(self) -> None:
        """Wait until something can be done, and do some of it in every part."""
        poll, clock = select.poll(), self._run.clock
        poll.register(self._signals.descriptor, select.POLLIN)
        parts = [*self._parts, self._run.log]
        wait = min([part.prepare(poll, clock.now()) for part in parts])
        if self._patience:
            wait = min(wait, max(0.0, self._patience - time.monotonic()))
        ready = dict(poll.poll(wait * 1000))
        # Also where poll does not show it: it may return for what came after a signal that is only then handled.
        clock.look()
        self._obey(self._signals.take())
        self._run.begin_turn()
        for part in self._parts:
            part.run(ready, clock.now())
        self._run.log.status(self._messages.status())
        self._run.log.run(ready, clock.now())

    def _obey(self, signals: set[int]) -> None:
        if signals & {signal.SIGTERM, signal.SIGINT}:
            self._run.leave()
        if signal.SIGALRM in signals:
            self._messages.flush(self._run.clock.now())
        if signal.SIGHUP in signals:
            self._run.reread()
            self._messages.apply_controls()
            self._todo.reread()

    @property
    def finished(self) -> bool:
        """Whether we are to leave, nothing is in flight, and queue-todo has told us all that it has classified.

        Its log lines must not be lost: the next run knows the messages from the disk, and does not announce them.
        """
        if not self._run.leaving:
            return False
        self._todo.leave()
        self._patience = self._patience or time.monotonic() + TODO_WAIT
        flying = any(channel.busy for channel in self._channels)
        injecting = self._bouncer.busy or self._delays.busy
        told = self._todo.lost or time.monotonic() > self._patience
        return told and not (flying or injecting or self._run.syncing.busy or self._cleaner.busy)

    def finish(self) -> int:
        """Say the last words; return the exit code: 111 where a peer was lost."""
        self._control.close()
        self._run.log.put(logline.EXITING)
        self._run.log.finish()
        return 111 if self._run.broken else 0


def take_descriptors(home: Home) -> None:
    """Check that queue-start left its pipes, and keep them from our children. Raises Failure."""
    for descriptor in range(processes.LOCAL_JOBS, processes.SENDMUTEX):
        try:
            os.set_inheritable(descriptor, False)
        except OSError as error:
            raise Usage(f"unable to use descriptor {descriptor}: not open; queue-start starts queue-send") from error
    try:
        os.set_inheritable(processes.SENDMUTEX, False)
    except OSError:
        # Started by hand with pipes but no lock: take it ourselves, and hold it until we end.
        take_sendmutex(home)


def main(argv: list[str]) -> int:
    """Run the scheduler; return 0 after TERM, 111 after the loss of a peer, else a code of queue_base.errors."""
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        os.umask(0o027)
        take_descriptors(home)
        try:
            sender = Sender(home)
        except OSError as error:
            raise Temporary(f"unable to start: {error}") from error
    except Failure as error:
        complain("queue-send", f"alert: cannot start: {error}")
        return error.exit_code
    while not sender.finished:
        sender.turn()
    return sender.finish()
