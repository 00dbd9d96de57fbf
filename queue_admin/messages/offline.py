"""Carries out orders on disk while queue-send does not run. The caller holds queue-send's lock.

The orders to bounce only mark the message; queue-send bounces it at its next start. A flush of some recipients flushes
all of the message, since a channel of a message has one next attempt on the disk. A response is returned only when the
changes are durable. After a crash an order is complete, not begun, or recorded in a mark that queue-send obeys; but on
a full disk messages are deleted without a mark, and a crash may leave one with some of its recipients.
"""

import os
import time

from queue_base.durable import Commit
from queue_base.errors import reason
from queue_base.queue import hold_marks as marks
from queue_base.queue.layout import Layout, is_there
from queue_base.queue.removal import remove_messages
from queue_wire.admin import socket as wire
from queue_wire.admin.socket import GONE, NEWS, ON_HOLD, TROUBLE, Note, Request, Response
from queue_wire.files.hold_mark import HoldMark, HoldOrder, order_mark
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_long_id, unpack_long_id
from queue_wire.pipes.cleaning import Removal

_FLUSHES = (wire.FLUSH, wire.FLUSH_SOME)


class OfflineQueue:
    """A queue without queue-send. `lock` is a descriptor that holds sendmutex."""

    def __init__(self, layout: Layout, lock: int) -> None:
        self._layout = layout
        self._lock = lock
        self._notes: list[Note] = []

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._lock)

    def ask(self, request: Request) -> Response:
        """Carry out a request and return the response."""
        self._notes = []
        if request.command == wire.PROBE:
            return Response(0, [])
        touched: list[int] = []
        commit = Commit()
        try:
            for name in request.names:
                message = self._find(name)
                if message is not None and self._begin(request, message, name.decode(), commit):
                    touched.append(message)
            self._sync(request, commit)
            if request.command == wire.DELETE:
                touched = self._remove(touched)
        except OSError as error:
            text = marks.describe_refusal(error)
            return Response(0, [*self._notes, Note(TROUBLE, text.encode("utf-8", "replace"))])
        return Response(len(touched), self._notes)

    @staticmethod
    def _sync(request: Request, commit: Commit) -> None:
        try:
            commit.sync()
        except OSError as error:
            if request.command != wire.DELETE or not marks.lacks_room(error):
                raise

    def _note(self, letter: bytes, name: str, text: str) -> None:
        self._notes.append(Note(letter, f"{name}: {text}".encode()))

    def _find(self, name: bytes) -> int | None:
        """Return the id of the message with a long id; if there is none, add a note and return None."""
        try:
            message, birth = unpack_long_id(name.decode("ascii", "replace"))
        except FormatError as error:
            self._notes.append(Note(TROUBLE, str(error).encode("utf-8", "replace")))
            return None
        if birth is None or marks.birth_of(self._layout, message) != birth:
            self._note(GONE, name.decode("ascii", "replace"), "no such message")
            return None
        return message

    def _begin(self, request: Request, message: int, name: str, commit: Commit) -> bool:
        """Write the changes that the following sync makes durable; return whether the message is changed."""
        layout, command = self._layout, request.command
        queued = is_there(layout.todo(message))
        held = marks.read_mark(layout, message)
        order = None if held is None else held.order
        corrupt = marks.is_marked(layout, "corrupt", message)
        now = time.time()
        if command == wire.HOLD:
            if held is None:
                marks.mark(layout, message, HoldMark(request.reason), commit)
            elif order is not None:
                self._note(TROUBLE, name, order.value.decode())
            else:
                self._note(ON_HOLD, name, marks.KEEPS_REASON)
            return held is None
        if command == wire.RELEASE:
            marks.unmark(layout, message, commit)
            if held is not None or corrupt:
                marks.make_due(layout, message, int(now), commit)
            return held is not None or corrupt
        if command == wire.DELETE:
            marks.mark_deleted(layout, message, commit)
            return True
        if command in (wire.BOUNCE, wire.BOUNCE_SOME):
            if corrupt:
                self._note(TROUBLE, name, "it is corrupt and cannot be bounced; release or delete it")
                return False
            if command == wire.BOUNCE_SOME and order is not None:
                self._note(TROUBLE, name, order.value.decode())
                return False
            if order == HoldOrder.BOUNCE:
                return False
            if command == wire.BOUNCE_SOME:
                marks.mark_return(layout, message, request.selector, commit)
            else:
                marks.mark(layout, message, order_mark(HoldOrder.BOUNCE), commit)
            self._note(NEWS, name, "bounces when queue-send starts")
            return True
        if queued or corrupt or (held is not None and command in _FLUSHES):
            if command in _FLUSHES and held is not None and order is None:
                self._note(ON_HOLD, name, marks.STAYS_HELD)
            if command == wire.REQUEUE:
                self._note(TROUBLE, name, "it is not classified, or corrupt, and cannot have a new birth")
            return False
        if order is not None:
            self._note(TROUBLE, name, "it is about to end")
            return False
        if command in _FLUSHES:
            marks.make_due(layout, message, int(now), commit)
        else:
            birth = int(now * 1_000_000)
            marks.set_birth(layout, message, birth, commit)
            self._note(NEWS, name, f"is {pack_long_id(message, birth)} now")
        return True

    def _remove(self, messages: list[int]) -> list[int]:
        """Remove messages that are marked as deleted; return those that were removed. Raises OSError."""
        commit = Commit()
        for message in messages:
            marks.leave_todo(self._layout, message, commit)
        commit.sync()
        failed = remove_messages(self._layout, map(Removal, messages))
        for message, error in failed.items():
            text = f"unable to remove {error.filename or message}: {reason(error)}; try again, or queue-send will"
            self._notes.append(Note(TROUBLE, text.encode("utf-8", "replace")))
        return [message for message in messages if message not in failed]
