"""Several processes that classify, and the parent's side of them: what queue-todo does with `--workers N`.

`start_workers` forks them. `Workers` takes the place of the Pipeline in the parent's loop. It hands ids on in the order
of `pending`, each to the worker of its bucket, and brings together what the workers say; docs/design/processes.md has
the reasons. A worker that ends before X raises Temporary: the parent ends as one process would, and its supervisor
starts all daemons again. A message is in the hands of one worker at most, because a number has one worker.
"""

import os
import select
from collections import Counter, deque
from typing import NamedTuple

from queue_base.daemon.disk_thread import DiskThread
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.errors import Failure, Temporary, complain, reason
from queue_base.queue.layout import Layout
from queue_todo.classify_part import ClassifyPart
from queue_todo.notices import NoticePipe
from queue_todo.pending import Pending
from queue_todo.pipeline import FINISHING, GROUP, UNREAD_MAX, read_lower, sort_waiting
from queue_todo.todo_worker import TodoWorker, work
from queue_todo.worker_records import (
    Parked,
    SharedAlert,
    Taken,
    WorkerReader,
    pack_named,
    pack_order,
    pack_rules,
    share_of,
)
from queue_wire.control.rewrite import Rules
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import pack_netstring
from queue_wire.pipes.notice import (
    EXIT,
    FIRST,
    LEAVE,
    PASSED,
    WRITTEN,
    Ask,
    ClassifyRequest,
    pack_ask,
    pack_gone,
    pack_request,
    pack_resubmission,
)

WORKERS_MAX = 16
# Ids that a worker has and has not begun; with more, none gets any. So each has its next group while it works on one.
AHEAD = GROUP
BATCHES = 4  # The most batches of ids, of GROUP at most, that one turn of the loop hands on.
END_SECONDS = 1.0  # For the exit code of a worker that has closed its pipe.


class WorkerPipes(NamedTuple):
    """A worker that was forked: its process, and the parent's ends of its two pipes."""

    pid: int
    commands: int
    notices: int


def start_workers(layout: Layout, count: int) -> list[WorkerPipes]:
    """Fork the workers. Called before this process has threads, or other descriptors than it was given."""
    workers: list[WorkerPipes] = []
    for _ in range(count):
        its_commands, commands = os.pipe()
        notices, its_notices = os.pipe()
        pid = os.fork()
        if not pid:
            others = [end for worker in workers for end in (worker.commands, worker.notices)]
            _become_worker(layout, its_commands, its_notices, count, [commands, notices, *others])
        os.close(its_commands)
        os.close(its_notices)
        workers.append(WorkerPipes(pid, commands, notices))
    return workers


def _become_worker(layout: Layout, commands: int, notices: int, count: int, others: list[int]) -> None:
    """Run a worker; never returns.

    Descriptor 1 stays open, so that queue-send sees its end only when no worker changes the queue any more.
    """
    code = 111
    try:
        for descriptor in others:
            os.close(descriptor)
        # Only the parent reads what queue-send writes.
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        work(TodoWorker(layout, commands, notices, count))
        os.close(1)
        code = 0
    except PeerLost:
        code = 0
    except Failure as error:
        complain("queue-todo", f"fatal: worker: {error}")
        code = error.exit_code
    except OSError as error:
        complain("queue-todo", f"fatal: worker: unable to go on: {error.filename or ''} {reason(error)}")
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


class WorkerLink:
    """A worker as the parent sees it.

    sent_first, sent_lower: ids that it was handed; taken: how many of them it has begun. passed: its answers to P.
    ended: it has closed its pipe. alerts: how often it has made each alert that the others make, too.
    """

    def __init__(self, pipes: WorkerPipes) -> None:
        self.pid = pipes.pid
        self.notices = pipes.notices
        self.commands = OutPipe(pipes.commands)
        self.reader = WorkerReader()
        self.sent_first = self.sent_lower = 0
        self.taken = Taken(0, 0)
        self.passed = 0
        self.ended = False
        self.alerts: Counter[str] = Counter()

    @property
    def ahead(self) -> int:
        """How many ids of the first class it has not begun."""
        return self.sent_first - self.taken.first

    @property
    def ahead_lower(self) -> int:
        """The same of the other classes."""
        return self.sent_lower - self.taken.lower

    def send(self, record: bytes) -> None:
        """Send a record; `flush` writes it. Nothing is sent to a worker that has ended."""
        if not self.ended:
            self.commands.put(record)

    def flush(self) -> None:
        """Write what the pipe takes. That it has ended is seen when its notices have been read."""
        try:
            if not self.ended:
                self.commands.flush()
        except PeerLost:
            pass

    def close(self) -> None:
        """Note that it has ended."""
        self.ended = True
        os.close(self.notices)
        self.commands.close()


