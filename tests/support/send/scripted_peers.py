"""queue-send's peers as a test plays them: queue-local and queue-remote, queue-clean, queue-todo and queue-pickup."""

import array
import fcntl
import os
import termios
import time

from queue_wire.pipes.cleaning import REMOVED
from queue_wire.pipes.framing import NetstringReader, RecordReader
from queue_wire.pipes.job import Job, unpack_job
from queue_wire.pipes.notice import (
    ANNOUNCE,
    CLASSIFY,
    EXIT,
    LEAVE,
    PASSED,
    Ask,
    Classified,
    pack_ask,
    pack_classified,
    pack_log,
)
from queue_wire.pipes.report import Report, pack_ready, pack_report
from support.send.piped import is_readable, read_soon

SECONDS = 60.0


class Peer:
    """One end of a peer: `send` writes to queue-send, `receive` reads from it."""

    def __init__(self, to_send: int, from_send: int) -> None:
        self._to_send = to_send
        self._from_send = from_send

    def send(self, data: bytes) -> None:
        """Write bytes to queue-send."""
        while data:
            data = data[os.write(self._to_send, data) :]

    def receive(self) -> bytes:
        """Return some bytes from queue-send; empty where it has closed the pipe."""
        return read_soon(self._from_send, time.monotonic() + SECONDS)

    @property
    def unread(self) -> int:
        """How many bytes queue-send has not read yet."""
        count = array.array("i", [0])
        fcntl.ioctl(self._to_send, termios.FIONREAD, count)
        return count[0]

    @property
    def from_send(self) -> int:
        """The descriptor that jobs, ids or commands come on; -1 once this end is closed."""
        return self._from_send

    @property
    def silent(self) -> bool:
        """Whether queue-send has written nothing to this peer."""
        return not is_readable(self._from_send)

    def take_no_more(self) -> None:
        """Close the pipe that queue-send writes to."""
        os.close(self._from_send)
        self._from_send = -1

    def die(self) -> None:
        """Close both pipes, as a killed daemon does."""
        for descriptor in (self._to_send, self._from_send):
            if descriptor >= 0:
                os.close(descriptor)
        self._to_send = self._from_send = -1


class Delivering(Peer):
    """queue-local or queue-remote, as the test plays it."""

    def __init__(self, to_send: int, from_send: int) -> None:
        super().__init__(to_send, from_send)
        self._reader = NetstringReader()

    def ready(self, jobs: int = 100) -> None:
        """Send the greeting."""
        self.send(pack_ready(jobs))

    def job(self) -> Job:
        """Return the next job."""
        while (payload := self._reader.next()) is None:
            data = self.receive()
            assert data, "queue-send has closed its jobs"
            self._reader.feed(data)
        return unpack_job(payload)

    def jobs(self) -> list[Job]:
        """Return the jobs that have come."""
        while is_readable(self._from_send) and (data := self.receive()):
            self._reader.feed(data)
        found = []
        while (payload := self._reader.next()) is not None:
            found.append(unpack_job(payload))
        return found

    @property
    def silent(self) -> bool:
        payload = self._reader.next()
        assert payload is None, f"an unexpected job: {payload!r}"
        return super().silent

    def report(self, job: Job, *verdicts: bytes, scope: bytes = b"m", route: bytes = b"") -> None:
        """Report on a job; each verdict is a letter and its text."""
        self.send(pack_report(Report(job.number, scope, [(verdict[:1], verdict[1:]) for verdict in verdicts], route)))

    def deliver(self, verdict: bytes) -> Job:
        """Take the next job and report one verdict for all its recipients; return the job."""
        job = self.job()
        self.report(job, *[verdict] * len(job.recipients))
        return job


class Cleaning(Peer):
    """queue-clean, as the test plays it."""

    def __init__(self, to_send: int, from_send: int) -> None:
        super().__init__(to_send, from_send)
        self._reader = RecordReader()
        self._asked: list[int] = []

    def asked(self) -> int:
        """Return the next id that is to be removed."""
        while not self._asked:
            data = self.receive()
            assert data, "queue-send has closed its requests"
            self._asked += [int(record) for record in self._reader.feed(data)]
        return self._asked.pop(0)

    def removed(self) -> int:
        """Take the next request and answer that all is gone; return the id."""
        message = self.asked()
        self.send(REMOVED)
        return message


class Noticing(Peer):
    """queue-todo or queue-pickup, as the test plays it."""

    def receive(self) -> bytes:
        """Return some commands, without those that `_answer` takes."""
        while not (commands := self._answer(super().receive())):
            pass
        return commands

    def _answer(self, commands: bytes) -> bytes:
        """Answer P; return the commands without it, and without those about new messages: this peer announces none."""
        if PASSED in commands:
            self.send(pack_ask(Ask.PASSED))
        return commands.translate(None, PASSED + ANNOUNCE + LEAVE + CLASSIFY)

    @property
    def silent(self) -> bool:
        while not super().silent:
            if self._answer(os.read(self.from_send, 65536)):
                return False
        return True

    def end_when_told(self) -> bool:
        """Take what has come; after X end as queue-todo does, and return whether that was so."""
        told = EXIT in super().receive()
        if told:
            self.die()
        return told

    def classified(self, message: int, channels: str = "R") -> None:
        """Send a notice: channels L, R, B or X."""
        self.send(pack_classified(Classified(message, channels in "LB", channels in "RB")))

    def log(self, line: bytes) -> None:
        """Send a line for the log."""
        self.send(pack_log(line))
