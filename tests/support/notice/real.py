"""queue-todo, queue-send and queue-clean as they are, in one process and on a real directory, a system call at a time.

The test chooses what happens next, as in the model (world.py): injectors, hosts that take mail, verdicts, refusals of
the disk, SIGKILL. The numbers of messages are those of a few files that are used again and again, and births are
coarse, so that a message often looks like an earlier one. What must hold:

    lost        every accepted recipient has the message, or its failure was recorded in bounce/ and bounced
    repeated    none gets it twice, but for one time a crash or a mark that the disk refused; never after its mark was
                written. One that refuses it may also be tried again if that could not be recorded: the disk refused it,
                or queue-todo could not classify the message before an exit
    wrong       nobody gets the text of another message
    settled     at the end nothing is left on the disk, in memory, or in queue/marks
"""

import errno
import gc
import os
import random
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import queue_clean.main as clean
import queue_send.delivery.verdicts as delivery_verdicts
import queue_send.main as send
import queue_send.messages.announced as send_announced
import queue_todo.announcements as todo_announced
from queue_base.daemon import processes
from queue_base.daemon.clock import Clock
from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.errors import Temporary
from queue_base.queue import marks_file
from queue_base.queue.layout import Layout, files_beside_mess, is_there, open_layout
from queue_base.queue.marks_file import LeftMarks
from queue_base.queue.removal import finish_removals
from queue_clean.sweep import sweep
from queue_send.log import Log
from queue_send.messages.bounce_file import FailedRecipient, append_failures
from queue_send.messages.life_cycle import Messages
from queue_send.messages.transitions import MessageState
from queue_send.notify.bounce import Bouncer
from queue_todo.notices import NoticePipe
from queue_wire.admin import socket as wire
from queue_wire.files.envelope import Envelope, pack_todo
from queue_wire.files.marks import SLOTS, EnvelopeIdentity, identify
from queue_wire.ids import pack_long_id
from queue_wire.pipes.cleaning import TROUBLE
from queue_wire.pipes.framing import NetstringReader, RecordReader
from queue_wire.pipes.job import Job, unpack_job
from queue_wire.pipes.report import MESSAGE_SCOPE, Report, pack_ready, pack_report
from support.notice.paced import CHANGES, Paced, StepDisk, paced_calls
from support.notice.world import Fault, Move, choose_move
from support.queues.home import make_home

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of what pyinotify imports.
    import queue_todo.main as todo

NUMBERS = 3
LOCALS = (b"me.example\n", b"r.example\n")  # The two versions of control/locals.
ENVELOPES = ([b"a@r.example"], [b"a@me.example", b"b@r.example"], [b"b@r.example", b"c@s.example", b"a@me.example"])
SENDER = b"#@[]"  # What fails is not bounced.
KINDS = ("local", "remote")


class RealLetter:
    """A message as it was injected, how often each recipient has `taken` it, and how often it was refused for good.

    `failed`: recipients whose failure was recorded in bounce/. `losses` and `unrecorded` are those before it.
    """

    def __init__(self, serial: int, number: int, recipients: list[bytes], losses: int, unrecorded: int) -> None:
        self.serial = serial
        self.number = number
        self.recipients = recipients
        self.accepted = False
        self.taken = dict.fromkeys(recipients, 0)
        self.refused = dict.fromkeys(recipients, 0)
        self.failed: set[bytes] = set()
        self.bounced = False
        self.losses = losses
        self.unrecorded = unrecorded
        self.deleted = False  # By the administrator: it need not be served.
        self.linked = False  # It is, or was, in todo/.
        self.foreign = False  # An original qmail has delivered it.
        self.unlogged = False  # It came before the end of a run that gave up lines of its log.


class InFlight(NamedTuple):
    """A job that a delivery daemon has. `verdicts` are None until the hosts have decided."""

    kind: str
    job: Job
    letter: RealLetter | None = None
    verdicts: tuple[bytes, ...] | None = None


class Signalled:
    """What queue-send takes for its signals."""

    def __init__(self) -> None:
        self.descriptor, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.pending: set[int] = set()

    def take(self) -> set[int]:
        pending, self.pending = self.pending, set()
        return pending


class PacedLog(Log):
    """The log of queue-send, which may be blocked."""

    def __init__(self, world: "RealWorld") -> None:
        super().__init__(world.log)
        self._world = world

    def warning(self, text: str) -> None:
        super().warning(text)
        self._world.unmarked += text.startswith("trouble marking")
        self._world.unrecorded += text.startswith(("unable to append", "unable to sync"))

    def run(self, ready: dict[int, int], now: float) -> None:
        if not self._world.log_blocked:
            super().run(ready, now)


