"""Classifies a group of messages, S4 to S5: reads todo/, writes info/, local/ and remote/, removes intd/ and todo/.

A thread that may wait for the disk works on a TodoGroup in two steps, with three commits for the whole group:

    prepare    the names in todo/      sync    their injectors may not have synced them yet, and info/ without todo/
                                               would be S5
               write info/, local/, remote/, remove intd/      sync
    finish     remove todo/            sync    only then are messages announced, so that none comes back after delivery

Between the two steps the log gets the messages' lines, so that a message that has left todo/ is always in the log. A
power cut or kill leaves S4 (the message is classified, and logged, again) or S5.

An envelope is read and written in pieces, so that memory does not depend on its size. A group ends when its envelopes
exceed GROUP_BYTES; an envelope larger than LARGE is put off, and becomes a group of its own.

A message may be announced instead: it is read, and nothing is written. It stays in todo/, S4, and queue-send delivers
it (announcements.py). queue-send may later have it classified, with the recipients that are done by then
(`requests`); its lines are in the log already.

So are those of a message whose recipients are all done by its record in queue/marks: a run was killed before the
message was removed. It is classified, so that queue-send ends it, and not logged again, since the log may have its end.

A message that cannot be read is parked. A message that the disk or lack of memory refuses stays in S4 and is deferred.
No exception is raised because of a single message.
"""

import errno
import os
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from queue_base.durable import Commit, write_all
from queue_base.errors import reason
from queue_base.queue.hold_marks import clean_reason, marked_messages, read_mark
from queue_base.queue.layout import CLASS_BIT, FILE_MODE, HELD_BIT, Layout, birth_by, is_there
from queue_base.queue.marks_file import LeftMarks
from queue_todo.announcements import Announcement
from queue_wire.address import domain_of
from queue_wire.control.rewrite import LOCAL, Rules, rewrite, split_recipients
from queue_wire.files.envelope import TodoReader, pack_info
from queue_wire.files.hold_mark import HoldMark, pack_mark
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.files.recipients import pack_marked, pack_recipients
from queue_wire.files.standing_hold import HoldTable, SeenRecipients, StandingHold
from queue_wire.format_error import FormatError
from queue_wire.pipes import notice

PIECE = 64 * 1024  # Bytes of an envelope that are read at once.
LARGE = 256 * 1024  # Bytes of an envelope above which it is a group of its own.
GROUP_BYTES = 2 << 20  # The most bytes of envelopes in a group, unless it has one envelope.
SYNC_EVERY = 1 << 20  # Bytes of a large local/ or remote/ file after which it is synced, so that no sync takes long.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
# The disk need not write when the file was read. Only its owner may ask for that; a file of another one is classified.
_READ_TO_ANNOUNCE = _READ | os.O_NOATIME
_CLASSIFIED_FILES = ("info", "local", "remote")
HEAD = 4096  # Bytes of an envelope that usually contain its first recipient.
NO_MEMORY = "out of memory"
# Errors that any message may meet, not this one alone.
_OF_THE_DISK = frozenset((errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE))
NO_HOLDS = HoldTable()


def first_domain(path: str) -> bytes:
    """Return the domain of the first recipient of a file in todo/, empty if it is not found quickly."""
    try:
        handle = os.open(path, _READ)
        try:
            head = os.read(handle, HEAD)
        finally:
            os.close(handle)
    except OSError:
        return b""  # Its classification deals with that.
    begin = head.find(b"\0T") + 2
    end = head.find(b"\0", begin)
    return domain_of(head[begin:end]) if begin > 1 and end > 0 else b""


class PreparedMessage(NamedTuple):
    """A prepared message: the facts for the log and for queue-send. `size` is that of mess/B/I in bytes.

    `birth` is in microseconds since the epoch. `read` identifies the file in todo/ that was read. `recipients` are
    those of a full notice, None for a message whose notice is a short one. `held` is the reason of its mark in hold/,
    if it was queued with one, or a standing hold has made one now. `logged`: an earlier run has logged it. `priority`:
    its class, empty for the first one. `submitter`: empty for none.
    """

    message: int
    birth: int
    size: int
    sender: bytes
    pid: int
    uid: int
    local: bool
    remote: bool
    read: tuple[int, int, int]
    recipients: list[tuple[bytes, bytes]] | None
    held: bytes | None
    logged: bool
    priority: str = ""
    submitter: bytes = b""