class Workers(ClassifyPart):
    """Hands ids of `pending` on to the workers, and what they say to queue-send."""

    def __init__(self, layout: Layout, pending: Pending, notices: NoticePipe, pipes: list[WorkerPipes]) -> None:
        # Workers have FINISHING seconds since they got the X.
        super().__init__(layout, pending, notices, FINISHING + END_SECONDS)
        self._links = [WorkerLink(each) for each in pipes]
        self._disk = DiskThread()
        self._sorts = False  # Whether what the thread does is to sort ids.
        self._asked: deque[WorkerLink] = deque()  # Who has asked whether its lines are in the log, in order.
        self._passed = 0  # Answers to P.
        self._alerts: Counter[str] = Counter()  # Of all workers, how often each was passed on.
        self._rules: Rules | None = None  # Those that the workers have,
        self._classes: tuple[str, ...] = ()  # and the classes.

    def prepare(self, poll: "select.poll", now: float, rules: Rules | None) -> float:
        """Register the descriptors of the workers and of the thread; return the seconds to wait at most."""
        wait = self._disk.prepare(poll, now)
        for link in self._links:
            if not link.ended:
                if self._may_read:
                    poll.register(link.notices, select.POLLIN)
                if link.commands.unwritten:
                    poll.register(link.commands.descriptor, select.POLLOUT)
        return 0.0 if rules is not None and (self._may_hand_on or self._may_look(now)) else wait

    def run(self, ready: dict[int, int], now: float, rules: Rules | None) -> None:
        """Pass on what workers say, and hand ids on. Without rules none is handed on. Raises Temporary."""
        self._now = now
        self._disk.run(ready, now)
        for link in self._links:
            if not link.ended and link.notices in ready:
                self._read(link)
        if rules is not None:
            self._tell(rules)
            for _ in range(BATCHES):
                if self._may_hand_on:
                    self._hand_on()
            self._look_ahead(now)
        for link in self._links:
            link.flush()

    def written(self) -> None:
        if self._asked:
            self._asked.popleft().send(pack_netstring(WRITTEN))

    def set_mode(self, mode: bytes) -> None:
        super().set_mode(mode)
        self._send_all(pack_netstring(mode))

    def _begin_exit(self) -> None:
        self._send_all(pack_netstring(EXIT))

    def request(self, message: int, done: int) -> None:
        self._link_of(message).send(pack_netstring(pack_request(ClassifyRequest(message, done))))

    def gone(self, message: int) -> None:
        self._link_of(message).send(pack_netstring(pack_gone(message)))

    def resubmit(self, message: int, now: float) -> None:
        # One that is named here is handed on as new, and its worker tries it at once.
        super().resubmit(message, now)
        if not message:
            self._send_all(pack_netstring(pack_resubmission(0)))

    def ask_passed(self) -> None:
        # It is answered when all workers have answered.
        self._send_all(pack_netstring(PASSED))

    @property
    def has_unfinished(self) -> bool:
        """Whether a worker has not ended."""
        return not all(link.ended for link in self._links)

    def _link_of(self, message: int) -> WorkerLink:
        return self._links[share_of(message, self._layout.split, len(self._links))]

    def _send_all(self, record: bytes) -> None:
        for link in self._links:
            link.send(record)

    # What workers say

    @property
    def _may_read(self) -> bool:
        """Whether queue-send reads what is passed on; else the workers' pipes fill, and they wait, too."""
        return self._notices.unwritten <= UNREAD_MAX

    def _read(self, link: WorkerLink) -> None:
        try:
            found = link.reader.feed(read_available(link.notices) or b"")
        except PeerLost:
            self._end(link)
            return
        except FormatError as error:
            raise Temporary(f"worker {self._links.index(link) + 1} sent something impossible: {error}") from error
        if link.reader.worked:
            link.reader.worked = False
            self._worked = True
        for each in found:
            if isinstance(each, bytes):
                self._notices.put(each)
            elif isinstance(each, Taken):
                link.taken = each
            elif isinstance(each, Parked):
                self._pending.park(each.message)
                self._worked = True
            elif isinstance(each, SharedAlert):
                self._alert_once(link, each.text)
            elif each is Ask.WRITTEN:
                self._asked.append(link)
                self._notices.put(pack_ask(Ask.WRITTEN))
            else:
                link.passed += 1
                self._answer_passed()

    def _alert_once(self, link: WorkerLink, text: str) -> None:
        """Pass on an alert that each worker makes, once; and again when a worker makes it again."""
        link.alerts[text] += 1
        if link.alerts[text] > self._alerts[text]:
            self._alerts[text] = link.alerts[text]
            self._notices.alert(text)

    def _answer_passed(self) -> None:
        while min(link.passed for link in self._links) > self._passed:
            self._passed += 1
            self._notices.put(pack_ask(Ask.PASSED))

    def _end(self, link: WorkerLink) -> None:
        """Take the end of a worker. Raises Temporary if it was not told to end."""
        link.close()
        how = _how_ended(link.pid)
        if self.exit_by is not None:
            return
        text = f"worker {self._links.index(link) + 1} of {len(self._links)} has ended ({how})"
        self._notices.alert(f"{text}; all daemons are started again")
        try:
            self._notices.flush()
        except PeerLost:
            pass
        raise Temporary(text)

    # What they are handed

    @property
    def _may_hand_on(self) -> bool:
        # While ids are being sorted, none may be taken.
        if self._mode == LEAVE or (self._sorts and self._disk.busy):
            return False
        if any(link.ahead > AHEAD or link.ended for link in self._links):
            return False
        # The others wait until no worker has one of the first class to begin.
        if not len(self._pending) and any(link.ahead > 0 for link in self._links):
            return False
        return self._pending.may_take(self._first_only)

    @property
    def _first_only(self) -> bool:
        """Whether no message of a lower class may be handed on. They must not take the place of the others."""
        return self._mode == FIRST or any(link.ahead_lower > AHEAD for link in self._links)

    def _hand_on(self) -> None:
        """Hand on the next ids in the order of `pending`, each to the worker of its bucket."""
        pending = self._pending
        messages = pending.take(GROUP, self._first_only)
        classes = pending.classes_of(messages)
        batches: dict[tuple[int, str, bool], list[int]] = {}
        for message in messages:
            share = share_of(message, self._layout.split, len(self._links))
            key = share, classes.get(message, ""), message in pending.scanned
            batches.setdefault(key, []).append(message)
        for (share, priority, scanned), batch in batches.items():
            link = self._links[share]
            link.send(pack_named(priority, scanned, batch))
            if priority:
                link.sent_lower += len(batch)
            else:
                link.sent_first += len(batch)
        pending.done(messages, self._now)

    def _tell(self, rules: Rules) -> None:
        """Give the workers rules and classes that they have not."""
        if rules is not self._rules:
            self._rules = rules
            self._send_all(pack_rules(rules))
        if self._pending.classes != self._classes:
            self._classes = self._pending.classes
            self._send_all(pack_order(self._classes))

    def _may_look(self, now: float) -> bool:
        """Whether the thread has nothing to do, and `_look_ahead` has something for it."""
        if self._disk.busy:
            return False
        return self._next_lower(now) is not None or (self._pending.may_sort and not self._may_hand_on)

    def _look_ahead(self, now: float) -> None:
        """Let the thread read the tree of a lower class, or sort those that have to wait by domain."""
        if not self._may_look(now):
            return
        lower = self._next_lower(now)
        self._sorts = lower is None
        if lower is None:
            sort_waiting(self._disk, self._pending, self._layout)
        else:
            read_lower(self._disk, self._pending, self._notices, lower, now)


def _how_ended(pid: int) -> str:
    """Return how a worker has ended, as far as that can be known soon."""
    try:
        handle = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(END_SECONDS * 1000)
        finally:
            os.close(handle)
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError as error:
        return reason(error)
    if not done:
        return "its process is still there"
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
