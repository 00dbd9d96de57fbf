"""Drains a queue a few times, under strace or without it, and returns what the daemons did in each.

The same daemons drain it each time, so that what their start and their first message cost does not count: the first
drain is left out. The mail is put in while queue-todo is stopped, so all of it waits at once, as in a full queue; and
queue-clean is stopped until all of it is finished, so it is removed as one group, on a busy machine too.

How often a daemon waits depends on when the others run: on a busy machine it may wait for each message. So without
strace all run on one processor, where none interrupts another (`_one_after_the_other`).
"""

import contextlib
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from counting.trace import Calls, count_calls
from processes import named, wakeups
from side_by_side.log_follower import LogFollower
from side_by_side.mail import Mail, Routes
from side_by_side.queue_suite import QueueSuite
from side_by_side.side import FINISHED
from support.servers.smtp.smtp_sink import SmtpSink
from support.tools import need

DAEMONS = ("queue-clean", "queue-remote", "queue-send", "queue-todo")
# The drain that does not count has so many messages.
_FIRST = 50
_QUIET = 0.2
_DEADLINE = 60.0


class _TracedSuite(QueueSuite):
    """The daemons write all their calls to a file, if they are traced."""

    def traced(self, words: list[str]) -> list[str]:
        """Return the words that trace a command."""
        if not self._traced or "--batch" in words:
            return words
        # As much of a string is shown as the path of a program may be long, since it names the daemon.
        options = ["-f", "-qq", "-s", "300", "-e", "signal=none", "-o", str(self.place / "trace")]
        return [need("strace"), *options, "--", *words]


def count_drained_calls(top: Path, messages: int, drains: int) -> list[Mapping[str, Calls]]:
    """Drain so many messages, so many times; return the daemons' calls in each."""
    with tempfile.TemporaryDirectory(dir=top) as name:
        trace = Path(name) / "trace"
        ends = [trace.stat().st_size for _ in _drained(Path(name), messages, drains, traced=True)]
        data = trace.read_bytes()
    parts = [data[: ends[0]], *(data[start:end] for start, end in itertools.pairwise(ends))]
    counted = count_calls([part.decode(errors="replace").splitlines() for part in parts])
    return [{name: each[name] for name in DAEMONS if name in each} for each in counted[1:]]


def count_drained_wakeups(top: Path, messages: int, drains: int) -> list[Mapping[str, int]]:
    """Drain so many messages, so many times; return the daemons' wake-ups in each."""
    with _one_after_the_other(), tempfile.TemporaryDirectory(dir=top) as name:
        waited = [_wakeups(side) for side in _drained(Path(name), messages, drains, traced=False)]
    return [{name: now[name] - before[name] for name in DAEMONS} for before, now in itertools.pairwise(waited)]


def _drained(place: Path, messages: int, drains: int, traced: bool) -> Iterator[QueueSuite]:
    """Yield the daemons after one drain that does not count, and after each of the others."""
    side = _TracedSuite(place, place, traced)
    with SmtpSink(keep=False) as sink:
        side.route(Routes(sink.port))
        # Under strace a message may wait for long, and is to be delivered before it is classified all the same.
        (Path(side.home.control) / "classifyafter").write_text("60\n")
        try:
            side.start()
            side.wait_ready()
            _wait_quiet(side, place / "trace")
            pids = dict(named(side.root, "queue-"))
            log, finished = side.follow(), 0
            for number in [_FIRST] + drains * [messages]:
                finished += number
                with _stopped(pids["queue-clean"]):
                    with _stopped(pids["queue-todo"]):
                        side.fill(Mail(number))
                    _wait_finished(log, finished)
                side.wait_empty()
                _wait_quiet(side, place / "trace")
                yield side
        finally:
            side.stop()
        side.check(finished)


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _wait_finished(log: LogFollower, messages: int) -> None:
    log.wait(lambda counts: counts[FINISHED] == messages)


def _wakeups(side: QueueSuite) -> Mapping[str, int]:
    return {name: wakeups(pid) for name, pid in named(side.root, "queue-") if name in DAEMONS}


@contextlib.contextmanager
def _one_after_the_other() -> Iterator[None]:
    """Let this process, and what it starts, use one processor; a process that wakes up does not interrupt another."""
    processors, policy, parameters = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setaffinity(0, {min(processors)})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
        os.sched_setaffinity(0, processors)


def _wait_quiet(side: QueueSuite, trace: Path) -> None:
    """Return when the daemons have nothing more to do: queue-clean looks through the whole queue after its start."""
    end, before, now = time.monotonic() + _DEADLINE, (0, 0), (-1, -1)
    while before != now and time.monotonic() < end:
        before = now
        time.sleep(_QUIET)
        now = (trace.stat().st_size if trace.exists() else 0, sum(_wakeups(side).values()))
