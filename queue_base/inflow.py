"""When injectors must wait, or may take nothing: the disk is short, or todo/ waits longer than it should.

Space: control/queueminfree bytes, and LEAST_INODES inodes, are left for those who make room: classification, bounces,
the log. Every injector asks `find_shortage` before it takes a message, and while it copies a large one.

Marks: queue-todo asks injectors to wait (lock/slow), or to refuse (lock/refuse), by a file whose mtime is some seconds
ahead; it moves it on for as long as that lasts. A mark ends by itself, so queue-todo may die at any moment, and mail
is taken while the daemons are down. Who may not look into lock/ sees no mark.
"""

import os
import time

from queue_base.control import read_size
from queue_base.durable import write_all
from queue_base.errors import CONFIG, REFUSED, WRITE, QueueTrouble, Temporary
from queue_base.home import Home
from queue_base.layout import FILE_MODE

# Between Exim's 10 MB and what Postfix wants at its default message size limit, 15 MB; and a round number.
LEAST_FREE = 16 << 20
# A message takes up to six files; Exim wants 100.
LEAST_INODES = 1000
# Postfix's in_flow_delay. Each injector waits between half of it and all of it, so that they come apart.
SLOW_SECONDS = 1.0
LATER = "try again later"
# How far ahead a mark is set, in seconds. One that is further ahead is of a clock that was wrong, and does not count.
MARK_SECONDS = 10.0


def read_least(home: Home) -> int:
    """Return how many bytes must be left free; 0 asks for nothing. Raises Temporary, naming the file.

    Who may not read control/ goes by the default: it is the queue's own programs that the file is for.
    """
    try:
        return read_size(home, "queueminfree", LEAST_FREE)
    except Temporary as error:
        if isinstance(error.__cause__, PermissionError):
            return LEAST_FREE
        raise


def find_shortage(place: str | int, path: str, least: int, coming: int = 0) -> str | None:
    """Return what the file system of `place`, a path or a descriptor, is short of; None where it has enough.

    `path` is how the text names it; `coming` are bytes that are about to be written there. A file system that
    cannot be asked, or counts no inodes, is not short.
    """
    if not least:
        return None
    try:
        found = os.statvfs(place)
    except OSError:
        return None  # What is wrong with it is said where it is used.
    free = found.f_bavail * found.f_frsize
    if free - coming < least:
        message = f" besides the {coming} of the message" if coming else ""
        return f"{free} bytes free on {path}, control/queueminfree wants {least}{message}"
    if found.f_files and found.f_favail < LEAST_INODES:
        return f"{found.f_favail} inodes free on {path}, {LEAST_INODES} are wanted"
    return None


class Mark:
    """lock/slow or lock/refuse."""

    __slots__ = ("path",)

    def __init__(self, home: Home, name: str) -> None:
        self.path = f"{home.queue}/lock/{name}"

    def holds(self) -> bool:
        """Return whether the mark counts now; one system call."""
        try:
            ahead = os.stat(self.path).st_mtime - time.time()
        except OSError:
            return False
        return 0 < ahead <= MARK_SECONDS

    def set(self, text: str) -> None:
        """Let the mark count for MARK_SECONDS; `text` is for people who look into a new one. Raises OSError."""
        until = time.time_ns() + int(MARK_SECONDS * 10**9)
        try:
            os.utime(self.path, ns=(until, until))
        except FileNotFoundError:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                write_all(handle, text.encode())
                os.utime(handle, ns=(until, until))
            finally:
                os.close(handle)

    def clear(self) -> None:
        """Remove the mark, whoever made it. Raises OSError."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def slow_mark(home: Home) -> Mark:
    """Return the mark that asks injectors to wait."""
    return Mark(home, "slow")


def refuse_mark(home: Home) -> Mark:
    """Return the mark that asks them to take nothing; while it is set, the other one is too."""
    return Mark(home, "refuse")


class Intake:
    """`path` is a directory on the file system that takes the messages."""

    __slots__ = ("_home", "_least", "_refuse", "_slow", "path")

    def __init__(self, home: Home, path: str) -> None:
        self._home = home
        self._least: int | None = None
        self._refuse = refuse_mark(home)
        self._slow = slow_mark(home)
        self.path = path

    def admit(self) -> None:
        """Wait for a moment if queue-todo asks for it; call it before each group of drafts that share a commit.

        Raises QueueTrouble where it asks to take nothing.
        """
        self._least = None
        if not self._slow.holds():
            return
        if self._refuse.holds():
            raise QueueTrouble(REFUSED, f"unable to queue message: todo/ of {self._home.queue} is behind; {LATER}")
        time.sleep(SLOW_SECONDS * (0.5 + os.urandom(1)[0] / 512))

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Raise QueueTrouble where the disk is short, or would be with `coming` bytes more.

        `place` is a path or descriptor there, by default `path`.
        """
        if self._least is None:
            try:
                self._least = read_least(self._home)
            except Temporary as error:
                raise QueueTrouble(CONFIG, f"unable to queue message: {error}; {LATER}") from error
        shortage = find_shortage(self.path if place is None else place, self.path, self._least, coming)
        if shortage:
            raise QueueTrouble(WRITE, f"unable to queue message: the disk is almost full: {shortage}; {LATER}")

    def closed(self) -> str | None:
        """Return what is wrong where the disk is short, or its limit unknown; reads the control file, never waits."""
        self._least = None
        try:
            self._least = read_least(self._home)
        except Temporary as error:
            return str(error)
        return find_shortage(self.path, self.path, self._least)

    @property
    def slow(self) -> bool:
        """Whether queue-todo asks to wait."""
        return self._slow.holds()

    @property
    def refused(self) -> bool:
        """Whether it asks to take nothing."""
        return self._refuse.holds()
