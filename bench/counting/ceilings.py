"""Measures the CPU time of each daemon for a message, with several queue-remotes, and the rate that one core allows it.

A full queue for many nexthops, each with an address of its own, is drained to smtp-sink. What the start costs does not
count: the time is from the first deliveries on.
"""

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from counting.drain import DAEMONS
from processes import cpu_seconds, named
from side_by_side.mail import Mail, Routes
from side_by_side.queue_suite import QueueSuite
from side_by_side.side import DELIVERED, FINISHED
from support.servers.smtp.smtp_sink import SmtpSink

NEXTHOPS = 32


class Ceilings(NamedTuple):
    """CPU seconds a message of all processes of each daemon, of the busiest process of each, and messages a second."""

    cpu: Mapping[str, float]
    busiest: Mapping[str, float]
    rate: float

    def line(self, remotes: int) -> str:
        """Return microseconds of CPU a message of each daemon, and what one core for each process allows, a second."""
        cells = [f"{self.cpu[name] * 1e6:12.0f} {1 / max(self.busiest[name], 1e-9):9.0f}" for name in DAEMONS]
        return f"{remotes:7}{''.join(cells)}{sum(self.cpu.values()) * 1e6:8.0f}{self.rate:10.0f}"


HEADER = f"remotes{''.join(f'{name:>12}   ceiling' for name in DAEMONS)} all, us drained/s"


def measure(top: Path, messages: int, remotes: int) -> Ceilings:
    """Drain so many messages with so many queue-remotes."""
    domains = [f"d{number}.example" for number in range(NEXTHOPS)]
    with tempfile.TemporaryDirectory(dir=top) as name, SmtpSink(keep=False, address="") as sink:
        place = Path(name)
        side = QueueSuite(place, place, False)
        side.route(Routes(sink.port, {f"d{n}.example": (f"127.0.0.{n + 1}", sink.port) for n in range(NEXTHOPS)}))
        Path(side.home.control, "processesremote").write_text(f"{remotes}\n")
        try:
            side.fill(Mail(messages, domains=domains))
            side.start()
            log = side.follow()
            begun = log.wait(lambda counts: counts[DELIVERED] > 0)
            before, already = _used(side.root), log.look()[FINISHED]
            log.wait(lambda counts: counts[FINISHED] == messages)
            took = side.wait_empty() - begun
            used = {key: seconds - before.get(key, 0.0) for key, seconds in _used(side.root).items()}
        finally:
            side.stop()
        side.check(messages)
    done = max(1, messages - already)  # A few messages may all be finished before the first look.
    cpu: Counter[str] = Counter()
    busiest: dict[str, float] = {}
    for (program, _), seconds in used.items():
        cpu[program] += seconds / done
        busiest[program] = max(busiest.get(program, 0.0), seconds / done)
    return Ceilings({name: cpu[name] for name in DAEMONS}, busiest, done / took)


def _used(root: int) -> dict[tuple[str, int], float]:
    """Return the CPU seconds of each process, by program and pid."""
    return {(program, pid): cpu_seconds(pid) for program, pid in named(root, "queue-")}
