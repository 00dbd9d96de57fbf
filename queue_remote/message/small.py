"""A small message that can be sent as stored: read whole, and made ready to be sent, in one step without waiting."""

import os
import stat

from queue_remote.message.file import OPEN_FLAGS
from queue_remote.message.message_scan import Facts, MessageScan
from queue_smtp.dotstuff import normalize, stuff

SMALL_MAX = 65536


class SmallMessage:
    """A message: `stored` as it lies in the queue, `wire` as SMTP sends it with the final dot.

    `size` is in bytes as RFC 1870 counts it. `eight_bit` says that it has 8-bit bytes, `header_utf8`
    that its header has some, in UTF-8.
    """

    __slots__ = ("eight_bit", "header_utf8", "size", "stored", "wire")

    def __init__(self, stored: bytes) -> None:
        plain = normalize(stored)
        self.stored = stored
        self.wire = stuff(plain)
        self.size = len(plain) + plain.count(b"\n") + (2 if plain and not plain.endswith(b"\n") else 0)
        self.eight_bit = not plain.isascii()
        self.header_utf8 = self.eight_bit and self._scan(lines=False).header_utf8

    def has_long_lines(self) -> bool:
        """Return whether a line is longer than SMTP allows."""
        return self._scan(lines=True).long_lines

    def _scan(self, lines: bool) -> Facts:
        scan = MessageScan(lines)
        scan.feed(self.stored)
        return scan.facts()


def read_small(path: str) -> SmallMessage | None:
    """Return a message of up to SMALL_MAX bytes, None if it has more. Raises OSError, also if it is not a file."""
    descriptor = os.open(path, OPEN_FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        if found.st_size > SMALL_MAX:
            return None
        stored = os.read(descriptor, SMALL_MAX)
        return SmallMessage(stored) if len(stored) == found.st_size else None
    finally:
        os.close(descriptor)
