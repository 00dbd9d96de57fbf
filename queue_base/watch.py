"""inotify, through pyinotify: the very names that appear in directories, so that a burst costs no scans.

A link or a new file makes IN_CREATE, a rename IN_MOVED_TO. Where the kernel refuses a watch,
or has no inotify instance left, `descriptor` is None and `problem` says why; the caller's scans then do
the work. pyinotify makes the watches; events are read here, READ bytes at a time, because it would take all that the
kernel has kept, 16,384 by default, in one go of 0.2 s.
"""

import logging
import os
import select
import struct

import pyinotify

# What pyinotify would print on stderr by itself, we report in the log's own form.
pyinotify.log.setLevel(logging.CRITICAL)

APPEARED = pyinotify.IN_CREATE | pyinotify.IN_MOVED_TO
RENAMED = pyinotify.IN_MOVED_TO
READ = 32768  # Bytes of events that one call of `take` reads: about a thousand names of messages.
_HEAD = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name that follows


class Watch:
    """Watches directories. `lost` becomes True when names were dropped: scan, and set it back.

    After a `take` the kernel may have `more`, which is to be taken in a later turn.
    """

    def __init__(self, directories: list[str], mask: int = APPEARED) -> None:
        self.lost = False
        self.problem = ""
        self.descriptor: int | None = None
        self._poll = select.poll()
        try:
            manager = pyinotify.WatchManager()
            self._poll.register(manager.get_fd(), select.POLLIN)
            manager.add_watch(directories, mask, quiet=False)
        except (OSError, pyinotify.WatchManagerError) as error:
            self.problem = str(error).replace("\n", " ")
        else:
            self.descriptor = manager.get_fd()
            self._manager = manager  # It closes its descriptor when it goes.

    @property
    def more(self) -> bool:
        """Whether the kernel has names for us at this moment."""
        return self.descriptor is not None and bool(self._poll.poll(0))

    def take(self) -> list[str]:
        """Return names that the kernel has for us now, not all of them where they are many. Never waits."""
        if self.descriptor is None or not self.more:
            return []
        data = os.read(self.descriptor, READ)
        names, at = [], 0
        while at < len(data):
            _, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if mask & pyinotify.IN_Q_OVERFLOW:
                self.lost = True
            elif length:
                names.append(os.fsdecode(data[at : at + length].rstrip(b"\0")))
            at += length
        return names
