"""queue-todo: the classifier. `queue-todo [--home HOME]`, started by queue-start.

fd 0 takes one-byte commands from queue-send (H reread the control files, X exit; end of file is X), fd 1 gives notices
and log lines (queue_wire.pipes.notice). New messages are found by inotify, lock/trigger and scans (`Pending`). They are
classified in groups that share three commits (`Pipeline`, `TodoGroup`), by a thread that may wait for the disk. If the
control files or queue/holds cannot be read at start, nothing is classified until they can be: a message is never
classified by default rules, nor past a standing hold.

queue-send may have new messages announced instead of classified: they stay in todo/ (announcements.py).

After X no group is begun. Groups that are in the log already are finished, and announced messages are classified when
queue-send asks for it, within FINISHING seconds (pipeline.py); what the disk refuses is tried again each second. All
others stay in todo/.
"""

import os
import select
import signal
import time

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.daemon.signals import ignore
from queue_base.daemon.watch import Watch
from queue_base.errors import Failure, Usage, complain, reason
from queue_base.home import Home, take_help, take_home, take_queue
from queue_base.queue.class_trees import order_classes
from queue_base.queue.hold_marks import remove_lost_marks
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.trigger import Trigger
from queue_todo.backpressure import Backpressure, Space
from queue_todo.config import RuleFiles
from queue_todo.hold_watch import StandingHolds
from queue_todo.notices import NoticePipe
from queue_todo.pending import Pending
from queue_todo.pipeline import UNWRITTEN_MAX, Pipeline
from queue_wire.admin.settings import pack_in_force
from queue_wire.control.rewrite import Rules
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id
from queue_wire.pipes.notice import (
    EXIT,
    REREAD,
    CommandReader,
    Reread,
    Resubmission,
    pack_reread,
)

PROGRAM = "queue-todo"
USAGE = "usage: queue-todo [--home HOME] [--queue NAME]"
HELP = f"""{USAGE}
The classifier: splits each new envelope into local and remote recipients. It is started by queue-start.
"""
RULES_RETRY = 60.0  # Seconds between attempts to read control files or holds that could not be read at start.
# Seconds after names were taken until others are: their messages are announced together, which costs all peers less.
# Until then they wake nobody. A message that comes alone does not wait.
GATHER = 0.005
BLIND_SCAN = 5.0  # Seconds between scans without inotify and without a trigger.


