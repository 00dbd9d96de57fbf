"""The peers of a queue-send with hostile mail, in one loop: daemons that deliver, and another user who sends mail."""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable

from queue_base.home import Home
from queue_wire.pipes.cleaning import REMOVED
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, unpack_job
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, Report, pack_report
from support.queues.queued import classified_message
from support.send.piped import is_readable
from support.send.scripted_send import ScriptedSend

PACE = 0.05  # Seconds between two messages of the other user.
OTHER = b"reader@quick.example"
DEADLINE = 900.0

Answer = Callable[[bytes], tuple[bytes, bytes, bytes]]  # From a recipient: scope, letter, text.


def greylisted(recipient: bytes) -> tuple[bytes, bytes, bytes]:
    """A host that takes nothing now."""
    return MESSAGE_SCOPE, b"Z", b"192.0.2.1 said: 450 4.7.1 try again later\n"


def absent(recipient: bytes) -> tuple[bytes, bytes, bytes]:
    """A host that is not there."""
    return HOST_SCOPE, b"Z", b"Sorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n"


def refusing(recipient: bytes) -> tuple[bytes, bytes, bytes]:
    """A host that knows nobody."""
    return MESSAGE_SCOPE, b"D", b"192.0.2.1 does not like recipient.\nRemote host said: 550 5.1.1 no such user\n"


def taking(recipient: bytes) -> tuple[bytes, bytes, bytes]:
    """A host that takes all."""
    return MESSAGE_SCOPE, b"K", b"192.0.2.1 accepted message.\nRemote host said: 250 ok\n"


class Peers:
    """Plays all peers until `over` says that it has seen enough; `delays` are the other user's, in seconds."""

    def __init__(self, home: Home, send: ScriptedSend, answer: Answer, paced: bool = True) -> None:
        self._home = home
        self._send = send
        self._answer = answer
        self._paced = paced
        self.delays: list[float] = []
        self.lines = 0
        self.seen: dict[bytes, int] = {}
        self._since: dict[int, float] = {}
        self._readers = {send.remote.from_send: NetstringReader(), send.local.from_send: NetstringReader()}
        self._ids: deque[bytes] = deque()
        self._rest = self._log_rest = b""
        self._next = 0.0

    def run(self, over: Callable[["Peers"], bool]) -> None:
        """Go on until it is over, and everything that the other user has sent is delivered."""
        end = time.monotonic() + DEADLINE
        poll = self._poll()
        while not over(self) or self._since:
            now = time.monotonic()
            assert now < end, "this takes too long"
            if self._paced and now >= self._next and not over(self):
                self._other_mail(now)
            assert self._serve(poll), f"queue-send has ended: {self._send.stderr()!r}"

    def _poll(self) -> select.poll:
        poll = select.poll()
        for descriptor in (self._send.stdout, self._send.clean.from_send, *self._readers):
            poll.register(descriptor, select.POLLIN)
        return poll

    def _serve(self, poll: select.poll) -> bool:
        """Do what queue-send asks for now; return False where it has ended."""
        for descriptor, _ in poll.poll(10):
            data = os.read(descriptor, 65536)
            if not data and descriptor == self._send.stdout:
                return False  # It has ended.
            if not data:
                poll.unregister(descriptor)
                continue
            if descriptor in self._readers:
                self._deliver(descriptor, data)
            elif descriptor == self._send.stdout:
                self._log(data)
            else:
                self._send.clean.send(REMOVED * data.count(b"\0"))
        return True

    def _other_mail(self, now: float) -> None:
        message = classified_message(self._home, remote=[OTHER])
        self._since[message] = time.monotonic()
        self._send.todo.classified(message)
        self._next = now + PACE

    def _deliver(self, descriptor: int, data: bytes) -> None:
        reader = self._readers[descriptor]
        reader.feed(data)
        peer = self._send.remote if descriptor == self._send.remote.from_send else self._send.local
        while (payload := reader.next()) is not None:
            job = unpack_job(payload)
            peer.send(pack_report(self._report(job)))

    def _report(self, job: Job) -> Report:
        if job.recipients == [OTHER]:
            begun = self._since.pop(int(job.path.rpartition(b"/")[2]), None)
            if begun is not None:
                self.delays.append(time.monotonic() - begun)
            return Report(job.number, MESSAGE_SCOPE, [taking(OTHER)[1:]])
        verdicts = [self._answer(recipient) for recipient in job.recipients]
        return Report(job.number, verdicts[0][0], [verdict[1:] for verdict in verdicts])

    def _log(self, data: bytes) -> None:
        *lines, self._log_rest = (self._log_rest + data).split(b"\n")
        self.lines += len(lines)
        for line in lines:
            word = line[:7]
            self.seen[word] = self.seen.get(word, 0) + 1

    def stop(self) -> None:
        """End queue-send: it waits for what is in flight."""
        self._send.signal(signal.SIGTERM)
        poll, end = self._poll(), time.monotonic() + DEADLINE
        told = False
        while self._serve(poll):
            assert time.monotonic() < end, "queue-send does not end"
            if not told and is_readable(self._send.todo.from_send):
                told = self._send.todo.end_when_told()
        self._send.wait(read_log=False)
