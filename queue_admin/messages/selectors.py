"""The options that select messages, and whether a message matches them. Reads only."""

import re
import sys
from collections.abc import Iterator, Mapping
from email.errors import HeaderParseError
from email.header import decode_header
from typing import NamedTuple

from queue_admin.messages.detail import Detail, has_delete_order, injector_uid, mark_reason
from queue_admin.messages.last_results import last_texts
from queue_admin.messages.survey import Snapshot, read_head
from queue_base.errors import Usage
from queue_base.queue.layout import Layout
from queue_wire.address import address_key, bounce_recipient, domain_of, strip_prepend
from queue_wire.admin.returning import RecipientSelector

HEADER_MAX = 65536  # Bytes of a message in which the subject is looked for, and of a sender.
STATES = ("queued", "classified", "incoming", "unknown", "held", "corrupt", "deleted", "stored")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Selectors(NamedTuple):
    """The options that select messages; None for an option that is not given.

    A message matches if it matches all options that are given. Addresses and domains are as `address_key` makes
    them. A recipient in a virtual domain matches by both of its names: with the prefix that control/virtualdomains
    (`prepends`) adds, and without it. `older` is in seconds, `size` is (least, most) in bytes. `state` is one of
    STATES. `reason` and `subject` are texts in lower case that the reasons of a message and its subject have in them.
    """

    sender: bytes | None = None
    recipient: bytes | None = None
    domain: bytes | None = None
    older: int | None = None
    prepends: Mapping[bytes, bytes] = {}
    sender_domain: bytes | None = None
    uid: int | None = None
    size: tuple[int, int] | None = None
    state: str | None = None
    reason: str | None = None
    subject: str | None = None

    @property
    def any(self) -> bool:
        """Whether an option is given."""
        return any(option is not None for option in (*self[:4], *self[5:]))

    @property
    def of_domain_alone(self) -> bool:
        """Whether no option is given but perhaps that of the recipients' domain."""
        return self == Selectors(domain=self.domain, prepends=self.prepends)

    @property
    def recipients(self) -> RecipientSelector:
        """Which recipients of a message are chosen."""
        return RecipientSelector(self.recipient or b"", self.domain or b"")

    def match(self, layout: Layout, snapshot: Snapshot, detail: Detail, now: float) -> bool:
        """Return whether a message matches."""
        if self.older is not None and (snapshot.birth is None or now - snapshot.birth / 1e6 < self.older):
            return False
        if not self.is_of_sender(detail.sender):
            return False
        if self.size is not None and (snapshot.size is None or not self.fits_size(snapshot.size)):
            return False
        if self.recipients.any and not self.chosen(detail):
            return False
        if not self._is_in_state(layout, snapshot):
            return False
        if self.uid is not None and self.uid != injector_uid(layout, snapshot, detail):
            return False
        if self.reason is not None and not any(self.reason in text.lower() for text in _reasons(layout, snapshot)):
            return False
        return self.subject is None or self.subject in read_subject(layout, snapshot.message).lower()

    def chosen(self, detail: Detail) -> set[bytes]:
        """Return the pending recipients that are chosen, in lower case."""
        selector = self.recipients
        return {address.lower() for address, shown in self._pending(detail) if selector.chooses(address, shown)}

    def _pending(self, detail: Detail) -> Iterator[tuple[bytes, bytes]]:
        """Yield each pending recipient, and its address as its sender wrote it."""
        for address in detail.unsorted_left:
            yield address, address
        for name, channel in detail.channels.items():
            for done, address in channel.recipients:
                if not done:
                    yield address, strip_prepend(address, self.prepends) if name == "local" else address

    def is_of_sender(self, sender: bytes | None) -> bool:
        """Return whether a message from this sender may match; None: it is not known."""
        if self.sender is None and self.sender_domain is None:
            return True
        if sender is None or (self.sender is not None and address_key(sender) != self.sender):
            return False
        return self.sender_domain is None or domain_of(bounce_recipient(sender)) == self.sender_domain

    def fits_size(self, size: int) -> bool:
        """Return whether a message of so many bytes may match."""
        return self.size is None or self.size[0] <= size <= self.size[1]

    def _is_in_state(self, layout: Layout, snapshot: Snapshot) -> bool:
        deleted = is_deleted(layout, snapshot)
        if self.state == "deleted" or deleted:
            return deleted and self.state == "deleted"
        if self.state in ("held", "corrupt"):
            return snapshot.held if self.state == "held" else snapshot.corrupt
        return self.state is None or self.state == snapshot.state


def is_deleted(layout: Layout, snapshot: Snapshot) -> bool:
    """Return whether a message is deleted, and being removed."""
    return snapshot.held and has_delete_order(layout, snapshot.message)


def unpack_span(text: str) -> int:
    """Return the seconds that `90`, `15m`, `12h`, `2d` or `1w` mean. Raises Usage."""
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text)
    if found is None:
        raise Usage(f"unable to read {text!a} as a length of time: it is a number and s, m, h, d or w, as in 2d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def unpack_size(text: str) -> tuple[int, int]:
    """Return the (least, most) bytes that `+100k` (at least) or `-1M` (at most) mean. Raises Usage."""
    found = re.fullmatch(r"([+-])(\d{1,12})([kKmMgG]?)", text)
    if found is None:
        raise Usage(f"unable to read {text!a} as a size: it is + (at least) or - (at most), a number, and k, M or G")
    size = int(found[2]) * _SIZES[found[3].lower()]
    return (size, sys.maxsize) if found[1] == "+" else (0, size)


def read_subject(layout: Layout, message: int) -> str:
    """Return the subject of a message, decoded (RFC 2047); empty if it has none, or cannot be read."""
    try:
        return find_subject(read_head(layout.mess(message), HEADER_MAX))
    except OSError:
        return ""


def find_subject(data: bytes) -> str:
    """Return the subject in the header of a message, decoded (RFC 2047); empty if it has none."""
    header = (b"\n" + data.replace(b"\r\n", b"\n")).partition(b"\n\n")[0]
    found = re.search(rb"\nsubject[ \t]*:([^\n]*(?:\n[ \t][^\n]*)*)", header, re.IGNORECASE)
    return "" if found is None else _decode(found[1])


def _decode(field: bytes) -> str:
    text = re.sub(r"\n[ \t]+", " ", field.decode("utf-8", "backslashreplace")).strip()
    try:
        parts = decode_header(text)
    except (HeaderParseError, ValueError):
        return text  # Not as RFC 2047 has it.
    return "".join(part if isinstance(part, str) else _decode_part(part, charset) for part, charset in parts)


def _decode_part(part: bytes, charset: str | None) -> str:
    try:
        return part.decode(charset or "utf-8", "backslashreplace")
    except (LookupError, ValueError):
        return part.decode("latin-1")  # A charset that Python does not know.


def _reasons(layout: Layout, snapshot: Snapshot) -> Iterator[str]:
    for kind, has in (("hold", snapshot.held), ("corrupt", snapshot.corrupt)):
        if has:
            yield mark_reason(layout, kind, snapshot.message).decode("utf-8", "replace")
    for text in last_texts(layout, snapshot.message):
        yield text.decode("utf-8", "replace")
