"""lock/sendmutex: whoever holds its flock is the one that changes classified messages."""

import fcntl
import os

from queue_base.errors import Temporary, reason
from queue_base.home import Home


def take_sendmutex(home: Home) -> int:
    """Return a descriptor that holds the lock until it is closed everywhere. Raises Temporary at once if taken."""
    path = home.queue + "/lock/sendmutex"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Temporary(f"unable to open {path}: {reason(error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise Temporary(f"unable to lock {path}: queue-send is already running on this queue") from error
        raise Temporary(f"unable to lock {path}: {reason(error)}") from error
    return handle
