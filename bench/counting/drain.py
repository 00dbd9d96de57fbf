"""Drains a queue under strace, or without it, and returns what the daemons did.

The mail is put in while queue-todo is stopped. So all of it waits at once, as in a full queue, and none is classified
because queue-send has only begun.

How often a daemon waits depends on when the others run: on a busy machine it may wait for each message. So without
strace all run on one processor, where none interrupts another (`_one_after_the_other`).
"""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from counting.trace import Calls, count_calls
from processes import named, wakeups
from side_by_side.mail import Mail, Routes
from side_by_side.queue_suite import QueueSuite
from side_by_side.side import FINISHED
from support.servers.smtp.smtp_sink import SmtpSink
from support.tools import need

DAEMONS = ("queue-clean", "queue-remote", "queue-send", "queue-todo")
_QUIET = 0.5
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


def drain(top: Path, messages: int, traced: bool) -> tuple[Mapping[str, Calls], Mapping[str, int]]:
    """Drain so many messages; return the daemons' calls, if they are traced, and their wake-ups, if not."""
    order = contextlib.nullcontext() if traced else _one_after_the_other()
    with order, tempfile.TemporaryDirectory(dir=top) as name, SmtpSink(keep=False) as sink:
        place = Path(name)
        side = _TracedSuite(place, place, traced)
        side.route(Routes(sink.port))
        # Under strace a message may wait for long, and is to be delivered before it is classified all the same.
        (Path(side.home.control) / "classifyafter").write_text("60\n")
        try:
            side.start()
            side.wait_ready()
            _wait_quiet(side, place / "trace")
            todo = next(pid for name, pid in named(side.root, "queue-") if name == "queue-todo")
            os.kill(todo, signal.SIGSTOP)
            side.fill(Mail(messages))
            os.kill(todo, signal.SIGCONT)
            side.follow().wait(lambda counts: counts[FINISHED] == messages)
            side.wait_empty()
            _wait_quiet(side, place / "trace")
            waited = {} if traced else {program: wakeups(pid) for program, pid in named(side.root, "queue-")}
        finally:
            side.stop()
        side.check(messages)
        calls = count_calls((place / "trace").read_text(errors="replace").splitlines()) if traced else {}
        return {name: calls[name] for name in DAEMONS if name in calls}, {name: waited.get(name, 0) for name in DAEMONS}


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
        waited = sum(wakeups(pid) for name, pid in named(side.root, "queue-") if name in DAEMONS)
        now = (trace.stat().st_size if trace.exists() else 0, waited)
