"""The files of classified messages, as queue-send reads and writes them. Methods raise OSError or FormatError."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from queue_base.durable import Commit, read_dated
from queue_base.queue.hold_marks import marked_messages
from queue_base.queue.layout import CLASS_BIT, FILE_MODE, Layout, birth_by, is_there
from queue_base.queue.results_file import read_results
from queue_send.messages.announced import Announced, AnnouncedMessage
from queue_send.messages.transitions import MARKED, MessageEvent, MessageState
from queue_send.scheduler.message_classes import MessageClasses
from queue_send.scheduler.waiting import LONG_AGO
from queue_wire.files.envelope import unpack_whole_info
from queue_wire.files.last_result import LastResult
from queue_wire.files.recipients import DONE_MARK, unpack_piece
from queue_wire.format_error import FormatError

HEADER_MAX = 65536  # Bytes of a message in which its header is looked for.
PIECE = 16 * 1024  # Bytes of local/B/I or remote/B/I that are read at a time; the shortest records have 2.
_LOST = MessageState.LOST
_SECOND = 1_000_000_000  # Nanoseconds.
T = TypeVar("T")
_HEADER_END = re.compile(rb"(^|\n)\r?\n")


class Piece(NamedTuple):
    """A piece of local/B/I or remote/B/I: the next attempt in seconds, the length of the file, (offset, address) of
    the recipients that are not done, and where the next piece begins, None if this is the last.

    The list of recipients may be that of a kept envelope, and is not to be changed.
    """

    due: int
    size: int
    recipients: list[tuple[int, bytes]]
    next: int | None


NO_PIECE = Piece(0, 0, [], None)


class Store:
    """One queue's info, local, remote and corrupt files; `kind` is "local" or "remote".

    Only ENOENT means that a file does not exist; every other error is raised. What `envelopes` has of a new message is
    not read from its files.
    """

    def __init__(self, layout: Layout, announced: Announced, priorities: Sequence[str] = ()) -> None:
        """`priorities` are the classes, the highest first."""
        self.classes = MessageClasses(priorities)
        self.layout = layout
        self.announced = announced
        self.records = announced.records
        self.disk = announced.disk
        self.malformed: set[int] = set()  # Messages with a malformed file, until Messages parks them.
        for message in marked_messages(layout, "hold"):
            self.records.step(MessageEvent.MARKED, message)
            self.records.note_order(message, None, unread=True)
        for message in marked_messages(layout, "corrupt"):
            self.records.step(MessageEvent.CORRUPT, message)

    def announced_message(self, message: int) -> AnnouncedMessage | None:
        """Return a message that is announced and has no files; None for every other."""
        return self.announced.get(message)

    def classify_first(self, message: int, why: MessageEvent) -> bool:
        """Return whether a message is announced; it is classified then, and something waits for that."""
        known = self.announced.get(message)
        if known is None:
            return False
        known.awaited = True
        self.announced.ask(known, why)
        return True

    def is_marked(self, message: int) -> bool:
        """Return whether a message has a mark in hold/ or corrupt/, or a malformed file."""
        return self.records.state(message) in MARKED or message in self.malformed

    def is_lost(self, message: int) -> bool:
        """Return whether a message has left todo/ while deliveries of it are in flight. Its number may be in use again.
        """
        return self.records.state(message) is _LOST

    def load(self, message: int) -> tuple[bytes, int, int | None, bytes]:
        """Return (sender, birth in seconds, uid of the injector, submitter).

        The uid is None if it is not known, the submitter empty if there is none.
        """
        known = self.records.facts(message)
        if known is not None:
            return known.sender, known.birth // 1_000_000, known.uid, known.submitter
        path = self.layout.hashed("info", message)
        data, mtime = read_dated(path)
        sender, _, uid, submitter = self._unpack(unpack_whole_info, data, "info", message)
        return sender, mtime // _SECOND, uid, submitter

    def last_notice(self, message: int) -> int:
        """Return when the last delay notice was sent, in seconds; at or before the birth if none was."""
        return os.stat(self.layout.mess(message)).st_mtime_ns // _SECOND

    def set_last_notice(self, message: int, when: int) -> None:
        """Record when a delay notice was sent. Not synced: a power cut may undo it and repeat a notice."""
        os.utime(self.layout.mess(message), (when, when))

    def recipients(self, message: int, kind: str, at: int = 0) -> Piece:
        """Return the recipients in one piece of local/B/I or remote/B/I, from a record on.

        If the file does not exist, no recipients are left. With the first piece of a longer file its last byte is read
        as well: if a crash has truncated the file, FormatError is raised before any recipient is tried.
        """
        known = self.records.facts(message)
        if known is not None:
            left = known.left.get(kind, [])
            if at:
                left = [recipient for recipient in left if recipient[0] >= at]
            return Piece(known.due, known.sizes.get(kind, 0), left, None)
        try:
            handle = os.open(self.layout.hashed(kind, message), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return NO_PIECE
        try:
            found = os.fstat(handle)
            data = os.pread(handle, PIECE, at)
            tail = b"" if at or found.st_size <= len(data) else os.pread(handle, 1, found.st_size - 1)
        finally:
            os.close(handle)
        size = found.st_size

        def unpack(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
            if tail.strip(b"\0"):
                raise FormatError("recipients: last record is not ended by a NUL")
            return unpack_piece(data, at, size)

        pending, end = self._unpack(unpack, data, kind, message)
        return Piece(_whole_seconds(found.st_mtime_ns), size, pending, end if end < size and data else None)

    def left(self, message: int, kind: str) -> Iterator[tuple[int, bytes] | None]:
        """Yield the recipients that are not done; None after each piece of their file."""
        at: int | None = 0
        while at is not None:
            piece = self.recipients(message, kind, at)
            yield from piece.recipients
            yield None
            at = piece.next

    def _unpack(self, unpack: Callable[[bytes], T], data: bytes, kind: str, message: int) -> T:
        """Return what a file holds; the FormatError of one that cannot be read names it."""
        try:
            return unpack(data)
        except FormatError as error:
            raise FormatError(f"{kind}/{message % self.layout.split}/{message}: {error}") from error

    def job_path(self, message: int) -> bytes:
        """Return the path of a message relative to queue/: mess/B/I."""
        return b"mess/%d/%d" % (message % self.layout.split, message)

    def may_be_tried(self, message: int) -> bool:
        """Return whether a message is classified, and neither held nor parked. Raises OSError."""
        return not self.is_marked(message) and not self.is_waiting_in_todo(message)

    def due(self, message: int, kind: str) -> int | None:
        """Return the next attempt in whole seconds since the epoch, None if the channel has no recipients left."""
        known = self.records.facts(message)
        if known is not None:
            return known.due if kind in known.left else None
        try:
            return _whole_seconds(os.stat(self.layout.hashed(kind, message)).st_mtime_ns)
        except FileNotFoundError:
            return None

    def is_waiting_in_todo(self, message: int) -> bool:
        """Return whether queue-todo has the message to classify. An announced one is queue-send's."""
        return self.announced_message(message) is None and is_there(self.layout.todo(message))

    def has_info(self, message: int) -> bool:
        """Return whether the message has a file in info/. Raises OSError."""
        return is_there(self.layout.hashed("info", message))

    def is_classified(self, message: int) -> bool:
        """Return whether the message is in S5: with info/, and not in todo/ any more."""
        return self.birth(message) is not None

    def birth(self, message: int) -> int | None:
        """Return the birth of a classified message in seconds since the epoch; None if it is not in S5."""
        found = self._classified(message)
        return None if found is None else int(found.st_mtime)

    def discover(self, message: int) -> int | None:
        """Return the birth of a classified message as `birth` does, and note its class."""
        found = self._classified(message)
        if found is None:
            return None
        self.classes.put(message, self._read_class(message) if found.st_mode & CLASS_BIT else "")
        return int(found.st_mtime)

    def _classified(self, message: int) -> os.stat_result | None:
        # In this order: if info/ existed and todo/ does not, the classification is over.
        try:
            found = os.lstat(self.layout.hashed("info", message))
        except FileNotFoundError:
            return None
        return None if self.is_waiting_in_todo(message) else found

    def _read_class(self, message: int) -> str:
        try:
            data, _ = read_dated(self.layout.hashed("info", message))
            return unpack_whole_info(data)[1]
        except (FileNotFoundError, FormatError):
            return ""  # Who loads the message finds out.

    def set_due(self, message: int, kind: str, when: int) -> None:
        """Set the next attempt on disk."""
        self.records.forget(message)
        os.utime(self.layout.hashed(kind, message), (when, when))

    def keep_due(self, message: int, kind: str, when: int) -> None:
        """Set the next attempt that a channel had before some of its recipients were marked."""
        os.utime(self.layout.hashed(kind, message), (when, when))

    def mark_done(self, message: int, kind: str, offsets: list[int]) -> None:
        """Mark recipients done. Not synced: a power cut may undo it, and repeat those recipients."""
        known = self.records.facts(message)
        if known is not None:
            known.mark_done(kind, offsets)
            if isinstance(known, AnnouncedMessage):
                self.announced.mark_done(known, kind, offsets)
                return
        if self.is_lost(message):
            return
        handle = os.open(self.layout.hashed(kind, message), os.O_WRONLY | os.O_CLOEXEC)
        try:
            for offset in offsets:
                os.pwrite(handle, DONE_MARK, offset)
        finally:
            os.close(handle)

    def finish_channel(self, message: int, kind: str) -> bool:
        """Remove the file of a channel that is done; return whether no other channel has recipients left."""
        other = "remote" if kind == "local" else "local"
        known = self.records.facts(message)
        if known is not None:
            known.left.pop(kind, None)
            if not known.left or known.announced:
                # queue-clean removes the file. After a kill it shows that nobody is left.
                return not known.left
        self.drop(self.layout.hashed(kind, message))
        return self.due(message, other) is None

    def has_failures(self, message: int) -> bool:
        """Return whether a message may have a file in bounce/."""
        # The envelope of a message with a failure is not kept.
        return self.records.facts(message) is None and is_there(self.layout.bounce(message))

    def drop(self, path: str) -> None:
        """Remove a file that may be gone already; queue-clean syncs the removal."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def sync_marks(self, message: int) -> None:
        """Sync the DONE marks and removals of a message, before its bounce is injected."""
        commit = Commit()
        for kind in ("local", "remote"):
            path = self.layout.hashed(kind, message)
            # Not `unlink`: this runs in the thread, and the file of a new message of this number could come now.
            commit.removed(path)
            try:
                commit.contents(path)
            except FileNotFoundError:
                continue
        commit.sync()

    def results(self, message: int, most: int) -> Iterator[LastResult]:
        """Return the last results of this message, from up to `most` bytes of the end of last/B/I; none if unknown."""
        try:
            birth = birth_by(os.stat(self.layout.hashed("info", message)))
        except OSError:
            return iter(())
        return read_results(self.layout, message, birth, most)

    def header(self, message: int) -> bytes:
        """Return the message's header, without the empty line, cut at HEADER_MAX; empty if the message is gone."""
        try:
            handle = os.open(self.layout.mess(message), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            data = os.read(handle, HEADER_MAX)
        finally:
            os.close(handle)
        # Clients that end their lines with CRLF end their header so, too.
        found = _HEADER_END.search(data)
        return data[: found.end(1)] if found else data[: data.rfind(b"\n") + 1]

    def park(self, message: int, reason: str, commit: Commit) -> None:
        """Make the mark corrupt/B/I, which contains the reason; the other files of the message stay."""
        path = self.layout.hashed("corrupt", message)
        commit.unlink(path)
        commit.create(path, reason.replace("\n", " ").encode("utf-8", "replace") + b"\n", FILE_MODE)


def _whole_seconds(nanoseconds: int) -> int:
    """Return a time in whole seconds, rounded up, within the range that the heap of waiting messages can hold."""
    return min(max(0, -(-nanoseconds // _SECOND)), LONG_AGO - 1)
