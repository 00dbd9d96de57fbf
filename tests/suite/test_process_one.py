"""queue-start, queue-start --intake and queue-smtpd as process 1 of a container with a read-only root."""

import os
import signal
import smtplib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from queue_base.home import Home
from support.intake.intake_daemon import Client, qmtp
from support.processes.suite import enqueue, program, wait_until
from support.queues.home import make_several
from support.queues.letters import letter_text
from support.site import SHM, Site
from support.smtpd.smtpd_daemon import free_ports
from support.tools import need, need_private_mounts

SENDER = b"joe@me.example.org"
# The rest of the root is mounted read-only; below /dev/shm there is a file system of its own.
_START = 'mount -o remount,bind,ro / && ! touch /written 2>/dev/null && exec "$@"'


class Container:
    """`init` is the pid of its process 1, as seen from here; `log` the path of what it writes."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.log = log
        wait_until(self._find_init, why="process 1")

    def _find_init(self) -> bool:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.init = int(children[0]) if children else 0
        return bool(children)

    def processes(self) -> dict[int, str]:
        """Return the states of its processes, by pid. Each comes down from process 1."""
        parents, states = {}, {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                words = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                states[int(name)], parents[int(name)] = words[0], int(words[1])
        found = {self.init}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: state for pid, state in states.items() if pid in found}

    @property
    def zombies(self) -> int:
        return list(self.processes().values()).count("Z")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to process 1; return its exit code."""
        os.kill(self.init, number)
        return self.process.wait(60)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log.read_text(), why=f"{text!r} in the log")


@contextmanager
def container(home: Home, name: str, *options: str) -> Iterator[Container]:
    """Run a program as process 1 of a pid namespace of its own."""
    need_private_mounts()
    log = Path(home.path, "log")
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    with log.open("wb") as out:
        command = [need("unshare"), *namespaces, "sh", "-c", _START, "sh"]
        command += [*program(name), "--home", home.path, *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield Container(process, log)
    finally:
        process.kill()
        process.wait(60)


@pytest.fixture(autouse=True)
def memory() -> None:
    if not os.path.ismount(SHM):
        pytest.fail(f"{SHM} is no file system of its own")


def test_queue_start_reaps_all_that_ends_passes_signals_on_and_ends_with_the_code_of_queue_send(site: Site) -> None:
    site.mail.qmail(".qmail-run", b"|sh -c '(sleep 0.1 &)'; sleep 0.05\n./Maildir/\n")
    with container(site.home, "queue-start") as found:
        found.wait_for("status: local 0/")
        # queue-start, seven daemons, and the recipient checker and the killer of queue-local: they come later.
        before = 10
        wait_until(lambda: len(found.processes()) == before, why="all processes of the suite")
        for number in range(20):
            assert enqueue(site.home, SENDER, [b"run@me.example.org"], letter_text(f"m{number}")).returncode == 0
        wait_until(lambda: len(site.delivered()) == 20, why="the deliveries")
        wait_until(lambda: len(found.processes()) <= before, why="the end of what the deliveries have started")
        assert found.zombies == 0
        site.control("concurrencylocal", "7\n")
        os.kill(found.init, signal.SIGHUP)
        found.wait_for("status: local 0/7 ")
        assert found.end() == 0
        assert found.log.read_text().endswith("status: exiting\n")
        wait_until(lambda: site.files() == [], why="an empty queue")


def test_the_code_of_queue_send_that_has_lost_a_daemon_is_that_of_process_one(site: Site) -> None:
    with container(site.home, "queue-start") as found:
        found.wait_for("status: local 0/")
        for pid in found.processes():
            with suppress(FileNotFoundError):  # It has ended since.
                if b"queue-todo" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    break
        assert found.process.wait(60) == 111


def test_queue_start_that_cannot_start_ends_with_its_code(site: Site) -> None:
    Path(site.home.control, "me").unlink()
    with container(site.home, "queue-start") as found:
        assert found.process.wait(60) == 111


def test_queue_intake_of_several_queues_runs_as_process_one(tmp_path: Path) -> None:
    home = make_several(tmp_path / "home", "one", "two", split=3)
    with container(home, "queue-start", "--intake") as found:
        wait_until(lambda: Path(home.run, "intake/socket").exists(), why="its socket")
        with Client(home) as client:
            client.send(qmtp(letter_text("m"), SENDER, [b"bob@me.example.org"]))
            client.answer()
        assert found.zombies == 0
        assert found.end() == 0


@pytest.mark.parametrize("count", [1, 2])
def test_queue_smtpd_runs_as_process_one(site: Site, count: int) -> None:
    [port] = free_ports(1)
    site.control("smtpd", f"127.0.0.1:{port} mx\n")
    site.control("processessmtpd", f"{count}\n")
    with container(site.home, "queue-smtpd") as found:

        def answers() -> bool:
            assert found.process.poll() is None, found.log.read_text()
            try:
                with smtplib.SMTP("127.0.0.1", port, timeout=10) as client:
                    return client.noop()[0] == 250
            except OSError:
                return False

        wait_until(answers, why="a greeting")
        assert found.zombies == 0
        assert found.end() == 0
