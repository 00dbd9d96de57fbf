"""A search through the queue for an address, part of an address, or an id, within limits of time and number."""

import time
from typing import NamedTuple

from queue_admin.messages.detail import Detail, read_detail, read_done_marks
from queue_admin.messages.survey import Snapshot, Stray, look, survey
from queue_base.queue.layout import Layout
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

MOST = 100  # Messages found.
SECONDS = 10.0


class Found(NamedTuple):
    """A message that matches. `age` is in seconds, `recipient` one that is left, the matching one if one matches."""

    long_id: str
    state: str
    age: float
    size: int
    sender: bytes
    recipient: bytes


def search(layout: Layout, text: bytes, seconds: float = SECONDS, most: int = MOST) -> tuple[list[Found], int, bool]:
    """Return messages with an address that contains `text`, whatever its case; how many were looked at; and whether
    that is all of them.

    An id finds its message at once. Raises Temporary.
    """
    now = time.time()
    known = _by_id(layout, text, now)
    if known is not None:
        return [known], 1, True
    wanted, end, marks = text.lower(), time.monotonic() + seconds, read_done_marks(layout)
    found: list[Found] = []
    number = 0
    for snapshot in survey(layout):
        if isinstance(snapshot, Stray):
            continue
        number += 1
        read = read_detail(layout, snapshot, marks)
        each = None if read is None else _match(*read, wanted, now)
        if each is not None:
            found.append(each)
        if len(found) == most or time.monotonic() > end:
            return found, number, False
    return found, number, True


def _by_id(layout: Layout, text: bytes, now: float) -> Found | None:
    try:
        message, birth = unpack_long_id(text.decode("ascii"))
    except (FormatError, UnicodeDecodeError):
        return None
    snapshot = look(layout, message)
    if snapshot is None or birth not in (None, snapshot.birth):
        return None
    return _match(snapshot, Detail(layout, snapshot, None), b"", now)


def _match(snapshot: Snapshot, detail: Detail, wanted: bytes, now: float) -> Found | None:
    recipients = [address for channel in detail.channels.values() for done, address in channel.recipients if not done]
    recipients += detail.unsorted_left
    sender = detail.sender or b""
    recipient = next((address for address in recipients if wanted in address.lower()), None)
    if recipient is None and wanted not in sender.lower():
        return None
    if recipient is None:
        recipient = recipients[0] if recipients else b""
    age = 0.0 if snapshot.birth is None else max(0.0, now - snapshot.birth / 1e6)
    state = "held" if snapshot.held else "corrupt" if snapshot.corrupt else snapshot.state
    return Found(snapshot.long_id, state, age, snapshot.size or 0, sender, recipient)
