"""Hands mail to queue-intake, for a user who may not write to the queue; what it does not take goes to maildrop/.

A small message is kept until it is complete, and a group of them goes over one connection. queue-intake answers when
they are in the queue, which costs this user no sync. A message goes to maildrop/ instead if it is large, if
queue-intake does not run, and if it gives any other answer than K: maildrop/ decides what this user may send.

If the connection ends after a whole message was sent and before its answer, the message may be in the queue. It is not
left in maildrop/ then, but refused for now, as Postfix and qmail do: whoever sends it again knows that it may be sent
twice. This is rare. queue-intake drops a message whose end it has not read, and if it leaves bytes unread the kernel
says so (ECONNRESET). So it must be killed, or take very long, between its last read and its answer.
"""

import errno
import select
from _socket import AF_UNIX, SOCK_STREAM, socket

from queue_base.errors import WRITE, QueueTrouble
from queue_base.home import Home
from queue_base.queue.writer import Draft, Writer
from queue_wire.files.maildrop import pack_envelope as check_envelope
from queue_wire.format_error import FormatError
from queue_wire.pipes.qmtp import ACCEPTED, SOCKET, Answer, AnswerReader, pack_facts, pack_package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Bytes of a message that is handed over, and of all its recipients: it is kept in memory, and a group has 250.
SMALL = 65536
# Seconds in which nothing happens, before it is given up: until all was sent, and until an answer comes.
SEND_SECONDS = 20.0
ANSWER_SECONDS = 300.0
_PIECE = 65536
_LOST = (
    "unable to queue message: queue-intake ended, or took too long, before its answer; "
    "the message may be in the queue, and whoever sends it again may send it twice"
)


class IntakeDraft(Draft):
    """A message that is handed to queue-intake, or becomes a `drop` in maildrop/.

    package: what is sent for it, empty if it goes to maildrop/. count: the number of its recipients. answered: whether
    queue-intake has answered. lost: whether it is not known what became of it.
    """

    __slots__ = (
        "_drops", "_long_id", "_message", "_recipients", "_sender", "_size", "answered", "count", "drop", "lost",
        "package",
    )  # fmt: skip

    def __init__(self, drops: Writer, priority: str, submitter: bytes = b"") -> None:
        """`priority` is the class that is asked for, `submitter` that of Writer, empty for none."""
        super().__init__(drops.inflow, SOCKET, -1, b"")
        self.drop: Draft | None = None
        self.package = b""
        self.count = 0
        self.answered = self.lost = False
        self._drops = drops
        self.priority = priority
        self.submitter = submitter
        self._long_id = "-"
        self._message: list[bytes] = []
        self._size = 0
        self._sender = b""
        self._recipients: list[bytes] = []

    @property
    def long_id(self) -> str:
        return self._long_id

    def write(self, data: bytes) -> None:
        if self.drop is not None:
            self.drop.write(data)
            return
        self._message.append(data)
        self._size += len(data)
        if self._size > SMALL:
            self._move()

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        envelope = check_envelope(sender, recipients)
        self._sender, self._recipients, self.count = sender, recipients, len(recipients)
        if self.drop is None and (len(envelope) > SMALL or not recipients):
            self._move()
        if self.drop is not None:
            self.drop.finish(sender, recipients)
        else:
            self.package = pack_package(b"".join(self._message), sender, recipients)
            if self.priority or self.submitter:
                self.package = pack_facts(priority=self.priority, submitter=self.submitter) + self.package

    def fall_back(self) -> Draft:
        """Make a draft in maildrop/ of it, finished. Raises QueueTrouble."""
        self.package = b""
        if self.drop is not None:
            return self.drop
        drop = self._move()
        drop.finish(self._sender, self._recipients)
        return drop

    def _move(self) -> Draft:
        drop = self.drop = self._drops.begin()
        for data in self._message:
            drop.write(data)
        self._message = []
        return drop

    def answer(self, answer: Answer) -> None:
        """Take the answer to its first recipient, which decides: all its addresses are possible ones."""
        self.answered = True
        self.queued = answer.letter == ACCEPTED
        if self.queued:
            self._long_id = answer.long_id.decode("ascii", "replace")

    def discard(self) -> None:
        self._message, self.package = [], b""
        if self.drop is not None:
            self.drop.discard()


