"""queue-send as a real process whose peers are played by the test, on the descriptors of queue_base.daemon.processes.

Every wait has a deadline, after which the test fails. `fence` is how to know that something did not happen:
when it returns, queue-send has done what it can since the test's last word, and waits.
"""

import fcntl
import os
import re
import select
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType

from queue_base.daemon import processes
from queue_base.home import Home
from support.processes.forked import BIN, Forked, can_fork, fork
from support.processes.suite import program
from support.send.piped import read_soon
from support.send.scripted_peers import SECONDS, Cleaning, Delivering, Noticing

_HIGH = 100


class ScriptedSend:
    """A running queue-send. `lines` is its log so far, and the others its peers: `local`, `remote`, `clean` and so on.

    `remotes` are all queue-remotes; `remote` is the first of them.
    """

    def __init__(
        self,
        home: Home,
        *,
        lock: int | None = None,
        ready: bool = True,
        pipes: bool = True,
        wrapper: tuple[str, ...] = (),
        programs: Path = BIN,
        remotes: int = 1,
        stdout: int | None = None,
    ) -> None:
        """Start it; `lock` is a descriptor for SENDMUTEX, `ready` whether the delivery daemons greet at once.

        Without `pipes` it gets no descriptors but the standard ones; `wrapper` is a command that runs it. `stdout` is a
        descriptor for its log, which cannot be waited for then.
        """
        self.home = home
        self.lines: list[str] = []
        self._rest = b""
        self._fences = 0
        self._theirs: dict[int, int] = {}
        self.local = Delivering(*self._pipes(processes.LOCAL_JOBS, processes.LOCAL_REPORTS))
        self.remotes = [Delivering(*self._pipes(*pipes)) for pipes in processes.remote_pipes(remotes)]
        self.remote = self.remotes[0]
        self.clean = Cleaning(*self._pipes(processes.CLEAN_IDS, processes.CLEAN_ANSWERS))
        self.todo = Noticing(*self._pipes(processes.TODO_COMMANDS, processes.TODO_NOTICES))
        self.pickup = Noticing(*self._pipes(processes.PICKUP_LIFE, processes.PICKUP_NOTICES))
        self.intake = Noticing(*self._pipes(processes.INTAKE_COMMANDS, processes.INTAKE_NOTICES))
        self.stdout, self._theirs[1] = _high_pipe()
        with tempfile.TemporaryFile() as scratch:
            self._stderr = fcntl.fcntl(scratch.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH)
        self._theirs[2] = self._stderr
        if stdout is not None:
            os.dup2(stdout, self._theirs[1], inheritable=False)
        if lock is not None:
            self._theirs[processes.SENDMUTEX] = lock
        words = ["--home", home.path, *(["--remotes", str(remotes)] if remotes > 1 else [])]
        theirs = {number: end for number, end in self._theirs.items() if pipes or number < processes.LOCAL_JOBS}
        self._forked: Forked | None = None
        if not wrapper and programs == BIN and can_fork("queue-send"):
            self._forked = fork("queue-send", [str(BIN / "queue-send"), *words], {0: 0, **theirs})
            self.pid, self._pidfd = self._forked.pid, os.dup(self._forked.pidfd)
        else:
            words = [*wrapper, *program("queue-send", programs), *words]
            actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in theirs.items()]
            self.pid = os.posix_spawnp(words[0], words, os.environ, file_actions=actions)
            self._pidfd = os.pidfd_open(self.pid)
        self._code: int | None = None
        for number, end in self._theirs.items():
            if number not in (2, processes.SENDMUTEX):
                os.close(end)
        if ready:
            for daemon in (self.local, *self.remotes):
                daemon.ready()

    def _pipes(self, to_peer: int, from_peer: int) -> tuple[int, int]:
        """Make the two pipes of a peer; return the test's ends, to queue-send and from it."""
        from_send, self._theirs[to_peer] = _high_pipe()
        self._theirs[from_peer], to_send = _high_pipe()
        return to_send, from_send

    def __enter__(self) -> "ScriptedSend":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._code is None:
            self.kill()
        for peer in (self.local, *self.remotes, self.clean, self.todo, self.pickup, self.intake):
            peer.die()
        for descriptor in (self.stdout, self._stderr, self._pidfd):
            os.close(descriptor)

    def signal(self, number: signal.Signals) -> None:
        """Send queue-send a signal."""
        signal.pidfd_send_signal(self._pidfd, number)

    def _read_log(self, deadline: float) -> bool:
        data = read_soon(self.stdout, deadline)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(data)

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """Return the log line that is the `times`-th to match the whole pattern."""
        end = time.monotonic() + SECONDS
        while True:
            found = self.found(pattern)
            if len(found) >= times:
                return found[times - 1]
            ready = select.select([self.stdout], [], [], max(0.0, end - time.monotonic()))[0]
            text = "\n".join(self.lines[-30:])
            assert ready, f"no line {times} like {pattern!r} within the deadline; the log ends:\n{text}"
            assert self._read_log(end), f"queue-send ended before a line like {pattern!r}: {self.stderr()!r}\n{text}"

    def found(self, pattern: str) -> list[str]:
        """Return the log lines read so far that match the whole pattern."""
        return [line for line in self.lines if re.fullmatch(pattern, line)]

    def turn(self) -> None:
        """Return when queue-send has had a turn of its loop since what the test did last."""
        for _ in range(2):
            self._fences += 1
            self.todo.log(b"fence %d" % self._fences)
            self.wait_for(f"fence {self._fences}")

    def fence(self) -> None:
        """Return when queue-send has had a turn of its loop since what the test did last, and waits for something.

        A turn ends after some milliseconds, also if the machine was busy with other things meanwhile; so what follows
        from one event may need several turns. As long as it does, queue-send does not sleep.
        """
        self.turn()
        end = time.monotonic() + SECONDS
        while not _sleeps(self.pid):
            assert time.monotonic() < end, "queue-send is still busy"
            time.sleep(0.0005)

    def wait(self, *, read_log: bool = True) -> int:
        """Return the exit code of queue-send, once it has ended; its whole log is then in `lines`.

        queue-todo ends when it is told to.
        """
        end = time.monotonic() + SECONDS
        while True:
            waited = [self._pidfd, *([self.stdout] if read_log else [])]
            waited += [self.todo.from_send] if self.todo.from_send >= 0 else []
            ready = select.select(waited, [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, "queue-send did not end"
            if self.todo.from_send in ready and self._pidfd not in ready:
                self.todo.end_when_told()
            if self.stdout in ready:
                read_log = self._read_log(end)
            elif self._pidfd in ready and not read_log:
                break
        if self._forked is not None:
            self._code = self._forked.wait()
        else:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        self.wait(read_log=False)

    def stderr(self) -> bytes:
        """Return what it has written on stderr."""
        return os.pread(self._stderr, 1 << 20, 0)

    def control(self, name: str, text: str) -> None:
        """Write a control file."""
        Path(self.home.control, name).write_text(text)


def _sleeps(pid: int) -> bool:
    """Return whether a process waits, or has ended; one of its threads may wait for the disk."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "RD"
    except FileNotFoundError:
        return True


def _high_pipe() -> tuple[int, int]:
    """Make a pipe (reader, writer) whose numbers are out of the way of those that are handed over."""
    ends = os.pipe2(os.O_CLOEXEC)
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _HIGH) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
