"""What an experiment does with a mail system, whichever it is."""

import abc
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from disk import DiskCounts
from processes import NOTHING, Usage, tree_memory, tree_usage, wait_for_usage
from side_by_side.log_follower import LogFollower, first_unexpected
from side_by_side.mail import Mail, Routes
from syncs import read_syncs, sync_trace_command

# What the log says: a recipient has its message, an attempt has failed for now, a message is finished.
DELIVERED, DEFERRED, FINISHED = "delivered", "deferred", "finished"
_DEADLINE = 60.0


class Verdict(NamedTuple):
    """What a line of the log says of an attempt."""

    recipient: str
    delivered: bool


class Filled(NamedTuple):
    """How long it took to put mail in, what that cost the mail system, and what the disk did."""

    seconds: float
    used: Usage
    disk: DiskCounts


class Injection:
    """A process that puts mail in. Its cost counts if it is part of the mail system, not if it is a test's client."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", counts: bool, feeder: threading.Thread | None = None
    ) -> None:
        self.process = process
        self._counts = counts
        self._feeder = feeder

    def is_over(self) -> bool:
        """Whether it has ended; it must still be waited for."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> Usage:
        """Return its cost once it has ended well. Raises SystemExit."""
        used = wait_for_usage(self.process)
        if self._feeder is not None:
            self._feeder.join()
        return used if self._counts else NOTHING


def greets(port: int) -> bool:
    """Return whether an SMTP server on a port of 127.0.0.1 greets."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            return connection.recv(4) == b"220 "
    except ConnectionRefusedError:
        return False


class Side(abc.ABC):
    """A mail system in a directory of its own; `log` is its log. With `traced` the syncs of what it runs are counted.

    `root` is the process whose tree are its daemons, once it was started.
    """

    name: ClassVar[str]
    texts: ClassVar[dict[str, bytes]]
    # What no log may have after a run in which all was to be delivered.
    trouble: ClassVar[bytes]

    def __init__(self, place: Path, scratch: Path, traced: bool = False, large: bool = False) -> None:
        """`scratch` is a directory in memory for what mail is read from; `large` is for a million messages."""
        self.place = place
        self.scratch = scratch
        self.log = place / "log"
        self._traces: list[Path] = []
        self._traced = traced

    @abc.abstractmethod
    def route(self, routes: Routes) -> None:
        """Set the routes. The daemons do not run."""

    @property
    @abc.abstractmethod
    def root(self) -> int:
        """The process whose tree are the daemons."""

    def roots(self) -> list[int]:
        """Return the processes whose trees are all of the mail system that runs."""
        return [self.root]

    @abc.abstractmethod
    def listen(self) -> int:
        """Have it take mail by SMTP, of which all is relayed, while the daemons run; return the port of 127.0.0.1."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start the daemons; return at once."""

    @abc.abstractmethod
    def wait_ready(self) -> None:
        """Return when the daemons that were started take and deliver mail."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop the daemons, if they run; none is left."""

    @abc.abstractmethod
    def fill(self, mail: Mail) -> Filled:
        """Put mail in while nothing delivers, and stop what was needed for it."""

    @abc.abstractmethod
    def accepting(self) -> contextlib.AbstractContextManager[None]:
        """Let single messages be put in while nothing is done with them; the daemons do not run before and after."""

    @abc.abstractmethod
    def batch(self, mail: Mail) -> Injection:
        """Begin to put mail in by the fastest way that there is, while the daemons run."""

    @abc.abstractmethod
    def one(self, recipient: str) -> list[str]:
        """Return the command that puts in one message, which is on its stdin."""

    @abc.abstractmethod
    def is_empty(self) -> bool:
        """Whether no message has a file in the queue."""

    @abc.abstractmethod
    def verdicts(self, lines: bytes) -> Iterator[Verdict]:
        """Yield what the next lines of the log say of attempts."""

    @abc.abstractmethod
    def manager(self) -> int:
        """Return the process that schedules deliveries."""

    @abc.abstractmethod
    def make_deferred(self, messages: int) -> None:
        """Make so many messages that are due tomorrow, by writing their files."""

    def used(self) -> Usage:
        """Return what its processes have used."""
        return sum(map(tree_usage, self.roots()), NOTHING)

    def memory(self) -> int:
        """Return the bytes of memory of its processes."""
        return sum(map(tree_memory, self.roots()))

    def environment(self) -> dict[str, str]:
        """Return the environment of commands."""
        return {**os.environ, "USER": "ann"}

    def follow(self) -> LogFollower:
        """Return a follower of the log, from its beginning."""
        return LogFollower(self.log, self.texts)

    def wait_empty(self) -> float:
        """Return the monotonic time at which no file of a message is left. Raises SystemExit."""
        end = time.monotonic() + _DEADLINE
        while not self.is_empty():
            if time.monotonic() > end:
                sys.exit(f"{self.name} has not removed all messages; the log ends:\n{self.follow().tail()}")
            time.sleep(0.005)
        return time.monotonic()

    def check(self, delivered: int) -> None:
        """Raise SystemExit where the log does not say that all mail was delivered, each message once."""
        counts = self.follow().look()
        wrong = {name: counts[name] for name in (DELIVERED, FINISHED) if counts[name] != delivered}
        line = first_unexpected(self.log, self.trouble)
        if wrong or line:
            sys.exit(f"{self.name}: the log has {wrong or counts}, and not {delivered} of each; {line}")

    def syncs(self) -> int:
        """Return how many syncs what has ended has made, where they are counted."""
        return sum(sum(read_syncs(trace)) for trace in self._traces)

    def traced(self, words: list[str]) -> list[str]:
        """Return a command, which strace runs where syncs are counted."""
        if not self._traced:
            return words
        self._traces.append(self.place / f"syncs-{len(self._traces)}")
        return sync_trace_command(self._traces[-1], words)

    def count_from_now(self) -> None:
        """Forget the syncs of what has ended."""
        self._traces.clear()

    def count_until_now(self) -> None:
        """Count no syncs of what is started from now on."""
        self._traced = False
