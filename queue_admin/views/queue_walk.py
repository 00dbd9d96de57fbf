"""The messages of a queue that have recipients left, one after the other, in few system calls each.

Where `survey` looks at every file of every message and reports what is wrong, this reads only what a count needs: a
million messages take seconds. It takes no lock and changes nothing. Only the names of one bucket, and of a flat todo/,
are held in memory. A message that is finished meanwhile, or deleted, is left out; what cannot be read is counted in
`unreadable`.

The queues are named as Postfix's:

    incoming    queue-todo has not classified it; it may be in delivery already
    active      its next attempt has come: it is in delivery, or waits for its turn
    deferred    it waits for its next attempt
    hold        it is on hold
    corrupt     it is parked, because it cannot be read
"""

import os
from collections.abc import Iterable, Iterator
from itertools import chain

from queue_admin.messages.detail import CHANNELS, RECEIVED_MAX, has_delete_order, read_done_marks, received_uid
from queue_admin.messages.last_results import last_texts
from queue_admin.messages.survey import read_regular
from queue_base.errors import Temporary, reason
from queue_base.queue.layout import PRIORITY, Layout, birth_by
from queue_base.queue.marks_file import LeftMarks
from queue_wire.files.envelope import unpack_info, unpack_todo, unpack_whole_info
from queue_wire.files.marks import identify
from queue_wire.files.recipients import unpack_pending, unpack_piece
from queue_wire.format_error import FormatError
from queue_wire.ids import is_id

INCOMING, ACTIVE, DEFERRED, HOLD, CORRUPT = "incoming", "active", "deferred", "hold", "corrupt"
QUEUES = (INCOMING, ACTIVE, DEFERRED, HOLD, CORRUPT)
_LOCAL, _REMOTE, _BOTH = ("local",), ("remote",), CHANNELS
PIECE = 65536
_INFO_MAX = 4096
# Without O_NONBLOCK a FIFO would block for ever; what is read from one is empty.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WalkedMessage:
    """A message; only to be used before the next one is taken.

    `birth` is in seconds since the epoch. `recipients` are those that are not done; they can be taken once.
    """

    __slots__ = ("_envelope", "_walk", "birth", "name", "queue", "recipients")

    def __init__(
        self, walk: "QueueWalk", name: str, queue: str, birth: float, recipients: Iterable[bytes],
        envelope: tuple[bytes, int] | None,
    ) -> None:  # fmt: skip
        self._walk = walk
        self._envelope = envelope
        self.name = name
        self.queue = queue
        self.birth = birth
        self.recipients = recipients

    def sender(self) -> bytes | None:
        """Return the sender, None if it cannot be read."""
        if self._envelope is not None:
            return self._envelope[0]
        try:
            return unpack_info(self._walk.read("info", self.name, _INFO_MAX))
        except (OSError, FormatError):
            return None

    def priority(self) -> str | None:
        """Return the class, empty for the first one; None if it cannot be read."""
        if self._envelope is not None:
            return self._walk.layout.class_of(int(self.name))
        try:
            return unpack_whole_info(self._walk.read("info", self.name, _INFO_MAX))[1]
        except (OSError, FormatError):
            return None

    def size(self) -> int:
        """Return the bytes of the message, 0 if it is gone."""
        try:
            return os.stat(self.name, dir_fd=self._walk.handles["mess"], follow_symlinks=False).st_size
        except OSError:
            return 0

    def last_texts(self) -> list[bytes]:
        """Return the texts of the last results of its recipients; none if it was not deferred."""
        return last_texts(self._walk.layout, int(self.name))

    def uid(self) -> int | None:
        """Return the uid of the injector, None if it is not known; after classification its Received line tells it."""
        if self._envelope is not None:
            return self._envelope[1]
        try:
            return received_uid(self._walk.read("mess", self.name, RECEIVED_MAX))
        except OSError:
            return None


