"""Mail that comes in by SMTP and goes out by SMTP: smtp-source, over 20 connections, until all files are gone.

Beside it another client hands in a message each 100 ms over a connection of its own, and waits for each reply: what is
said of a reply is the time from the last dot to the 250, by which the message is safe.
"""

import smtplib
import subprocess
import sys
import threading
import time
from typing import Self

from processes import cpu_seconds, named, wait_for_usage
from side_by_side.experiment import COSTS, Experiment, Ground, Measured, Meter
from side_by_side.figures import Figure, percentile
from side_by_side.mail import RELAY as DOMAIN
from side_by_side.mail import SENDER, SMALL, Routes, letter
from side_by_side.queue_suite import QueueSuite
from side_by_side.side import FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink
from support.tools import need

SESSIONS = 20
EVERY = 0.1
RATE = Figure("in and out", "a second", more_is_better=True)
IN = Figure("in, meanwhile", "a second", more_is_better=True)
MIDDLE = Figure("reply, median", "ms")
LATE = Figure("reply, 99th percentile", "ms")
# By program. Postfix's processes end after 100 clients each, so what single programs of it use cannot be told.
PROGRAMS = ("queue-smtpd", "queue-intake", "queue-todo", "queue-send", "queue-remote", "queue-clean")
CPU_OF = {program: Figure(f"CPU of {program}", "µs a message") for program in PROGRAMS}


class Client:
    """Hands in a message each 100 ms from `with` on, one after the other; `replies` has the seconds of each reply."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.replies: list[float] = []
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_all)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            sys.exit(f"a message was not taken: {self._failure}")

    def _send_all(self) -> None:
        text = letter(SMALL).replace(b"\n", b"\r\n") + b".\r\n"
        try:
            with smtplib.SMTP("127.0.0.1", self._port, "bench.example", timeout=60) as client:
                client.ehlo()
                while not self._over.wait(EVERY):
                    client.mail(SENDER)
                    client.rcpt(f"probe@{DOMAIN}")
                    client.docmd("DATA")
                    begun = time.monotonic()
                    client.send(text)
                    code, said = client.getreply()
                    if code != 250:
                        raise smtplib.SMTPDataError(code, said)
                    self.replies.append(time.monotonic() - begun)
        except (OSError, smtplib.SMTPException) as error:
            self._failure = error


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    text = ground.scratch / "message"
    text.write_bytes(letter(SMALL))
    with SmtpSink(keep=False) as sink, ground.side(kind, Routes(sink.port)) as side:
        side.start()
        side.wait_ready()
        port = side.listen()
        ground.settle()
        options = ["-d", "-N", "-s", str(min(SESSIONS, messages)), "-m", str(messages), "-F", str(text)]
        words = [need("smtp-source"), *options, "-f", SENDER, "-t", f"bob@{DOMAIN}", f"127.0.0.1:{port}"]
        meter, log, programs = Meter(side), side.follow(), _cpu(side)
        begun = time.monotonic()
        with Client(port) as client:
            # What it costs itself does not count.
            wait_for_usage(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            accepted = time.monotonic()
        every = messages + len(client.replies)
        log.wait(lambda counts: counts[FINISHED] == every)
        ended = side.wait_empty()
        found = meter.stop(every)
        spent = {CPU_OF[name].name: (now - programs[name]) / every * 1e6 for name, now in _cpu(side).items()}
        side.check(every)
    return Measured(
        {
            RATE.name: every / (ended - begun),
            IN.name: every / (accepted - begun),
            MIDDLE.name: percentile(client.replies, 0.5) * 1000,
            LATE.name: percentile(client.replies, 0.99) * 1000,
            **found,
            **spent,
        }
    )


def _cpu(side: Side) -> dict[str, float]:
    """Return the CPU seconds of each program of this suite; none of another mail system."""
    found = dict.fromkeys(PROGRAMS if isinstance(side, QueueSuite) else (), 0.0)
    for root in side.roots():
        for name, pid in named(root, "queue-"):
            if name in found:
                found[name] += cpu_seconds(pid)
    return found


RELAY = Experiment(
    "relay",
    f"messages of {SMALL} bytes in by SMTP over {SESSIONS} connections, and out by SMTP",
    20_000,
    (RATE, IN, MIDDLE, LATE, *COSTS, *CPU_OF.values()),
    run,
    traced=1000,
)
