"""Leaves mail in maildrop/, for a user who may not write to the queue.

queue_wire.files.maildrop has the format of a file.

The directory has mode 3733: anybody may create a file in it, but only its owner may list it or open it to sync it. So
the contents of a file are synced by its own descriptor, and its name by syncfs(2) on that descriptor; such a user has
no other way. The descriptor was opened before the file was written, so it reports every failed write since then.

queue-pickup runs as another user and must be able to read the file. The file has mode 0640 and gets the queue's group
from the directory. If the directory does not pass on its group, the mode is 0644; then only the name keeps the file
private: 128 random bits in a directory that cannot be listed. The sticky bit marks the file as mail that its owner
meant to send. A user cannot see the marks in lock/, so only a full disk stops this injector; queue-pickup obeys the
marks.
"""

import os

from queue_base.accounts import queue_owner
from queue_base.durable import sync_filesystem, sync_handles, write_all
from queue_base.errors import QUEUE_TROUBLE, TODO_TROUBLE, WRITE, QueueTrouble, reason
from queue_base.home import Home
from queue_base.queue.inflow import InflowControl
from queue_base.queue.writer import Draft, Writer
from queue_wire.files.maildrop import FINISHED_PREFIX, HEADER_LENGTH, TEMPORARY_PREFIX, pack_envelope, pack_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MODE = 0o1640
_MODE_WITHOUT_GROUP = 0o1644


class DropDraft(Draft):
    """A message in maildrop/: tmp.X while it is written, mail.X when it is safe."""

    __slots__ = ("final", "renamed")

    def __init__(self, inflow: InflowControl, group: int, priority: str = "", submitter: bytes = b"") -> None:
        """`priority` is the class that is asked for, `submitter` that of Writer, empty for none."""
        directory = inflow.path
        name = os.urandom(16).hex()
        path = f"{directory}/{TEMPORARY_PREFIX}{name}"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
            os.fchmod(handle, _MODE if os.fstat(handle).st_gid == group else _MODE_WITHOUT_GROUP)
        except OSError as error:
            raise QueueTrouble(QUEUE_TROUBLE, f"unable to create {path}: {reason(error)}") from error
        super().__init__(inflow, path, handle, pack_header(0))
        self.final = f"{directory}/{FINISHED_PREFIX}{name}"
        self.renamed = False
        self.priority, self.submitter = priority, submitter

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        envelope = pack_envelope(sender, recipients, self.priority, self.submitter)
        if self._head:
            self.write(b"")
        try:
            length = os.lseek(self._handle, 0, os.SEEK_CUR) - HEADER_LENGTH
            write_all(self._handle, envelope)
            os.lseek(self._handle, 0, os.SEEK_SET)
            write_all(self._handle, pack_header(length))
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error

    @property
    def may_be_queued(self) -> bool:
        return self.renamed

    @property
    def handle(self) -> int:
        """The descriptor that wrote the file. It stays open until `discard`."""
        return self._handle

    def rename(self) -> None:
        """Give the file its final name. Raises QueueTrouble."""
        try:
            os.rename(self.path, self.final)
        except OSError as error:
            raise QueueTrouble(TODO_TROUBLE, f"unable to create {self.final}: {reason(error)}") from error
        self.renamed = True

    def discard(self) -> None:
        if not self.renamed:
            super().discard()
            return
        try:
            self.close()
        except QueueTrouble:
            pass  # The file is synced, or the user was told that it is not.


class DropWriter(Writer):
    """Writes into maildrop/."""

    def __init__(self, home: Home) -> None:
        self._directory = home.queue + "/maildrop"
        self._group = queue_owner(home).gid
        self.inflow = InflowControl(home, self._directory)

    def begin(self) -> DropDraft:
        self.inflow.check()
        return DropDraft(self.inflow, self._group, self.priority, self.submitter)

    def commit(self, drafts: "Sequence[Draft]") -> None:
        drops = [draft for draft in drafts if isinstance(draft, DropDraft)]
        if not drops:
            return
        try:
            sync_handles([(drop.handle, drop.path) for drop in drops])
            self._rename(drops)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self._directory}: {reason(error)}") from error
        finally:
            for drop in drops:
                drop.discard()

    def _rename(self, drops: list[DropDraft]) -> None:
        try:
            for drop in drops:
                drop.rename()
        finally:
            # queue-pickup may take the files that were renamed before a failure, so they must be made safe too.
            sync_filesystem(drops[0].handle)
            for drop in drops:
                drop.queued = drop.renamed
