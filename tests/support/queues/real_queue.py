"""A queue that the real programs have made and filled, with a message in every state; and queuectl on it.

queuectl has made the home, queue-inject the messages, a user has left one in maildrop/, and multilog writes the log.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from queue_base.home import Home
from queue_wire.pipes.qmtp import SOCKET
from support.inject.injectors import USER, as_user
from support.inject.injectors import enqueue as enqueue_as
from support.local.mailboxes import give
from support.processes.forked import run_program
from support.processes.suite import Suite, program, wait_until
from support.servers.ports import refusing_port
from support.servers.smtp.smtp_server import Received, SmtpServer
from support.site import LOCAL, SHM
from support.tools import need

LATER = "451 4.2.0 try later"
GONE = "550 5.1.1 nobody here"
POOL = 12  # Deferred messages, for as many commands that change one.


class Mail(NamedTuple):
    """A message that was injected."""

    identity: str
    sender: str
    recipient: str

    @property
    def number(self) -> int:
        """The number that its files have."""
        return int(self.identity.partition("-")[0])


class Shown(NamedTuple):
    """What a command has printed."""

    text: str
    errors: str


class RealQueue:
    """The queue, its suite, and the server that its remote mail goes to.

    local: has been delivered; bounced: has come back to its sender; dead: its host cannot be reached; held: is on hold.
    The others wait after a deferral, until `take` gives them to somebody. A file of a user is in maildrop/.
    """

    def __init__(self, home: Home, server: SmtpServer, dead_nexthop: str) -> None:
        self.home = home
        self.server = server
        self.dead_nexthop = dead_nexthop
        self.log_directory = Path(home.path).with_name("log")
        self._suite: Suite | None = None
        self._logger: subprocess.Popen[bytes] | None = None
        self._afterwards: list[Callable[[], None]] = []
        self._count = 0

    def fill(self) -> None:
        """Start the suite, and have it take mail that comes into every state."""
        self.start()
        names = [f"r{number}@remote.example" for number in range(POOL)]
        # Before anything is injected: a message is delivered while queue-inject still runs.
        self.server.recipient_answers |= {"gone@remote.example": GONE, **dict.fromkeys(names, LATER)}
        self.local, self.bounced, self.dead = self.inject(
            ("ann@example.org", f"ann@{LOCAL}"),
            (f"joe@{LOCAL}", "gone@remote.example"),
            ("dan@example.org", "x@dead.example"),
        )
        self.pool = self.inject(*((f"s{number}@example.org", name) for number, name in enumerate(names)))
        self.wait_for(r"^delivery \d+: deferral: .*try_later", POOL)
        for mail in (self.local, self.bounced):
            self.wait_for(rf"^end msg {mail.number}$")
        self.wait_for(f"^dest {re.escape(self.dead_nexthop)} dead: ")
        try:
            wait_until(lambda: self.delivered(f"joe@{LOCAL}"), why="the bounce")
        except AssertionError as error:
            raise AssertionError(f"{error}; the log:\n{self.log()}") from None
        mess = Path(self.home.queue, "mess")
        wait_until(lambda: len(list(mess.glob("*/*"))) == POOL + 1, why="the removal of what has ended")
        for mail in (self.dead, *self.pool):
            wait_until(self.file("last", mail).exists, why=f"the result of {mail}")
        self.held = self.take()
        self.queuectl("hold", self.held.identity, "--reason", "ask Jo")

    @property
    def up(self) -> bool:
        """Whether queue-send runs."""
        return self._suite is not None

    @property
    def suite(self) -> Suite:
        """The running suite."""
        assert self._suite is not None
        return self._suite

    def start(self) -> None:
        """Start the suite, with its log in the directory of a multilog."""
        before = len(self.log())
        words = [need("multilog"), "t", "s10000000", str(self.log_directory)]
        self._logger = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert self._logger.stdin is not None
        self._suite = Suite(self.home, log=self._logger.stdin.fileno())
        self._logger.stdin.close()
        wait_until(lambda: "status: local " in self.log()[before:], why="the first line of the log")

    def stop(self) -> None:
        """Stop the suite as a supervisor does; the log is whole then."""
        assert self.suite.stop() == 0
        self.end()

    def end(self) -> None:
        """Kill what runs."""
        if self._suite is not None:
            self._suite.kill()
            self._suite = None
        if self._logger is not None:
            self._logger.wait(60)  # All who write to it have ended.
            self._logger = None

    def suspend_pickup(self) -> None:
        """Have queue-pickup leave files in maildrop/."""
        os.kill(self.suite.daemon("queue-pickup"), signal.SIGSTOP)

    def continue_pickup(self) -> None:
        """Have it go on."""
        os.kill(self.suite.daemon("queue-pickup"), signal.SIGCONT)

    def when_up(self, check: Callable[[], None]) -> None:
        """Check something now if queue-send runs, otherwise once it does again."""
        if self.up:
            check()
        else:
            self._afterwards.append(check)

    def check_afterwards(self) -> None:
        """Start the suite, and check what was to be checked then."""
        self.start()
        for check in self._afterwards:
            check()
        self._afterwards.clear()

    def inject(self, *envelopes: tuple[str, str]) -> list[Mail]:
        """Queue a message for each pair of a sender and a recipient."""
        batch = "".join(
            f"MAIL FROM:<{sender}>\nRCPT TO:<{recipient}>\nDATA\nTo: {recipient}\nSubject: to {recipient}\n\nhello\n.\n"
            for sender, recipient in envelopes
        )
        words = [*program("queue-inject"), "--home", self.home.path, "--batch", "bsmtp"]
        done = subprocess.run(words, input=batch.encode(), capture_output=True, check=True, timeout=60)
        identities = [line.removeprefix("ok ") for line in done.stdout.decode().splitlines()]
        return [Mail(name, *envelope) for name, envelope in zip(identities, envelopes, strict=True)]

    def take(self) -> Mail:
        """Return a deferred message that nobody else changes."""
        return self.pool.pop()

    def accept(self, mail: Mail) -> None:
        """Have the server take a message from now on."""
        self.server.recipient_answers.pop(mail.recipient)

    def drop(self) -> None:
        """Have a user leave a message in maildrop/, as users do where queue-intake cannot be reached."""
        envelope = b"Fuser@example.org\0Tdropped@%s\0\0" % LOCAL.encode()
        command = as_user(USER, "queue_inject.enqueue")
        socket, aside = f"{self.home.queue}/{SOCKET}", f"{self.home.queue}/{SOCKET}.aside"
        if self.up:
            os.rename(socket, aside)
        assert enqueue_as(self.home, b"Subject: dropped\n\n", envelope, command=command).code == 0
        if self.up:
            os.rename(aside, socket)

    def queuectl(self, *words: str, code: int = 0, given: bytes = b"") -> Shown:
        """Run queuectl, which must end with this exit code and without a traceback."""
        done = run_program("queuectl", "--home", self.home.path, *words, given=given)
        shown = Shown(done.stdout.decode(), done.stderr.decode())
        assert done.returncode == code, (words, done.returncode, shown)
        assert "Traceback" not in shown.errors, shown.errors
        return shown

    def objects(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """Return what queuectl prints as JSON."""
        return [json.loads(line) for line in self.queuectl(*words, "--format", "json", code=code).text.splitlines()]

    def file(self, kind: str, mail: Mail) -> Path:
        """Return the path that a file of a message has."""
        return Path(self.home.queue, kind, str(mail.number % 3), str(mail.number))

    def log(self) -> str:
        """Return the lines of the log, without their stamps."""
        current = self.log_directory / "current"
        lines = current.read_bytes().decode().splitlines() if current.exists() else []
        return "\n".join(line.partition(" ")[2] for line in lines)

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Wait until that many places of the log match; ^ and $ are the ends of a line."""
        try:
            wait_until(lambda: len(re.findall(pattern, self.log(), re.MULTILINE)) >= times, why=f"a line {pattern!r}")
        except AssertionError as error:
            tail = "\n".join(self.log().splitlines()[-40:])
            raise AssertionError(f"{error}; the log ends:\n{tail}") from None

    def delivered(self, recipient: str) -> list[bytes]:
        """Return the messages that a local recipient has got."""
        texts = [path.read_bytes() for path in Path(self.home.alias, "Maildir", "new").iterdir()]
        return [text for text in texts if b"\nDelivered-To: %s\n" % recipient.encode() in text]

    def received(self, mail: Mail) -> list[Received]:
        """Return what the server has taken for the recipient of a message."""
        return [each for each in list(self.server.received) if mail.recipient in each.recipients]

    def wait_for_mail(self, mail: Mail) -> None:
        """Wait until the server has taken a message."""
        wait_until(lambda: self.received(mail), why=f"the message to {mail.recipient}")


