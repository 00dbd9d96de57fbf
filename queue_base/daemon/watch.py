"""inotify, through pyinotify: the names that appear in directories, so that a burst of mail costs no scans.

A link or a new file causes IN_CREATE, a rename IN_MOVED_TO. If the kernel refuses a watch or has no inotify instance
left, `descriptor` is None and `problem` says why; the caller then relies on its scans. pyinotify creates the watches.
Events are read here, READ bytes at a time, because pyinotify would process all queued events, 16,384 by default, in
one turn of 0.2 s.
"""

import logging
import os
import select
import struct

import pyinotify

# Errors are reported in the log; pyinotify must not print them on stderr.
pyinotify.log.setLevel(logging.CRITICAL)

APPEARED = pyinotify.IN_CREATE | pyinotify.IN_MOVED_TO
RENAMED = pyinotify.IN_MOVED_TO
READ = 32768  # Bytes of events that one call of `take` reads: about a thousand names.
_HEAD = struct.Struct("iIII")  # inotify(7): watch, mask, cookie, length of the name that follows


class Watch:
    """Watches directories. `lost` becomes True if the kernel dropped names: the caller scans, and resets it.

    After `take` the kernel may have `more` names, for a later turn.
    """

    def __init__(self, directories: list[str], mask: int = APPEARED) -> None:
        self.lost = False
        self.problem = ""
        self.descriptor: int | None = None
        self._poll = select.poll()
        manager = None
        try:
            manager = pyinotify.WatchManager()
            self._poll.register(manager.get_fd(), select.POLLIN)
            manager.add_watch(directories, mask, quiet=False)
        except (OSError, pyinotify.WatchManagerError) as error:
            self.problem = str(error).replace("\n", " ")
            if manager is not None:
                manager.close()
        else:
            self.descriptor = manager.get_fd()

    def __del__(self) -> None:
        # pyinotify closes nothing by itself, and a user may have few inotify instances.
        self.close()

    def close(self) -> None:
        """Watch no more."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    @property
    def more(self) -> bool:
        """Whether the kernel has names now."""
        return self.descriptor is not None and bool(self._poll.poll(0))

    def take(self) -> list[str]:
        """Return names that the kernel has now, at most READ bytes of events. Never waits."""
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
