"""In-flow control: when an injector must wait, or may take no message.

Disk space: control/queueminfree bytes and INODES_MIN inodes are reserved for classification, bounces and the log. An
injector checks this before it takes a message, and while it copies a large one (`InflowControl`).

Marks: queue-todo asks injectors to wait with lock/slow, and to refuse mail with lock/refuse. A mark is a file whose
mtime lies a few seconds in the future, and queue-todo renews it as long as needed. It expires by itself, so that
queue-todo may die at any moment, and mail is accepted while the daemons are down. An injector that may not search lock/
sees no mark.
"""

import os
import time

from queue_base.control import read_parsed
from queue_base.durable import write_all
from queue_base.errors import CONFIG, REFUSED, WRITE, QueueTrouble, Temporary, reason
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE
from queue_base.queue.trigger import is_read
from queue_wire.control.lines import FREE_BOUNDS, unpack_size

# Between Exim's 10 MB and what Postfix wants at its default message size limit, 15 MB; and a round number.
FREE_MIN = FREE_BOUNDS[0]
# A message takes up to six files; Exim wants 100.
INODES_MIN = 1000
# Postfix's in_flow_delay. Each injector waits between half of it and all of it, so that they do not stay in step.
SLOW_SECONDS = 1.0
LATER = "try again later"
# How far in the future a mark is set, in seconds. A mark further ahead was set by a wrong clock, and is ignored.
MARK_SECONDS = 10.0


def read_least(home: Home) -> int:
    """Return the number of bytes to keep free, 0 for no check. Raises Temporary, naming the file.

    A user who may not read control/ gets the default: the file is meant for the queue's own programs.
    """
    try:
        found = read_parsed(home, "queueminfree", lambda data: unpack_size(data, FREE_BOUNDS))
        return FREE_MIN if found is None else found
    except Temporary as error:
        if isinstance(error.__context__, PermissionError):
            return FREE_MIN
        raise


def find_shortage(place: str | int, path: str, least: int, coming: int = 0, moves: bool = False) -> str | None:
    """Return what the file system of `place`, a path or descriptor, is short of, None if it has enough.

    `path` names it in the text; `coming` is the number of bytes about to be written. Half of `least` is enough for what
    `moves`. A file system that does not answer, or does not count inodes, is not short.
    """
    if not least:
        return None
    try:
        found = os.statvfs(place)
    except OSError:
        return None  # The operation that uses it will report the failure.
    free = found.f_bavail * found.f_frsize
    if free - coming < (least // 2 if moves else least):
        message = f" besides the {coming} of the message" if coming else ""
        return f"{free} bytes free on {path}, control/queueminfree wants {least}{message}"
    if found.f_files and found.f_favail < INODES_MIN:
        return f"{found.f_favail} inodes free on {path}, {INODES_MIN} are wanted"
    return None


class Mark:
    """lock/slow or lock/refuse, a request of queue-todo to injectors."""

    __slots__ = ("path",)

    def __init__(self, home: Home, name: str) -> None:
        self.path = f"{home.queue}/lock/{name}"

    def holds(self) -> bool:
        """Return whether the mark is set now; one system call."""
        try:
            ahead = os.stat(self.path).st_mtime - time.time()
        except OSError:
            return False
        return 0 < ahead <= MARK_SECONDS

    def set(self, text: str) -> None:
        """Set the mark for MARK_SECONDS. A new file contains `text`, for people who read it. Raises OSError."""
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
        """Remove the mark. Raises OSError."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def slow_mark(home: Home) -> Mark:
    """Return the mark that asks injectors to wait."""
    return Mark(home, "slow")


def refuse_mark(home: Home) -> Mark:
    """Return the mark that asks injectors to take no mail; while it is set, the other one is set too."""
    return Mark(home, "refuse")


class InflowControl:
    """The checks of one injector; `path` is a directory on the file system that takes the messages.

    The common case costs a read of control/queueminfree, a statvfs and a stat.

    Of one that `moves` mail within the file system half of control/queueminfree is kept: what it writes is soon free
    again. So mail of users in maildrop/, down to that size, does not stand in the way of itself.
    """

    __slots__ = ("_home", "_least", "_refuse", "_slow", "moves", "path")

    def __init__(self, home: Home, path: str) -> None:
        self._home = home
        self._least: int | None = None
        self.moves = False
        self._refuse = refuse_mark(home)
        self._slow = slow_mark(home)
        self.path = path

    def admit(self) -> None:
        """Wait a moment if queue-todo asks for it. To be called before each group of drafts that share a commit.

        Raises QueueTrouble if queue-todo asks to take no mail.
        """
        self._least = None
        if not self._slow.holds():
            return
        if self._refuse.holds():
            raise QueueTrouble(REFUSED, f"unable to queue message: todo/ of {self._home.queue} is behind; {LATER}")
        time.sleep(SLOW_SECONDS * (0.5 + os.urandom(1)[0] / 512))

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Raise QueueTrouble if the disk is short, or would be with `coming` more bytes.

        `place` is a path or descriptor on the file system, by default `path`.
        """
        if self._least is None:
            try:
                self._least = read_least(self._home)
            except Temporary as error:
                raise QueueTrouble(CONFIG, f"unable to queue message: {error}; {LATER}") from error
        shortage = find_shortage(self.path if place is None else place, self.path, self._least, coming, self.moves)
        if shortage:
            raise QueueTrouble(WRITE, f"unable to queue message: the disk is almost full: {shortage}; {LATER}")

    def reread(self) -> str | None:
        """Read control/queueminfree again; return why that failed, None if it did not. `check` tries again then."""
        self._least = None
        try:
            self._least = read_least(self._home)
        except Temporary as error:
            return str(error)
        return None

    def why_closed(self) -> str | None:
        """Return why no mail can be taken: the disk is short, or its limit unknown. None otherwise. Never waits."""
        why = self.reread()
        return find_shortage(self.path, self.path, self._least or 0, 0, self.moves) if why is None else why

    def judge(self) -> tuple[int, str]:
        """Return the bytes that the disk may take, and an empty text; or -1, and why it takes no mail.

        With several queues, this is asked before one of them is chosen. Never waits.
        """
        try:
            least = read_least(self._home)
            found = os.statvfs(self.path)
        except Temporary as error:
            return -1, str(error)
        except OSError as error:
            return -1, f"unable to use {self.path}: {reason(error)}"
        if found.f_flag & os.ST_RDONLY:
            return -1, f"{self.path} is on a disk that is read-only"
        shortage = find_shortage(self.path, self.path, least)
        if shortage:
            return -1, shortage
        return max(0, found.f_bavail * found.f_frsize - least), ""

    @property
    def stopped(self) -> bool:
        """Whether no queue-todo runs. Of several queues, such a one takes mail if no other can; see `is_read`."""
        return not is_read(self._home)

    @property
    def slow(self) -> bool:
        """Whether queue-todo asks to wait."""
        return self._slow.holds()

    @property
    def refused(self) -> bool:
        """Whether queue-todo asks to take no mail."""
        return self._refuse.holds()
