"""Makes a queue of deferred messages by writing its files, which is much faster than to send them."""

import os
import time

DOMAINS = 20_000
# Directories for each kind of file of a queue with so many messages.
SPLIT = 997


def make_backlog(queue: str, messages: int) -> None:
    """Make so many classified messages in a queue of SPLIT directories, each for one remote recipient, due tomorrow."""
    due = time.time() + 86400
    for number in range(messages):
        message = _put(f"{queue}/pid/new", b"Subject: deferred\n\n")
        bucket = message % SPLIT
        os.rename(f"{queue}/pid/new", f"{queue}/mess/{bucket}/{message}")
        _put(f"{queue}/info/{bucket}/{message}", b"Fa@b.example\0")
        remote = f"{queue}/remote/{bucket}/{message}"
        _put(remote, b"Tx@d%d.example\0" % (number % DOMAINS))
        os.utime(remote, (due, due))


def _put(path: str, data: bytes) -> int:
    """Make a file; return its inode number."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, data)
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)
