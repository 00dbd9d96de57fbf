"""What queue-send knows, asked of it through lock/control. Changes nothing and needs no lock.

A queue-send that hangs is waited for no longer than WAIT seconds. Every function raises NoAnswer with the reason.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from queue_admin.detail import CHANNELS, Detail
from queue_admin.reaching import Peer, connect
from queue_base.errors import Failure
from queue_base.home import Home
from queue_wire.address import split_address
from queue_wire.admin.cause import Cause, unpack_cause
from queue_wire.admin.facts import RELAY, ChannelFact, DestinationFact, unpack_channel, unpack_destination
from queue_wire.admin.socket import DESTINATIONS, IDS_MOST, NEWS, REQUEST_MOST, TOTALS, WHY, Request
from queue_wire.format_error import FormatError

Fact = TypeVar("Fact")

WAIT = 3.0  # Seconds for one answer; it is known from memory, so a queue-send that runs has it at once.


class NoAnswer(Exception):
    """There is none; the text says why."""


class Knowing:
    """queue-send, to be asked."""

    def __init__(self, home: Home) -> None:
        """Connect."""
        try:
            connection = connect(home, WAIT)
        except Failure as error:
            raise NoAnswer(f"not known: {error}") from error
        if connection is None:
            if _is_locked(home):
                raise NoAnswer("not known: queue-send does not listen: it starts or ends, or its log says why")
            raise NoAnswer("queue-send does not run; nothing is tried")
        self._connection = connection
        self._peer = Peer(connection)

    def __enter__(self) -> "Knowing":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def why(self, name: str, detail: Detail) -> list[Cause]:
        """Return what is known of the message with this long id; empty where it is gone."""
        names = [name.encode("ascii"), *places(detail)]
        return self._facts(Request(WHY, b"", names), unpack_cause)[0]

    def totals(self) -> tuple[list[ChannelFact], bool]:
        """Return the channels, and whether the backlog has been read."""
        found, count = self._facts(Request(TOTALS, b"", []), unpack_channel)
        return found, bool(count)

    def destinations(self, channel: str, names: Iterable[str]) -> list[DestinationFact]:
        """Return the destinations of a channel, and its relays: those that are named, or all; each once."""
        nexthops = [os.fsencode(name) for name in names]
        found: dict[tuple[bytes, bool], DestinationFact] = {}
        batches = [nexthops[at : at + IDS_MOST // 2] for at in range(0, len(nexthops), IDS_MOST // 2)] or [[]]
        for batch in batches:
            place = b""
            while True:
                names_ = [channel.encode("ascii"), place, *batch]
                page, further = self._facts(Request(DESTINATIONS, b"", names_), unpack_destination)
                found.update(((each.nexthop, each.state == RELAY), each) for each in page)
                if not further:
                    break
                place = b"%d" % further
        return list(found.values())

    def _facts(self, request: Request, unpack: Callable[[bytes], Fact]) -> tuple[list[Fact], int]:
        try:
            reply = self._peer.ask(request)
            return [unpack(note.text) for note in reply.notes if note.letter == NEWS], reply.touched
        except Failure as error:
            raise NoAnswer(f"not known: {error}") from error
        except FormatError as error:
            raise NoAnswer(f"not known: unable to understand queue-send: {error}; is it of another version?") from error


def places(detail: Detail) -> list[bytes]:
    """Return where the recipients that are left go, as `why` takes them: as many as fit into a request."""
    found: dict[bytes, None] = {}
    room = REQUEST_MOST // 2
    for one in _places(detail):
        if one not in found:
            room -= len(one) + 1
            if room < 0 or len(found) == IDS_MOST - 1:
                break
            found[one] = None
    return list(found)


def _places(detail: Detail) -> Iterator[bytes]:
    for name in CHANNELS:
        channel = detail.channels.get(name)
        for done, address in channel.recipients if channel else []:
            if not done:
                yield b"L" + address if name == "local" else b"R" + split_address(address)[1].lower()


def _is_locked(home: Home) -> bool:
    """Return whether somebody holds lock/sendmutex; without trying it, which could keep a queue-send from starting."""
    try:
        inode = str(os.stat(f"{home.queue}/lock/sendmutex").st_ino)
        with open("/proc/locks", encoding="ascii") as locks:
            # proc_locks(5): 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
            return any(" FLOCK " in line and line.split()[-3].rpartition(":")[2] == inode for line in locks)
    except (OSError, IndexError):
        return False
