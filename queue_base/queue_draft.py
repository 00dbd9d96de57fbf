"""A message on its way into the queue: its file, its envelope, and their names (queue_base.writer has the order)."""

import errno
import os

from queue_base.draft import INTD_TROUBLE, MESS_TROUBLE, TODO_TROUBLE, WRITE, Draft, QueueTrouble, remove
from queue_base.durable import Commit, name_file, open_nameless, sync_path, write_all
from queue_base.errors import reason
from queue_base.intake import Intake
from queue_base.layout import FILE_MODE, Layout
from queue_wire.envelope import Envelope, pack_todo

# Descriptors that a group's envelopes leave for everything else.
_SPARE = 32
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class QueueDraft(Draft):
    """A message that will be mess/B/I, and todo/. Until `finish` it has no number.

    `name` is its name in pid/, empty where it needs none; `envelope` is the descriptor of a nameless envelope, or -1.
    """

    __slots__ = (
        "_data", "_entered", "_intd_made", "_layout", "_mtime", "_name", "_pid", "_uid",
        "envelope", "intd", "linked", "message", "todo",
    )  # fmt: skip

    def __init__(self, intake: Intake, layout: Layout, handle: int, name: str, pid: int, uid: int, head: bytes) -> None:
        super().__init__(intake, name or f"a file for {layout.queue}/mess/", handle, head)
        self.envelope = -1
        self.linked = False
        self.message = 0
        self.todo = self.intd = ""
        self._layout = layout
        self._name = name
        self._entered = self._intd_made = False
        self._pid = pid
        self._uid = uid
        self._mtime = 0
        self._data = b""

    @property
    def long_id(self) -> str:
        # Imported here because only batches say it.
        from queue_wire.ids import pack_long_id

        return pack_long_id(self.message, self._mtime // 1000)

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        self._data = pack_todo(Envelope(self._uid, self._pid, sender, recipients))
        if self._head:
            self.write(b"")
        status = os.fstat(self._handle)
        # The number is the inode's; the last write was what set the mtime, from which the long id comes.
        self.message, self._mtime = status.st_ino, status.st_mtime_ns
        layout = self._layout
        mess, self.intd, self.todo = layout.mess(self.message), layout.intd(self.message), layout.todo(self.message)
        try:
            if self._name:
                os.link(self._name, mess)
            else:
                name_file(self._handle, mess)
        except OSError as error:
            raise QueueTrouble(MESS_TROUBLE, f"unable to create {mess}: {reason(error)}") from error
        self.path, self._entered = mess, True
        if self._name:
            remove(self._name)
        self.close()
        if not self._name:
            self._make_nameless()

    def _make_nameless(self) -> None:
        """Write the envelope to a file that has no name yet, where that can be."""
        try:
            handle = open_nameless(os.path.dirname(self.intd), FILE_MODE)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return  # Its name in intd/ will do.
            raise QueueTrouble(INTD_TROUBLE, f"unable to create {self.intd}: {reason(error)}") from error
        if handle is None:
            return
        if handle > os.sysconf("SC_OPEN_MAX") - _SPARE:
            os.close(handle)
            return
        self.envelope = handle
        self._write_envelope(handle)

    def make_intd(self) -> None:
        """Write the envelope to intd/. Raises QueueTrouble."""
        try:
            handle = os.open(self.intd, NEW, FILE_MODE)
        except OSError as error:
            raise QueueTrouble(INTD_TROUBLE, f"unable to create {self.intd}: {reason(error)}") from error
        self._intd_made = True
        try:
            self._write_envelope(handle)
        finally:
            os.close(handle)

    def _write_envelope(self, handle: int) -> None:
        try:
            write_all(handle, self._data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.intd}: {reason(error)}") from error

    def link(self, commit: Commit) -> None:
        """Give the envelope its name in todo/. Raises QueueTrouble."""
        try:
            if self.envelope < 0:
                commit.link(self.intd, self.todo)
            else:
                commit.name(self.envelope, self.todo)
        except OSError as error:
            raise QueueTrouble(TODO_TROUBLE, f"unable to create {self.todo}: {reason(error)}") from error
        self.linked = True
        self._drop_envelope()

    def _drop_envelope(self) -> None:
        handle, self.envelope = self.envelope, -1
        if handle >= 0:
            os.close(handle)

    def discard(self) -> None:
        if self.linked:
            return  # It is queue-todo's now.
        try:
            self.close()
        except QueueTrouble:
            pass
        self._drop_envelope()
        if self._intd_made:
            # No power cut may bring intd/ back without mess/. What is left on an error is S2 or S3.
            try:
                os.unlink(self.intd)
                sync_path(os.path.dirname(self.intd))
            except OSError:
                return
        if self._name:
            remove(self._name)
        if self._entered:
            remove(self.path)
