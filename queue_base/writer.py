"""Puts messages in the queue, durably: one, or a group that shares its syncs (DESIGN: home, durability).

A Draft is one message on its way: `begin` makes a file, `write` fills it, `finish` names it mess/B/I and makes its
envelope, and `commit` takes a list of finished drafts through the phases below, all drafts together.

    sync mess/ contents and names, and the envelopes' contents  ->  name them in todo/, sync its names

A name and the contents behind it reach the disk each in their own time, so each phase waits for the
one before: a power cut at any moment leaves S1, S2 or S4. `commit` returns when every draft would survive one. On a
failure it raises QueueTrouble, with what is not in todo/ removed again, best effort; `queued` of each draft says which
are in the queue all the same.

Until they are whole the files have no name (O_TMPFILE), so nothing is left of an injector that dies. Where the file
system has none of these a message is begun in pid/, and there, or where descriptors are short, its envelope in intd/:
a phase of its own between the two, as a name in intd/ may not be without its mess/. Then a power cut may leave S3, too.
"""

import errno
import os
import time

from queue_base.durable import Commit, open_nameless, write_all
from queue_base.errors import (
    INTD_TROUBLE,
    MESS_TROUBLE,
    PID_TROUBLE,
    TODO_TROUBLE,
    WRITE,
    QueueTrouble,
    reason,
)
from queue_base.home import Home
from queue_base.inflow import Intake
from queue_base.layout import FILE_MODE, MESS_MODE, Layout, files_beside_mess, is_there
from queue_base.trigger import pull_trigger
from queue_wire.envelope import Envelope, pack_todo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# A message may grow by so many bytes before the disk is looked at again.
CHECK_BYTES = 1 << 20
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
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Draft:
    """A message being taken in. Any method may raise QueueTrouble; `discard` then removes what was made."""

    __slots__ = ("_handle", "_head", "_intake", "_unchecked", "path", "queued")

    def __init__(self, intake: "Intake", path: str, handle: int, head: bytes) -> None:
        self.path = path
        self.queued = False
        self._handle = handle
        self._head = head
        self._intake = intake
        self._unchecked = 0

    @property
    def long_id(self) -> str:
        """What names the message for people once it is queued (INTERNALS, The home); `-` where only others know."""
        return "-"

    def write(self, data: bytes) -> None:
        """Add bytes of the message."""
        if self._head:
            data, self._head = self._head + data, b""
        try:
            write_all(self._handle, data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error
        self._unchecked += len(data)
        if self._unchecked >= CHECK_BYTES:
            self._unchecked = 0
            self._intake.check(self._handle)

    def sync(self) -> None:
        """Make safe what was written so far, so that the commit of a large message has less to wait for."""
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error

    def close(self) -> None:
        """Close the file; nothing happens where it is closed already."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                os.close(handle)
            except OSError as error:
                raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        """End the message and set its envelope. Raises FormatError for an address that cannot be one."""
        raise NotImplementedError

    def discard(self) -> None:
        """Remove what was made of a message that is not queued; best effort, silent."""
        try:
            self.close()
        except QueueTrouble:
            pass
        remove(self.path)


class Writer:
    """Where drafts are begun and committed: the queue itself, or maildrop/ for a user who may not write there."""

    intake: "Intake"
    # Whether each draft is to be committed before the next one is begun.
    one_by_one = False

    def begin(self) -> Draft:
        """Return a new, empty draft. Raises QueueTrouble, where the disk is short too."""
        raise NotImplementedError

    def commit(self, drafts: "Sequence[Draft]") -> None:
        """Make finished drafts safe, all or, where QueueTrouble is raised, those whose `queued` says so."""
        raise NotImplementedError

    def put(self, message: "Iterable[bytes]", envelope: "Callable[[], tuple[bytes, list[bytes]]]") -> None:
        """Take in one message; `envelope` is asked for sender and recipients when it is read. Raises QueueTrouble."""
        self.intake.admit()
        draft = self.begin()
        try:
            for data in message:
                draft.write(data)
            draft.finish(*envelope())
        except BaseException:
            draft.discard()
            raise
        self.commit([draft])


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


class QueueWriter(Writer):
    """Writes into the queue itself; `uid` is who injects. `syncs` counts what all commits so far cost.

    Who commits groups calls `intake.admit()` before each.
    """

    def __init__(self, home: Home, layout: Layout, uid: int) -> None:
        self._home = home
        self._layout = layout
        self._uid = uid
        self._pid = os.getpid()
        self._made = 0
        # Without /proc a nameless file can get no name.
        self._nameless = os.access("/proc/self/fd", os.X_OK)
        self._received = (-1, -1, b"")
        self._commit = Commit()
        self.intake = Intake(home, home.queue)

    @property
    def syncs(self) -> int:
        return self._commit.syncs

    def begin(self, uid: int | None = None) -> QueueDraft:
        """Return a new draft with its Received: line; `uid` where it is not the writer's own."""
        self.intake.check()
        uid = self._uid if uid is None else uid
        now = time.time_ns()
        handle, name = self._make_file(now)
        head = self._head(uid, now // 10**9)
        return QueueDraft(self.intake, self._layout, self._commit, handle, name, self._pid, uid, head)

    def _make_file(self, now: int) -> tuple[int, str]:
        """Return a new file's descriptor, and its name in pid/ or "" where it needs none. Raises QueueTrouble."""
        directory = self._layout.queue + "/pid"
        self._made += 1
        name = f"{directory}/{self._pid}.{now}.{self._made}"
        try:
            handle = open_nameless(directory, MESS_MODE) if self._nameless else None
            if handle is not None:
                return handle, ""
            self._nameless = False
            return os.open(name, NEW, MESS_MODE), name
        except OSError as error:
            raise QueueTrouble(PID_TROUBLE, f"unable to create {name}: {reason(error)}") from error

    def _head(self, uid: int, seconds: int) -> bytes:
        if self._received[:2] != (uid, seconds):
            self._received = (uid, seconds, received_line(self._pid, uid, seconds))
        return self._received[2]

    def commit(self, drafts: "Sequence[Draft]") -> None:
        messages = [draft for draft in drafts if isinstance(draft, QueueDraft)]
        if not messages:
            return
        try:
            for message in messages:
                message.note()
            self._sync(messages[0].path)
            named = [message for message in messages if message.envelope < 0]
            for message in named:
                message.make_intd()
            if named:
                self._sync(named[0].intd)
            self._queue(messages)
        except BaseException:
            # What it still had to sync is about to be removed, and may not hinder the next commit.
            self._commit.forget()
            for message in messages:
                message.discard()
            raise

    def _queue(self, messages: list[QueueDraft]) -> None:
        failure: QueueTrouble | None = None
        for message in messages:
            try:
                message.link()
            except QueueTrouble as error:
                failure = error
                break
        linked = [message for message in messages if message.linked]
        if linked:
            self._sync(linked[0].todo)
            pull_trigger(self._home)
        for message in linked:
            message.queued = True
        if failure is not None:
            raise failure

    def _sync(self, path: str) -> None:
        try:
            self._commit.sync()
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {path}: {reason(error)}") from error


def mail_date(seconds: float) -> str:
    """Return a time as qmail writes it in headers, `26 Sep 1995 04:46:54 -0000`: UTC, without the weekday."""
    year, month, day, hour, minute, second = time.gmtime(seconds)[:6]
    return f"{day} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{second:02} -0000"


def received_line(pid: int, uid: int, seconds: int) -> bytes:
    """Return qmail-queue's Received: line, to the letter: loop counters and log tools look for it."""
    return f"Received: (qmail {pid} invoked by uid {uid}); {mail_date(seconds)}\n".encode()


def remove_leftovers(layout: Layout, message: int) -> None:
    """Remove an earlier message's files, durably; the usual case, in which there are none, costs three looks.

    Raises OSError.
    """
    name = f"{message % layout.split}/{message}"
    queue = layout.queue
    for path in (layout.todo(message), f"{queue}/info/{name}", f"{queue}/hold/{name}"):
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        _remove_files_beside(layout, message)
        return


def _remove_files_beside(layout: Layout, message: int) -> None:
    if is_there(layout.mess(message)):
        return  # A copied queue, whose names are not its inode numbers: giving ours that name will fail.
    commit = Commit()
    for path in files_beside_mess(layout, message):
        if is_there(path):
            commit.unlink(path)
    commit.sync()


def remove(path: str) -> bool:
    """Remove a name; return whether it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
