"""A search for an address, part of an address, or an id, within limits of time and number.

The messages of the queue are looked at first, and then what is stored for on-demand domains.
"""

import time
from typing import NamedTuple

from queue_admin.messages.detail import Detail, read_detail, read_done_marks
from queue_admin.messages.stored_mail import StoredMail, StoredMessage
from queue_admin.messages.survey import Snapshot, Stray, look, survey
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
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


def search(home: Home, text: bytes, seconds: float = SECONDS, most: int = MOST) -> tuple[list[Found], int, bool]:
    """Return messages with an address that contains `text`, whatever its case; how many were looked at; and whether
    that is all of them.

    An id finds its message at once. Raises Temporary.
    """
    now, layout, mail = time.time(), open_layout(home.queue), StoredMail(home)
    known = _by_id(layout, mail, text, now)
    if known:
        return known, len(known), True
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
    for domain in mail.domains.values():
        for stored in domain.messages():
            number += 1
            one = _match_stored(stored, wanted, now)
            if one is not None:
                found.append(one)
            if len(found) == most or time.monotonic() > end:
                return found, number, False
    return found, number, True


def _by_id(layout: Layout, mail: StoredMail, text: bytes, now: float) -> list[Found]:
    """Return the message with an id, in the queue and for each domain for which it is stored."""
    try:
        name = text.decode("ascii")
        message, birth = unpack_long_id(name)
    except (FormatError, UnicodeDecodeError):
        return []
    snapshot = look(layout, message)
    known: list[Found | None] = []
    if snapshot is not None and birth in (None, snapshot.birth):
        known.append(_match(snapshot, Detail(layout, snapshot, None), b"", now))
    names = mail.find_number(message) if birth is None else [name]
    known += [_match_stored(stored, b"", now) for each in names for stored in mail.find(each)]
    return [each for each in known if each is not None]


def _match_stored(stored: StoredMessage, wanted: bytes, now: float) -> Found | None:
    first = stored.first
    recipient = next((address for address in stored.recipients if wanted in address.lower()), None)
    if recipient is None and wanted not in first.sender.lower():
        return None
    age = max(0.0, now - first.birth / 1e6)
    state = "stored" if stored.held is None else "held"
    return Found(stored.long_id, state, age, first.size, first.sender, recipient or stored.recipients[0])


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
