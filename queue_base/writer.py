"""Puts messages in the queue, durably: one, or a group that shares its syncs (DESIGN: home, durability).

A Draft is one message on its way: `begin` makes mess/B/I, `write` fills it, `finish` gives it its
envelope, and `commit` takes a list of finished drafts through the phases below, all drafts together.

    sync mess/ contents and names  ->  make intd/, sync its contents  ->  link todo/, sync its names

A name and the contents behind it reach the disk each in their own time, so each phase waits for the
one before: a power cut at any moment leaves S1 to S4 and perhaps a name in pid/. `commit` returns
when every draft would survive one. On a failure it raises QueueTrouble, with what is not in todo/
removed again, best effort; `queued` of each draft says which are in the queue all the same.
"""

import os
import time

from queue_base.draft import (
    INTD_TROUBLE,
    MESS_TROUBLE,
    PID_TROUBLE,
    TODO_TROUBLE,
    WRITE,
    Draft,
    QueueTrouble,
    Writer,
    remove,
)
from queue_base.durable import Commit, sync_path, write_all
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.intake import Intake
from queue_base.layout import FILE_MODE, MESS_MODE, Layout
from queue_base.trigger import pull_trigger
from queue_wire.envelope import Envelope, pack_todo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class QueueDraft(Draft):
    """A message in mess/B/I, and later in intd/ and todo/."""

    __slots__ = ("_data", "_pid", "_uid", "intd", "intd_made", "linked", "message", "todo")

    def __init__(self, intake: Intake, layout: Layout, handle: int, pid: int, uid: int, seconds: int) -> None:
        self.message = os.fstat(handle).st_ino
        super().__init__(intake, layout.mess(self.message), handle, received_line(pid, uid, seconds))
        self.intd = layout.intd(self.message)
        self.todo = layout.todo(self.message)
        self.intd_made = False
        self.linked = False
        self._pid = pid
        self._uid = uid
        self._data = b""

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        self._data = pack_todo(Envelope(self._uid, self._pid, sender, recipients))
        if self._head:
            self.write(b"")
        self.close()

    def make_intd(self) -> None:
        """Write the envelope to intd/. Raises QueueTrouble."""
        try:
            handle = os.open(self.intd, _NEW, FILE_MODE)
        except OSError as error:
            raise QueueTrouble(INTD_TROUBLE, f"unable to create {self.intd}: {reason(error)}") from error
        self.intd_made = True
        try:
            write_all(handle, self._data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.intd}: {reason(error)}") from error
        finally:
            os.close(handle)

    def discard(self) -> None:
        if self.linked:
            return  # It is queue-todo's now.
        if self.intd_made:
            # No power cut may bring intd/ back without mess/. What is left on an error is S2 or S3.
            try:
                os.unlink(self.intd)
                sync_path(os.path.dirname(self.intd))
            except OSError:
                return
        super().discard()


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
        self._made += 1
        name = f"{self._layout.queue}/pid/{self._pid}.{now}.{self._made}"
        try:
            handle = os.open(name, _NEW, MESS_MODE)
        except OSError as error:
            raise QueueTrouble(PID_TROUBLE, f"unable to create {name}: {reason(error)}") from error
        draft = QueueDraft(self.intake, self._layout, handle, self._pid, uid, now // 10**9)
        try:
            os.link(name, draft.path)
        except OSError as error:
            draft.close()
            raise QueueTrouble(MESS_TROUBLE, f"unable to create {draft.path}: {reason(error)}") from error
        finally:
            remove(name)
        return draft

    def commit(self, drafts: "Sequence[Draft]") -> None:
        messages = [draft for draft in drafts if isinstance(draft, QueueDraft)]
        if not messages:
            return
        try:
            for message in messages:
                self._commit.written(message.path)
            self._sync(messages[0].path)
            for message in messages:
                message.make_intd()
                # The intd/ name may be lost: it is only the way to todo/, which is a name of its own.
                self._commit.contents(message.intd)
            self._sync(messages[0].intd)
            self._queue(messages)
        except BaseException:
            self._commit = _same_count(self._commit)
            for message in messages:
                message.discard()
            raise

    def _queue(self, messages: list[QueueDraft]) -> None:
        failure: QueueTrouble | None = None
        for message in messages:
            try:
                self._commit.link(message.intd, message.todo)
            except OSError as error:
                failure = QueueTrouble(TODO_TROUBLE, f"unable to create {message.todo}: {reason(error)}")
                failure.__cause__ = error
                break
            message.linked = True
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


def _same_count(commit: Commit) -> Commit:
    # What a failed commit still had to sync is about to be removed, and may not hinder the next one.
    fresh = Commit()
    fresh.syncs = commit.syncs
    return fresh


def mail_date(seconds: float) -> str:
    """Return a time as qmail writes it in headers, `26 Sep 1995 04:46:54 -0000`: UTC, without the weekday."""
    year, month, day, hour, minute, second = time.gmtime(seconds)[:6]
    return f"{day} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{second:02} -0000"


def received_line(pid: int, uid: int, seconds: int) -> bytes:
    """Return qmail-queue's Received: line, to the letter: loop counters and log tools look for it."""
    return f"Received: (qmail {pid} invoked by uid {uid}); {mail_date(seconds)}\n".encode()
