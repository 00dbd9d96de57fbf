"""Locks by flock: only the process that holds lock/sendmutex may change classified messages of its queue.

Where a home has several queues, run/lock/intakemutex keeps a second queue-intake from starting.
"""

import errno
import fcntl
import os
import stat

from queue_base.errors import Permanent, Temporary, reason, why_refused
from queue_base.home import Home
from queue_base.limits import ALONE, QueueShare
from queue_base.safe_open import UnsafePath, open_below

# Seconds between looks at which queues run.
LOOK_SECONDS = 3.0
_NAME = "lock/sendmutex"
_INTAKE = "lock/intakemutex"


def take_sendmutex(home: Home) -> int:
    """Return a descriptor that holds the lock until all copies of it are closed.

    Raises Temporary at once if the lock is held, Permanent if the path is not a regular file of the queue.
    """
    return _take(home.queue, _NAME, "queue-send is already running on this queue")


def take_intakemutex(home: Home) -> int:
    """Do the same for the queue-intake of a home with several queues."""
    return _take(home.run, _INTAKE, "queue-intake is already running on this home")


def hold_running(home: Home) -> int:
    """Return a descriptor whose lock shows, until it is closed, that the queue-send of this queue runs. Raises OSError.

    It is below run/, so that no look at it waits for the disk of another queue.
    """
    handle = _open(home.run, f"lock/{home.name}.running")
    # Who looks at it has a shared lock for a moment, so this waits no longer.
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def is_running(home: Home) -> bool:
    """Return whether the queue-send of this queue, of several, runs. If that cannot be found out, it does."""
    try:
        handle = open_below(home.run, f"lock/{home.name}.running", os.O_WRONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        # Shared, because several processes may look at the same time.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class ShareWatch:
    """Looks, every `round_seconds`, which queues of the home run: the part of the limits that this queue has."""

    def __init__(self, home: Home, round_seconds: float = LOOK_SECONDS) -> None:
        self._home = home
        self._queues = [home.choose(name) for name in home.queues] if home.several else []
        self._round = round_seconds
        self.share = ALONE
        self.look_at = 0.0

    def look(self, now: float) -> bool:
        """Look, if it is time; return whether `share` has changed. `now` is monotonic."""
        if now < self.look_at or not self._queues:
            return False
        self.look_at = now + self._round
        mine = self._home.name
        running = [one.name for one in self._queues if one.name == mine or is_running(one)]
        old, self.share = self.share, QueueShare(running.index(mine), len(running))
        return self.share != old


def _take(directory: str, name: str, held: str) -> int:
    path = f"{directory}/{name}"
    try:
        handle = _open(directory, name)
    except UnsafePath as error:
        raise Permanent(f"unable to open {path}: {error}; put a file of the queue's owner in its place") from error
    except OSError as error:
        raise Temporary(f"unable to open {path}: {why_refused(error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise Temporary(f"unable to lock {path}: {held}") from error
        raise Temporary(f"unable to lock {path}: {reason(error)}") from error
    return handle


def _open(directory: str, name: str) -> int:
    """Return the file, open for writing; create it if it is missing. Raises OSError, UnsafePath.

    Root opens it before it changes to the queue's owner, who may have replaced it by anything.
    """
    try:
        handle = open_below(directory, name, os.O_WRONLY)
    except FileNotFoundError:
        handle = open_below(directory, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if os.geteuid() == 0:
            # The owner takes the lock as well.
            owner = os.stat(directory)
            os.fchown(handle, owner.st_uid, owner.st_gid)
        return handle
    except OSError as error:
        # A FIFO without a reader, or a socket.
        if error.errno == errno.ENXIO:
            raise UnsafePath("not a regular file") from error
        raise
    found = os.fstat(handle)
    # A second name may belong to another user's file. A backup by hard links has the owner's uid, and is allowed.
    owners = (os.geteuid(), os.stat(directory).st_uid)
    if not stat.S_ISREG(found.st_mode):
        why = "not a regular file"
    elif found.st_nlink > 1 and found.st_uid not in owners:
        why = f"it is another name of a file of uid {found.st_uid}"
    else:
        return handle
    os.close(handle)
    raise UnsafePath(why)