class ReadMessage(NamedTuple):
    """A message that is announced. `read` identifies the file in todo/ that was read."""

    arrived: notice.Arrived
    read: tuple[int, int, int]


class TodoGroup:
    """Messages that share their commits, and what became of them.

    `entries` are prepared or, after `finish`, classified. `parked` and `deferred` are pairs (id, reason). `left` were
    not processed, because the group has enough bytes. `large` are to become groups of their own.

    `unsure` are entries that look classified, but a power cut could undo it. They must not be announced before
    `confirm` returns: a message that was delivered must not be in todo/ again.

    `announced` are the messages that are announced. `absent` are messages of `requests` that are not in todo/
    any more, or are others.

    `held` are messages whose mark in hold/ was made, or begun, with its reason.

    `together` are messages that were deferred because their common sync failed, possibly because of one of them.
    `refused` are those of the deferred ones that the disk refused, or lack of memory: when the cause is gone, all can
    be classified.
    """

    def __init__(
        self,
        layout: Layout,
        rules: Rules,
        messages: Sequence[int],
        *,
        large: bool = False,
        announce: Collection[int] = (),
        scanned: Collection[int] = (),
        requests: Mapping[int, tuple[int, Announcement]] | None = None,
        marks: LeftMarks | None = None,
        holds: HoldTable = NO_HOLDS,
        held: Mapping[int, bytes] | None = None,
        classes: Mapping[int, str] | None = None,
    ) -> None:
        """`large` allows an envelope of any size, for a group of one message.

        Of `announce`, those that may be are announced. `scanned` were found by a scan, and may have files of an
        interrupted classification. `requests` have the done bits and the announcement of messages to be classified
        because queue-send asks for it. `marks` are what an earlier run has left. A message that one of `holds` fits is
        not announced, and gets a mark in hold/. `held` are messages, and others of their numbers, that may have such
        a mark of an attempt that failed, with its reason: it is removed if no hold fits. `classes` has the class of
        each message that is not of the first one.
        """
        self.messages = messages
        self.announced: list[ReadMessage] = []
        self.absent: list[int] = []
        self.rules = rules
        self._announce = announce
        self._scanned = scanned
        self._requests = requests or {}
        self._marks = marks
        self._parked: set[int] | None = None  # Those with a mark in corrupt/, if its directories were read.
        self._holds = holds
        self._classes = classes or {}
        self._held_before = held or {}
        self.held: dict[int, bytes] = {}
        self.entries: list[PreparedMessage] = []
        self.unsure: list[PreparedMessage] = []
        self.parked: list[tuple[int, str]] = []
        self.deferred: list[tuple[int, str]] = []
        self.refused: set[int] = set()
        self.left: list[int] = []
        self.large: list[int] = []
        self.together: list[int] = []
        self._may_be_large = large
        self._layout = layout
        self._rules = rules
        self._commit = Commit()
        self._steps = self._prepare()

    def _todo(self, message: int) -> str:
        """Return the path of a message's envelope."""
        return self._layout.todo_in(self._classes.get(message, ""), message)

    def prepare(self, seconds: float = float("inf")) -> bool:
        """Work for at most `seconds`; return whether the group is prepared."""
        end = time.monotonic() + seconds
        return all(time.monotonic() < end for _ in self._steps)

    def give_up(self, why: str) -> None:
        """Defer every message; files that were written are replaced by the next attempt."""
        self.entries, self.parked, self.left, self.large, self.announced, self.absent = [], [], [], [], [], []
        self.deferred = [(message, why) for message in self.messages]
        self.refused.update(self.messages)

    def _prepare(self) -> Iterator[None]:
        """Yield after each piece of a large envelope, so that other work can be done."""
        yield from self._announce_some()
        known = {entry.arrived.message for entry in self.announced}
        messages = self._named_safely([message for message in self.messages if message not in known])
        room = GROUP_BYTES
        for place, message in enumerate(messages):
            try:
                handle = os.open(self._todo(message), _READ)
            except FileNotFoundError:
                if message in self._requests:
                    self.absent.append(message)
                self._remove_hold(message)
                continue
            except OSError as error:
                self._defer(message, error)
                continue
            try:
                found = os.fstat(handle)
                if message in self._requests and _identity(found) != self._requests[message][1].read:
                    self.absent.append(message)
                elif found.st_size > LARGE and not self._may_be_large:
                    self.large.append(message)
                elif found.st_size > room and place:
                    self.left = list(messages[place:])
                else:
                    room -= found.st_size
                    if found.st_size < PIECE:
                        self._take(message, handle, found)
                    else:
                        yield from self._take_pieces(message, handle, found)
            except FormatError as error:
                self.parked.append((message, str(error)))
            except OSError as error:
                self._defer(message, error)
            except MemoryError:
                self.deferred.append((message, f"{self._todo(message)}: {NO_MEMORY}"))
                self.refused.add(message)
            finally:
                os.close(handle)
            if self.left:
                break
        try:
            self._commit.sync()
        except OSError as error:
            self.deferred += [(entry.message, f"sync: {reason(error)}") for entry in self.entries]
            self.together = [entry.message for entry in self.entries]
            self.refused.update(self.together)
            self.entries = []
            # Otherwise the next sync fails too, and the rest of the group has not failed.
            self._commit.forget()
        self._park()

    def _announce_some(self) -> Iterator[None]:
        """Read the messages that are to be announced. What cannot be is left to be classified."""
        if len(self._announce) >= 2 * self._layout.split:
            # To read the few small directories of corrupt/ takes less time than a look for each message.
            try:
                self._parked = marked_messages(self._layout, "corrupt")
            except OSError:
                return
        for message in self.messages:
            if message in self._announce:
                try:
                    self._read_to_announce(message)
                except (FormatError, OSError, MemoryError):
                    continue  # The same happens when it is classified, which reports it.
                yield

    def _read_to_announce(self, message: int) -> None:
        """Announce a message if it is short, has no mark, and has no files of an interrupted classification."""
        layout = self._layout
        handle = os.open(self._todo(message), _READ_TO_ANNOUNCE)
        try:
            found = os.fstat(handle)
            if found.st_size > notice.FULL_BYTES or found.st_mode & HELD_BIT:
                return
            data = os.read(handle, PIECE)
        finally:
            os.close(handle)
        mess = os.stat(layout.mess(message))
        if mess.st_ino != message or self._is_parked(message):
            return
        if message in self._scanned and any(is_there(layout.hashed(kind, message)) for kind in _CLASSIFIED_FILES):
            return
        reader = TodoReader()
        recipients = reader.feed(data)
        sender = reader.end()
        if not recipients or len(recipients) > notice.FULL_RECIPIENTS:
            return
        ordered = _order(recipients, self._rules)
        if not self._holds.empty and self._standing_hold(sender, reader.uid, recipients, ordered) is not None:
            return  # It gets its mark when it is classified.
        if len(sender) + sum(len(address) for _, address in ordered) > notice.FULL_BYTES:
            return  # The notice would be too long.
        birth = birth_by(mess)
        if _is_over(self._left(message, birth, data), ordered):
            return  # It is classified, and not logged again.
        arrived = notice.Arrived(
            message, birth, mess.st_size, sender, ordered, True, len(data), zlib.crc32(data), reader.pid, reader.uid,
            self._classes.get(message, ""), reader.submitter,
        )  # fmt: skip
        self.announced.append(ReadMessage(arrived, _identity(found)))

    def _left(self, message: int, birth: int, data: bytes) -> DoneMarks | None:
        """Return the marks that an earlier run has left for an envelope, None if it has left none for any."""
        if self._marks is None or not len(self._marks):
            return None
        return self._marks.marks(identify(message, birth, data))

    def _is_parked(self, message: int) -> bool:
        if self._parked is not None:
            return message in self._parked
        return is_there(self._layout.hashed("corrupt", message))

    def _named_safely(self, messages: Sequence[int]) -> Sequence[int]:
        """Sync the names in todo/; return the messages whose names are durable."""
        try:
            sync_directories([self._todo(message) for message in messages])
        except OSError:
            pass
        else:
            return messages
        # A directory that cannot be read must not delay the mail in the others.
        safe = []
        troubles: dict[str, OSError | None] = {}
        for message in messages:
            directory = os.path.dirname(self._todo(message))
            if directory not in troubles:
                try:
                    sync_directories([self._todo(message)])
                    troubles[directory] = None
                except OSError as error:
                    troubles[directory] = error
            trouble = troubles[directory]
            if trouble is None:
                safe.append(message)
            else:
                self._defer(message, trouble, directory)
        return safe

    def _defer(self, message: int, error: OSError, place: str = "") -> None:
        self.deferred.append((message, f"{error.filename or place or self._todo(message)}: {reason(error)}"))
        if error.errno in _OF_THE_DISK:
            self.refused.add(message)

    def _take(self, message: int, handle: int, found: os.stat_result) -> None:
        """Classify a message whose envelope is one piece, as most are. Raises FormatError, OSError."""
        mess = self._look(message)
        reader = TodoReader()
        data = os.read(handle, PIECE)
        recipients = reader.feed(data)
        sender = reader.end()
        request = self._requests.get(message)
        ordered = _order(recipients, self._rules if request is None else request[1].rules)
        if request is None:
            left = self._left(message, birth_by(mess), data)
            done, logged = 0 if left is None else left.done, _is_over(left, ordered)
        else:
            done, logged = request[0], True
        local, remote = [_pack_side(ordered, letter, done) for letter in (notice.LOCAL, notice.REMOTE)]
        for kind, side in ("local", local), ("remote", remote):
            path = self._layout.hashed(kind, message)
            if side:
                _replace(self._commit, path, side)
            else:
                self._commit.unlink(path)
        held = None
        if request is None and (self._held_before or not self._holds.empty):
            hold = None if logged else self._standing_hold(sender, reader.uid, recipients, ordered)
            held = self._hold(message, hold)
        if held is None and found.st_mode & HELD_BIT:
            held = self._reason_of(message)
        # A short notice has queue-send read the marks of those that are done.
        full = not done and len(ordered) <= notice.FULL_RECIPIENTS and found.st_size <= notice.FULL_BYTES
        told = ordered if full and held is None else None
        self._add(message, mess, found, reader, sender, bool(local), bool(remote), told, held, logged)

    def _standing_hold(
        self, sender: bytes, uid: int, recipients: list[bytes], ordered: list[tuple[bytes, bytes]]
    ) -> StandingHold | None:
        """Return the standing hold that fits a message, by its recipients as they came and as they are rewritten."""
        seen = SeenRecipients(self._holds)
        seen.add(recipients)
        seen.add([address for _, address in ordered])
        return self._holds.find(sender, uid, seen)

    def _hold(self, message: int, hold: StandingHold | None) -> bytes | None:
        """Put the mark of a standing hold in hold/, unless the message has one; return its reason. Raises OSError."""
        path = self._layout.hashed("hold", message)
        if hold is None:
            if message in self._held_before:
                self._remove_mark(message)
            return None
        reason = clean_reason(hold.reason)
        mark = read_mark(self._layout, message)
        # An attempt that the disk refused may have made it, or its name alone; queue-send does not know it then.
        if mark is None or (mark.order is None and mark.reason in (b"", self._held_before.get(message))):
            self.held[message] = reason
            _replace(self._commit, path, pack_mark(HoldMark(reason)))
            return reason
        return reason if mark.order is None and mark.reason == reason else None

    def _reason_of(self, message: int) -> bytes | None:
        """Return the reason of the mark in hold/, None if there is none, as when it was released meanwhile."""
        mark = read_mark(self._layout, message)
        return None if mark is None else mark.reason

    def _remove_hold(self, message: int) -> None:
        """Remove the mark of a standing hold whose message is gone, so that it does not hold the next one."""
        if message in self._held_before:
            try:
                self._remove_mark(message)
            except OSError as error:
                self._defer(message, error)

    def _remove_mark(self, message: int) -> None:
        """Remove a mark that an attempt which failed has made. Raises OSError."""
        mark = read_mark(self._layout, message)
        if mark is not None and mark.order is None and mark.reason in (b"", self._held_before[message]):
            self._commit.unlink(self._layout.hashed("hold", message))

    def _take_pieces(self, message: int, handle: int, found: os.stat_result) -> Iterator[None]:
        """Do the same as `_take`, a piece at a time."""
        mess = self._look(message)
        reader = TodoReader()
        sides = [_Side(self._layout.hashed(kind, message), self._commit) for kind in ("local", "remote")]
        seen = SeenRecipients(self._holds)
        try:
            while data := os.read(handle, PIECE):
                found_recipients = reader.feed(data)
                seen.add(found_recipients)
                for side, recipients in zip(sides, split_recipients(found_recipients, self._rules), strict=True):
                    if recipients:
                        seen.add(recipients)
                        side.add(pack_recipients(recipients))
                yield
            sender = reader.end()
            local, remote = [side.finish() for side in sides]
        finally:
            for side in sides:
                side.close()
        held = self._hold(message, self._holds.find(sender, reader.uid, seen))
        if held is None and found.st_mode & HELD_BIT:
            held = self._reason_of(message)
        self._add(message, mess, found, reader, sender, local, remote, None, held, message in self._requests)

    def _look(self, message: int) -> os.stat_result:
        """Return the status of mess/B/I; remove a mark in corrupt/. Raises FormatError, OSError."""
        path = self._layout.mess(message)
        try:
            mess = os.stat(path)
        except FileNotFoundError as error:
            raise FormatError(f"{path} is missing") from error
        if mess.st_ino != message:
            raise FormatError(f"{path} has inode number {mess.st_ino}: the queue was copied, not moved")
        # It was for an earlier message, or the file has been repaired.
        if is_there(self._layout.hashed("corrupt", message)):
            self._commit.unlink(self._layout.hashed("corrupt", message))
        return mess

    def _add(
        self, message: int, mess: os.stat_result, found: os.stat_result, reader: TodoReader, sender: bytes,
        local: bool, remote: bool, recipients: list[tuple[bytes, bytes]] | None, held: bytes | None, logged: bool,
    ) -> None:  # fmt: skip
        """Write info/, remove intd/, and record the message as prepared."""
        # The birth is the mtime of mess/, in whole microseconds, so that the long id is the same as in S4.
        birth = birth_by(mess)
        priority = self._classes.get(message, "")
        mode = FILE_MODE | CLASS_BIT if priority else FILE_MODE
        info = pack_info(sender, priority, reader.uid, reader.submitter)
        _replace(self._commit, self._layout.hashed("info", message), info, birth * 1000, mode)
        self._commit.unlink(self._layout.intd(message))
        if is_there(self._layout.bounce(message)):
            # It is of an earlier message that has lost mess/: no delivery of this message has failed yet.
            self._commit.unlink(self._layout.bounce(message))
        facts = message, birth, mess.st_size, sender, reader.pid, reader.uid, local, remote
        rest = recipients, held, logged, priority, reader.submitter
        self.entries.append(PreparedMessage(*facts, _identity(found), *rest))

    def _park(self) -> None:
        """Write corrupt/B/I with the reason, for the administrator; the message's other files stay."""
        parked = []
        for message, why in self.parked:
            path = self._layout.hashed("corrupt", message)
            try:
                _replace(self._commit, path, why.encode("utf-8", "replace") + b"\n")
            except OSError as error:
                self.deferred.append((message, f"{path}: {reason(error)} (for: {why})"))
            else:
                parked.append((message, why))
        self.parked = parked
        if parked:
            try:
                self._commit.sync()
            except OSError as error:
                self.deferred.append((0, f"sync of corrupt: {reason(error)}"))

    def finish(self) -> None:
        """Remove the prepared messages from todo/, durably."""
        kept = []
        for entry in self.entries:
            path = self._todo(entry.message)
            try:
                if _identity(os.lstat(path)) != entry.read:
                    self.deferred.append((entry.message, f"{path} was replaced while it was read"))
                    continue
            except FileNotFoundError:
                # Another process has removed it, so on disk it is classified.
                if self._was_left(entry):
                    continue
            except OSError as error:
                self._defer(entry.message, error)
                continue
            try:
                self._commit.unlink(path)
            except OSError as error:
                self._defer(entry.message, error)
            else:
                kept.append(entry)
        self.entries = kept
        try:
            self._commit.sync()
        except OSError as error:
            self.unsure, self.entries = kept, []
            self.deferred.append((0, f"sync of todo: {reason(error)}"))

    def _was_left(self, entry: PreparedMessage) -> bool:
        """Return whether a removed envelope was of an earlier message, and an injector has just written a new mess/.

        The envelope of a message is written after mess/. The files of the earlier message are removed before that.
        """
        try:
            if os.lstat(self._layout.mess(entry.message)).st_mtime_ns <= entry.read[2]:
                return False
            self._commit.unlink(self._layout.hashed("info", entry.message))
        except FileNotFoundError:
            return False  # queue-send will not find it either.
        except OSError as error:
            self._defer(entry.message, error)
            return True
        self.deferred.append((entry.message, f"{self._todo(entry.message)} was of an earlier message"))
        return True


