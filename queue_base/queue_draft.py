"""A message on its way into the queue: its file, its envelope, and their names (queue_base.writer has the order)."""

import errno
import os

from queue_base.draft import INTD_TROUBLE, MESS_TROUBLE, TODO_TROUBLE, WRITE, Draft, QueueTrouble, remove
from queue_base.durable import Commit, open_nameless, write_all
from queue_base.errors import reason
from queue_base.intake import Intake
from queue_base.layout import FILE_MODE, Layout
from queue_base.leftovers import remove_leftovers
from queue_wire.envelope import Envelope, pack_todo

# Descriptors that a group's files leave for everything else.
_SPARE = 32
# After these errors a link was not made. After others, of a network or a disk, it may be there all the same.
_SURELY_NOT = frozenset(
    (
        errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.ELOOP, errno.EMFILE, errno.EMLINK, errno.ENAMETOOLONG,
        errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS, errno.EXDEV,
    )
)  # fmt: skip
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class QueueDraft(Draft):
    """A message that will be mess/B/I, and todo/. Until `finish` it has no number.

    `name` is its name in pid/, empty where it needs none; `envelope` is the descriptor of a nameless envelope, or -1.
    The file stays open until `commit`, which is the writer's, takes its descriptor (`note`) and syncs what it wrote.
    """

    __slots__ = (
        "_commit", "_data", "_entered", "_intd_made", "_layout", "_linking", "_mtime", "_name", "_pid", "_uid",
        "envelope", "intd", "linked", "message", "todo",
    )  # fmt: skip

    def __init__(
        self, intake: Intake, layout: Layout, commit: Commit, handle: int, name: str, pid: int, uid: int, head: bytes
    ) -> None:
        super().__init__(intake, name or f"a file for {layout.queue}/mess/", handle, head)
        self.envelope = -1
        self.linked = False
        self.message = 0
        self.todo = self.intd = ""
        self._commit = commit
        self._layout = layout
        self._name = name
        self._entered = self._intd_made = self._linking = False
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
            remove_leftovers(layout, self.message)
        except OSError as error:
            what = f"{error.filename or self.todo}, which an earlier message left"
            raise QueueTrouble(TODO_TROUBLE, f"unable to remove {what}: {reason(error)}") from error
        try:
            if self._name:
                self._commit.link(self._name, mess)
            else:
                self._commit.name(self._handle, mess)
        except OSError as error:
            raise QueueTrouble(MESS_TROUBLE, f"unable to create {mess}: {reason(error)}") from error
        self.path, self._entered = mess, True
        if self._name:
            remove(self._name)
        if self._is_short(self._handle):
            self._sync_early()
        if not self._name:
            self._make_nameless()

    def note(self) -> None:
        """Have the commit sync the message, its name, and its envelope where that has no name. Raises QueueTrouble."""
        try:
            if self._handle >= 0:
                handle, self._handle = self._handle, -1
                self._commit.written(self.path, handle)
            else:
                self._commit.removed(self.path)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error
        if self.envelope >= 0:
            self._commit.nameless(self.envelope, self.intd)

    def _is_short(self, handle: int) -> bool:
        """Return whether few descriptors are left after this one."""
        return handle > os.sysconf("SC_OPEN_MAX") - _SPARE

    def _sync_early(self) -> None:
        """Sync and close the file now: descriptors are short."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error
        self.close()

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
        if self._is_short(handle):
            os.close(handle)
            return
        self.envelope = handle
        self._write_envelope(handle)

    def make_intd(self) -> None:
        """Write the envelope to intd/, for the commit to sync. Raises QueueTrouble."""
        # Before it is made: whoever is interrupted in between removes it.
        self._intd_made = True
        try:
            handle = self._open_intd()
        except OSError as error:
            self._intd_made = False
            raise QueueTrouble(INTD_TROUBLE, f"unable to create {self.intd}: {reason(error)}") from error
        try:
            self._write_envelope(handle)
        except BaseException:
            os.close(handle)
            raise
        # The intd/ name may be lost: it is only the way to todo/, which is a name of its own.
        self._commit.contents(self.intd, handle)

    def _open_intd(self) -> int:
        try:
            return os.open(self.intd, NEW, FILE_MODE)
        except FileExistsError:
            # An earlier message of this number left it: this one's is not made yet.
            os.unlink(self.intd)
            return os.open(self.intd, NEW, FILE_MODE)

    def _write_envelope(self, handle: int) -> None:
        try:
            write_all(handle, self._data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.intd}: {reason(error)}") from error

    def link(self) -> None:
        """Give the envelope its name in todo/. Raises QueueTrouble."""
        # Before it has the name: whoever is interrupted in between takes the message for queue-todo's.
        self._linking = True
        try:
            if self.envelope < 0:
                self._commit.link(self.intd, self.todo)
            else:
                self._commit.name(self.envelope, self.todo)
        except OSError as error:
            self._linking = error.errno not in _SURELY_NOT
            raise QueueTrouble(TODO_TROUBLE, f"unable to create {self.todo}: {reason(error)}") from error
        self.linked = True
        self._drop_envelope()

    def _drop_envelope(self) -> None:
        handle, self.envelope = self.envelope, -1
        if handle >= 0:
            os.close(handle)

    def discard(self) -> None:
        try:
            self.close()
        except QueueTrouble:
            pass
        self._drop_envelope()
        if self._linking:
            # It is queue-todo's now, or may be; todo/ may also be gone already because it was classified. What is not
            # queue-todo's is S2 or S3, which is swept.
            return
        if self._intd_made:
            # No power cut may bring intd/ back without mess/. What is left on an error is S2 or S3.
            commit = Commit()
            try:
                commit.unlink(self.intd)
                commit.sync()
            except OSError:
                return
        if self._name:
            remove(self._name)
        if self._entered:
            remove(self.path)
