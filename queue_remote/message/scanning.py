"""Finds what SMTP has to know of a message's bytes (queue_remote.message.facts), once for all of its deliveries.

A small message is one read, which its sending uses too. A large one is looked at in slices, between which other
deliveries go on; what was found is kept, since the jobs to its other destinations come soon.
"""

import asyncio

from queue_remote.message.facts import Facts, Scan
from queue_remote.message.file import CHUNK, Message

KEPT_MOST = 1000

_Identity = tuple[int, ...]


class Scans:
    """What is known of messages; `lines` says whether to look for long lines."""

    __slots__ = ("_found", "_lines")

    def __init__(self, lines: bool) -> None:
        self._lines = lines
        self._found: dict[_Identity, asyncio.Task[Facts]] = {}

    async def find(self, message: Message) -> Facts:
        """Return the facts of a message that nobody has read from. Raises OSError."""
        if message.size <= CHUNK:
            scan = Scan(self._lines)
            scan.feed(message.first())
            return scan.facts()
        name = message.identity()
        found = self._found.pop(name, None)
        if found is None or _has_failed(found):
            found = self._found[name] = asyncio.get_running_loop().create_task(_scan(message, self._lines))
            while len(self._found) > KEPT_MOST:
                del self._found[next(iter(self._found))]
            return await found
        self._found[name] = found
        return await asyncio.shield(found)


async def _scan(message: Message, lines: bool) -> Facts:
    scan = Scan(lines)
    offset = 0
    while chunk := message.look(CHUNK, offset):
        scan.feed(chunk)
        offset += len(chunk)
        await asyncio.sleep(0)
    return scan.facts()


def _has_failed(task: asyncio.Task[Facts]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
