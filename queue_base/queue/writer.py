"""Puts messages into the queue, durably: one message, or a group that shares its syncs.

A Draft is a message that is being queued: `begin` creates its file, `write` adds bytes, `finish` names it mess/B/I and
creates its envelope, and `commit` takes a list of finished drafts through two phases, all drafts together:

    sync contents and names of mess/, and contents of the envelopes  ->  name the envelopes in todo/, sync these names

A name and the contents behind it reach the disk independently, so each phase waits for the previous one: a power cut
at any moment leaves S1, S2 or S4. When `commit` returns, every draft would survive a power cut. On a failure it raises
QueueTrouble, after removing what is not in todo/, as far as that is possible; `queued` of each draft says whether it is
in the queue all the same.

Until they are complete the files have no name (O_TMPFILE), so an injector that dies leaves nothing. On a file system
without O_TMPFILE a message is created in pid/, and then, or if descriptors are short, its envelope is created in intd/:
this is a phase of its own between the two, because a name in intd/ must not exist without its mess/. In that case a
power cut may also leave S3.
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
from queue_base.queue.inflow import InflowControl
from queue_base.queue.layout import FILE_MODE, HELD_BIT, MESS_MODE, Layout, files_beside_mess, is_there
from queue_base.queue.trigger import pull_trigger
from queue_wire.files.envelope import Envelope, pack_todo
from queue_wire.ids import ID_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from queue_base.queue.class_trees import ClassChooser

RULES_SECONDS = 1.0  # Between looks whether there is control/priorityrules.
# Bytes of a message after which the free disk space is checked again.
CHECK_BYTES = 1 << 20
# Files that a message is written to before it is refused, if each has the number of another message.
NUMBERS_MAX = 20
# Descriptors that the files of a group leave for other uses.
_SPARE = 32
# After these errors link(2) has not created the name. After others, of a network or disk, it may exist all the same.
_SURELY_NOT = frozenset(
    (
        errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.ELOOP, errno.EMFILE, errno.EMLINK, errno.ENAMETOOLONG,
        errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS, errno.EXDEV,
    )
)  # fmt: skip
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Draft:
    """A message that is being queued. Any method may raise QueueTrouble; `discard` then removes its files.

    Before `finish` the caller may set `priority`, the class that is asked for, `may_raise`, whether that may be a
    higher one than the rules give, and `submitter` (queue_wire.submitter); a daemon that takes the mail of others sets
    them. Its writer sets its own.
    """

    __slots__ = ("_handle", "_head", "_inflow", "_unchecked", "may_raise", "path", "priority", "queued", "submitter")

    def __init__(self, inflow: "InflowControl", path: str, handle: int, head: bytes) -> None:
        self.path = path
        self.queued = self.may_raise = False
        self.priority = ""
        self.submitter = b""
        self._handle = handle
        self._head = head
        self._inflow = inflow
        self._unchecked = 0

    @property
    def long_id(self) -> str:
        """The message's long id, `I-BIRTH`, once it is queued; `-` if it is not known."""
        return "-"

    @property
    def may_be_queued(self) -> bool:
        """Whether it is in the queue, or may be: after some failures that is not known."""
        return self.queued

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
            self._inflow.check(self._handle)

    def sync(self) -> None:
        """Sync what was written so far, so that the commit of a large message has less to wait for."""
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error

    def duplicate(self) -> int:
        """Return a new descriptor of the file, by which another thread may sync it. Raises OSError."""
        return os.dup(self._handle)

    def close(self) -> None:
        """Close the file if it is open."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                os.close(handle)
            except OSError as error:
                raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        """End the message and set its envelope. Raises FormatError for an impossible address."""
        raise NotImplementedError

    def discard(self) -> None:
        """Remove the files of a message that is not queued, as far as possible; errors are ignored."""
        try:
            self.close()
        except QueueTrouble:
            pass
        remove(self.path)


class Writer:
    """Begins and commits drafts: in the queue, or in maildrop/ for a user who may not write to the queue."""

    inflow: "InflowControl"
    # The class that is asked for (queue_wire.control.priorities), empty for none.
    priority = ""
    # For whom a daemon's program has the message (queue_wire.submitter), empty for none.
    submitter = b""
    # Whether each draft must be committed before the next one is begun.
    one_by_one = False
    # How many queues it writes to: a group may have so many times as many drafts.
    queues = 1

    def begin(self) -> Draft:
        """Return a new, empty draft. Raises QueueTrouble, also if the disk is short."""
        raise NotImplementedError

    def commit(self, drafts: "Sequence[Draft]") -> None:
        """Make finished drafts durable. If QueueTrouble is raised, `queued` tells which drafts are in the queue."""
        raise NotImplementedError

    def put(self, message: "Iterable[bytes]", envelope: "Callable[[], tuple[bytes, list[bytes]]]") -> Draft:
        """Queue one message, and return its draft. Raises QueueTrouble.

        `envelope` is called after the message was read, for sender and recipients.
        """
        self.inflow.admit()
        draft = self.begin()
        try:
            for data in message:
                draft.write(data)
            draft.finish(*envelope())
        except BaseException:
            draft.discard()
            raise
        self.commit([draft])
        return draft


class QueueDraft(Draft):
    """A message that becomes mess/B/I and todo/B/I. It has no number until `finish`.

    `name` is its name in pid/, empty if it has none. `envelope` is the descriptor of an unnamed envelope, or -1. The
    file stays open until the writer's commit takes its descriptor (`note`) and syncs it. Descriptors are short if there
    is one above `descriptors`.

    Before `finish` the caller may set `hold`, the reason for which the message is on hold from the beginning, and
    `copy`, the cause of a copy for the postmaster. `trouble` says why there is no copy.
    """

    __slots__ = (
        "_choose_class", "_commit", "_data", "_descriptors", "_entered", "_intd_made", "_layout", "_linking", "_mtime",
        "_name", "_packed", "_pid", "_postman", "_uid", "copy", "envelope", "hold", "intd", "message", "todo",
        "trouble",
    )  # fmt: skip

    def __init__(
        self,
        inflow: InflowControl,
        layout: Layout,
        commit: Commit,
        handle: int,
        name: str,
        pid: int,
        uid: int,
        head: bytes,
        descriptors: int,
        choose_class: "Callable[[int, bytes, str, bool], str]",
    ) -> None:
        super().__init__(inflow, name or f"a file for {layout.queue}/mess/", handle, head)
        self.envelope = -1
        self.message = 0
        self.todo = self.intd = ""
        self.hold = self.copy = b""
        self.trouble = ""
        self._choose_class = choose_class
        self._postman = ""
        self._commit = commit
        self._descriptors = descriptors
        self._layout = layout
        self._name = name
        self._entered = self._intd_made = self._linking = self._packed = False
        self._pid = pid
        self._uid = uid
        self._mtime = 0
        self._data = b""

    @property
    def number(self) -> int:
        """The number that it will have; it may have another one in a queue that was copied. Raises QueueTrouble."""
        try:
            return os.fstat(self._handle).st_ino
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error

    @property
    def long_id(self) -> str:
        # Imported here because few programs print it.
        from queue_wire.ids import pack_long_id

        return pack_long_id(self.message, self._mtime // 1000)

    @property
    def may_be_queued(self) -> bool:
        return self.queued or self._linking

    def pack(self, sender: bytes, recipients: list[bytes]) -> None:
        """Pack the envelope before `finish`, which then does not; for a large one. Raises FormatError."""
        self._data = pack_todo(Envelope(self._uid, self._pid, sender, recipients, self.submitter))
        self._packed = True

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        if not self._packed:
            self.pack(sender, recipients)
        self._packed = False
        self.priority = self._choose_class(self._uid, sender, self.priority, self.may_raise)
        if self._head:
            self.write(b"")
        refused: list[int] = []
        try:
            while not self._name_message():
                if len(refused) == NUMBERS_MAX:
                    mess = self._layout.mess(self.message)
                    advice = "the queue was copied; queuectl repair mends it"
                    raise QueueTrouble(MESS_TROUBLE, f"unable to create {mess}: file exists: {advice}")
                # Open until another number is found, so that the kernel does not give this one again.
                refused.append(self._take_another_file())
        finally:
            for handle in refused:
                os.close(handle)
        if self._name:
            remove(self._name)
        if self._is_short(self._handle):
            self._sync_early()
        if not self._name:
            self._make_nameless()

    def _name_message(self) -> bool:
        """Name the file mess/B/I; return False if another message has that name. Raises QueueTrouble.

        That happens only in a queue that was copied, whose messages are not named by their inode numbers.
        """
        status = os.fstat(self._handle)
        # The number is the inode number. The last write has set the mtime, from which the long id is made.
        self.message, self._mtime = status.st_ino, status.st_mtime_ns
        if self.message > ID_MAX:
            what = f"the file system numbers files above {ID_MAX}, such as {self.message}; put queue/ on another one"
            raise QueueTrouble(MESS_TROUBLE, f"unable to use {self._layout.queue}/mess: {what}")
        layout = self._layout
        mess, self.intd = layout.mess(self.message), layout.intd(self.message)
        self.todo = layout.todo_in(self.priority, self.message)
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
        except FileExistsError:
            return False
        except OSError as error:
            raise QueueTrouble(MESS_TROUBLE, f"unable to create {mess}: {reason(error)}") from error
        self.path, self._entered = mess, True
        return True

    def _take_another_file(self) -> int:
        """Copy the message to another file, which is used from now on; return the descriptor of the former one.

        Raises QueueTrouble.
        """
        directory = self._layout.queue + "/pid"
        name = f"{self._name}.{self.message}" if self._name else ""
        former = self._handle
        try:
            source = os.open(self._name or f"/proc/self/fd/{self._handle}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                new = os.open(name, NEW, MESS_MODE) if name else open_nameless(directory, MESS_MODE)
                if new is None:
                    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
                self._handle = new
                if name:
                    remove(self._name)
                    self._name = self.path = name
                while data := os.read(source, CHECK_BYTES):
                    write_all(new, data)
            finally:
                os.close(source)
        except OSError as error:
            if self._handle != former:
                os.close(former)
            raise QueueTrouble(PID_TROUBLE, f"unable to copy {self.path}: {reason(error)}") from error
        return former

    def note(self) -> None:
        """Add the message, its name and its unnamed envelope to the commit. Raises QueueTrouble."""
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
        if self.priority:
            from queue_base.queue.class_trees import tree_names

            # Whoever made the tree may not have synced its name yet, or may have been killed before.
            for path in tree_names(self._layout, self.priority):
                self._commit.removed(path)
        if self.hold:
            self._mark_held()
        if self.copy:
            from queue_base.queue.postman import copy_path, make_copy

            self._postman = copy_path(self._layout.queue, self.message, self.copy)
            self.trouble = make_copy(self._layout.queue, self.path, self._postman, self._commit)

    def _mark_held(self) -> None:
        """Put the mark in hold/. It is as safe as mess/ before the message is in todo/, where queue-todo finds it."""
        # Imported here because few messages are queued on hold.
        from queue_base.queue.hold_marks import mark
        from queue_wire.files.hold_mark import HoldMark

        try:
            mark(self._layout, self.message, HoldMark(self.hold), self._commit)
        except OSError as error:
            what = error.filename or self._layout.hashed("hold", self.message)
            raise QueueTrouble(TODO_TROUBLE, f"unable to put the message on hold: {what}: {reason(error)}") from error

    def _is_short(self, handle: int) -> bool:
        """Return whether descriptors are short, judging by the number of this one."""
        return handle > self._descriptors

    def _sync_early(self) -> None:
        """Sync and close the file now, because descriptors are short."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error
        self.close()

    def _make_nameless(self) -> None:
        """Write the envelope to an unnamed file, if the file system supports it and descriptors are left."""
        try:
            handle = open_nameless(self.intd.rpartition("/")[0], self._envelope_mode)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return  # It is created in intd/ instead.
            raise QueueTrouble(INTD_TROUBLE, f"unable to create {self.intd}: {reason(error)}") from error
        if handle is None:
            return
        if self._is_short(handle):
            os.close(handle)
            return
        self.envelope = handle
        self._write_envelope(handle)

    def make_intd(self) -> None:
        """Write the envelope to intd/, and add it to the commit. Raises QueueTrouble."""
        # Set first, so that an interrupt in between removes the file.
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
        # The name in intd/ need not survive: the name in todo/ is a separate one.
        self._commit.contents(self.intd, handle)

    def _open_intd(self) -> int:
        try:
            return os.open(self.intd, NEW, self._envelope_mode)
        except FileExistsError:
            # It was left by an earlier message with this number.
            os.unlink(self.intd)
            return os.open(self.intd, NEW, self._envelope_mode)

    @property
    def _envelope_mode(self) -> int:
        return FILE_MODE | HELD_BIT if self.hold else FILE_MODE

    def _write_envelope(self, handle: int) -> None:
        try:
            write_all(handle, self._data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.intd}: {reason(error)}") from error

    def link(self) -> None:
        """Give the envelope its name in todo/. Raises QueueTrouble."""
        # Set first: after an interrupt in between, the message must be assumed to belong to queue-todo.
        self._linking = True
        try:
            if self.envelope < 0:
                self._commit.link(self.intd, self.todo)
            else:
                self._commit.name(self.envelope, self.todo)
        except OSError as error:
            self._linking = error.errno not in _SURELY_NOT
            raise QueueTrouble(TODO_TROUBLE, f"unable to create {self.todo}: {reason(error)}") from error
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
            # The message may belong to queue-todo now, or may even be classified already. If not, it is in S2 or S3,
            # which the sweep removes.
            return
        if self._intd_made:
            # A power cut must not bring intd/ back without mess/. On an error S2 or S3 remains.
            commit = Commit()
            try:
                commit.unlink(self.intd)
                commit.sync()
            except OSError:
                return
        if self.hold and self._entered:
            # A power cut may bring it back without mess/; queue-todo removes such a mark when it starts.
            remove(self._layout.hashed("hold", self.message))
        if self._postman:
            remove(self._postman)
        if self._name:
            remove(self._name)
        if self._entered:
            remove(self.path)


