"""The parts of queue-send that deal with mail, in this process: the test makes the turns and plays the peers.

queue-remote takes jobs from the beginning, queue-local when the test says so.
"""

import os
import select

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_send.admin.bounce_orders import BounceOrders
from queue_send.cleaner import Cleaner
from queue_send.config import ConfigFiles
from queue_send.counters import Counters
from queue_send.delivery.channel import Channel
from queue_send.delivery.delivery_daemon import DeliveryDaemon
from queue_send.delivery.result_writer import ResultWriter
from queue_send.disk_retry import DiskRetry
from queue_send.events import Events
from queue_send.log import Log
from queue_send.loop import Part, Shutdown, TimeBudget, WritingPart
from queue_send.messages.announced import Announced
from queue_send.messages.life_cycle import Messages
from queue_send.messages.message_files import Store
from queue_send.messages.transitions import MessageEvent, MessageState
from queue_send.notify.bounce import Bouncer
from queue_send.notify.delay import DelayNotifier
from queue_send.shared_parts import SharedParts
from queue_wire.pipes.cleaning import REMOVED
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, unpack_job
from queue_wire.pipes.notice import PASSED, Classified
from queue_wire.pipes.report import MESSAGE_SCOPE, Report, pack_ready, pack_report


class Loop:
    """`jobs` are those that queue-remote was given and has not reported on; the log is not kept.

    `local_jobs` are those of queue-local.
    """

    def __init__(self, home: Home, clock: Clock | None = None) -> None:
        self._nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        log, budget = Log(self._nowhere), TimeBudget()
        self.log, self.clock, self.disk = log, clock or Clock(), DiskThread()
        self._budget = budget
        config, retry, shutdown, events = ConfigFiles(home, log), DiskRetry(log), Shutdown(log), Events()
        self.config = config
        self._pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(6)]
        (self._jobs, jobs), (reports, self._reports), (_, ids), (answers, _), (given, local), (back, said) = self._pipes
        self._said = said
        self.sent: list[bytes] = []  # What queue-todo was told, but for PASSED.
        self.asked: list[bytes] = []  # PASSED, as often as it was asked.
        self.announced = Announced(open_layout(home.queue), log, config, shutdown, self._send)
        store = Store(open_layout(home.queue), self.announced)
        parts = self.parts = SharedParts(
            store, log, self.clock, config, self.disk, retry, budget, shutdown, events, Counters()
        )  # fmt: skip
        bouncer, delays, bounce_orders = Bouncer(home, parts), DelayNotifier(home, parts), BounceOrders(parts)
        results = ResultWriter(open_layout(home.queue), log, self.clock, self.disk, events)
        self.cleaner = Cleaner(ids, answers, log, shutdown)
        channels = [
            Channel(kind, [DeliveryDaemon(kind, to, back)], parts, delays, results, self.cleaner)
            for kind, to, back in (("local", local, back), ("remote", jobs, reports))
        ]
        self.channel = channels[1]
        self.messages = Messages(parts, channels, bouncer, delays, results, bounce_orders, self.cleaner)
        self.shutdown = shutdown
        self._parts: list[Part] = [
            self.disk, self.announced.disk, *channels, bouncer, bounce_orders, self.cleaner, self.messages,
            self.announced,
        ]  # fmt: skip
        self._writers: list[WritingPart] = [self.announced, *channels, self.cleaner]
        self.jobs: list[Job] = []
        self.local_jobs: list[Job] = []
        self._given = [(self._jobs, NetstringReader(), self.jobs), (given, NetstringReader(), self.local_jobs)]
        os.set_blocking(self._jobs, False)
        os.set_blocking(given, False)
        os.write(self._reports, pack_ready(1000))

    def _send(self, command: bytes) -> None:
        (self.asked if command == PASSED else self.sent).append(command)

    def has_ended(self, message: int) -> bool:
        """Whether the end of a message is in the log, and queue-clean has not removed it yet."""
        return self.messages.state(message) is MessageState.REMOVING

    def is_parked(self, message: int) -> bool:
        """Whether a message has a mark in corrupt/."""
        return self.messages.state(message) is MessageState.PARKED

    def is_returning(self, message: int) -> bool:
        """Whether recipients of a message are being failed by an order."""
        return self.messages.state(message) is MessageState.RETURNING

    def classify(self, message: int) -> None:
        """Have an announced message classified."""
        assert self.messages.store.classify_first(message, MessageEvent.WANTED)

    def close(self) -> None:
        """Close what was opened."""
        for descriptor in (self._nowhere, *(end for pipe in self._pipes for end in pipe)):
            os.close(descriptor)

    def start_local(self) -> None:
        """queue-local is ready for jobs."""
        os.write(self._said, pack_ready(1000))

    def close_answers(self) -> None:
        """queue-clean ends."""
        os.dup2(self._nowhere, self._pipes[3][1])

    def removed(self) -> None:
        """queue-clean answers a request."""
        os.write(self._pipes[3][1], REMOVED)

    def arrive(self, message: int) -> None:
        """queue-todo tells of a message."""
        self.messages.arrive(Classified(message, False, True), self.clock.now())

    def turn(self) -> float:
        """Make one turn; return for how long the next one could wait."""
        poll = select.poll()
        self.clock.look()
        wait = min(part.prepare(poll, self.clock.now()) for part in self._parts)
        ready = dict(poll.poll(0))
        self._budget.begin()
        for part in self._parts:
            part.run(ready, self.clock.now())
        self.log.run({}, 0.0)
        for writer in self._writers:
            writer.write()
        for descriptor, reader, jobs in self._given:
            try:
                reader.feed(os.read(descriptor, 1 << 20))
            except BlockingIOError:
                continue
            while (payload := reader.next()) is not None:
                jobs.append(unpack_job(payload))
        return 0.0 if ready else wait

    def settle(self) -> None:
        """Make turns until there is nothing to do but to wait."""
        quiet = 0
        while quiet < 2:
            busy = self.turn() == 0.0 or self.disk.busy
            quiet = 0 if busy else quiet + 1

    def report(self, job: Job, *verdicts: bytes, scope: bytes = MESSAGE_SCOPE) -> None:
        """The daemon that has a job reports on it: a letter and a text for each recipient."""
        jobs, to = (self.jobs, self._reports) if job in self.jobs else (self.local_jobs, self._said)
        jobs.remove(job)
        os.write(to, pack_report(Report(job.number, scope, [(text[:1], text[1:]) for text in verdicts])))
