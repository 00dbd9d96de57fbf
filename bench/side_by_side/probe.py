"""Probes: single messages beside a load, and how long each takes from the start of its command to its receiver."""

import contextlib
import subprocess
import sys
import threading
import time
from typing import Self

from side_by_side.mail import SMALL, letter
from side_by_side.side import Side
from support.servers.smtp.sink import Sink, Taken

DOMAIN = "probe.example"
EVERY = 0.1
_SUBJECT = b"Subject: probe "
_DEADLINE = 120.0


class ProbeSink(Sink):
    """The receiver of probes; `arrived` has the monotonic time of each, by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: dict[int, float] = {}

    def take(self, message: Taken) -> None:
        """Note the time."""
        number = int(message.content.partition(_SUBJECT)[2].split(b"\n")[0])
        self.arrived.setdefault(number, time.monotonic())
        super().take(message)


class Prober:
    """Sends a probe each 100 ms from `with` on, whether or not the one before has come."""

    def __init__(self, side: Side, sink: ProbeSink) -> None:
        self._side = side
        self._sink = sink
        self._sent: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_all)
        self._codes: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more, and wait for the commands."""
        self._over.set()
        self._thread.join()

    @property
    def sent(self) -> int:
        """How many were sent so far."""
        return len(self._sent)

    def delays(self) -> list[float]:
        """Return the seconds that each probe took, once all have come. Raises SystemExit where one is missing."""
        self.stop()
        if any(self._codes):
            sys.exit(f"{self._side.name}: a command that sends a probe failed: exit codes {sorted(set(self._codes))}")
        end = time.monotonic() + _DEADLINE
        while len(self._sink.arrived) < len(self._sent):
            if time.monotonic() > end:
                sys.exit(f"{self._side.name}: of {len(self._sent)} probes {len(self._sink.arrived)} came")
            time.sleep(0.01)
        return [self._sink.arrived[number] - began for number, began in self._sent.items()]

    def _send_all(self) -> None:
        words, environment = self._side.one(f"probe@{DOMAIN}"), self._side.environment()
        running: list[subprocess.Popen[bytes]] = []
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            while not self._over.wait(max(0.0, begun + len(self._sent) * EVERY - time.monotonic())):
                number = len(self._sent)
                self._sent[number] = time.monotonic()
                process = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, env=environment))
                assert process.stdin is not None
                process.stdin.write(letter(SMALL, f"probe {number}"))
                process.stdin.close()
                running.append(process)
        self._codes = [process.returncode for process in running]