class QueueWalk:
    """A walk over the messages in some of QUEUES. `now`, in seconds since the epoch, decides what is due.

    `share` and `shares`: the walk takes only the buckets whose number is `share` in so many.

    `unreadable` counts the messages so far that could not be read.
    """

    def __init__(self, layout: Layout, queues: Iterable[str], now: float, share: int = 0, shares: int = 1) -> None:
        self.layout = layout
        self._buckets = range(share, layout.split, shares)
        self._queues = frozenset(queues)
        self._now = now
        self._marks: LeftMarks | None = None
        self.handles: dict[str, int] = {}
        self.unreadable = 0

    def __iter__(self) -> Iterator[WalkedMessage]:
        """Yield the messages. Raises Temporary if a directory cannot be read."""
        layout = self.layout
        self._marks = read_done_marks(layout)
        flat: dict[int, set[str]] = {}
        if layout.flat_todo:
            for name in _numbers(_listed(f"{layout.queue}/todo", "todo")):
                flat.setdefault(int(name) % layout.split, set()).add(name)
        try:
            for number in self._buckets:
                yield from self._bucket(number, flat.pop(number, set()) if layout.flat_todo else None)
        finally:
            self._close()

    def read(self, kind: str, name: str, most: int) -> bytes:
        """Return the first bytes of a file of the bucket. Raises OSError."""
        handle = os.open(name, _OPEN, dir_fd=self.handles[kind])
        try:
            return os.read(handle, most)
        finally:
            os.close(handle)

    def _bucket(self, number: int, todo: set[str] | None) -> Iterator[WalkedMessage]:
        self._close()
        # Listed in the order in which a message's files are made, so that one that is classified meanwhile is found.
        names = {"todo": self._names("todo", number) if todo is None else todo}
        for directory in self.layout.lower_directories(number):
            names["todo"] |= set(_numbers(_listed(directory, PRIORITY)))
        for kind in ("hold", "corrupt", "info"):
            names[kind] = self._names(kind, number)
        # A name that is no message is in none of the others.
        local, remote = (set(self._listed(kind, number)) for kind in CHANNELS)
        self._open("mess", number)
        for name in names["todo"]:
            queue = CORRUPT if name in names["corrupt"] else HOLD if name in names["hold"] else INCOMING
            if queue in self._queues and not self._is_deleted(name, queue):
                message = self._unclassified(name, queue)
                if message is not None:
                    yield message
        marked = {**dict.fromkeys(names["hold"], HOLD), **dict.fromkeys(names["corrupt"], CORRUPT)}
        for name in names["info"] - names["todo"]:
            queue = marked.get(name, "")
            if not queue or (queue in self._queues and not self._is_deleted(name, queue)):
                channels = _BOTH if name in local and name in remote else _REMOTE if name in remote else _LOCAL
                message = self._classified(name, queue, channels)
                if message is not None:
                    yield message

    def _is_deleted(self, name: str, queue: str) -> bool:
        """Return whether a message with a mark is deleted, and waits for its removal."""
        return queue == HOLD and has_delete_order(self.layout, int(name))

    def _unclassified(self, name: str, queue: str) -> WalkedMessage | None:
        message = int(name)
        try:
            birth = birth_by(os.stat(name, dir_fd=self.handles["mess"], follow_symlinks=False))
            data = read_regular(self.layout.todo(message))
            envelope = unpack_todo(data)
        except FileNotFoundError:
            # It was classified meanwhile, or has ended.
            return self._classified(name, queue if queue in (HOLD, CORRUPT) else "", _BOTH)
        except (OSError, FormatError):
            self.unreadable += 1
            return None
        left = envelope.recipients
        if self._marks is not None and len(self._marks):
            done = self._marks.done(identify(message, birth, data))
            left = [address for bit, address in enumerate(left) if not done >> bit & 1]
        if not left:
            return None
        return WalkedMessage(self, name, queue, birth // 1_000_000, left, (envelope.sender, envelope.uid))

    def _classified(self, name: str, queue: str, channels: tuple[str, ...]) -> WalkedMessage | None:
        """Return a message that has a file in info/; None if it is in none of the queues, or has no recipient left."""
        handles, queues = self.handles, self._queues
        try:
            if not queue and DEFERRED not in queues:
                # Most messages of a large queue are deferred, and need not be opened then.
                queue = ACTIVE if min([self._due(kind, name) for kind in channels]) <= self._now else DEFERRED
                if queue not in queues:
                    return None
            recipients: Iterable[bytes] = ()
            for kind in channels:
                try:
                    handle = os.open(name, _OPEN, dir_fd=handles[kind])
                except FileNotFoundError:
                    continue  # The last recipient of the channel was done meanwhile.
                try:
                    data = os.read(handle, PIECE)
                    if not queue and os.fstat(handle).st_mtime <= self._now:
                        queue = ACTIVE
                finally:
                    os.close(handle)
                if len(data) == PIECE:
                    recipients = chain(recipients, self._pieces(kind, name))
                elif data:
                    left = _pending(data)
                    recipients = chain(recipients, left) if recipients else left
            queue = queue or DEFERRED
            if not recipients or queue not in queues:
                return None
            birth = os.stat(name, dir_fd=handles["info"], follow_symlinks=False).st_mtime
            return WalkedMessage(self, name, queue, int(birth), recipients, None)
        except FileNotFoundError:
            return None  # It has ended.
        except (OSError, FormatError):
            self.unreadable += 1
            return None

    def _due(self, kind: str, name: str) -> float:
        """Return the next attempt of a channel; the end of time if it has none any more."""
        try:
            return os.stat(name, dir_fd=self.handles[kind], follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return float("inf")

    def _pieces(self, kind: str, name: str) -> Iterator[bytes]:
        """Yield the recipients of a long file, which is read in pieces."""
        try:
            handle = os.open(name, _OPEN, dir_fd=self.handles[kind])
            try:
                end, at = os.fstat(handle).st_size, 0
                while at < end and (data := os.pread(handle, PIECE, at)):
                    left, at = unpack_piece(data, at, end)
                    yield from (address for _, address in left)
            finally:
                os.close(handle)
        except (OSError, FormatError):
            self.unreadable += 1

    def _names(self, kind: str, number: int) -> set[str]:
        """Return the messages that have a file of a kind in a bucket."""
        split = self.layout.split
        return {name for name in _numbers(self._listed(kind, number)) if int(name) % split == number}

    def _listed(self, kind: str, number: int) -> list[str]:
        """Return the names in a bucket, whose directory stays open. Raises Temporary."""
        handle = self._open(kind, number)
        return [] if handle is None else _listed(handle, kind)

    def _open(self, kind: str, number: int) -> int | None:
        path = f"{self.layout.queue}/{kind}/{number}"
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None  # A queue that is still qmail's has no hold/ and corrupt/.
        except OSError as error:
            raise Temporary(f"unable to read {path}: {reason(error)}") from error
        self.handles[kind] = handle
        return handle

    def _close(self) -> None:
        for handle in self.handles.values():
            os.close(handle)
        self.handles.clear()


def _pending(data: bytes) -> list[bytes]:
    """Return the recipients in a whole file that are not done. Raises FormatError."""
    # Most messages have one recipient.
    if data[:1] == b"T" and data.find(b"\0") == len(data) - 1:
        return [data[1:-1]]
    return [address for _, address in unpack_pending(data)]


def _numbers(names: list[str]) -> list[str]:
    """Return the names that may be messages."""
    return [name for name in names if is_id(name)]


def _listed(directory: str | int, kind: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        raise Temporary(f"unable to read {kind}/: {reason(error)}") from error