class QueueWriter(Writer):
    """Writes to the queue itself; `uid` is the injecting user's. `syncs` counts the waits of all commits so far.

    A caller that commits groups calls `inflow.admit()` before each group. One that commits small groups for long has
    up to `kept_most` directories stay open.
    """

    def __init__(self, home: Home, layout: Layout, uid: int, kept_most: int = 0) -> None:
        self._home = home
        self._layout = layout
        self._uid = uid
        self._pid = os.getpid()
        self._made = 0
        # Without /proc an unnamed file cannot get a name.
        self._nameless = os.access("/proc/self/fd", os.X_OK)
        self._received = (-1, -1, b"")
        self._descriptors = os.sysconf("SC_OPEN_MAX") - _SPARE
        self._commit = Commit(kept_most=kept_most)
        self._chooser: ClassChooser | None = None
        self._ruled, self._ruled_at = False, -1.0
        self.inflow = InflowControl(home, home.queue)

    def _choose_class(self, uid: int, sender: bytes, asked: str, may_raise: bool) -> str:
        """Return the class of a message; empty for the first one, as without control/priorityrules."""
        if not asked:
            now = time.monotonic()
            if now >= self._ruled_at:
                self._ruled, self._ruled_at = os.path.exists(self._home.control + "/priorityrules"), now + RULES_SECONDS
            if not self._ruled:
                return ""
        if self._chooser is None:
            # Imported here because most messages are of the first class.
            from queue_base.queue.class_trees import ClassChooser

            self._chooser = ClassChooser(self._home, self._layout)
        return self._chooser.choose(uid, sender, asked, may_raise)

    def forget(self) -> None:
        """Forget what drafts that failed in `finish` have left: descriptors of directories, which keep a disk busy.

        There may be no draft that is finished and not committed.
        """
        self._commit.forget()

    def has_layout(self, layout: Layout) -> bool:
        """Return whether it writes to a queue with this layout."""
        ours = self._layout
        flat = ours.flat_todo == layout.flat_todo and ours.flat_intd == layout.flat_intd
        return flat and ours.queue == layout.queue and ours.split == layout.split

    @property
    def syncs(self) -> int:
        return self._commit.syncs

    def begin(self, uid: int | None = None, checked: bool = False) -> QueueDraft:
        """Return a new draft that begins with a Received: line; `uid` replaces the writer's.

        checked: the caller has just called `inflow.check`.
        """
        if not checked:
            self.inflow.check()
        uid = self._uid if uid is None else uid
        now = time.time_ns()
        handle, name = self._make_file(now)
        head = self._head(uid, now // 10**9)
        draft = QueueDraft(
            self.inflow, self._layout, self._commit, handle, name, self._pid, uid, head, self._descriptors,
            self._choose_class,
        )  # fmt: skip
        # Root and the owner may have any class; the caller of a set-uid program, whose environment asks, may not.
        draft.priority, draft.may_raise = self.priority, self._uid in (0, os.geteuid())
        if draft.may_raise:
            draft.submitter = self.submitter
        return draft

    def _make_file(self, now: int) -> tuple[int, str]:
        """Return the descriptor of a new file, and its name in pid/ or "" if it is unnamed. Raises QueueTrouble."""
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
        group = self.group([draft for draft in drafts if isinstance(draft, QueueDraft)])
        try:
            while group.go_on():
                group.sync()
        except BaseException:
            group.give_up()
            raise

    def group(self, messages: "list[QueueDraft]", others_go_on: bool = False) -> "GroupCommit":
        """Return the commit of finished drafts in steps. The next draft may be finished when it has ended."""
        return GroupCommit(self._home, self._commit, messages, others_go_on)


class GroupCommit:
    """The commit of finished drafts in steps, for a loop that must not wait for the disk.

    `go_on` does what comes next. While it returns True, `sync` has to be called before the next `go_on`; another thread
    may do that. When it returns False every draft is queued. Both raise QueueTrouble. After that, or any other
    exception, `give_up` removes what is not in todo/.

    A draft that fails is left out, and with it those behind it; with `others_go_on` only after a failure of the disk,
    not where a directory is missing, for example. The failure is raised when the others are queued.
    """

    __slots__ = ("_commit", "_failure", "_home", "_left", "_messages", "_others_go_on", "_path", "_step")

    def __init__(self, home: Home, commit: Commit, messages: list[QueueDraft], others_go_on: bool = False) -> None:
        self._home = home
        self._commit = commit
        self._messages = messages
        self._others_go_on = others_go_on
        # Those that have not failed.
        self._left = messages
        self._failure: QueueTrouble | None = None
        self._path = ""
        self._step = 0

    def go_on(self) -> bool:
        """Do what comes next; return whether `sync` must follow. Raises QueueTrouble."""
        step = self._step
        self._step += 1
        if not self._messages:
            return False
        if step == 0:
            self._do_each(QueueDraft.note)
            self._path = self._left[0].path
            return True
        if step == 1:
            named = [message for message in self._left if message.envelope < 0]
            if named:
                self._do_each(_make_intd)
                self._path = named[0].intd
                return True
            self._step = step = 2
        if step == 2:
            self._step = 3
            self._do_each(QueueDraft.link)
            self._path = self._left[0].todo
            return True
        pull_trigger(self._home)
        for message in self._left:
            message.queued = True
        if self._failure is not None:
            raise self._failure
        return False

    def _do_each(self, do: "Callable[[QueueDraft], None]") -> None:
        """Do a step of each message that is left. Raises QueueTrouble if none is left then."""
        done: list[QueueDraft] = []
        for message in self._left:
            try:
                do(message)
            except QueueTrouble as error:
                self._failure = self._failure or error
                cause = error.__context__
                alone = isinstance(cause, OSError) and cause.errno in _SURELY_NOT
                if not (alone and self._others_go_on):
                    break
            else:
                done.append(message)
        self._left = done
        if self._failure is not None and not done:
            raise self._failure

    def sync(self) -> None:
        """Wait for the disk. Raises QueueTrouble."""
        try:
            self._commit.sync()
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self._path}: {reason(error)}") from error

    def give_up(self) -> None:
        """Remove the files of what is not in todo/, as far as possible; they must not affect the next commit."""
        self._commit.forget()
        for message in self._messages:
            message.discard()


