"""lock/trigger, a FIFO: an injector writes a byte after its todo/ file, and queue-todo looks at once.

inotify tells queue-todo the same and more; the trigger is for injectors that are not ours and for
file systems that inotify cannot watch.
"""

import os
import stat

from queue_base.home import Home

MODE = 0o622


def pull_trigger(home: Home) -> None:
    """Write one byte, never waiting. Failure is no failure: the message is queued, and a scan will find it."""
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


class Trigger:
    """queue-todo's end, made where it is missing. `descriptor` becomes readable when somebody has pulled.

    Raises OSError where it cannot be made or opened, or something else is in its place.
    """

    def __init__(self, home: Home) -> None:
        path = home.queue + "/lock/trigger"
        if not os.path.lexists(path):
            os.mkfifo(path, MODE)
            # Everybody may pull it, whatever our umask is.
            os.chmod(path, MODE)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # What is no FIFO would be readable, and at its end, at every moment.
            if not stat.S_ISFIFO(os.fstat(self.descriptor).st_mode):
                raise OSError("it is not a FIFO")
            # A writer of our own, so that the FIFO does not stay at end-of-file between injectors.
            self._writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(self.descriptor)
            raise

    def clear(self) -> int:
        """Take what was written; return how many times somebody pulled."""
        try:
            return len(os.read(self.descriptor, 65536))
        except BlockingIOError:
            return 0
