"""Which messages a command is for: those with given long ids, or those that match selectors. Reads only."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from queue_admin.messages.detail import Detail, read_done_marks
from queue_admin.messages.survey import Snapshot, Stray, look, survey
from queue_base.errors import Usage
from queue_base.layout import Layout
from queue_wire.address import split_address, strip_prepend
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Selectors(NamedTuple):
    """The options that select messages, in lower case; None for an option that is not given. `older` is in seconds.

    A message matches if it matches all options that are given. Addresses ignore case. A recipient in a virtual domain
    matches by both of its names: with the prefix that control/virtualdomains (`prepends`) adds, and without it.
    """

    sender: bytes | None
    recipient: bytes | None
    domain: bytes | None
    older: int | None
    prepends: Mapping[bytes, bytes]

    @property
    def any(self) -> bool:
        """Whether an option is given."""
        return any(option is not None for option in (self.sender, self.recipient, self.domain, self.older))

    def match(self, snapshot: Snapshot, detail: Detail, now: float) -> bool:
        """Return whether a message matches."""
        if self.older is not None and (snapshot.birth is None or now - snapshot.birth / 1e6 < self.older):
            return False
        if self.sender is not None and (detail.sender is None or detail.sender.lower() != self.sender):
            return False
        left = pending(detail)
        if self.recipient is not None and self.recipient not in left | self._without_prefix(detail):
            return False
        return self.domain is None or any(split_address(address)[1] == self.domain for address in left)

    def _without_prefix(self, detail: Detail) -> set[bytes]:
        """Return the pending local recipients as their senders wrote them, in lower case."""
        local = detail.channels["local"].recipients if "local" in detail.channels else []
        return {strip_prepend(address, self.prepends).lower() for done, address in local if not done}


def pending(detail: Detail) -> set[bytes]:
    """Return the recipients that are not done, in lower case."""
    left = {address for channel in detail.channels.values() for done, address in channel.recipients if not done}
    return {address.lower() for address in (*left, *detail.unsorted_left)}


def unpack_span(text: str) -> int:
    """Return the seconds that `90`, `15m`, `12h`, `2d` or `1w` mean. Raises Usage."""
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text)
    if found is None:
        raise Usage(f"unable to read {text!a} as a length of time: it is a number and s, m, h, d or w, as in 2d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def check_long_ids(layout: Layout, names: tuple[str, ...]) -> list[str]:
    """Return the long ids, each once. Raises Usage for anything else; for an inode number the error has its long id."""
    for name in names:
        try:
            message, birth = unpack_long_id(name)
        except FormatError as error:
            raise Usage(f"unable to find message: {error}") from error
        if birth is None:
            found = look(layout, message)
            now = f"it is {found.long_id} now" if found and found.birth is not None else "there is no such message now"
            raise Usage(f"unable to use {name} for a change: inode numbers are used again; name its long id ({now})")
    return list(dict.fromkeys(names))


def select(layout: Layout, selectors: Selectors, now: float) -> Iterator[tuple[str, set[bytes]]]:
    """Yield (long id, pending recipients) of the messages that match. Raises Temporary."""
    marks = read_done_marks(layout)
    for found in survey(layout):
        if isinstance(found, Stray) or found.birth is None or found.state not in ("queued", "classified"):
            continue
        detail = Detail(layout, found, marks)
        if detail.trouble:
            # The message may have been classified or finished since the look. Look again.
            again = look(layout, found.message)
            if again is None or again.birth is None:
                continue
            found, detail = again, Detail(layout, again, marks)
        if selectors.match(found, detail, now):
            yield found.long_id, pending(detail)


def find(layout: Layout, names: list[str]) -> Iterator[tuple[str, set[bytes]]]:
    """Yield (long id, pending recipients) of messages by long id; no recipients for a message that is gone."""
    marks = read_done_marks(layout)
    for name in names:
        message, birth = unpack_long_id(name)
        found = look(layout, message)
        yield name, pending(Detail(layout, found, marks)) if found is not None and found.birth == birth else set()
