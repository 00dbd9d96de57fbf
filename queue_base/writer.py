"""Puts messages in the queue, durably: one, or a group that shares its syncs (docs/design/durability.md).

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

import os
import time

from queue_base.draft import (
    PID_TROUBLE,
    WRITE,
    Draft,
    QueueTrouble,
    Writer,
)
from queue_base.durable import Commit, open_nameless
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.intake import Intake
from queue_base.layout import MESS_MODE, Layout
from queue_base.queue_draft import NEW, QueueDraft
from queue_base.trigger import pull_trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QueueDraft", "QueueWriter", "mail_date", "received_line"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


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
