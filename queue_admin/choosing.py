"""Which messages a command is about: long ids, or selectors over what is on the disk. Reads only."""

import re
from collections.abc import Iterator, Mapping

from queue_admin.detail import Detail
from queue_admin.survey import Sight, Stray, look, survey
from queue_base.errors import Usage
from queue_base.layout import Layout
from queue_wire.address import split_address, strip_prepend
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Wishes:
    """Selectors; a message is chosen if all that are given fit. `older` is in seconds. Addresses ignore case.

    A recipient in a virtual domain fits by both of its names: with what control/virtualdomains (`prepends`) puts before
    it, and without.
    """

    def __init__(
        self,
        sender: str | None,
        recipient: str | None,
        domain: str | None,
        older: int | None,
        prepends: Mapping[bytes, bytes],
    ) -> None:
        self._prepends = prepends
        self.sender = None if sender is None else sender.encode().lower()
        self.recipient = None if recipient is None else recipient.encode().lower()
        self.domain = None if domain is None else domain.encode().lower()
        self.older = older

    @property
    def any(self) -> bool:
        """Whether there is a selector."""
        return any(each is not None for each in (self.sender, self.recipient, self.domain, self.older))

    def fit(self, sight: Sight, detail: Detail, now: float) -> bool:
        """Return whether a message is chosen."""
        if self.older is not None and (sight.birth is None or now - sight.birth / 1e6 < self.older):
            return False
        if self.sender is not None and (detail.sender is None or detail.sender.lower() != self.sender):
            return False
        left = pending(detail)
        if self.recipient is not None and self.recipient not in left | self._plain(detail):
            return False
        return self.domain is None or any(split_address(address)[1] == self.domain for address in left)

    def _plain(self, detail: Detail) -> set[bytes]:
        """Return the local recipients that are not done, as who sent to them knows them, in lower case."""
        local = detail.channels["local"].recipients if "local" in detail.channels else []
        return {strip_prepend(address, self._prepends).lower() for done, address in local if not done}


def pending(detail: Detail) -> set[bytes]:
    """Return the recipients that are not done, in lower case."""
    left = {address for channel in detail.channels.values() for done, address in channel.recipients if not done}
    return {address.lower() for address in (*left, *detail.unsorted)}


def unpack_span(text: str) -> int:
    """Return the seconds that `90`, `15m`, `12h`, `2d` or `1w` mean. Raises Usage."""
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text)
    if found is None:
        raise Usage(f"unable to read {text!a} as a length of time: it is a number and s, m, h, d or w, as in 2d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def check_names(layout: Layout, names: tuple[str, ...]) -> list[str]:
    """Return the long ids, each once. Raises Usage for what is none, with the long id that an inode number has now."""
    for name in names:
        try:
            message, birth = unpack_long_id(name)
        except FormatError as error:
            raise Usage(f"unable to find message: {error}") from error
        if birth is None:
            sight = look(layout, message)
            now = f"it is {sight.long_id} now" if sight and sight.birth is not None else "there is no such message now"
            raise Usage(f"unable to use {name} for a change: inode numbers are used again; name its long id ({now})")
    return list(dict.fromkeys(names))


def choose(layout: Layout, wishes: Wishes, now: float) -> Iterator[tuple[str, set[bytes]]]:
    """Yield (long id, pending recipients) of the messages that are chosen. Raises Temporary."""
    for sight in survey(layout):
        if isinstance(sight, Stray) or sight.birth is None or sight.state not in ("queued", "classified"):
            continue
        detail = Detail(layout, sight)
        if detail.trouble:
            # Classified or finished between the look and the reading: what counts is what is there now.
            again = look(layout, sight.message)
            if again is None or again.birth is None:
                continue
            sight, detail = again, Detail(layout, again)
        if wishes.fit(sight, detail, now):
            yield sight.long_id, pending(detail)


def find(layout: Layout, names: list[str]) -> Iterator[tuple[str, set[bytes]]]:
    """Yield (long id, pending recipients) of messages by name; of one that is gone, no recipients."""
    for name in names:
        message, birth = unpack_long_id(name)
        sight = look(layout, message)
        there = sight is not None and sight.birth == birth
        yield name, pending(Detail(layout, sight)) if there and sight is not None else set()
