"""inotify, through pyinotify: the very names that appear in directories, so that a burst costs no scans.

A link or a new file makes IN_CREATE, a rename IN_MOVED_TO. Where the kernel refuses a watch,
or has no inotify instance left, `descriptor` is None and `problem` says why; the caller's scans then do
the work.
"""

import logging
import select

import pyinotify

# What pyinotify would print on stderr by itself, we report in the log's own form.
pyinotify.log.setLevel(logging.CRITICAL)

APPEARED = pyinotify.IN_CREATE | pyinotify.IN_MOVED_TO
RENAMED = pyinotify.IN_MOVED_TO


class Watch:
    """Watches directories. `lost` becomes True when names were dropped: scan, and set it back."""

    def __init__(self, directories: list[str], mask: int = APPEARED) -> None:
        self.lost = False
        self.problem = ""
        self._names: list[str] = []
        self.descriptor: int | None = None
        self._poll = select.poll()
        try:
            manager = pyinotify.WatchManager()
            self._notifier = pyinotify.Notifier(manager, self._note)
            self._poll.register(manager.get_fd(), select.POLLIN)
            manager.add_watch(directories, mask, quiet=False)
        except (OSError, pyinotify.WatchManagerError) as error:
            self.problem = str(error).replace("\n", " ")
        else:
            self.descriptor = manager.get_fd()

    def _note(self, event: pyinotify.Event) -> None:
        if event.mask & pyinotify.IN_Q_OVERFLOW:
            self.lost = True
        elif event.name:
            self._names.append(event.name)

    def take(self) -> list[str]:
        """Return the names that the kernel has for us now. Never waits."""
        # pyinotify reads even where there is nothing to be read, and would wait for it.
        if self.descriptor is None or not self._poll.poll(0):
            return []
        try:
            self._notifier.read_events()
        except (UnicodeDecodeError, pyinotify.NotifierError):
            # A name that is not UTF-8 spoils the whole read for pyinotify; a scan sees it as bytes.
            self.lost = True
        self._notifier.process_events()
        names, self._names = self._names, []
        return names
