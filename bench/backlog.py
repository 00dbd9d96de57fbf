"""Makes a queue of deferred messages by writing its files, which is much faster than to send them."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from psutil import virtual_memory

DOMAINS = 20_000
# Directories for each kind of file of a queue with so many messages.
SPLIT = 997
LEAST = 3 << 30  # Bytes of memory that are left for others.
# Files of a message: three, its mark, and a second name of each while it is repaired; and the bytes of their pages.
INODES = 7
MESSAGE_SIZE = 3 * 4096


def make_backlog(
    queue: str, messages: int, senders: Sequence[bytes] = (b"a@b.example",), split: int = SPLIT
) -> None:
    """Make so many classified messages in a queue of `split` directories, each for one remote recipient, due tomorrow.

    The senders take turns. The texts are empty pages, which take no memory on tmpfs. Raises MemoryError before there is
    none left for others.
    """
    due = time.time() + 86400
    for number in range(messages):
        if number % 10_000 == 0:
            check_memory(number)
        message = _put(f"{queue}/pid/new", b"", 0o640, 19)
        bucket = message % split
        os.rename(f"{queue}/pid/new", f"{queue}/mess/{bucket}/{message}")
        _put(f"{queue}/info/{bucket}/{message}", b"F%s\0" % senders[number % len(senders)])
        remote = f"{queue}/remote/{bucket}/{message}"
        _put(remote, b"Tx@d%d.example\0" % (number % DOMAINS))
        os.utime(remote, (due, due))


@contextmanager
def scratch_directory(prefix: str, parent: str, messages: int, own: bool) -> Iterator[Path]:
    """Give a new directory below `parent`, and remove it. `own`: as root, with a tmpfs of its own for so many messages.
    """
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        if own:
            options = f"nr_inodes={INODES * messages + 100_000},size={messages * MESSAGE_SIZE + (1 << 28)}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
        try:
            yield place
        finally:
            if own:
                subprocess.run(["umount", str(place)], check=True)
    finally:
        shutil.rmtree(place)


def check_memory(messages: int) -> None:
    """Raise MemoryError if little memory is left for others, after so many messages were made."""
    if virtual_memory().available < LEAST:
        raise MemoryError(f"less than {LEAST >> 30} GB of memory are left after {messages} messages")


def _put(path: str, data: bytes, mode: int = 0o600, size: int = 0) -> int:
    """Make a file of some bytes, or of a size; return its inode number."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        if data:
            os.write(handle, data)
        else:
            os.truncate(handle, size)
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)
