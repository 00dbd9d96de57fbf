"""The last result of each recipient of a message: why it is still in the queue. Reads only.

It is what last/B/I has of this very message; a file of an earlier message with the same number has another birth and
counts for nothing, and so does what cannot be read. Where the record of a recipient that was not tried, because its
nexthop is dead, is lost, `DeadNexthops` asks queue-send, if it runs.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.detail import CHANNELS, Detail
from queue_admin.messages.survey import Snapshot, look, open_regular
from queue_admin.printable import visible
from queue_base.control import read_limit_lines, read_value
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_base.queue.results_file import read_results
from queue_wire.address import domain_of, strip_prepend
from queue_wire.admin.facts import DEAD, PROBED
from queue_wire.control.destinationlimits import choose_nexthop
from queue_wire.control.localroutes import find_local_route
from queue_wire.control.registry import LOCALROUTES, ONDEMAND, SMTPROUTES, VIRTUALDOMAINS
from queue_wire.files.last_result import FILE_MAX, LastResult, short_reason, suspension

TAIL = 65536  # Bytes of a file that are enough for one reason.
ASKED_MAX = 10_000  # Nexthops about which queue-send is asked.
_REASON_MAX = 200  # Characters of a reason in a line.


class RecipientState(NamedTuple):
    """A recipient: its channel (local, remote, unsorted), whether it is done, its last result if that is known."""

    channel: str
    done: bool
    address: bytes
    last: LastResult | None


def recipient_states(
    layout: Layout, snapshot: Snapshot, detail: Detail, most: int = FILE_MAX
) -> Iterator[RecipientState]:
    """Yield the recipients of a message with their last results; `most`: bytes of last/B/I."""
    for done, address in detail.unsorted:
        yield RecipientState("unsorted", done, address, None)
    if not detail.channels:
        return
    results = {(each.channel, each.offset): each for each in _results(layout, snapshot, most)}
    for name in CHANNELS:
        channel = detail.channels.get(name)
        offset = 0
        for done, address in channel.recipients if channel else ():
            yield RecipientState(name, done, address, None if done else results.get((name, offset)))
            offset += len(address) + 2


def _results(layout: Layout, snapshot: Snapshot, most: int) -> Iterator[LastResult]:
    return iter(()) if snapshot.birth is None else read_results(layout, snapshot.message, snapshot.birth, most)


def last_texts(layout: Layout, message: int) -> list[bytes]:
    """Return the texts of the last results of a message's recipients that are not done. Raises Temporary."""
    snapshot = look(layout, message)
    if snapshot is None:
        return []
    found = {(each.channel, each.offset): each.text for each in _results(layout, snapshot, FILE_MAX)}
    texts: list[bytes] = []
    for name in CHANNELS:
        mine = {offset: text for (channel, offset), text in found.items() if channel == name}
        texts += _of_pending(layout.hashed(name, message), mine) if mine else []
    return texts


def _of_pending(path: str, texts: dict[int, bytes]) -> list[bytes]:
    """Return the texts, by offset in a file of recipients, of those that it says are not done; none without a file."""
    try:
        handle = open_regular(path)
    except OSError:
        return []
    try:
        return [text for offset, text in texts.items() if os.pread(handle, 1, offset) == b"T"]
    except OSError:
        return []
    finally:
        os.close(handle)


def newest_reason(layout: Layout, snapshot: Snapshot, detail: Detail, dead: "DeadNexthops | None" = None) -> str:
    """Return why a message is still in the queue, in one short line, by the newest result; empty if that is unknown.

    With `dead`, queue-send is asked if no recipient has a result.
    """
    left = [each for each in recipient_states(layout, snapshot, detail, TAIL) if not each.done]
    known = [each.last for each in left if each.last is not None]
    if known:
        return reason_line(max(known, key=lambda each: each.when).text)
    if dead is not None and (due := detail.next_attempt()) is not None and due > dead.now:
        return next((why for each in left if (why := dead.why(each))), "")
    return ""


def reason_line(text: bytes) -> str:
    """Return the text of a result as one short printable line."""
    shown = visible(short_reason(text))
    return shown if len(shown) <= _REASON_MAX else shown[: _REASON_MAX - 3] + "..."


class DeadNexthops:
    """Which nexthops are dead, as queue-send knows; nothing if it does not run.

    It is asked once for each nexthop of a recipient without a result, by a connection of its own: between two of them
    a walk may take longer than queue-send keeps a silent client. `now`: seconds since the epoch.
    """

    def __init__(self, home: Home, now: float) -> None:
        self.now = now
        self._home = home
        self._is_read = False  # control/.
        self._asked = 0
        self._dead: dict[bytes, str] = {}

    def why(self, recipient: RecipientState) -> str:
        """Return why a recipient waits whose nexthop is dead; empty if it is not."""
        if self._asked > ASKED_MAX:
            return ""
        try:
            if not self._is_read:
                self._read_control()
            nexthop = self._nexthop(recipient)
            if nexthop is None:
                return ""
            if nexthop not in self._dead:
                self._asked += 1
                with SchedulerQueries(self._home) as queries:
                    found = queries.destinations(recipient.channel, [os.fsdecode(nexthop)])
                dead = [reason_line(suspension(nexthop, each.reason)) for each in found if each.state in (DEAD, PROBED)]
                self._dead[nexthop] = dead[0] if dead else ""
        except (Failure, NoAnswer):
            self._asked = ASKED_MAX + 1
            return ""
        return self._dead[nexthop]

    def _nexthop(self, recipient: RecipientState) -> bytes | None:
        """Return the nexthop of a recipient; None for a local one that queue-local delivers to."""
        if recipient.channel == "remote":
            domain = domain_of(recipient.address)
            if domain in self._on_demand:
                return domain
            return choose_nexthop(self._routes, self._lines, domain).name
        servers = find_local_route(self._local_routes, strip_prepend(recipient.address, self._prepends))
        return None if servers is None else servers.name

    def _read_control(self) -> None:
        self._routes = read_value(self._home, SMTPROUTES)
        self._local_routes = read_value(self._home, LOCALROUTES)
        self._on_demand = read_value(self._home, ONDEMAND)
        self._prepends = read_value(self._home, VIRTUALDOMAINS)
        self._lines = read_limit_lines(self._home)
        self._is_read = True