class IntakeWriter(Writer):
    """Hands drafts to the queue-intake of a home; `drops` takes what it does not take."""

    def __init__(self, home: Home, drops: Writer) -> None:
        self._path = f"{home.run}/{SOCKET}"
        self._drops = drops
        self.inflow = drops.inflow

    def begin(self) -> IntakeDraft:
        self._drops.priority, self._drops.submitter = self.priority, self.submitter
        return IntakeDraft(self._drops, self.priority, self.submitter)

    def commit(self, drafts: "Sequence[Draft]") -> None:
        mine = [draft for draft in drafts if isinstance(draft, IntakeDraft)]
        small = [draft for draft in mine if draft.package]
        try:
            if small:
                hand_in(self._path, small)
            rest = [draft for draft in mine if not draft.queued and not draft.lost]
            self._drop(rest)
            if any(draft.lost for draft in mine):
                raise QueueTrouble(WRITE, _LOST)
        finally:
            for draft in mine:
                draft.discard()

    def _drop(self, drafts: list[IntakeDraft]) -> None:
        """Leave drafts in maildrop/. Raises QueueTrouble."""
        try:
            self._drops.commit([draft.fall_back() for draft in drafts])
        finally:
            for draft in drafts:
                draft.queued = draft.drop is not None and draft.drop.queued


def hand_in(path: str, drafts: "list[IntakeDraft]") -> None:
    """Send drafts to the socket `path`. Each is then in the queue, or `lost`, or was not taken."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.setblocking(False)
        # It does not wait: if too many others wait to be accepted it fails (unix(7), EAGAIN).
        connection.connect(path)
        _exchange(connection, drafts)
    except OSError:
        pass  # There is no queue-intake, or it has no place.
    finally:
        connection.close()


def _exchange(connection: socket, drafts: "list[IntakeDraft]") -> None:
    """Send drafts and read their answers until all have one, or the connection ends, or nothing happens for long."""
    data = memoryview(b"".join([draft.package for draft in drafts]))
    answers = _GroupAnswers(drafts)
    poll = select.poll()
    sent, writes, reset = 0, True, False
    while not answers.complete:
        writes = writes and sent < len(data)
        poll.register(connection.fileno(), select.POLLIN | (select.POLLOUT if writes else 0))
        if not poll.poll((SEND_SECONDS if writes else ANSWER_SECONDS) * 1000):
            break
        if writes:
            try:
                sent += connection.send(data[sent : sent + _PIECE])
            except BlockingIOError:
                pass
            except OSError:
                writes = False  # It has ended. What it has answered before is still to be read.
        try:
            found = connection.recv(_PIECE)
        except BlockingIOError:
            continue
        except OSError as error:
            reset = error.errno == errno.ECONNRESET
            break
        if not found or not answers.take(found):
            break
    # What was not sent whole, or not read whole, was dropped. After a reset the last byte that was sent was not read.
    end = 0
    for draft in drafts:
        begin, end = end, end + len(draft.package)
        unread = end > sent or (reset and begin < sent == end)
        draft.lost = not unread and not draft.answered


class _GroupAnswers:
    """The answers to drafts, one for each recipient, in order."""

    def __init__(self, drafts: "list[IntakeDraft]") -> None:
        self._reader = AnswerReader()
        self._drafts = drafts
        self._at = self._count = 0

    @property
    def complete(self) -> bool:
        return self._at >= len(self._drafts)

    def take(self, data: bytes) -> bool:
        """Take bytes; return whether they can be answers."""
        try:
            found = self._reader.feed(data)
        except FormatError:
            return False
        for answer in found:
            if self.complete:
                return False
            draft = self._drafts[self._at]
            if not self._count:
                draft.answer(answer)
            self._count += 1
            if self._count == draft.count:
                self._at, self._count = self._at + 1, 0
        return True