class _Side:
    """local/B/I or remote/B/I while it is being written. Raises OSError."""

    __slots__ = ("_commit", "_data", "_handle", "_path", "_unsynced")

    def __init__(self, path: str, commit: Commit) -> None:
        self._path = path
        self._commit = commit
        self._data = b""
        self._handle: int | None = None
        self._unsynced = 0

    def add(self, data: bytes) -> None:
        """Add recipients. The first ones are kept in memory: most files contain no more."""
        if not self._data and self._handle is None:
            self._data = data
            return
        if self._handle is None:
            self._commit.unlink(self._path)
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            write_all(self._handle, self._data)
            self._data = b""
        write_all(self._handle, data)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_EVERY:
            os.fsync(self._handle)
            self._unsynced = 0

    def finish(self) -> bool:
        """Add the file to the commit, or its removal if there are no recipients; return whether there are any."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._commit.written(self._path, handle)
            return True
        if self._data:
            _replace(self._commit, self._path, self._data)
            return True
        self._commit.unlink(self._path)
        return False

    def close(self) -> None:
        """Close and remove the file if `finish` was not called."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
            # It may be large. If it cannot be removed, the next attempt replaces it.
            try:
                os.unlink(self._path)
            except OSError:
                pass


def _order(recipients: list[bytes], rules: Rules) -> list[tuple[bytes, bytes]]:
    """Return (channel, address) of each recipient, rewritten."""
    ordered = []
    for recipient in recipients:
        channel, address = rewrite(recipient, rules)
        ordered.append((notice.LOCAL if channel is LOCAL else notice.REMOTE, address))
    return ordered


