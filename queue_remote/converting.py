"""Makes another form of a message (queue_wire.downgrade), off the event loop, in a file without a name.

One thread converts, so what is in memory is one message, twice at most, however many deliveries wait.
"""

import asyncio
import itertools
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

from queue_remote.message import CHUNK, Message
from queue_wire.dotstuff import normalize
from queue_wire.downgrade import Downgrade
from queue_wire.errors import FormatError

SIZE_MOST = 32 * 1024 * 1024

_NUMBERS = itertools.count()
_THREAD = ThreadPoolExecutor(1, "converting")


async def convert(message: Message, seven_bit: bool, short_lines: bool) -> Message:
    """Return a message to be closed by the caller. Raises FormatError, saying why it cannot be, and OSError."""
    if message.size > SIZE_MOST:
        raise FormatError(f"it has {message.size} bytes, and only {SIZE_MOST} are worked on")
    # The thread may go on when nobody waits for it any more and the message is closed.
    descriptor = os.dup(message.fileno())
    return await asyncio.get_running_loop().run_in_executor(_THREAD, _convert, descriptor, seven_bit, short_lines)


def _convert(descriptor: int, seven_bit: bool, short_lines: bool) -> Message:
    try:
        data = _read(descriptor)
    finally:
        os.close(descriptor)
    with tempfile.TemporaryFile() as file:
        Downgrade(data, seven_bit, short_lines, file.write).run()
        file.seek(0)
        # Times are coarse and inode numbers used again; this way no two have the same identity.
        os.utime(file.fileno(), ns=(0, next(_NUMBERS)))
        return Message(os.dup(file.fileno()))


def _read(descriptor: int) -> bytes:
    """Return the message with LF line ends and no CR, in pieces that leave the event loop its turn."""
    pieces = []
    offset = 0
    held = b""
    while chunk := os.pread(descriptor, CHUNK, offset):
        offset += len(chunk)
        data = held + chunk
        # What a CR at the end means is in the next chunk.
        held = b"\r" if data.endswith(b"\r") else b""
        pieces.append(normalize(data[:-1] if held else data))
    return b"".join([*pieces, normalize(held)])