class NoWait:
    """select.poll, without waiting."""

    POLLIN, POLLOUT, POLLERR, POLLHUP = select.POLLIN, select.POLLOUT, select.POLLERR, select.POLLHUP

    class poll:
        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, wait: float) -> list[tuple[int, int]]:
            return self._poll.poll(0)


def can_read(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def check_states(messages: Messages) -> None:
    """After a turn the states of messages agree with what the parts of queue-send have of them."""
    records = messages.store.records
    found: dict[MessageState, set[int]] = {state: set() for state in MessageState}
    for number, record in records._records.items():
        found[record.state].add(number)
    assert all(len(found[state]) == count for state, count in records.marked.items())
    assert found[MessageState.BOUNCING] == set(messages.bouncer._tasks)
    assert found[MessageState.RETURNING] <= set(messages._bounce_orders._waiting)
    assert not any(messages.is_loaded(number) for number in found[MessageState.BOUNCING] | found[MessageState.ENDING])
    announced = {number for number, record in records._records.items() if record.announced}
    gone = found[MessageState.REMOVING]
    assert announced - gone == set(messages.store.announced._messages) - gone


class RealWorld:
    """`chance` makes the choices inside of a move; `refuses`: the disk may refuse a call.

    todo_actors: the threads for the disk of queue-todo. split: the queue's.
    """

    todo_actors: tuple[str, ...] = ("todo",)
    split = 1

    def __init__(self, chance: random.Random, path: Path, refuses: bool = True) -> None:
        self.chance = chance
        self.refuses = refuses
        self.home = make_home(path, split=self.split)
        self.layout = open_layout(self.home.queue)
        control = Path(self.home.control)
        control.joinpath("locals").write_bytes(LOCALS[0])
        control.joinpath("classifyafter").write_text("5\n")
        for kind in KINDS:
            control.joinpath(f"concurrency{kind}").write_text(f"{chance.choice((1, 20, 20))}\n")
        self.pool = path / "pool"
        self.pool.mkdir()
        self.files: dict[int, str] = {}
        for at in range(NUMBERS):
            name = self.pool / str(at)
            name.write_bytes(b"")
            self.files[name.stat().st_ino] = str(name)
        self.letters: list[RealLetter] = []
        self.injections: dict[int, tuple[RealLetter, int]] = {}
        self.crashes = self.era = self.rules = 0
        self.unmarked = 0  # Marks that the disk refused, of which the log says that they repeat a recipient.
        self.unrecorded = 0  # What may have prevented the record of a failure.
        self.recorded: set[tuple[int, bytes]] = set()
        self.announced = 0  # Messages that were announced.
        self.refused = False  # Whether the disk has refused a call of queue-send in this life.
        self.in_flight: list[InFlight] = []
        self.texts: list[str] = []
        self.time = 0.0
        self.zero = int(time.time()) + 10
        self.log_blocked = self.settling = False
        self.actors = {name: Paced() for name in (*self.todo_actors, "send", "disk", "clean")}
        self.disks: dict[str, StepDisk] = {}
        self.stack = ExitStack()
        self._patch()
        try:
            self.begin()
        except BaseException:
            self.stack.close()  # The tests that follow need the real clock.
            raise

    def _patch(self) -> None:
        enter = self.stack.enter_context
        enter(paced_calls())
        clock = partial(Clock, lambda: self.zero + self.time, lambda: self.time)
        for target, name, value in (
            (time, "monotonic", lambda: 1000 + self.time),
            (todo, "NoticePipe", lambda _: NoticePipe(self.todo_out)),
            (todo, "read_available", lambda _: read_available(self.todo_in)),
            (send, "Clock", clock),
            (send, "Log", lambda exit_wait: PacedLog(self)),
            # Small limits in some walks.
            (marks_file, "SLOTS", self.chance.choice((1, 2, *[SLOTS] * 4))),
            (todo_announced, "ANNOUNCED_MAX", self.chance.choice((1, 2, 100, 100, 100))),
            (send_announced, "CROWDED", self.chance.choice((1, 100, 100, 100))),
            (send_announced, "UNSTARTED_FIRST", self.chance.choice((2, 300, 300, 300))),
            (send, "Signals", self._make_signals),
            (send, "select", NoWait),
            (send, "DiskThread", partial(self._make_disk, "disk")),
            (clean, "complain", lambda _, text: self.texts.append(text)),
            (delivery_verdicts, "append_failures", self._append_failures),
            (Bouncer, "_over", self._note_bounce(Bouncer._over)),
        ):
            enter(patch.object(target, name, value))
        enter(patch("queue_todo.pipeline.DiskThread", partial(self._make_disk, "todo")))
        enter(patch("queue_base.durable.PARALLEL", 1 << 30))
        enter(patch("queue_todo.pending.SCAN_EVERY", 1e9))  # Nothing but inotify and the first scan finds a message.

    def _make_disk(self, name: str, in_memory: bool = False) -> StepDisk:
        self.disks[name] = StepDisk(self.actors[name])
        return self.disks[name]

    def _make_signals(self, *numbers: signal.Signals) -> Signalled:
        self.signals = Signalled()
        return self.signals

    def _append_failures(self, layout: Layout, failures: list[FailedRecipient]) -> dict[int, OSError]:
        troubles = append_failures(layout, failures)
        for failure in failures:
            if failure.message in troubles:
                continue
            serial = self.text_of(failure.message)
            assert serial is not None
            self.letters[serial].failed.add(failure.recipient)
        return troubles

    def _note_bounce(self, over: Callable[[Bouncer, int], None]) -> Callable[[Bouncer, int], None]:
        def note(bouncer: Bouncer, message: int) -> None:
            serial = self.text_of(message)
            assert serial is not None
            self.letters[serial].bounced = True
            over(bouncer, message)

        return note

    # The daemons

    def begin(self) -> None:
        """Start the daemons."""
        self.ended = False
        self.refused = False
        self.in_flight = []
        pipes = {name: os.pipe2(os.O_CLOEXEC) for name in (
            "local jobs", "local reports", "remote jobs", "remote reports", "ids", "answers", "commands", "notices",
            "life", "pickup", "intake commands", "intake",
        )}  # fmt: skip
        self.pipes = pipes
        self.closed: set[int] = set()
        for reader, _ in pipes.values():
            os.set_blocking(reader, False)
        writes = {"local jobs", "remote jobs", "ids", "commands", "life", "intake commands"}
        names = {
            "LOCAL_JOBS": "local jobs", "LOCAL_REPORTS": "local reports", "REMOTE_JOBS": "remote jobs",
            "REMOTE_REPORTS": "remote reports", "CLEAN_IDS": "ids", "CLEAN_ANSWERS": "answers",
            "TODO_COMMANDS": "commands", "TODO_NOTICES": "notices", "PICKUP_LIFE": "life", "PICKUP_NOTICES": "pickup",
            "INTAKE_COMMANDS": "intake commands", "INTAKE_NOTICES": "intake",
        }  # fmt: skip
        self.todo_in, self.todo_out = pipes["commands"][0], pipes["notices"][1]
        self.log = os.open(f"{self.home.path}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        with ExitStack() as numbers:
            for constant, name in names.items():
                numbers.enter_context(patch.object(processes, constant, pipes[name][name in writes]))
            self.send = send.QueueSend(self.home, 1)
        self.classifier: todo.Classifier | None = self._start_todo()
        self.readers = {kind: NetstringReader() for kind in KINDS}
        for kind in KINDS:
            os.write(pipes[f"{kind} reports"][1], pack_ready(1000))
        self.ids = RecordReader()
        self.synced = False
        self.failing: set[int] = set()
        self.cleaned = False  # Whether queue-clean has done what it does at its start.
        self.clean_lost = self.exited = False
        self.actors["clean"].begin(self._start_clean)

    def _start_todo(self) -> todo.Classifier:
        classifier = todo.Classifier(self.home, self.layout)
        self.pipelines = [classifier._pipeline]
        return classifier

    def end(self) -> None:
        """End the daemons as SIGKILL does."""
        self.ended = True
        for actor in self.actors.values():
            actor.kill()
        if self.send._log.given_up:
            for letter in self.letters:
                letter.unlogged = True
        announced = self._announced
        if announced._marks is not None:
            announced._marks.close()
        self.send._admin._stop_listening()
        for each in (self.signals.descriptor, self.signals.writer, self.log):
            os.close(each)
        for kind, channel in zip(KINDS, self.send._channels, strict=True):
            if channel._daemons[0]._input_closed:
                self.closed.add(self.pipes[f"{kind} jobs"][1])
        self._end_todo()
        for ends in self.pipes.values():
            for end in ends:
                if end not in self.closed:
                    os.close(end)

    def _end_todo(self) -> None:
        if self.classifier is None:
            return
        for name in self.todo_actors:
            self.actors[name].kill()
        trigger = self.classifier._trigger
        assert trigger is not None
        os.close(trigger.descriptor)
        os.close(trigger._writer)
        self.classifier._watch.close()
        self.classifier = None
        self._close("commands", 0)
        self._close("notices", 1)

    def _close(self, name: str, end: int) -> None:
        descriptor = self.pipes[name][end]
        if descriptor not in self.closed:
            self.closed.add(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        if not self.ended:
            self.end()
        for actor in self.actors.values():
            actor.close()
        self.stack.close()
        # A daemon that is killed closes nothing: what Python warns of comes while the test runs, which ignores it.
        del self.send, self.stack
        gc.collect()

    @property
    def _announced(self) -> send_announced.Announced:
        announced = self.send._messages.store.announced
        assert announced is not None
        return announced

    def _start_clean(self) -> None:
        self.synced = clean.try_sync_todo(self.layout)
        if self.synced:
            finish_removals(self.layout)

    def _answer_clean(self, records: list[bytes]) -> None:
        self.synced = self.synced or clean.try_sync_todo(self.layout)
        answers = clean.answer(self.layout, records, self.failing) if self.synced else TROUBLE * len(records)
        if not self.clean_lost:
            os.write(self.pipes["answers"][1], answers)

    def _turn_send(self) -> None:
        if self.send.may_exit():
            known = self._announced._messages
            left = [each for number, each in known.items() if is_there(self.layout.todo(number))]
            self.unrecorded += any(each.awaited for each in left)
            self.send.finish()
            self.exited = True
        else:
            self.send.turn()
            check_states(self.send._messages)

    @property
    def losses(self) -> int:
        """What may have lost a mark: crashes, and refusals of the disk."""
        return self.crashes + self.unmarked

    # What may happen

    def moves(self) -> list[Move]:
        return [*self._outside(), *self._hosts(), *self._todo_moves(), *self._send_moves(), *self._clean_moves()]

    def _outside(self) -> list[Move]:
        found = []
        free = [number for number in self.files if number not in self.injections and self._is_free(number)]
        if free and len(self.letters) < 15:
            found.append(Move("inject", 3, lambda: self._inject(self.chance.choice(free)), False))
        for number in self.injections:
            found.append(Move("inject on", 4, partial(self._inject_on, number)))
        if self.injections:
            found.append(Move("kill an injector", 0.1, self._kill_injector, False))
        found += [
            Move("kill", 0.08, self._kill, False),
            Move("wait", 0.1, lambda: self._wait(self.chance.choice((6.0, 31.0, 65.0))), False),
            Move("flush", 0.2, lambda: self._signal(signal.SIGALRM), False),
            Move("HUP", 0.1, self._hup, False),
            Move("rescan", 0.15, self._rescan, False),
            Move("TERM", 0.03, lambda: self._signal(signal.SIGTERM), False),
            Move("order", 0.15, self._order, False),
        ]
        if self.log_blocked:
            found.append(Move("the log goes on", 0.5, self._toggle_log))
        else:
            found.append(Move("the log is blocked", 0.05, self._toggle_log, False))
        for kind in KINDS:
            if self.pipes[f"{kind} jobs"][0] not in self.closed:
                found.append(Move("lose a delivery daemon", 0.01, partial(self._lose_delivery, kind), False))
        if self.classifier is not None:
            found.append(Move("overflow", 0.1, self._overflow, False))
            found.append(Move("lose queue-todo", 0.02, self._lose_todo, False))
        if not self.clean_lost:
            found.append(Move("lose queue-clean", 0.02, self._lose_clean, False))
        if self.exited:
            found.append(Move("start again", 3, self._start_again))
        return found

    def _hosts(self) -> list[Move]:
        found = []
        for each in self.in_flight:
            if each.verdicts is None:
                found.append(Move("hosts decide", 3, partial(self._decide, each)))
            else:
                found.append(Move("report", 3, partial(self._report, each)))
        return found

    def _todo_moves(self) -> list[Move]:
        if self.classifier is None:
            return []
        self.announced = max(self.announced, sum(len(each.announced) for each in self.pipelines))
        found = [Move("todo turns", 3, self._turn_todo)]
        for name in self.todo_actors:
            disk = self.disks[name]
            if disk.working:
                found.append(Move("todo works", 15, disk.step))
                if self.refuses and self.actors[name].at in CHANGES:
                    found.append(Move("the disk refuses todo", 0.1, partial(self._refuse_todo, disk), False))
        return found

    def _refuse_todo(self, disk: StepDisk) -> None:
        disk.step(self._error())

    def _send_moves(self) -> list[Move]:
        actor, disk = self.actors["send"], self.disks["disk"]
        found = []
        if disk.working:
            found.append(Move("send's disk works", 4, disk.step))
            if self.refuses and self.actors["disk"].at in CHANGES:
                found.append(Move("the disk refuses send's thread", 0.1, self._refuse_disk, False))
        if actor.busy:
            found.append(Move("send works", 15, self._step_send))
            if self.refuses and actor.at in CHANGES:
                found.append(Move("the disk refuses send", 0.1, self._refuse_send, False))
        elif not self.exited:
            found.append(Move("send turns", 3, self._begin_send))
        return found

    def _clean_moves(self) -> list[Move]:
        actor = self.actors["clean"]
        if actor.busy:
            found = [Move("clean works", 10, actor.step)]
            if self.refuses and actor.at in CHANGES:
                found.append(Move("the disk refuses clean", 0.1, lambda: actor.step(self._error()), False))
            return found
        if not self.clean_lost and can_read(self.pipes["ids"][0]):
            return [Move("clean begins", 2, self._begin_clean)]
        return []

    def _error(self) -> OSError:
        number = self.chance.choice((errno.EIO, errno.ENOSPC))
        return OSError(number, os.strerror(number), "refused")

    # What they do

    def _is_free(self, number: int) -> bool:
        return not is_there(self.layout.mess(number))

    def _inject(self, number: int) -> None:
        left = self._left(str(number))
        if left:
            raise Fault(f"number {number} is free, and has {left}")
        recipients = self.chance.choice(ENVELOPES)
        letter = RealLetter(len(self.letters), number, recipients, self.losses, self.unrecorded)
        self.letters.append(letter)
        name = self.files[number]
        Path(name).write_bytes(b"serial %d\n" % letter.serial)
        birth = (int(self.zero) - 1000 + self.chance.choice((0, 1)) + 10 * self.era) * 1_000_000_000 + 500_000_000
        os.utime(name, ns=(birth, birth))
        os.link(name, self.layout.mess(number))
        self.injections[number] = letter, 0

    def _left(self, name: str) -> list[str]:
        """Return the files of messages without last/B/I, which may stay until the sweep removes it.

        That is, if all is killed after a deferral and before the classification that it asks for, and the next run
        delivers the message: queue-clean does not spend a system call on each announced message to look for the file.
        """
        return [str(path) for path in Path(self.home.queue).glob(f"*/*/{name}") if path.parts[-3] != "last"]

    def _inject_on(self, number: int) -> None:
        letter, step = self.injections[number]
        if step < 2 and self.text_of(number) != letter.serial:
            raise Fault(f"mess/{number} is gone or another one while it is injected")
        if step == 0:
            Path(self.layout.intd(number)).write_bytes(pack_todo(Envelope(1, 2, SENDER, letter.recipients)))
        elif step == 1:
            os.link(self.layout.intd(number), self.layout.todo(number))
            letter.linked = True
        else:
            letter.accepted = True
            del self.injections[number]
            return
        self.injections[number] = letter, step + 1

    def _kill_injector(self) -> None:
        del self.injections[self.chance.choice(list(self.injections))]

    def text_of(self, number: int) -> int | None:
        """Return the serial number of the message in mess/B/I."""
        try:
            return int(Path(self.layout.mess(number)).read_bytes().split()[1])
        except FileNotFoundError:
            return None

    def _decide(self, flight: InFlight) -> None:
        """The hosts take the message, or refuse it."""
        number = int(flight.job.path.split(b"/")[-1])
        serial = self.text_of(number)
        if serial is None:
            raise Fault(f"{flight.job} has no text")
        letter = self.letters[serial]
        if not set(flight.job.recipients) <= set(letter.recipients):
            raise Fault(f"{letter.recipients} is sent as {flight.job}")
        choices = (b"K", b"K", b"K", b"K", b"Z", b"D") if not self.settling else (b"K",)
        verdicts = tuple(self.chance.choice(choices) for _ in flight.job.recipients)
        for recipient, verdict in zip(flight.job.recipients, verdicts, strict=True):
            if verdict != b"Z":
                self._serve(letter, recipient, verdict == b"K")
        self.in_flight[self.in_flight.index(flight)] = flight._replace(letter=letter, verdicts=verdicts)

    def _serve(self, letter: RealLetter, recipient: bytes, takes: bool) -> None:
        counts = letter.taken if takes else letter.refused
        counts[recipient] += 1
        if (letter.serial, recipient) in self.recorded:
            raise Fault(f"{recipient!r} of {letter.serial} was recorded, and is tried again")
        losses = self.losses - letter.losses
        if letter.taken[recipient] > 1 + losses:
            raise Fault(f"{recipient!r} of {letter.serial} gets it {letter.taken[recipient]} times")
        tries = letter.taken[recipient] + letter.refused[recipient]
        if tries > 1 + losses + self.unrecorded - letter.unrecorded:
            raise Fault(f"{recipient!r} of {letter.serial} is served {tries} times")

    def _report(self, flight: InFlight) -> None:
        self.in_flight.remove(flight)
        assert flight.verdicts is not None
        if self.pipes[f"{flight.kind} reports"][1] in self.closed:
            return
        verdicts = [(verdict, b"text\n") for verdict in flight.verdicts]
        report = pack_report(Report(flight.job.number, MESSAGE_SCOPE, verdicts))
        os.write(self.pipes[f"{flight.kind} reports"][1], report)

    def _turn_todo(self) -> None:
        classifier = self.classifier
        assert classifier is not None
        if classifier.finished:
            self._finish_todo()
            return
        ready = {}
        if can_read(self.todo_in):
            ready[0] = select.POLLIN
        watch = classifier._watch.descriptor
        assert watch is not None
        if can_read(watch):
            ready[watch] = select.POLLIN
        try:
            classifier.run(ready, time.monotonic())
        except (PeerLost, Temporary):
            self._end_todo()

    def _finish_todo(self) -> None:
        assert self.classifier is not None
        self.classifier.free_injectors()
        self.classifier._notices.finish()
        self._end_todo()

    def _begin_send(self) -> None:
        self.actors["send"].begin(self._turn_send)
        self._step_send()

    def _step_send(self, verdict: BaseException | None = None) -> None:
        self.actors["send"].step(verdict)
        self._take_jobs()
        if self.exited:
            self._close("commands", 1)
            self._close("ids", 1)

    def _refuse_send(self) -> None:
        self.refused = True
        self._step_send(self._error())

    def _refuse_disk(self) -> None:
        self.refused = True
        self.disks["disk"].step(self._error())

    def _take_jobs(self) -> None:
        for kind in KINDS:
            descriptor = self.pipes[f"{kind} jobs"][0]
            if descriptor in self.closed:
                continue
            if can_read(descriptor):
                self.readers[kind].feed(os.read(descriptor, 1 << 20))
            while (payload := self.readers[kind].next()) is not None:
                self.in_flight.append(InFlight(kind, unpack_job(payload)))

    def _begin_clean(self) -> None:
        try:
            records = self.ids.feed(read_available(self.pipes["ids"][0]) or b"")
        except PeerLost:
            self.clean_lost = True
            return
        self.actors["clean"].begin(partial(self._answer_clean, records))

    def _wait(self, seconds: float) -> None:
        self.time += seconds

    def _signal(self, number: int) -> None:
        self.signals.pending.add(number)

    def _hup(self) -> None:
        self.rules = 1 - self.rules
        Path(self.home.control, "locals").write_bytes(LOCALS[self.rules])
        self._signal(signal.SIGHUP)

    def _rescan(self) -> None:
        if self.classifier is not None:
            self.classifier._pending.scan_soon()

    def _overflow(self) -> None:
        assert self.classifier is not None
        self.classifier._watch.take()
        self.classifier._watch.lost = True
        self.classifier._take_names("", self.classifier._watch, time.monotonic())

    def _order(self) -> None:
        """queuectl holds, releases, or flushes a message."""
        if self.actors["send"].busy or self.exited:
            return
        number = self.chance.choice(list(self.files))
        try:
            birth = os.stat(self.layout.mess(number)).st_mtime_ns // 1000
        except FileNotFoundError:
            return
        command = self.chance.choice((wire.HOLD, wire.RELEASE, wire.RELEASE, wire.FLUSH, wire.DELETE, wire.BOUNCE))
        if command in (wire.DELETE, wire.BOUNCE):
            serial = self.text_of(number)
            assert serial is not None
            self.letters[serial].deleted = True
        request = wire.Request(command, b"why", [pack_long_id(number, birth).encode()])
        self.send._admin._orders.carry_out(request, lambda _: None, self.send._clock.now())

    def _lose_todo(self) -> None:
        self._end_todo()
        self.crashes += 1

    def _lose_clean(self) -> None:
        self.actors["clean"].kill()
        self.clean_lost = True
        self._close("ids", 0)
        self._close("answers", 1)
        self.crashes += 1

    def _lose_delivery(self, kind: str) -> None:
        self._close(f"{kind} jobs", 0)
        self._close(f"{kind} reports", 1)
        self.in_flight = [each for each in self.in_flight if each.kind != kind]
        self.crashes += 1

    def _toggle_log(self) -> None:
        self.log_blocked = not self.log_blocked

    def _start_again(self) -> None:
        while self.actors["clean"].busy:
            self.actors["clean"].step()
        if not self.clean_lost and can_read(self.pipes["ids"][0]):
            self._begin_clean()
            while self.actors["clean"].busy:
                self.actors["clean"].step()
        self.end()
        self.begin()

    def _kill(self) -> None:
        """SIGKILL of all, or of queue-send, whose peers finish some of what they do."""
        self.crashes += 1
        self.actors["send"].kill()
        if self.chance.random() < 0.5:
            for _ in range(self.chance.choice((0, 5, 30))):
                for name in (*self.todo_actors, "clean"):
                    if self.actors[name].busy:
                        self.actors[name].step()
        self.end()
        self._note_recorded()
        self._check_log()
        if self.chance.random() < 0.1:
            self._take_over()
        self.begin()

    def _take_over(self) -> None:
        """An original qmail delivers some of what is in todo/. It knows nothing of queue/marks."""
        for number in self.files:
            serial = self.text_of(number)
            if serial is None or not is_there(self.layout.todo(number)) or number in self.injections:
                continue
            if is_there(self.layout.hashed("hold", number)) or self.chance.random() < 0.3:
                continue
            letter = self.letters[serial]
            letter.foreign = True
            letter.taken = {recipient: count + 1 for recipient, count in letter.taken.items()}
            for path in (*files_beside_mess(self.layout, number), self.layout.mess(number)):
                if is_there(path):
                    os.unlink(path)
        self.era += 1  # It takes longer than a birth is coarse.

    def _check_log(self) -> None:
        """Raise Fault if a message has left todo/, and the log does not say that it had come."""
        log = Path(self.home.path, "log").read_bytes()
        for number in self.files:
            serial = self.text_of(number)
            mine = [letter for letter in self.letters if letter.number == number and letter.linked]
            # What was deleted before queue-todo could classify it has the line of its deletion alone.
            mine = [letter for letter in mine if not (letter.foreign or letter.unlogged or letter.deleted)]
            count = sum(letter.serial != serial or not is_there(self.layout.todo(number)) for letter in mine)
            if log.count(b"new msg %d\n" % number) < count:
                raise Fault(f"{count} messages {number} are gone, and the log has fewer of `new msg`")

    def _note_recorded(self) -> None:
        """Note what has a mark in queue/marks and is in todo/. What left todo/ meanwhile may lack its last marks."""
        layout = self.layout
        try:
            left = LeftMarks(layout)
        except OSError:
            return
        for envelope in left._slots:
            done = left.done(envelope)
            serial = self.text_of(envelope.message)
            if serial is None or envelope != self._identify(envelope.message):
                continue  # It is of an earlier message of this number.
            letter = self.letters[serial]
            for bit, recipient in enumerate(letter.recipients):
                if done >> bit & 1:
                    self.recorded.add((serial, recipient))

    def _identify(self, number: int) -> EnvelopeIdentity | None:
        try:
            birth = os.stat(self.layout.mess(number)).st_mtime_ns // 1000
            return identify(number, birth, Path(self.layout.todo(number)).read_bytes())
        except FileNotFoundError:
            return None

    # What must hold

    def settle(self) -> None:
        """Let everything come to its end, without crashes and refusals; check that nothing is left."""
        self.settling = True
        for round_ in range(300):
            for _ in range(40):
                moves = [move for move in self.moves() if move.progress]
                self.chance.choice(moves).do()
            self._drain()
            if self._is_over():
                break
            if round_ % 3 == 2:
                for number in self.files:
                    self._release(number)
                self._signal(signal.SIGALRM)
            if round_ % 5 == 4:
                self._sweep()
                self._wait(65.0)
        else:
            raise Fault(f"it does not come to its end: {self._describe()}")
        self._check_end()

    def _drain(self) -> None:
        """Do all that can be done now."""
        self.log_blocked = False
        for _ in range(30):
            for actor in self.actors.values():
                while actor.busy:
                    self._step_actor(actor)
            for flight in list(self.in_flight):
                if flight.verdicts is None:
                    self._decide(flight)
            for flight in list(self.in_flight):
                self._report(flight)
            for number in list(self.injections):
                self._inject_on(number)
            if self.exited:
                self._start_again()
            if self.classifier is not None:
                self._turn_todo()
            if not self.actors["send"].busy:
                self._begin_send()
            if not self.clean_lost and not self.actors["clean"].busy and can_read(self.pipes["ids"][0]):
                self._begin_clean()

    def _step_actor(self, actor: Paced) -> None:
        if actor is self.actors["send"]:
            self._step_send()
        elif actor is self.actors["disk"]:
            self.disks["disk"].step()
        else:
            names = [name for name in self.todo_actors if actor is self.actors[name]]
            if names:
                self.disks[names[0]].step()
            else:
                actor.step()

    def _release(self, number: int) -> None:
        if self.actors["send"].busy or self.exited or not is_there(self.layout.mess(number)):
            return
        if is_there(self.layout.hashed("hold", number)):
            birth = os.stat(self.layout.mess(number)).st_mtime_ns // 1000
            request = wire.Request(wire.RELEASE, b"", [pack_long_id(number, birth).encode()])
            self.send._admin._orders.carry_out(request, lambda _: None, self.send._clock.now())

    def _sweep(self) -> None:
        """36 hours have passed: what injectors and killed removals have left goes."""
        if self.injections or self.actors["clean"].busy or self.clean_lost:
            return
        self.actors["clean"].begin(lambda: list(sweep(self.layout, time.time() + 1_000_000, self.failing)))
        while self.actors["clean"].busy:
            self.actors["clean"].step()

    def _is_over(self) -> bool:
        return not self.injections and not self.in_flight and all(map(self._is_free, self.files))

    def _describe(self) -> str:
        files = sorted(str(path) for path in Path(self.home.queue).glob("*/*/*"))
        return f"{files}, {self.in_flight}, {self.texts[-3:]}"

    def _check_end(self) -> None:
        for _ in range(3):
            self._drain()
        for letter in self.letters:
            if letter.deleted or letter.foreign:
                continue
            lost = [each for each, count in letter.taken.items() if not count and each not in letter.failed]
            if letter.accepted and lost:
                raise Fault(f"{letter.serial} was accepted, and lost for {lost}: {letter.taken}, {letter.refused}")
            if letter.failed and not letter.bounced:
                raise Fault(f"{letter.serial} has failures of {letter.failed}, and no bounce")
        left = self._left("*")
        if left:
            raise Fault(f"left: {left}")
        list(sweep(self.layout, time.time() + 1_000_000, self.failing))
        last = list(Path(self.home.queue, "last").glob("*/*"))
        if last:
            raise Fault(f"left by the sweep: {last}")
        if self.classifier is not None and any(len(each.announced) for each in self.pipelines):
            raise Fault("queue-todo has announced messages")
        announced = self._announced
        if len(announced) or announced._unstarted:
            raise Fault(f"queue-send has {len(announced)} announced messages, {announced._unstarted} not started")
        marks = announced._marks
        if marks is not None and not self.refused:
            with open(f"{self.home.queue}/marks", "rb") as file:
                if any(file.read()[64:]):
                    raise Fault("records are left")
            if len(marks._free) != marks._fresh:
                raise Fault(f"{marks._fresh - len(marks._free)} slots are taken")


def walk(
    seed: int,
    steps: int,
    path: Path,
    favour: dict[str, float] | None = None,
    make: type[RealWorld] = RealWorld,
) -> RealWorld:
    """Make moves at random and settle; raise Fault if something is wrong."""
    chance = random.Random(seed)
    world = make(chance, path, refuses=bool(seed % 3))
    factors = dict(favour or {})
    crashes = chance.choice((0.0, 0.2, 0.5, 1.0))
    for name in ("kill", "TERM", "lose queue-todo", "lose queue-clean"):
        factors.setdefault(name, crashes)
    trail: list[str] = []
    try:
        for _ in range(steps):
            move = choose_move(chance, world.moves(), factors, prefers=bool(seed % 2))
            trail.append(move.name)
            move.do()
        world.settle()
    except BaseException as error:
        error.add_note(f"seed {seed}: {trail[-60:]}")
        raise
    finally:
        world.close()
    return world
