"""The forwarder: the process that puts forwarded mail in the queue, as the queue's owner.

Forked by queue-local at its start (queue_local.forwards). fd 0 gives requests, fd 1 takes answers (forward.py).
All that have come by then, GROUP at the most, share one commit, and are answered when that is durable. Each message
is `head` and then the message that is delivered, with the Received: line and the uid of the user who forwards it.
It ends at the end of fd 0. What cannot be queued now is Temporary; an address too long for an envelope is Permanent.
"""

import fcntl
import os

from queue_base.accounts import become_reader, queue_owner
from queue_base.draft import QueueTrouble
from queue_base.durable import write_all
from queue_base.errors import Failure, Temporary, complain, reason
from queue_base.home import Home
from queue_base.layout import open_layout
from queue_base.writer import QueueDraft, QueueWriter
from queue_local.forward import Answer, Request, pack_answer, unpack_request
from queue_local.jobs import open_message
from queue_local.result import RESULT_MAX
from queue_wire.format_error import AddressTooLong, FormatError
from queue_wire.framing import NetstringReader
from queue_wire.ids import pack_long_id
from queue_wire.report import PERMANENT, SUCCESS, TEMPORARY

# A commit takes no more messages, and no more bytes, so that the first ones do not wait long for the last.
GROUP = 100
GROUP_BYTES = 64 << 20
_CHUNK = 1 << 18
_CAP = RESULT_MAX + 4096


class Forwarder:
    """Puts groups of requests in the queue; opens that when it is first needed, and again after a failure to."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._writer: QueueWriter | None = None

    def answer(self, requests: list[Request]) -> list[Answer]:
        """Carry out requests; return how each went."""
        answers: list[Answer] = []
        drafts: list[tuple[Request, QueueDraft, str]] = []
        try:
            writer = self._open()
            writer.intake.admit()
        except Failure as error:
            return [_refusal(request, error) for request in requests]
        for request in requests:
            try:
                drafts.append((request, *self._make(writer, request)))
            except (Failure, FormatError) as error:
                answers.append(_refusal(request, error))
        failure: Failure | None = None
        try:
            writer.commit([draft for _, draft, _ in drafts])
        except Failure as error:
            failure = error
        for request, draft, long_id in drafts:
            if failure is not None and not draft.queued:
                answers.append(_refusal(request, failure))
            else:
                answers.append(Answer(request.number, SUCCESS, b"qp %d\nid %s\n" % (os.getpid(), long_id.encode())))
        return answers

    def _open(self) -> QueueWriter:
        if self._writer is None:
            owner = queue_owner(self._home)
            if not os.geteuid() and owner.uid:
                become_reader(owner)
            self._writer = QueueWriter(self._home, open_layout(self._home.queue), os.getuid())
        return self._writer

    def _make(self, writer: QueueWriter, request: Request) -> tuple[QueueDraft, str]:
        """Return the finished draft and its long id. Raises Failure, FormatError; then nothing is left."""
        forward = request.forward
        message = open_message(self._home, request.path)
        try:
            draft = writer.begin(forward.uid)
            try:
                draft.write(forward.head)
                while data := _read(message):
                    draft.write(data)
                draft.finish(forward.sender, forward.recipients)
                # Now, because a message may be delivered and gone right after the commit.
                birth = os.stat(draft.path).st_mtime_ns // 1000
            except OSError as error:
                draft.discard()
                raise Temporary(f"unable to read {draft.path}: {reason(error)}") from error
            except BaseException:
                draft.discard()
                raise
        finally:
            os.close(message)
        return draft, pack_long_id(draft.message, birth)


def _read(message: int) -> bytes:
    try:
        return os.read(message, _CHUNK)
    except OSError as error:
        raise Temporary(f"unable to read message: {reason(error)}") from error


def _refusal(request: Request, error: Failure | FormatError) -> Answer:
    """Return the answer for a request that failed; what it says is qmail-local's, as far as that says anything."""
    permanent = isinstance(error, AddressTooLong) or (isinstance(error, QueueTrouble) and 11 <= error.code <= 40)
    letter, code = (PERMANENT, "#5.1.3") if permanent else (TEMPORARY, "#4.3.0")
    text = f"Unable to forward message: {error}. ({code})\n"
    return Answer(request.number, letter, text.encode("utf-8", "surrogateescape"))


def serve(home: Home) -> None:
    """Take requests from fd 0 until its end. Raises FormatError, OSError where queue-local has gone mad, or gone."""
    forwarder, reader = Forwarder(home), NetstringReader(_CAP)
    while data := os.read(0, 1 << 16):
        reader.feed(data)
        # The first ones to come are a group; while it is committed, the next one gathers.
        while requests := _take(home, reader):
            write_all(1, b"".join([pack_answer(answer) for answer in forwarder.answer(requests)]))


def _take(home: Home, reader: NetstringReader) -> list[Request]:
    """Return the requests that have been read, as many as may share a commit."""
    found: list[Request] = []
    size = 0
    while len(found) < GROUP and size < GROUP_BYTES and (payload := reader.next()) is not None:
        found.append(unpack_request(payload))
        size += _size(home, found[-1])
    return found


def _size(home: Home, request: Request) -> int:
    try:
        return os.stat(f"{home.queue}/{os.fsdecode(request.path)}").st_size
    except OSError:
        return 0


def run_forwarder(home: Home, requests: int, answers: int) -> None:
    """Be the forwarder, in a process of its own; never returns."""
    code = 1
    try:
        # Away from 0 and 1 first, so that neither is overwritten before it has been moved.
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
