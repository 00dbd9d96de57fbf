"""Forwards: mail that deliveries forward is put in the queue by the forwarder, a process of the queue's owner.

queue-local forks the forwarder at its start, and again for the next forward after it has died; what it had is
deferred. `Forwards` is queue-local's side: the forwards that are not answered yet, with a time limit for each. A
forwarder whose answer is late hangs, as the disk may: it is killed, and until it is gone all forwards are deferred at
once. `Forwarder` is the other side: requests that have arrived together, GROUP at most, share one commit, and are
answered when that is durable. Each message is `head` and then the message that is delivered, with the Received: line
and the uid of the user who forwards it. What cannot be queued now is Temporary; an address that is too long for an
envelope is Permanent. Senders are rewritten here where control/srs says so (queue_local.srs.sender_rewriting), and a
message that has come through some forwards is not sent to the same address again (queue_local.duplicate_filter).

Between the two is one netstring each way for a message, answers in any order:

    number \\0 mess/B/I \\0 uid \\0 sender \\0 head \\0 recipient [\\0 recipient ...]
    number \\0 letter and text           K with the qp and id of the new message, or Z or D and the reason
"""

import fcntl
import math
import os
import select
import signal
import time
from typing import NamedTuple

from queue_base.accounts import become_reader, queue_owner
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.durable import write_all
from queue_base.errors import Failure, QueueTrouble, Temporary, complain, reason
from queue_base.home import Home
from queue_base.queue.layout import birth_by, open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from queue_local.deliveries import Ended
from queue_local.duplicate_filter import DuplicateFilter, Passage, filtered_passage
from queue_local.jobs import open_message
from queue_local.result import FORWARD_MAX, Forward, unpack_forward
from queue_local.srs.sender_rewriting import read_setup, rewrite_forward
from queue_local.srs.srs_address import BadSrs
from queue_wire.format_error import AddressTooLong, FormatError, quoted
from queue_wire.ids import pack_long_id
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.report import MESSAGE_SCOPE, PERMANENT, SUCCESS, TEMPORARY, Report

# The limits of a commit, so that the first messages do not wait long for the last.
GROUP = 100
GROUP_BYTES = 64 << 20
_CHUNK = 1 << 18
_CAP = FORWARD_MAX + 4096
_ANSWER_MAX = 1 << 16
_ALREADY_SENT = b"it was forwarded there before\n"
_LETTERS = (SUCCESS, TEMPORARY, PERMANENT)


class ForwardRequest(NamedTuple):
    """A forward to make of the message whose file is `path` under queue/; it is packed."""

    number: int
    path: bytes
    forward: bytes


class ForwardAnswer(NamedTuple):
    """The result of the forward with this number."""

    number: int
    letter: bytes
    text: bytes


def pack_request(number: int, path: bytes, forward: list[bytes]) -> list[bytes]:
    """Return a request as a netstring, in pieces; `forward` is a packed forward in pieces."""
    head = b"%d\0%s\0" % (number, path)
    return [b"%d:%s" % (len(head) + sum(map(len, forward)), head), *forward, b","]


def unpack_request(payload: bytes) -> ForwardRequest:
    """Return the request in a netstring's payload. Raises FormatError."""
    number, path, rest = [*payload.split(b"\0", 2), b"", b""][:3]
    return ForwardRequest(_number(number), path, rest)


def pack_answer(answer: ForwardAnswer) -> bytes:
    """Return an answer as a netstring; a NUL in its text becomes `_`."""
    return pack_netstring(b"%d\0%s%s" % (answer.number, answer.letter, answer.text.replace(b"\0", b"_")))


def unpack_answer(payload: bytes) -> ForwardAnswer:
    """Return the answer in a netstring's payload. Raises FormatError."""
    number, _, text = payload.partition(b"\0")
    if text[:1] not in _LETTERS:
        raise FormatError(f"forward: not an answer: {quoted(payload)}")
    return ForwardAnswer(_number(number), text[:1], text[1:])


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise FormatError(f"forward: not a number: {quoted(text)}")
    return int(text)