def _is_over(left: DoneMarks | None, ordered: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a message is in the log and all its recipients are done, by what an earlier run has left."""
    return left is not None and left.logged and left.done + 1 == 1 << len(ordered)


def _pack_side(ordered: list[tuple[bytes, bytes]], channel: bytes, done: int) -> bytes:
    """Return the bytes of local/B/I or remote/B/I; `done` are the bits of the recipients that are done."""
    if not done:
        return pack_recipients([address for letter, address in ordered if letter == channel])
    return pack_marked(
        [(address, bool(done >> bit & 1)) for bit, (letter, address) in enumerate(ordered) if letter == channel]
    )


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _replace(commit: Commit, path: str, data: bytes, mtime_ns: int | None = None, mode: int = FILE_MODE) -> None:
    """Create the file, replacing one that an interrupted classification has left."""
    try:
        commit.create(path, data, mode, mtime_ns)
    except FileExistsError:
        commit.unlink(path)
        commit.create(path, data, mode, mtime_ns)


def sync_directories(paths: Sequence[str]) -> None:
    """Sync the directories of envelopes in todo/, for created and for removed names. Raises OSError."""
    commit = Commit()
    for path in paths:
        commit.contents(os.path.dirname(path))
    commit.sync()


def confirm(layout: Layout, entries: Sequence[PreparedMessage]) -> list[PreparedMessage]:
    """Make the removal of unsure entries from todo/ durable; return those that are removed. Raises OSError."""
    gone = [entry for entry in entries if not is_there(layout.todo_in(entry.priority, entry.message))]
    sync_directories([layout.todo_in(entry.priority, entry.message) for entry in gone])
    return gone
