"""queue-todo: the classifier. `queue-todo [--home HOME]`, started by queue-start.

fd 0 takes one-byte commands from queue-send (H reread the control files, X exit; its end is X), fd 1
gives notices and log lines (queue_wire.notice). New messages are found by inotify, by lock/trigger and by scans;
they are classified in groups that share three commits. Unreadable control files stop classification,
with an alert, until they can be read; no message is ever judged by rules that are not known.
"""

import os
import select
import signal
import time

from queue_base.errors import Failure, complain, reason
from queue_base.home import Home, take_daemon_home
from queue_base.layout import Layout, open_layout
from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_base.rules import read_rules
from queue_base.signals import ignore
from queue_base.trigger import Trigger
from queue_base.watch import Watch
from queue_todo.classify import Entry, Outcome, classify, confirm
from queue_todo.inflow import Inflow, Space
from queue_todo.pending import RETRY_AFTER, Pending
from queue_wire import logline
from queue_wire.errors import FormatError
from queue_wire.ids import unpack_id
from queue_wire.notice import EXIT, REREAD, Classified, pack_classified, pack_log
from queue_wire.rewrite import Rules

PROGRAM = "queue-todo"
USAGE = "usage: queue-todo [--home HOME]"
HELP = f"""{USAGE}
The classifier: splits each new envelope into local and remote recipients. It is started by queue-start.
"""
GROUP = 250  # Messages that share a commit at the most.
HELD_MOST = 4 << 20  # Bytes of notices that queue-send has not read; over it, classification waits.
RULES_RETRY = 60.0  # Seconds between tries to read control files that could not be read at start.
BLIND_SCAN = 5.0  # Seconds between scans where there is neither inotify nor a trigger.


