"""Mail for a fast host, alone or with as much for sick ones: how long the fast one's takes, and what the others get.

All of it is classified before the first delivery may start, so that what is measured is delivery. The log is
followed line by line, at a cost that does not grow with it.
"""

import signal
import threading
import time
from collections import Counter
from typing import NamedTuple

import psutil

from support.processes.suite import Suite
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.site import Site

FAST = "fast"
SICK = ("tarpit", "refusing", "unavailable")
DEADLINE = 40.0


class Outcome(NamedTuple):
    """`seconds` until the fast host had its mail, the CPU seconds that each daemon took meanwhile, attempts by host."""

    seconds: float
    cpu: dict[str, float]
    attempts: dict[str, int]


class Watch:
    """Follows the log: messages that are classified, attempts by host, and the end of the fast host's messages."""

    def __init__(self, messages: int, fast: int) -> None:
        self.classified = threading.Event()
        self.finished = threading.Event()
        self.attempts: Counter[str] = Counter()
        self.end = 0.0
        self._left = messages
        self._fast_left = fast
        self._fast: set[str] = set()

    def hear(self, line: str) -> None:
        """Take a line of the log."""
        words = line.split(" ")
        if line.startswith("new msg "):
            self._left -= 1
            if not self._left:
                self.classified.set()
        elif line.startswith("starting delivery ") and not self.finished.is_set():
            host = words[-1].partition("@")[2].removesuffix(".example")
            self.attempts[host] += 1
            if host == FAST:
                self._fast.add(words[4])
        elif line.startswith("end msg ") and words[2] in self._fast:
            self._fast_left -= 1
            if not self._fast_left:
                self.end = time.monotonic()
                self.finished.set()


def deliver(site: Site, ports: dict[str, int], each: int) -> Outcome:
    """Send `each` messages to every host of `ports`, in turn; return once the fast one has all of its own."""
    site.control("smtproutes", "".join(f"{host}.example:127.0.0.1:{port}\n" for host, port in ports.items()))
    limit = site.control("concurrencyremote", "0\n")
    letters = [
        Letter(f"{host}{number}", "sender@me.example.org", [f"{host}{number}@{host}.example"])
        for number in range(each)
        for host in ports
    ]
    watch = Watch(len(letters), each)
    with Suite(site.home, on_line=watch.hear) as suite:
        try:
            bulk(site.home, letters, group=50)
            assert watch.classified.wait(DEADLINE), "the mail was not classified"
            limit.unlink()
            before, begin = _cpu(suite), time.monotonic()
            suite.signal(signal.SIGHUP)
            assert watch.finished.wait(DEADLINE), f"the fast host lacks mail; attempts: {dict(watch.attempts)}"
            after = _cpu(suite)
            seconds, attempts = watch.end - begin, dict(watch.attempts)
        finally:
            suite.kill()  # What hangs in the tarpit would be waited for.
    return Outcome(seconds, {name: after[name] - before[name] for name in after}, attempts)


def _cpu(suite: Suite) -> dict[str, float]:
    """Return the CPU seconds that each daemon has taken."""
    scheduler = psutil.Process(suite.process.pid)
    taken = {}
    for process in (scheduler, *scheduler.children()):
        name = next(word for word in process.cmdline() if "/queue-" in word).rpartition("/")[2]
        taken["queue-send" if process == scheduler else name] = _cpu_seconds(process.pid)
    return taken


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process. Those of psutil are whole hundredths: too coarse for some tenths."""
    # As clock_getcpuclockid(3) makes it.
    return time.clock_gettime(~pid << 3 | 2)
