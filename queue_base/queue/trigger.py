"""lock/trigger, a FIFO: an injector writes a byte to it after linking its todo/ file, so that queue-todo looks at once.

inotify tells queue-todo the same with the names; the trigger serves other injectors, and file systems without inotify.

Where nobody reads it, no queue-todo runs. The kernel says so, so it is never out of date, however queue-todo has ended.
"""

import errno
import os
import stat

from queue_base.home import Home

MODE = 0o622


def pull_trigger(home: Home) -> None:
    """Write one byte without blocking. Errors are ignored: the message is queued, and a scan will find it."""
    try:
        handle = os.open(home.queue + "/lock/trigger", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(handle, b"\0")
    except OSError:
        pass
    finally:
        os.close(handle)


def is_read(home: Home) -> bool:
    """Return whether queue-todo reads the trigger: the daemons of the queue run. If that is not known, they do.

    queue-todo creates a FIFO that is missing. Who may not search lock/ cannot know.
    """
    try:
        os.close(os.open(home.queue + "/lock/trigger", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


class Trigger:
    """The reading end, of queue-todo; the FIFO is created if it is missing. `descriptor` is readable after a pull.

    Raises OSError if it cannot be created or opened, or is not a FIFO.
    """

    def __init__(self, home: Home) -> None:
        path = home.queue + "/lock/trigger"
        if not os.path.lexists(path):
            os.mkfifo(path, MODE)
            # Every user may write to it, whatever the umask is.
            os.chmod(path, MODE)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Any other file would be readable, at end of file, all the time.
            if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
                raise OSError("it is not a FIFO")
            # A writer of our own, so that the FIFO is not at end of file between injectors.
            self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Read it no more."""
        os.close(self.descriptor)
        os.close(self._writer)

    def clear(self) -> int:
        """Read what was written; return the number of pulls."""
        try:
            return len(os.read(self.descriptor, 65536))
        except BlockingIOError:
            return 0