class Classifier:
    """The parts of the loop: commands, watch, trigger, notices, and the work itself."""

    def __init__(self, home: Home, layout: Layout) -> None:
        self._home = home
        self._layout = layout
        self._notices = OutPipe(1)
        self._pending = Pending(layout)
        # Watch first, scan after: what arrives in between is then seen twice, never not at all.
        self._watch = Watch(layout.directories("todo"))
        self._trigger: Trigger | None = None
        self._next_scan = 0.0
        self._named = 0
        self._rules: Rules | None = None
        self._next_rules = 0.0
        self._unsure: list[Entry] = []
        self._next_confirm = 0.0
        self._inflow = Inflow(home, self._log)
        self._space = Space(home, self._log)
        self.leaving = False
        if self._watch.problem:
            self._alert(f"unable to watch todo: {self._watch.problem}; the trigger and scans do its work")
        try:
            self._trigger = Trigger(home)
        except OSError as error:
            self._alert(f"unable to use {home.queue}/lock/trigger: {reason(error)}; inotify and scans do its work")

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register what to wait for; return the seconds to wait at the most."""
        trigger = None if self._trigger is None else self._trigger.descriptor
        for descriptor in (0, trigger, self._watch.descriptor):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        poll.register(1, select.POLLOUT if self._notices.held else 0)
        wait = min(self._space.wait(now), self._inflow.wait(now, self._arrival))
        if self._rules is None:
            return min(wait, max(0.0, self._next_rules - now))
        wait = min(wait, RULES_RETRY if self._notices.held > HELD_MOST else self._pending.wait(now))
        if self._blind:
            wait = min(wait, max(0.0, self._next_scan - now))
        return min(wait, max(0.0, self._next_confirm - now)) if self._unsure else wait

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: commands, names, one group of messages, notices. Raises PeerLost where nobody is left to tell."""
        if ready.get(1, 0) & (select.POLLERR | select.POLLHUP):
            raise PeerLost("nobody reads the notices")
        if 0 in ready:
            self._obey()
        if self._rules is None and now >= self._next_rules:
            self._reread(now)
        if self._watch.descriptor in ready:
            self._take_names(now)
        if self._trigger is not None and self._trigger.descriptor in ready:
            self._take_trigger(self._trigger.clear(), now)
        if self._blind and now >= self._next_scan:
            self._next_scan = now + BLIND_SCAN
            self._pending.scan_soon()
        worked = False
        if self._rules is not None and self._notices.held <= HELD_MOST and not self.leaving:
            self._pending.run(now)
            group = self._pending.take(GROUP)
            if group:
                outcome = classify(self._layout, self._rules, group, self._pending.unpark(group))
                self._report(outcome, now)
                worked = bool(outcome.entries or outcome.parked)
        if self._rules is not None:
            self._inflow.judge(time.monotonic(), len(self._pending), self._arrival, worked)
        self._space.run(now)
        if self._unsure and now >= self._next_confirm:
            self._confirm(now)
        self._notices.flush()

    def finish(self) -> None:
        """Write the notices that queue-send has not read yet, however long that takes. Raises PeerLost."""
        self._notices.finish()

    def free_injectors(self) -> None:
        """Let them go on: nobody classifies any more."""
        self._inflow.end()

    def _obey(self) -> None:
        for command in read_available(0) or b"":
            if command == REREAD[0]:
                self._reread(time.monotonic())
                # A corrupt message may have been released, of which nothing else tells us.
                self._pending.scan_soon()
            elif command == EXIT[0]:
                self.leaving = True
            else:
                self._warn(f"unknown command {command}")

    def _reread(self, now: float) -> None:
        try:
            self._rules = read_rules(self._home)
        except Failure as error:
            self._next_rules = now + RULES_RETRY
            fate = "the old ones stay" if self._rules else f"nothing is classified; trying again in {RULES_RETRY:.0f} s"
            self._alert(f"unable to reread controls: {error}; {fate}")

    @property
    def _arrival(self) -> float | None:
        """Since when the next message has waited; the time in which nothing can be classified does not count."""
        return None if self._rules is None else self._pending.arrival

    def _take_names(self, now: float) -> None:
        found = []
        for name in self._watch.take():
            try:
                found.append(unpack_id(os.fsencode(name)))
            except FormatError:
                continue  # Not a message: a person's file.
        self._named += len(found)
        self._pending.add(found, now)
        if self._watch.lost:
            self._watch.lost = False
            self._pending.scan_soon()

    @property
    def _blind(self) -> bool:
        return self._watch.descriptor is None and self._trigger is None

    def _take_trigger(self, pulls: int, now: float) -> None:
        """Scan if somebody pulled the trigger whose message inotify did not name."""
        if self._watch.descriptor is not None:
            self._take_names(now)
        if pulls > self._named:
            self._pending.scan_soon()
        self._named = max(0, self._named - pulls)

    def _confirm(self, now: float) -> None:
        try:
            confirm(self._layout, self._unsure)
        except OSError:
            self._next_confirm = now + RETRY_AFTER
        else:
            self._announce(self._unsure)
            self._unsure = []

    def _announce(self, entries: list[Entry]) -> None:
        for entry in entries:
            envelope = entry.envelope
            self._log(logline.new_message(entry.message))
            self._log(
                logline.info_message(entry.message, entry.size, envelope.sender, envelope.pid, envelope.uid),
            )
            self._notices.put(pack_classified(Classified(entry.message, entry.local, entry.remote)))

    def _report(self, outcome: Outcome, now: float) -> None:
        self._announce(outcome.entries)
        if outcome.unsure:
            self._unsure += outcome.unsure
            self._next_confirm = now + RETRY_AFTER
        for message, why in outcome.parked:
            self._pending.park(message)
            self._log(logline.corrupt_message(message, why))
            self._alert(f"msg {message} cannot be read and is parked in corrupt: {why}")
        for message, _ in outcome.deferred:
            self._pending.defer(message, now)
        if outcome.deferred:
            # One line for the group: a full disk would otherwise fill the log too.
            message, why = outcome.deferred[0]
            others = f" (and {len(outcome.deferred) - 1} more)" if len(outcome.deferred) > 1 else ""
            self._warn(f"unable to classify msg {message}{others}: {why}; will try again later")

    def _alert(self, text: str) -> None:
        self._log(logline.alert(f"{PROGRAM}: {text}"))

    def _warn(self, text: str) -> None:
        self._log(logline.warning(f"{PROGRAM}: {text}"))

    def _log(self, line: bytes) -> None:
        self._notices.put(pack_log(line))


def loop(classifier: Classifier) -> None:
    """Turn until told to exit, or until queue-send is gone."""
    try:
        while not classifier.leaving:
            poll = select.poll()
            wait = classifier.prepare(poll, time.monotonic())
            classifier.run(dict(poll.poll(wait * 1000)), time.monotonic())
    finally:
        classifier.free_injectors()
    classifier.finish()


def main(argv: list[str]) -> int:
    """Run the daemon; return 0 after X or the end of fd 0, else an exit code of queue_base.errors."""
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
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