class _ForwarderProcess:
    """A running forwarder: its pid and our ends of its pipes. Raises OSError."""

    def __init__(self, home: Home) -> None:
        requests, to_it = os.pipe()
        try:
            from_it, answers = os.pipe()
        except OSError:
            os.close(requests)
            os.close(to_it)
            raise
        try:
            self.pid = os.fork()
            if not self.pid:
                run_forwarder(home, requests, answers)
        except OSError:
            os.close(to_it)
            os.close(from_it)
            raise
        finally:
            os.close(requests)
            os.close(answers)
        os.set_blocking(from_it, False)
        self.requests, self.answers = OutPipe(to_it), from_it
        self.reader = NetstringReader(_ANSWER_MAX)
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        os.kill(self.pid, signal.SIGKILL)

    def let_go(self) -> None:
        """Close our ends; it exits when it has done what it has read."""
        os.close(self.requests.descriptor)
        os.close(self.answers)

    def reap(self) -> int:
        """Return its exit code, after it has closed its end."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Forwards:
    """The forwards that are not answered yet, by job number. `prepare` and `run` are the loop's pair."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pending: dict[int, tuple[Ended, float]] = {}
        self._process: _ForwarderProcess | None = None
        self._finish_at = math.inf
        self._start()

    def __len__(self) -> int:
        return len(self._pending)

    def take(self, ended: Ended, seconds: float) -> Report | None:
        """Return the report of a delivery that ended; None if its forward is queued first, within `seconds`."""
        if ended.forward is None:
            return _report(ended, ended.letter, ended.text)
        if self._process is not None and self._process.killed:
            return _deferral(ended, "the disk, or the forwarder, hangs")
        why = self._start()
        if self._process is None:
            return _deferral(ended, why)
        for piece in pack_request(ended.job.number, ended.job.path, ended.forward):
            self._process.requests.put(piece)
        # The recipients have been sent; only the text is needed now.
        late = min(time.monotonic() + seconds, self._finish_at)
        self._pending[ended.job.number] = ended._replace(forward=None), late
        return None

    def finish(self, seconds: float) -> None:
        """Limit the time of all forwards to so many seconds from now."""
        self._finish_at = time.monotonic() + seconds
        self._pending = {number: (ended, min(late, self._finish_at)) for number, (ended, late) in self._pending.items()}

    def prepare(self, poll: select.poll) -> float | None:
        """Register the pipes; return the seconds until a forward is late, None for never."""
        if self._process is not None:
            poll.register(self._process.answers, select.POLLIN)
            if self._process.requests.unwritten:
                poll.register(self._process.requests.descriptor, select.POLLOUT)
        times = [late for _, late in self._pending.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def run(self, ready: set[int]) -> list[Report]:
        """Send requests, read answers, check the time; return the reports of forwards that are decided."""
        reports: list[Report] = []
        process = self._process
        if process is not None:
            try:
                if not process.killed:
                    process.requests.flush()
                if process.answers in ready:
                    process.reader.feed(read_available(process.answers) or b"")
                    while (payload := process.reader.next()) is not None:
                        reports += self._answered(unpack_answer(payload))
            except FormatError as error:
                complain("queue-local", f"alert: unable to understand the forwarder: {error}; its mail is deferred")
                process.kill()
                reports += self._lost(process)
            except PeerLost:
                reports += self._lost(process)
        return reports + self._look_at_time()

    def close(self) -> None:
        """End the forwarder, which has nothing left to do."""
        if self._process is not None:
            self._process.let_go()
        self._process = None

    def _start(self) -> str:
        """Fork a forwarder if none is running; return why that failed, "" if it did not."""
        if self._process is None:
            try:
                self._process = _ForwarderProcess(self._home)
            except OSError as error:
                return f"unable to start the forwarder: {reason(error)}"
        return ""

    def _answered(self, answer: ForwardAnswer) -> list[Report]:
        if answer.number not in self._pending:
            return []  # It was late, and has been deferred.
        ended, _ = self._pending.pop(answer.number)
        return [_report(ended, answer.letter, (ended.text if answer.letter == SUCCESS else b"") + answer.text)]

    def _lost(self, process: _ForwarderProcess) -> list[Report]:
        self._process = None
        process.let_go()
        code = process.reap()
        why = f"the forwarder ended by signal {-code}" if code < 0 else f"the forwarder ended with code {code}"
        complain("queue-local", f"alert: {why}; its mail is deferred, and the next one has a new forwarder")
        reports = [_deferral(ended, why) for ended, _ in self._pending.values()]
        self._pending.clear()
        return reports

    def _look_at_time(self) -> list[Report]:
        now = time.monotonic()
        late = [number for number, (_, until) in self._pending.items() if now >= until]
        if late and self._process is not None and not self._process.killed:
            complain("queue-local", f"alert: {len(late)} forwards took too long; the forwarder is killed")
            self._process.kill()
        return [_deferral(self._pending.pop(number)[0], "it took too long") for number in late]


def _report(ended: Ended, letter: bytes, text: bytes) -> Report:
    return Report(ended.job.number, MESSAGE_SCOPE, [(letter, text)])


def _deferral(ended: Ended, why: str) -> Report:
    text = f"Unable to forward message: {why}. (#4.3.0)\n"
    return _report(ended, TEMPORARY, text.encode("utf-8", "surrogateescape"))


class _Copy(NamedTuple):
    """A message that is put into the queue for a request; `passage` if it was filtered."""

    request: ForwardRequest
    recipients: list[bytes]
    draft: QueueDraft
    long_id: str
    passage: Passage | None


class Forwarder:
    """Puts groups of requests into the queue, which it opens when it is first needed, and again after a failure."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._writer: QueueWriter | None = None
        self._filter = DuplicateFilter()

    def answer(self, requests: list[ForwardRequest]) -> list[ForwardAnswer]:
        """Carry out requests; return their answers."""
        answers: list[ForwardAnswer] = []
        copies: list[_Copy] = []
        try:
            writer = self._open()
            writer.inflow.admit()
            srs = read_setup(self._home)
        except Failure as error:
            return [_refusal(request, error) for request in requests]
        for request in requests:
            try:
                forward = unpack_forward(request.forward)
                if srs is not None:
                    forward = rewrite_forward(srs, forward)
                copy = self._make(writer, request, forward)
                if copy is None:
                    answers.append(ForwardAnswer(request.number, SUCCESS, _ALREADY_SENT))
                else:
                    copies.append(copy)
            except (Failure, FormatError) as error:
                answers.append(_refusal(request, error))
        failure: Failure | None = None
        try:
            writer.commit([copy.draft for copy in copies])
        except Failure as error:
            failure = error
        for request, recipients, draft, long_id, passage in copies:
            if failure is not None and not draft.queued:
                answers.append(_refusal(request, failure))
                if passage is not None:
                    self._filter.remove(passage, recipients)
            else:
                answers.append(
                    ForwardAnswer(request.number, SUCCESS, b"qp %d\nid %s\n" % (os.getpid(), long_id.encode()))
                )
        return answers

    def _open(self) -> QueueWriter:
        if self._writer is None:
            owner = queue_owner(self._home)
            if not os.geteuid() and owner.uid:
                become_reader(owner)
            self._writer = QueueWriter(self._home, open_layout(self._home.queue), os.getuid())
        return self._writer

    def _make(self, writer: QueueWriter, request: ForwardRequest, forward: Forward) -> _Copy | None:
        """Return the finished copy, None if all have it. Raises Failure, FormatError, and leaves no file then."""
        message = open_message(self._home, request.path)
        try:
            passage = _passage(message, forward.head)
            if passage is not None:
                forward = forward._replace(recipients=self._filter.left(passage, forward.recipients))
                if not forward.recipients:
                    return None
            draft = writer.begin(forward.uid)
            try:
                draft.write(forward.head)
                while data := _read(message):
                    draft.write(data)
                draft.finish(forward.sender, forward.recipients)
                # Now, because the message may be delivered and removed right after the commit.
                birth = birth_by(os.stat(draft.path))
            except OSError as error:
                draft.discard()
                raise Temporary(f"unable to read {draft.path}: {reason(error)}") from error
            except BaseException:
                draft.discard()
                raise
        finally:
            os.close(message)
        if passage is not None:
            self._filter.add(passage, forward.recipients)
        return _Copy(request, forward.recipients, draft, pack_long_id(draft.message, birth), passage)


def _passage(message: int, head: bytes) -> Passage | None:
    try:
        return filtered_passage(message, head)
    except OSError as error:
        raise Temporary(f"unable to read message: {reason(error)}") from error


def _read(message: int) -> bytes:
    try:
        return os.read(message, _CHUNK)
    except OSError as error:
        raise Temporary(f"unable to read message: {reason(error)}") from error


def _refusal(request: ForwardRequest, error: Failure | FormatError) -> ForwardAnswer:
    """Return the answer for a request that failed, with qmail-local's text as far as it has one."""
    permanent = isinstance(error, AddressTooLong) or (isinstance(error, QueueTrouble) and 11 <= error.code <= 40)
    if isinstance(error, BadSrs):
        text = f"Sorry, this address of SRS is not good: {error}. (#5.1.1)\n"
        return ForwardAnswer(request.number, PERMANENT, text.encode())
    letter, code = (PERMANENT, "#5.1.3") if permanent else (TEMPORARY, "#4.3.0")
    text = f"Unable to forward message: {error}. ({code})\n"
    return ForwardAnswer(request.number, letter, text.encode("utf-8", "surrogateescape"))


def serve(home: Home) -> None:
    """Serve requests from fd 0 until its end. Raises FormatError for an impossible request, OSError if a pipe fails."""
    forwarder, reader = Forwarder(home), NetstringReader(_CAP)
    while data := os.read(0, 1 << 16):
        reader.feed(data)
        # What has arrived is a group. While it is committed, the next group gathers in the pipe.
        while requests := _take(home, reader):
            write_all(1, b"".join([pack_answer(answer) for answer in forwarder.answer(requests)]))


def _take(home: Home, reader: NetstringReader) -> list[ForwardRequest]:
    """Return the requests that have been read, at most as many as may share a commit."""
    found: list[ForwardRequest] = []
    size = 0
    while len(found) < GROUP and size < GROUP_BYTES and (payload := reader.next()) is not None:
        found.append(unpack_request(payload))
        size += _size(home, found[-1])
    return found


def _size(home: Home, request: ForwardRequest) -> int:
    try:
        return os.stat(f"{home.queue}/{os.fsdecode(request.path)}").st_size
    except OSError:
        return 0


def run_forwarder(home: Home, requests: int, answers: int) -> None:
    """Run the forwarder, in a process of its own. Never returns."""
    code = 1
    try:
        # First move them away from 0 and 1, so that neither is overwritten.
        requests, answers = (fcntl.fcntl(handle, fcntl.F_DUPFD, 3) for handle in (requests, answers))
        os.dup2(requests, 0)
        os.dup2(answers, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.umask(0o027)
        serve(home)
        code = 0
    except OSError as error:
        code = 0 if isinstance(error, BrokenPipeError) else code
    except BaseException as error:
        complain("queue-local", f"alert: internal error in the forwarder: {error!r}; its mail is deferred")
    finally:
        os._exit(code)
