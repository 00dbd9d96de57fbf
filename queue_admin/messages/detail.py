"""The envelope files of a message: sender, recipients, which of them are done, and the time of the next attempt.

No lock is taken, so a file may vanish between the look and the reading. A file that cannot be read, or that is not in
its format, adds a line to `trouble`; the rest of the message is still shown. Recipients of a message in todo/ may be
done, too: queue/marks says which (`read_done_marks`).
"""

import os
import re
from collections.abc import Callable

from queue_admin.messages.survey import Snapshot, look, read_head, read_regular
from queue_base.errors import reason
from queue_base.queue.layout import Layout
from queue_base.queue.marks_file import LeftMarks
from queue_wire.failures import unpack_failures
from queue_wire.files.envelope import unpack_todo, unpack_whole_info
from queue_wire.files.hold_mark import HoldMark, HoldOrder, unpack_mark
from queue_wire.files.marks import identify
from queue_wire.files.recipients import unpack_recipients
from queue_wire.format_error import FormatError

CHANNELS = ("local", "remote")
RECEIVED_MAX = 200  # Bytes at the beginning of a message that have the injector's Received line.
# The first line that queue-enqueue and qmail-queue write, where a user has injected the message.
_INVOKED = re.compile(rb"Received: \(qmail [0-9]+ invoked by uid ([0-9]{1,10})\)")


class ChannelRecipients:
    """The recipients of one channel as (done, address), and the next attempt in seconds since the epoch."""

    __slots__ = ("next_attempt", "recipients")

    def __init__(self, recipients: list[tuple[bool, bytes]], next_attempt: float) -> None:
        self.recipients = recipients
        self.next_attempt = next_attempt

    @property
    def left(self) -> int:
        """The number of recipients that are not done."""
        return sum(not done for done, _ in self.recipients)

    @property
    def done(self) -> int:
        """The number of recipients that are done."""
        return len(self.recipients) - self.left


class Detail:
    """The envelope of a message.

    `priority` is its class, empty for the first one. `sender` is None if it cannot be read. `unsorted` has the
    recipients of a message that is not classified yet, as (done, address).
    """

    __slots__ = ("channels", "priority", "sender", "trouble", "uid", "unsorted")

    def __init__(self, layout: Layout, snapshot: Snapshot, marks: LeftMarks | None) -> None:
        """Read the files that the message's state says exist."""
        self.sender: bytes | None = None
        self.priority = ""
        self.uid: int | None = None
        self.unsorted: list[tuple[bool, bytes]] = []
        self.channels: dict[str, ChannelRecipients] = {}
        self.trouble: list[str] = [snapshot.trouble] if snapshot.trouble else []
        if "todo" in snapshot.files:
            self.priority = layout.class_of(snapshot.message)
            path = layout.todo_in(self.priority, snapshot.message)
            self._take(path, lambda data: self._todo(data, snapshot, marks))
            return
        if "info" in snapshot.files:
            self._take(layout.hashed("info", snapshot.message), self._info)
        for name in CHANNELS:
            if name in snapshot.files:
                self._channel(name, layout.hashed(name, snapshot.message))

    @property
    def unsorted_left(self) -> list[bytes]:
        """The recipients of `unsorted` that are not done."""
        return [address for done, address in self.unsorted if not done]

    def next_attempt(self) -> float | None:
        """Return when the first pending recipient is due, in seconds since the epoch; None if none is pending."""
        return min((channel.next_attempt for channel in self.channels.values() if channel.left), default=None)

    def _take(self, path: str, unpack: Callable[[bytes], None]) -> None:
        name = "/".join(path.rsplit("/", 3)[1:])
        try:
            unpack(read_regular(path))
        except FormatError as error:
            self.trouble.append(f"{name}: {error}")
        except OSError as error:
            self.trouble.append(f"{name}: {reason(error)}")

    def _todo(self, data: bytes, snapshot: Snapshot, marks: LeftMarks | None) -> None:
        envelope = unpack_todo(data)
        self.sender, self.uid = envelope.sender, envelope.uid
        done = 0
        if marks is not None and len(marks) and snapshot.birth is not None:
            done = marks.done(identify(snapshot.message, snapshot.birth, data))
        self.unsorted = [(bool(done >> bit & 1), address) for bit, address in enumerate(envelope.recipients)]

    def _info(self, data: bytes) -> None:
        self.sender, self.priority, _, _ = unpack_whole_info(data)

    def _channel(self, name: str, path: str) -> None:
        def unpack(data: bytes) -> None:
            recipients = [(done, address) for _, done, address in unpack_recipients(data)]
            self.channels[name] = ChannelRecipients(recipients, os.stat(path).st_mtime)

        self._take(path, unpack)


def read_done_marks(layout: Layout) -> LeftMarks | None:
    """Return the DONE marks of messages in todo/ at this moment, None if they cannot be read."""
    try:
        return LeftMarks(layout)
    except OSError:
        return None  # queue-todo and queue-send log it.


def mark_reason(layout: Layout, kind: str, message: int) -> bytes:
    """Return the reason in hold/B/I or corrupt/B/I, one line; if it cannot be read, the error."""
    return look_at_mark(layout, kind, message).reason


def has_delete_order(layout: Layout, message: int) -> bool:
    """Return whether the mark in hold/B/I is the order to delete the message, which waits for its removal."""
    return look_at_mark(layout, "hold", message).order == HoldOrder.DELETE


def look_at_mark(layout: Layout, kind: str, message: int) -> HoldMark:
    """Return the mark in hold/B/I or corrupt/B/I; if it cannot be read, one with the error as its reason."""
    try:
        data = read_head(layout.hashed(kind, message), 65536)
    except OSError as error:
        return HoldMark(f"its reason: {reason(error)}".encode())
    return unpack_mark(data)


def failures(layout: Layout, message: int) -> list[tuple[bytes, bytes]]:
    """Return (recipient, text) of the permanent failures recorded so far; none if the file cannot be read."""
    try:
        return unpack_failures(read_regular(layout.bounce(message)))
    except OSError:
        return []


def read_detail(layout: Layout, snapshot: Snapshot, marks: LeftMarks | None) -> tuple[Snapshot, Detail] | None:
    """Return the envelope of a message, with the snapshot that it belongs to; None if the message is gone by now.

    It may have been classified or finished since the snapshot was taken. It is looked at again then. One that had an
    envelope and has none now is being removed.
    """
    detail = Detail(layout, snapshot, marks)
    if not detail.trouble:
        return snapshot, detail
    again = look(layout, snapshot.message)
    if again is None or (again.state == "incoming" and snapshot.state in ("queued", "classified")):
        return None
    return again, Detail(layout, again, marks)


def received_uid(head: bytes) -> int | None:
    """Return the uid in the Received line with which a message begins, None if it names no user."""
    found = _INVOKED.match(head)
    return int(found[1]) if found else None


def injector_uid(layout: Layout, snapshot: Snapshot, detail: Detail) -> int | None:
    """Return the uid of the injector; after classification that in the first line of the message. None if unknown."""
    if detail.uid is not None:
        return detail.uid
    try:
        return received_uid(read_head(layout.mess(snapshot.message), RECEIVED_MAX))
    except OSError:
        return None
