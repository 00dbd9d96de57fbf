"""This suite as a side: the installed programs beside the interpreter that runs the bench, or else those of bin/."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import psutil

from backlog import SPLIT as LARGE_SPLIT
from backlog import make_backlog
from disk import read_disk
from processes import family
from queue_base.queue.layout import open_layout
from side_by_side.figures import OURS
from side_by_side.mail import SENDER, Mail, Routes, letter
from side_by_side.side import DEFERRED, DELIVERED, FINISHED, Filled, Injection, Side, Verdict, greets
from support.inject.packing import pack_pair
from support.processes.forked import BIN
from support.processes.suite import Suite, wait_until
from support.queues.home import make_home
from support.servers.ports import free_port

SETTINGS = {
    "concurrencyremote": ("100", "Postfix's default_process_limit; ours is 250 by default"),
    "smtproutes": ("...", "the receivers"),
}
SPLIT = 23
# A batch above this is made while it is read, and is no file.
_FILE_LIMIT = 200_000_000
_STARTING = re.compile(rb"^starting delivery (\d+): msg \d+ to remote (\S+)$")
_ENDED = re.compile(rb"^delivery (\d+): (success|deferral|failure): ")
_KINDS = ("todo", "mess", "intd", "info", "local", "remote")


def programs() -> Path:
    """Return the directory of the programs."""
    beside = Path(sys.executable).parent
    return beside if (beside / "queue-start").exists() else BIN


class QueueSuite(Side):
    """The suite on a home that root owns, so that its daemons stay root, as Postfix's master does."""

    name = OURS
    texts: ClassVar[dict[str, bytes]] = {DELIVERED: b": success: ", DEFERRED: b": deferral: ", FINISHED: b"end msg "}
    trouble = rb"alert: |: failure: |^bounce "

    def __init__(self, place: Path, scratch: Path, traced: bool = False, large: bool = False) -> None:
        super().__init__(place, scratch, traced, large)
        self.home = make_home(place / "home", split=LARGE_SPLIT if large else SPLIT)
        self._control("concurrencyremote", SETTINGS["concurrencyremote"][0])
        self._layout = open_layout(self.home.queue)
        self._suite: Suite | None = None
        self._smtpd: subprocess.Popen[bytes] | None = None
        self._wrapped = False
        self._started: dict[bytes, str] = {}

    def route(self, routes: Routes) -> None:
        """Write smtproutes."""
        lines = [f"{domain}:{address}:{port}" for domain, (address, port) in routes.others.items()]
        self._control("smtproutes", "\n".join([*lines, f":127.0.0.1:{routes.port}"]))

    def _control(self, name: str, text: str) -> None:
        Path(self.home.control, name).write_text(f"{text}\n")

    @property
    def root(self) -> int:
        """queue-send; strace, where syncs are counted."""
        assert self._suite is not None
        return self._suite.process.pid

    def start(self) -> None:
        """Start the daemons; return at once."""
        wrapper = tuple(self.traced([]))
        self._wrapped = bool(wrapper)
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            self._suite = Suite(self.home, wrapper=wrapper, programs=programs(), log=handle)
        finally:
            os.close(handle)

    def wait_ready(self) -> None:
        """Return when queue-send has heard of its peers."""
        wait_until(lambda: b"status: local 0/" in self.log.read_bytes()[-4096:], why=f"a status line in {self.log}")

    def listen(self) -> int:
        """Start queue-smtpd, for this host as a client that may relay."""
        port = free_port()
        self._control("smtpd", f"127.0.0.1:{port} mx")
        self._control("relayclients", "127.0.0.1")
        words = self.traced([str(programs() / "queue-smtpd"), "--home", self.home.path])
        with (self.place / "smtpd.log").open("ab") as log:
            self._smtpd = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: greets(port), why="queue-smtpd")
        return port

    def roots(self) -> list[int]:
        """Return queue-send, and queue-smtpd where it runs."""
        return [self.root, *([self._smtpd.pid] if self._smtpd is not None else [])]

    def stop(self) -> None:
        """Stop the daemons, if they run."""
        smtpd, self._smtpd = self._smtpd, None
        if smtpd is not None:
            for pid in family(smtpd.pid)[::-1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            smtpd.wait(60)
        suite, self._suite = self._suite, None
        if suite is None:
            return
        every = family(suite.process.pid)
        if self._wrapped and suite.process.poll() is None:
            # strace itself takes no signals.
            psutil.Process(every[1]).terminate()
        try:
            suite.stop()
        finally:
            suite.kill()
        wait_until(lambda: not any(map(psutil.pid_exists, every)), why="the end of the daemons")

    def fill(self, mail: Mail) -> Filled:
        """Put mail in by a batch; no daemon runs."""
        disk = read_disk(self.place)
        injection = self.batch(mail)
        begun = time.monotonic()
        used = injection.wait()
        return Filled(time.monotonic() - begun, used, read_disk(self.place) - disk)

    def accepting(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: queue-inject needs no daemon."""
        return contextlib.nullcontext()

    def batch(self, mail: Mail) -> Injection:
        """Begin `queue-inject --batch netstring`."""
        words = [str(programs() / "queue-inject"), "--home", self.home.path, "--batch", "netstring"]
        text = letter(mail.size)
        feeder = None
        if mail.messages * mail.size > _FILE_LIMIT:
            process = subprocess.Popen(self.traced(words), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            assert process.stdin is not None
            feeder = threading.Thread(target=_feed, args=(process.stdin, mail, text))
            feeder.start()
        else:
            # In memory, so that reading it is no part of what the disk does.
            with (self.scratch / "batch").open("w+b") as file:
                _write(file, mail, text)
                file.seek(0)
                process = subprocess.Popen(self.traced(words), stdin=file, stdout=subprocess.DEVNULL)
        return Injection(process, True, feeder)

    def one(self, recipient: str) -> list[str]:
        """Return a queue-inject."""
        return [str(programs() / "queue-inject"), "--home", self.home.path, "-f", SENDER, recipient]

    def is_empty(self) -> bool:
        """Whether no message has a file."""
        return not any(os.listdir(place) for kind in _KINDS for place in self._layout.directories(kind))

    def verdicts(self, lines: bytes) -> Iterator[Verdict]:
        """Yield the ends of deliveries, with the recipients that their beginnings name."""
        for line in lines.splitlines():
            if starting := _STARTING.match(line):
                self._started[starting[1]] = starting[2].decode()
            elif ended := _ENDED.match(line):
                yield Verdict(self._started.pop(ended[1]), ended[2] == b"success")

    def manager(self) -> int:
        """Return queue-send."""
        return self.root

    def make_deferred(self, messages: int) -> None:
        """Make a backlog."""
        make_backlog(self.home.queue, messages)


def _write(file: BinaryIO, mail: Mail, text: bytes) -> None:
    sender = SENDER.encode()
    for recipient in mail.recipients():
        file.write(pack_pair(sender, [recipient.encode()], text))


def _feed(pipe: BinaryIO, mail: Mail, text: bytes) -> None:
    try:
        with pipe:
            _write(pipe, mail, text)
    except BrokenPipeError:
        pass  # It has ended, and its exit code says why.