class Classifier:
    """The parts of the loop: commands, watch, trigger, notices, and the work itself."""

    def __init__(self, home: Home, layout: Layout) -> None:
        self._home = home
        self._layout = layout
        self._notices = NoticePipe(1)
        self._commands = CommandReader()
        self._pending = Pending(layout)
        # Watch first, then scan: a message that arrives in between is seen twice, and not missed.
        self._watch = Watch(layout.todo_directories(""))
        self._lower: dict[str, Watch] = {}  # The watches of the trees of the lower classes.
        self._next_look = 0.0  # When a pull may have a look for further trees.
        self._trigger: Trigger | None = None
        self._next_scan = 0.0
        self._named = 0
        self._gather_until = 0.0
        self._files = RuleFiles(home)
        self._next_rules = 0.0
        self._holds = StandingHolds(layout.queue)
        self._remove_lost_marks()
        self._pipeline = Pipeline(layout, self._pending, self._notices, self._holds)
        self._backpressure = Backpressure(home)
        self._space = Space(home)
        if self._watch.problem:
            self._notices.alert(f"unable to watch todo: {self._watch.problem}; the trigger and scans do its work")
        self._watch_classes()
        try:
            self._trigger = Trigger(home)
        except OSError as error:
            self._notices.alert(
                f"unable to use {home.queue}/lock/trigger: {reason(error)}; inotify and scans do its work"
            )

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register the descriptors; return the seconds to wait at most."""
        trigger = None if self._trigger is None else self._trigger.descriptor
        gathering = now < self._gather_until and self._watch.descriptor is not None
        watches = [watch.descriptor for watch in (self._watch, *self._lower.values())]
        for descriptor in (0,) if gathering else (0, trigger, *watches):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        poll.register(1, select.POLLOUT if self._notices.unwritten else 0)
        wait = min(
            self._space.wait(now),
            self._backpressure.wait(now, self._arrival),
            self._pipeline.prepare(poll, now, self._rules_in_force),
            self._gather_until - now if gathering else 3600.0,
        )
        if self._pipeline.exit_by is not None:
            return min(wait, max(0.0, self._pipeline.exit_by - now))
        if self._rules is None:
            return min(wait, max(0.0, self._next_rules - now))
        if self._notices.unwritten <= UNWRITTEN_MAX:
            wait = min(wait, self._pending.wait(now))
        return min(wait, max(0.0, self._next_scan - now)) if self._blind else wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: commands, names, work for the thread, notices. Raises PeerLost if queue-send is gone."""
        if ready.get(1, 0) & (select.POLLERR | select.POLLHUP):
            raise PeerLost("queue-send does not read the notices")
        if 0 in ready:
            self._obey()
        if self._rules is None and now >= self._next_rules:
            self._reread(now)
        gathered = 0.0 < self._gather_until <= now
        if gathered or self._watch.descriptor in ready:
            self._gather_until = 0.0
            self._take_names("", self._watch, now)
        for priority, watch in self._lower.items():
            if gathered or watch.descriptor in ready:
                self._take_names(priority, watch, now)
        pulled = self._trigger is not None and (gathered or self._trigger.descriptor in ready)
        if pulled and now >= self._next_look and self._has_new_classes:
            self._look_for_classes(now)
        # inotify named these messages before the pull, so first take all names.
        more = self._watch.more or any(watch.more for watch in self._lower.values())
        if self._trigger is not None and pulled and not more:
            self._take_trigger(self._trigger.clear(), now)
        if self._blind and now >= self._next_scan:
            self._next_scan = now + BLIND_SCAN
            self._pending.scan_soon()
        rules = self._rules_in_force
        if rules is not None and self._notices.unwritten <= UNWRITTEN_MAX:
            trouble = self._pending.run(now)
            if trouble is not None:
                self._notices.warn(trouble)
            if self._pending.scan_began:
                self._pending.scan_began = False
                self._look_for_classes(now)
        self._pipeline.run(ready, now, rules)
        if self._rules is not None:
            worked = self._pipeline.take_worked()
            self._backpressure.update(time.monotonic(), len(self._pending), self._arrival, worked)
        for line in self._backpressure.take_lines():
            self._notices.log(line)
        shortage = self._space.run(now)
        if shortage is not None:
            self._notices.log(shortage)
        self._notices.flush()

    @property
    def finished(self) -> bool:
        """Whether X was received, no group in the log is unfinished, and queue-send has no announced message."""
        return self._pipeline.may_exit

    def finish(self) -> None:
        """Write all notices, however long that takes. Raises PeerLost."""
        self._notices.end()

    def free_injectors(self) -> None:
        """Remove the marks that slow or refuse injectors."""
        self._backpressure.end()
        for line in self._backpressure.take_lines():
            self._notices.log(line)

    def _remove_lost_marks(self) -> None:
        """Remove the marks in hold/ of numbers without a message: they would hold the next one of the number.

        A kill leaves one, after a standing hold has made it, if the message is then removed by hand.
        """
        try:
            remove_lost_marks(self._layout)
        except OSError as error:
            place = error.filename or self._layout.queue
            self._notices.warn(f"unable to look for marks without a message: {place}: {reason(error)}")

    def _obey(self) -> None:
        try:
            commands = self._commands.feed(read_available(0) or b"")
        except FormatError as error:
            self._notices.warn(f"unknown command: {error}")
            return
        now = time.monotonic()
        for command in commands:
            if command == REREAD:
                self._reread(now, asked=True)
                # A corrupt message may have been released, which nothing else reports.
                self._pending.scan_soon()
            elif command == EXIT:
                self._pipeline.begin_exit(now)
            elif not self._pipeline.carry_out(command, now):
                self._notices.warn(f"unknown command {command[0]}")
            if isinstance(command, Resubmission):
                self._next_rules = 0.0

    def _reread(self, now: float, asked: bool = False) -> None:
        try:
            for line in self._files.read():
                self._notices.log(line)
        except Failure as error:
            self._next_rules = now + RULES_RETRY
            nothing = f"nothing is classified; trying again in {RULES_RETRY:.0f} s"
            fate = "the old ones stay" if self._files.rules else nothing
            self._notices.alert(f"unable to reread controls: {error}; {fate}")
        if not self._holds.known:
            self._look_at_holds()
        self._notices.put(pack_reread(Reread(pack_in_force(self._files.in_force()), asked)))

    def _look_at_holds(self) -> None:
        """Read the standing holds for the first time; alert if that is not possible."""
        self._holds.repeat_trouble()
        self._holds.current()
        trouble = self._holds.take_trouble()
        if trouble is not None:
            self._next_rules = time.monotonic() + RULES_RETRY
            self._notices.alert(trouble)

    @property
    def _rules(self) -> Rules | None:
        return self._files.rules if self._holds.known else None

    @property
    def _rules_in_force(self) -> Rules | None:
        """The rules; None if no group may be begun."""
        return None if self._pipeline.exit_by is not None else self._rules

    @property
    def _arrival(self) -> float | None:
        """When the next message arrived, None if none waits, or rules or holds are lacking, without which none may be
        classified."""
        return None if self._rules is None else self._pipeline.arrival

    def _take_names(self, priority: str, watch: Watch, now: float) -> None:
        """Take the names that inotify has given of the tree of a class, empty for the first one."""
        found = []
        for name in watch.take():
            try:
                found.append(unpack_id(os.fsencode(name)))
            except FormatError:
                continue  # Not a message.
        self._named += len(found)
        self._pending.add(found, now, priority)
        if found:
            self._gather_until = now + GATHER
        if watch.lost:
            watch.lost = False
            if priority:
                self._pending.read_lower_soon()
            # A message whose name is lost may have the number of a deferred one.
            self._pipeline.resubmit(0, now)

    @property
    def _has_new_classes(self) -> bool:
        return self._layout.has_changed or len(self._layout.lower) != len(self._lower)

    def _look_for_classes(self, now: float) -> None:
        """Look for trees that were made since, and have all of them read."""
        try:
            self._layout.learn_classes()
        except Failure as error:
            self._notices.warn(f"unable to look for classes: {error}; will try again later")
            self._next_look = now + RULES_RETRY
        self._watch_classes()
        self._pending.read_lower_soon()

    def _watch_classes(self) -> None:
        """Watch the trees of the lower classes, and set the order of the classes."""
        for priority in self._layout.lower:
            if priority not in self._lower:
                watch = self._lower[priority] = Watch(self._layout.todo_directories(priority))
                if watch.problem:
                    what = f"unable to watch priority/{priority}: {watch.problem}"
                    self._notices.alert(f"{what}; the trigger and scans do its work")
        self._pending.set_classes(self._layout, order_classes(self._home, self._layout))

    @property
    def _blind(self) -> bool:
        return self._watch.descriptor is None and self._trigger is None

    def _take_trigger(self, pulls: int, now: float) -> None:
        """Scan if there were more pulls than names from inotify."""
        if self._watch.descriptor is not None:
            self._take_names("", self._watch, now)
        if pulls > self._named:
            self._pending.scan_soon()
        self._named = max(0, self._named - pulls)


def loop(classifier: Classifier) -> None:
    """Turn until told to exit, or until queue-send is gone."""
    try:
        while not classifier.finished:
            poll = select.poll()
            wait = classifier.prepare(poll, time.monotonic())
            classifier.run(dict(poll.poll(wait * 1000)), time.monotonic())
    finally:
        classifier.free_injectors()
    classifier.finish()


def main(argv: list[str]) -> int:
    """Run the daemon; return 0 after X or the end of fd 0, else an exit code of queue_base.errors."""
    try:
        home, words = take_queue(*take_home(argv[1:]))
        if take_help(words, HELP):
            return 0
        if words:
            raise Usage(f"{words[0]} is not an option; {USAGE}; it is started by queue-start")
        ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        os.umask(0o027)
        loop(Classifier(home, open_layout(home.queue)))
    except PeerLost:
        return 0
    except Failure as error:
        complain(PROGRAM, f"fatal: {error}")
        return error.exit_code
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to go on: {error.filename or ''} {reason(error)}")
        return 111
    return 0