@contextmanager
def real_queue(up: bool) -> Iterator[RealQueue]:
    """Give a queue that is filled, in a directory to which every user can walk.

    queue-send runs if `up`; then queue-pickup is suspended.
    """
    with ExitStack() as stack:
        place = SHM if os.access(SHM, os.W_OK) else None
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="queue-suite-", dir=place)))
        top.chmod(0o711)
        server = stack.enter_context(SmtpServer())
        dead_nexthop = f"127.0.0.1:{stack.enter_context(refusing_port())}"
        home = Home(str(top / "home"))
        run = run_program("queuectl", "init", home.path, "--me", LOCAL, "--split", "3", "--as-me")
        assert run.returncode == 0, run.stderr
        _let_mail_pass(home, f"dead.example:{dead_nexthop}\n:127.0.0.1:{server.port}\n")
        queue = RealQueue(home, server, dead_nexthop)
        stack.callback(queue.end)
        queue.fill()
        if up:
            queue.suspend_pickup()
        else:
            queue.stop()
        queue.drop()
        yield queue


def _let_mail_pass(home: Home, routes: str) -> None:
    """Have a maildir for everybody, and a single failure show that a host is dead."""
    alias = Path(home.alias)
    for name in ("Maildir", "Maildir/tmp", "Maildir/new", "Maildir/cur"):
        (alias / name).mkdir()
    (alias / ".qmail-default").write_text("./Maildir/\n")
    for path in (alias, *alias.rglob("*")):
        give(path)
    for name, text in {"smtproutes": routes, "destinationinitial": "1\n", "destinationcohorts": "1\n"}.items():
        Path(home.control, name).write_text(text)
