"""A suite at work under multilog while its processes are killed and restarted: the run whose log is read."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.faults.chaos import ALL, Rounds, Supervisor, wait
from support.processes.suite import wait_until
from support.queues.letters import Letter
from support.send.feeding import Bulk, by_enqueue
from support.servers.smtp.sink import Sink
from support.site import mail_site
from support.spark.logs.log_traffic import STAY, Seen, left, make_letters, prepare
from support.spark.logs.multilog import Multilog

RESTART = "a restart"
# What is done in turn, each while letters come in.
ROUNDS = ["queue-remote", ALL, "queue-send", RESTART, "queue-local", ALL, "queue-send", "queue-todo"]


class LoggedSupervisor(Supervisor):
    """A Supervisor whose log goes elsewhere."""

    @property
    def is_up(self) -> bool:
        """Whether queue-send runs and listens to signals."""
        pid = self.pid_of("queue-send")
        return pid is not None and catches(pid, signal.SIGALRM)

    def restart(self) -> None:
        """End the suite with TERM, and wait for its end; it is started again."""
        wait_until(lambda: self.is_up, why="the suite to be up")
        suite = self.current
        suite.signal(signal.SIGTERM)
        wait_until(lambda: suite.process.poll() is not None, why="the end of the suite after TERM")
        assert suite.process.returncode == 0


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


class LoggedRun:
    """One run: `letters` by token; of most of them also the message's number and the injector's pid, in `queued`.

    Once it is over: what receivers have `seen`, which messages are `left` in the queue, and how many `starts` it took.
    `logs` is the directory of the log; there are about `count` letters, and each of ROUNDS is done `rounds` times.
    """

    seen: Seen
    left: set[int]
    starts: int

    def __init__(self, logs: Path, seed: int, count: int, rounds: int) -> None:
        self.logs = logs
        self._rounds = Rounds(seed, ROUNDS * rounds)
        letters = make_letters(count, self._rounds.random)
        self.letters = {letter.token: letter for letter in letters}
        self.queued: dict[str, tuple[int, int]] = {}

    def go(self) -> None:
        """Run to the end; returns when multilog has written the last line."""
        names = self._rounds.names
        letters = list(self.letters.values())
        share = -(-len(letters) // len(names))
        self.logs.parent.mkdir(parents=True, exist_ok=True)
        with mail_site() as site, Sink() as sink, closed_port() as closed, Multilog(self.logs) as multilog:
            prepare(site, sink, closed)
            with LoggedSupervisor(site.home, log=multilog.writer) as supervisor:
                for number, name in enumerate(names):
                    self._round(supervisor, name, letters[number * share : (number + 1) * share])
                    self._disturb(multilog, number)
                staying = sum(letter.token.endswith(STAY) for letter in letters)
                wait_until(lambda: len(left(site)) == staying, 120, "all mail but what has to stay to leave the queue")
                supervisor.stop()
                self.starts = len(supervisor.runs)
                self.left = left(site)
            multilog.kill()
            multilog.end()
            self.seen = Seen(site, sink)

    def _round(self, supervisor: LoggedSupervisor, name: str, letters: list[Letter]) -> None:
        plain = [letter for letter in letters if letter.sender not in ("", "#@[]")]
        work = Bulk(supervisor._home, plain, group=self._rounds.random.randint(1, 8), pace=100)
        for letter in letters:
            if letter not in plain:
                by_enqueue(supervisor._home, letter)
        if name == RESTART:
            wait(self._rounds.random.uniform(0, 0.3))
            supervisor.restart()
        else:
            self._rounds.kill(supervisor, name)
        queued = work.wait()
        assert len(queued) == len(plain)
        self.queued |= {each.token: (each.message, work.process.pid) for each in queued}

    @staticmethod
    def _disturb(multilog: Multilog, number: int) -> None:
        """Have the logger end a file, or end itself between two lines."""
        (multilog.rotate, multilog.restart)[number % 2]()


@contextmanager
def closed_port() -> Iterator[socket.socket]:
    """Yield a socket that is bound, so that nobody else gets its port, and does not listen."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found
