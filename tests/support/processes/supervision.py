"""A service directory under a real supervisor: svscan, runsvdir or s6-svscan, each with its own logger."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.processes.suite import wait_until
from support.tools import need

# What the scripts of a service directory call; each supervisor's PATH has these, and its own logger only.
_COMMON = ("sh", "env", "mkdir", "sleep", "chown")


class Supervisor:
    """Runs a supervisor on an empty directory. Use it as a context manager; subclasses say how it is driven."""

    name = ""
    tools: tuple[str, ...] = ()

    def __init__(self, top: Path) -> None:
        self.scan = top / "scan"
        self.scan.mkdir()
        self.service = top / "queue"
        self.log_directory = top / "log"
        programs = top / "programs"
        programs.mkdir()
        for tool in (*_COMMON, *self.tools):
            (programs / tool).symlink_to(need(tool))
        # A link to the interpreter of a virtual environment would not be one, so this one is a script.
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python3").chmod(0o755)
        self.environment = {**os.environ, "PATH": str(programs), "TZ": "UTC"}

    def __enter__(self) -> "Supervisor":
        self.process = subprocess.Popen(
            [self.tools[0], str(self.scan)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        # The supervisor first, so that it starts nothing again; then what its children start meanwhile.
        self.process.kill()
        self.process.wait(30)
        wait_until(lambda: not self._kill(), why="the end of every process")

    def _kill(self) -> bool:
        """Kill what is left; return whether there was anything."""
        left = self.processes()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return bool(left)

    def add(self) -> None:
        """Let the supervisor see the service."""
        (self.scan / "queue").symlink_to(self.service)

    def wait_until_up(self) -> None:
        """Wait until the supervisor knows that the service is up, if it can know."""

    def term(self) -> None:
        """Have the service sent TERM; the supervisor then starts it again."""
        raise NotImplementedError

    def exit(self) -> None:
        """Take the service out, and have it and its logger stopped for good."""
        raise NotImplementedError

    def run(self, *words: str) -> None:
        """Run one of the supervisor's tools."""
        subprocess.run(words, env=self.environment, check=True, timeout=30, stdout=subprocess.DEVNULL)

    def processes(self) -> list[int]:
        """Return every process of the supervisor, itself excepted: by its session, which none of ours leaves."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if fields[0] != "Z" and self._is_ours(entry, int(fields[3])):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def _is_ours(self, entry: Path, session: int) -> bool:
        """Return whether a process of /proc is of this supervisor. Raises OSError."""
        return session == self.process.pid

    def log(self) -> list[str]:
        """Return the lines of the log, with their stamps."""
        current = self.log_directory / "current"
        return current.read_text().splitlines() if current.exists() else []

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Wait until that many lines of the log match."""
        wait_until(
            lambda: sum(1 for line in self.log() if re.search(pattern, line)) >= times,
            why=f"{times} lines like {pattern!r} in the log of {self.name}",
        )


class Daemontools(Supervisor):
    """svscan, supervise, svc and multilog (cr.yp.to/daemontools.html)."""

    name = "daemontools"
    tools = ("svscan", "supervise", "svc", "multilog", "setuidgid")

    def term(self) -> None:
        self.run("svc", "-t", str(self.service))

    def exit(self) -> None:
        (self.scan / "queue").unlink()
        self.run("svc", "-dx", str(self.service))
        # multilog, too, is told by a signal to end, and then reads no more.
        self.wait_for(r"status: exiting$")
        self.run("svc", "-dx", str(self.service / "log"))


class Runit(Supervisor):
    """runsvdir, runsv, sv and svlogd (smarden.org/runit)."""

    name = "runit"
    tools = ("runsvdir", "runsv", "sv", "svlogd", "chpst")

    def term(self) -> None:
        self.run("sv", "term", str(self.service))

    def exit(self) -> None:
        (self.scan / "queue").unlink()
        self.run("sv", "exit", str(self.service))


class S6(Supervisor):
    """s6-svscan, s6-supervise, s6-svc and s6-log (skarnet.org/software/s6)."""

    name = "s6"
    tools = ("s6-svscan", "s6-supervise", "s6-svc", "s6-svwait", "s6-log", "s6-setuidgid")

    def _is_ours(self, entry: Path, session: int) -> bool:
        # Each service has a session of its own; but all have the PATH that s6-svscan got.
        return f"PATH={self.environment['PATH']}".encode() in (entry / "environ").read_bytes().split(b"\0")

    def wait_until_up(self) -> None:
        # Ends when queue-send has written to the descriptor that notification-fd names.
        self.run("s6-svwait", "-U", "-t", "30000", str(self.service))

    def term(self) -> None:
        self.run("s6-svc", "-t", str(self.service))

    def exit(self) -> None:
        (self.scan / "queue").unlink()
        self.run("s6-svc", "-dx", str(self.service))
        self.wait_for(r"status: exiting$")
        self.run("s6-svc", "-dx", str(self.service / "log"))
