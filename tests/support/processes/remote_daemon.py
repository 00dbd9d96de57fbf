"""queue-remote as a real process on pipes, and the home that it works in."""

import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, pack_job
from queue_wire.pipes.report import (
    SUCCESS,
    LogLine,
    PartialReport,
    Ready,
    Report,
    SettingsReport,
    SlowJob,
    unpack_report,
)
from support.processes.forked import Forked, can_fork, fork_piped

PROGRAM = Path(__file__).parents[3] / "bin" / "queue-remote"
COMMAND = [sys.executable, str(PROGRAM), "--home"]


class RemoteHome:
    """A home with what queue-remote looks at: control files and messages."""

    def __init__(self, path: Path, **controls: str) -> None:
        self.path = path
        (path / "control").mkdir()
        (path / "queue" / "mess" / "0").mkdir(parents=True)
        self.control("me", "client.example")
        for name, text in controls.items():
            self.control(name, text)

    def control(self, name: str, text: str) -> None:
        (self.path / "control" / name).write_text(text + "\n")

    def route_all_to(self, port: int) -> None:
        self.control("smtproutes", f":127.0.0.1:{port}")

    def message(self, content: bytes, number: int = 23) -> bytes:
        """Store a message; return its path as a job names it."""
        name = f"mess/0/{number}"
        (self.path / "queue" / name).write_bytes(content)
        return name.encode()


class RemoteDaemon:
    """The daemon, from `with` on. Reports are kept by job number; `ready` is its greeting."""

    def __init__(self, home: RemoteHome, command: list[str] | None = None) -> None:
        """`command` is what to run in place of the program, with the home's path as its last argument."""
        self._reader = NetstringReader()
        # Who had the messages of jobs that went on.
        self.partial: list[PartialReport] = []
        self._reports: dict[int, Report] = {}
        self._errors = b""
        self._number = 0
        self.process: subprocess.Popen[bytes] | Forked
        if command is None and can_fork("queue-remote"):
            self.process = fork_piped("queue-remote", [str(PROGRAM), "--home", str(home.path)])
        else:
            self.process = subprocess.Popen(
                [*(command or COMMAND), str(home.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def __enter__(self) -> Self:
        greeting = self._next(time.monotonic() + 60)
        assert isinstance(greeting, Ready)
        self.ready = greeting.jobs
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def start(self, path: bytes, *recipients: bytes, sender: bytes = b"from@a.example", nexthop: bytes = b"") -> int:
        """Start a job; return its number. The nexthop is the first recipient's domain where not given."""
        self._number += 1
        nexthop = nexthop or recipients[0].rpartition(b"@")[2]
        self.write(pack_job(Job(self._number, path, sender, nexthop, list(recipients))))
        return self._number

    def report(self, number: int, seconds: float = 60) -> Report:
        """Return the report of a job, once it is there."""
        deadline = time.monotonic() + seconds
        while number not in self._reports:
            found = self.report_of_any(deadline - time.monotonic())
            self._reports[found.number] = found
        return self._reports.pop(number)

    def report_of_any(self, seconds: float = 60) -> Report:
        """Return the next report, whichever job it is about."""
        deadline = time.monotonic() + seconds
        while isinstance(found := self._next(deadline), SlowJob | PartialReport):
            if isinstance(found, PartialReport):
                self.partial.append(found)
        assert isinstance(found, Report)
        return found

    def slow_job(self, seconds: float = 60) -> SlowJob:
        """Return the next slow job that it tells of."""
        found = self._next(time.monotonic() + seconds)
        assert isinstance(found, SlowJob)
        return found

    def deliver(self, path: bytes, *recipients: bytes, **options: bytes) -> Report:
        """Run one job; return its report."""
        return self.report(self.start(path, *recipients, **options))

    def deliver_many(self, path: bytes, count: int, at_once: int, nexthops: Sequence[bytes] = (b"b.example",)) -> int:
        """Run so many jobs for one recipient, to the nexthops in turn, so many at once; return how many failed.

        They are numbered from 1,000,000, and reports of other jobs are kept.
        """
        first = 1_000_000
        jobs = iter(range(first, first + count))
        done = failed = 0
        starting = at_once
        while done < count:
            batch = [
                pack_job(Job(number, path, b"from@a.example", nexthops[number % len(nexthops)], [b"to@b.example"]))
                for number in itertools.islice(jobs, starting)
            ]
            if batch:
                self.write(b"".join(batch))
            starting = 0
            # What has come together is answered together.
            for found in (self.report_of_any(300), *self._at_hand()):
                if found.number < first:
                    self._reports[found.number] = found
                    continue
                starting += 1
                failed += found.verdicts[0][0] != SUCCESS
            done += starting
        return failed

    def end(self) -> tuple[int, bytes]:
        """Close the job pipe; return the exit code and everything on stderr."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.wait(60), self._errors + errors

    def wait_for_error(self, text: bytes, seconds: float = 60) -> bytes:
        """Return what is on stderr, once it holds `text`."""
        deadline = time.monotonic() + seconds
        assert self.process.stderr is not None
        while text not in self._errors:
            self._errors += self._read(self.process.stderr.fileno(), deadline)
        return self._errors

    def wait_for_more_error(self, seconds: float = 60) -> bytes:
        """Return what is on stderr, once there is more."""
        assert self.process.stderr is not None
        self._errors += self._read(self.process.stderr.fileno(), time.monotonic() + seconds)
        return self._errors

    def _at_hand(self) -> list[Report]:
        """Return the reports that have been read already."""
        found = []
        while (payload := self._reader.next()) is not None:
            report = unpack_report(payload)
            assert isinstance(report, Report)
            found.append(report)
        return found

    def _next(self, deadline: float) -> Report | Ready | SettingsReport | LogLine | SlowJob | PartialReport:
        assert self.process.stdout is not None
        while (payload := self._reader.next()) is None:
            self._reader.feed(self._read(self.process.stdout.fileno(), deadline))
        return unpack_report(payload)

    def _read(self, descriptor: int, deadline: float) -> bytes:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing came in time; stderr: {self._errors!r}"
        data = os.read(descriptor, 65536)
        assert data, "the daemon closed its pipe"
        return data
