"""A queue of very many messages that are all due tomorrow: what it costs to have it, and how soon new mail goes out.

The backlog is made once and used in all rounds: nothing of it is delivered. A round starts the daemons, sends one new
message, and waits until nothing uses the CPU any more. Then it watches them for some seconds.
"""

import subprocess
import time

from processes import resident, tree_memory, tree_usage
from side_by_side.experiment import Experiment, Ground, Measured
from side_by_side.figures import Figure
from side_by_side.mail import SMALL, Routes, letter
from side_by_side.probe import DOMAIN, ProbeSink
from side_by_side.side import Side
from support.processes.suite import wait_until

FIRST = Figure("start to a new message's end", "s")
SCHEDULER = Figure("queue manager, at most", "MB")
ALL = Figure("all daemons", "MB")
CPU = Figure("CPU until all is read", "s")
IDLE = Figure("CPU when idle", "% of one")
IDLE_SECONDS = 5.0
_NEWS = 120.0


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    side, is_new = ground.kept_side(kind)
    with ProbeSink() as sink:
        # The other mail is not due, so nobody has to take it.
        side.route(Routes(1, {DOMAIN: ("127.0.0.1", sink.port)}))
        if is_new:
            side.make_deferred(messages)
            ground.settle()
        return Measured(measure(side, sink))


def measure(side: Side, sink: ProbeSink) -> dict[str, float]:
    """Start the daemons, and return the figures."""
    begun = time.monotonic()
    side.start()
    try:
        side.wait_ready()
        subprocess.run(side.one(f"new@{DOMAIN}"), input=letter(SMALL, "probe 0"), env=side.environment(), check=True)
        wait_until(lambda: sink.arrived, _NEWS, "the new message")
        first = sink.arrived[0] - begun
        before = -1.0
        while (now := tree_usage(side.root).cpu) - before > 0.02:
            before = now
            time.sleep(1.0)
        time.sleep(IDLE_SECONDS)
        return {
            FIRST.name: first,
            SCHEDULER.name: resident(side.manager(), peak=True) / 1e6,
            ALL.name: tree_memory(side.root) / 1e6,
            CPU.name: now,
            IDLE.name: (tree_usage(side.root).cpu - now) / IDLE_SECONDS * 100,
        }
    finally:
        side.stop()


MILLION = Experiment("million", "a million deferred messages", 1_000_000, (FIRST, SCHEDULER, ALL, CPU, IDLE), run)
