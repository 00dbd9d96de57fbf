"""Messages that were received whole, and their commit: all that wait when it begins share it.

Names and envelopes are made by the loop, as the files of messages are. What waits for the disk, `CommitGroup.sync` and
`LargeMessage.run`, is run by threads, which do little else: two threads that work at the same time take turns with the
interpreter at each system call, which costs more than the call.
"""

import os
import time

from queue_base.errors import QueueTrouble, reason
from queue_base.queue.writer import GroupCommit, QueueDraft, QueueWriter
from queue_intake.acceptance import Acceptance, Refusal, refusal_of
from queue_intake.answers import Place
from queue_wire.format_error import FormatError
from queue_wire.pipes.package_reader import Package
from queue_wire.pipes.qmtp import PERMANENT, TEMPORARY

# The most messages of a commit.
GROUP = 250
# The contents of a message over LARGE are synced in a thread of their own before its commit, so that the commit, which
# others share, does not wait for them.
LARGE = 1 << 20
# A thread also packs an envelope over this size.
LARGE_ENVELOPE = 1 << 18
# Bytes of a message that is being received after which what has come is synced, as queue-pickup does: the last sync is
# short, and those of other clients have their turns in between.
SYNC_BYTES = 4 << 20


class PartSync:
    """A sync of what a draft has so far, by a descriptor of its own: the draft may be discarded meanwhile.

    refusal: why its message cannot be taken. The kernel reports a failed write once, so no later sync would see it.
    """

    __slots__ = ("_descriptors", "acceptance", "done", "refusal")

    def __init__(self, draft: QueueDraft, acceptance: Acceptance) -> None:
        """`acceptance` is that of its queue. Raises OSError."""
        self.acceptance = acceptance
        # A list, whose pop is atomic: the thread or `cancel` takes it.
        self._descriptors = [draft.duplicate()]
        self.done = False
        self.refusal: Refusal | None = None

    def run(self) -> None:
        """Sync, unless it was cancelled; a thread calls it."""
        try:
            descriptor = self._descriptors.pop()
        except IndexError:
            return
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            self.refusal = _failed(error)
        finally:
            os.close(descriptor)
            self.done = True

    def cancel(self) -> None:
        """Do nothing if it has not begun: the draft was discarded, and must not take room until its turn comes."""
        try:
            os.close(self._descriptors.pop())
        except IndexError:
            pass


class ReceivedMessage:
    """A message that was received whole. `client` and `size` are as its client's ClientUsage counts it.

    acceptance: that of the queue which it is to be put into. refusal: why it is not in the queue; None while it is not
    decided, and when it is in the queue. part: the last sync while it was received.
    """

    __slots__ = ("acceptance", "client", "draft", "package", "part", "place", "refusal", "sender", "size")

    def __init__(
        self,
        draft: QueueDraft,
        package: Package,
        sender: bytes,
        place: Place,
        client: str,
        size: int,
        acceptance: Acceptance,
        part: PartSync | None = None,
    ) -> None:
        self.acceptance = acceptance
        self.draft = draft
        self.package = package
        self.sender = sender
        self.place = place
        self.client = client
        self.size = size
        self.part = part
        self.refusal: Refusal | None = None

    def give_up(self, refusal: Refusal) -> None:
        """Remove its files; it is refused."""
        self.refusal = refusal
        self.draft.discard()


def is_large(message: ReceivedMessage) -> bool:
    """Return whether a thread is to prepare a message, which would take too much of a turn, or of a sync."""
    return message.size > LARGE or message.package.memory > LARGE_ENVELOPE


def prepare_large(message: ReceivedMessage) -> None:
    """Sync the contents of a large message, after its PartSync, and pack its envelope. If that fails it is refused."""
    try:
        if message.part is not None and message.part.refusal is not None:
            message.give_up(message.part.refusal)
        else:
            message.draft.pack(message.sender, message.package.recipients)
            message.draft.sync()
    except QueueTrouble as error:
        # The descriptor reports a failed write once, so the commit's fsync would not see it.
        message.give_up(refusal_of(error))
    except FormatError as error:
        message.give_up(Refusal(PERMANENT, str(error)))


class CommitGroup:
    """A commit in steps: `add` messages, then `go_on` and `sync` in turns until `go_on` returns False.

    `sync` waits for the disk, so a thread may run it. What became of each message is left in it, and `trouble` is what
    went wrong, or an empty text. Nothing here raises, except for lack of memory: for that of `sync`, call `fail`.
    """

    __slots__ = ("_commit", "_failure", "_writer", "messages", "trouble")

    def __init__(self, writer: QueueWriter) -> None:
        self.messages: list[ReceivedMessage] = []
        self.trouble = ""
        self._writer = writer
        self._commit: GroupCommit | None = None
        self._failure: QueueTrouble | OSError | None = None

    @property
    def begun(self) -> bool:
        """Whether `go_on` was called, so that no message can be added any more."""
        return self._commit is not None

    def add(self, message: ReceivedMessage) -> None:
        """Add a message: its name and its envelope are made."""
        self.messages.append(message)
        if message.refusal is not None:
            self.trouble = message.refusal.text
            return
        try:
            message.draft.finish(message.sender, message.package.recipients)
        except QueueTrouble as error:
            self.trouble = str(error)
            message.give_up(refusal_of(error))
        except FormatError as error:
            message.give_up(Refusal(PERMANENT, str(error)))
        except OSError as error:
            refusal = _failed(error)
            self.trouble = refusal.text
            message.give_up(refusal)

    def go_on(self) -> bool:
        """Do what comes next; return whether `sync` must follow."""
        if self._commit is None:
            drafts = [each.draft for each in self.messages if each.refusal is None]
            self._commit = self._writer.group(drafts, others_go_on=True)
            if not drafts:
                self._writer.forget()
                return False
        try:
            if self._failure is not None:
                raise self._failure
            return self._commit.go_on()
        except QueueTrouble as error:
            self._give_up(str(error), refusal_of(error))
        except OSError as error:
            refusal = _failed(error)
            self._give_up(refusal.text, refusal)
        return False

    def sync(self) -> None:
        """Wait for the disk; a failure shows in `go_on`."""
        assert self._commit is not None
        try:
            self._commit.sync()
        except (QueueTrouble, OSError) as error:
            self._failure = error

    def fail(self, error: OSError) -> None:
        """Have the next `go_on` refuse what is not in the queue."""
        self._failure = error

    def _give_up(self, trouble: str, refusal: Refusal) -> None:
        self.trouble = trouble
        assert self._commit is not None
        self._commit.give_up()
        for message in self.messages:
            if message.refusal is None and not message.draft.queued:
                message.refusal = refusal


def copy_trouble(messages: list[ReceivedMessage]) -> str:
    """Return why a message has no copy for the postmaster, or an empty text."""
    return next((message.draft.trouble for message in messages if message.draft.trouble), "")


def _failed(error: OSError) -> Refusal:
    return Refusal(TEMPORARY, f"unable to queue the message: {reason(error)} (#4.3.0)")


def accepted_text(message: ReceivedMessage, pid: int) -> bytes:
    """Return the text of K: qmail's, and the long id as its last word."""
    return f"ok {time.time():.0f} qp {pid} {message.acceptance.long_id(message.draft)}".encode()