def _make_intd(message: QueueDraft) -> None:
    if message.envelope < 0:
        message.make_intd()


def mail_date(seconds: float) -> str:
    """Return a time in qmail's header format, `26 Sep 1995 04:46:54 -0000`: UTC, without the weekday."""
    year, month, day, hour, minute, second = time.gmtime(seconds)[:6]
    return f"{day} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{second:02} -0000"


def received_line(pid: int, uid: int, seconds: int) -> bytes:
    """Return qmail-queue's Received: line, exactly: loop counters and log tools look for it."""
    return f"Received: (qmail {pid} invoked by uid {uid}); {mail_date(seconds)}\n".encode()


def remove_leftovers(layout: Layout, message: int) -> None:
    """Remove, durably, the files of an earlier message that has lost mess/B/I. Raises OSError.

    The injector holds a file with this inode number and mess/B/I does not exist, so other files with this number belong
    to a message whose mess/ file was lost, by a failing disk, by fsck, or by an injector that was interrupted. They are
    removed before mess/B/I gets its name, so that a new message never meets an old envelope.

    Three files could do harm, and only these are looked for: todo/ (S4 with the old recipients), info/ (S5, the same)
    and hold/ (the new message would be held). If others exist without them, queue-todo removes them when it
    classifies the message.
    """
    name = f"{message % layout.split}/{message}"
    queue = layout.queue
    for path in (*layout.todo_paths(message), f"{queue}/info/{name}", f"{queue}/hold/{name}"):
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        _remove_files_beside(layout, message)
        return


def _remove_files_beside(layout: Layout, message: int) -> None:
    if is_there(layout.mess(message)):
        return  # A copied queue, whose names are not inode numbers: naming the new file will fail.
    commit = Commit()
    for path in files_beside_mess(layout, message):
        if is_there(path):
            commit.unlink(path)
    commit.sync()


def remove(path: str) -> bool:
    """Remove a name, ignoring errors; return whether it does not exist any more."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
