"""Moves finished files from maildrop/ into the queue: in groups that share a commit, and users take turns.

Any user may put anything in maildrop/, so each file is checked (file_checks), and files that cannot be mail are set
aside (corrupt). Large files are copied one piece at a time, beside the groups of small ones, so that no user's mail
waits for another's. Memory is limited, however many files there are: a scan finds the names that were not kept.

When a message is safe in the queue its file is removed. A file that cannot be removed, or looked at, is remembered, so
that it is not queued twice.
"""

import errno
import os
import stat
import time

from queue_base.daemon.log_limit import LimitedLog
from queue_base.durable import Commit
from queue_base.errors import QueueTrouble, reason
from queue_inject.pickup.copying import FileCopy, open_copy
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.failed_files import FailedFiles
from queue_inject.pickup.file_checks import NotMail, OriginRules
from queue_inject.pickup.untrusted_directory import OURS, Directory
from queue_inject.pickup.user_queues import UserQueues
from queue_wire.files.maildrop import is_finished
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.pickup.copying import PickupWriter

# The limits of a group: messages, bytes, and seconds after which no other message is added.
GROUP = 100
GROUP_BYTES = 16 * 1024 * 1024
GROUP_SECONDS = 0.2
# A file over LARGE is copied in pieces, one piece in each turn: so many files at once, one of each user.
LARGE = 4 * 1024 * 1024
PIECE = 4 * 1024 * 1024
LARGE_AT_ONCE = 4
# The number of names that are kept for another try.
LATER_MAX = 10_000
# While so many queued files cannot be removed, no more are taken.
QUEUED_MAX = 1000
UNKNOWN = -1  # The uid of a file that could not be looked at.


class QueuedFiles:
    """The files whose messages are in the queue, with their inode numbers, until they are removed."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._inodes: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._inodes

    def __len__(self) -> int:
        return len(self._inodes)

    def add(self, name: str, inode: int) -> None:
        """Add a file whose message is in the queue."""
        self._inodes[name] = inode

    def remove(self) -> list[str]:
        """Remove the files; return the errors."""
        path = self._directory.path
        errors = []
        before = len(self._inodes)
        commit = Commit()
        for name, inode in list(self._inodes.items()):
            try:
                # A file that its owner has put in the place of this one is neither removed nor an obstacle.
                if self._is_same(name, inode):
                    commit.unlink(f"{path}/{name}")
                elif self._is_held(name, inode):
                    commit.unlink(self._held(name))
            except OSError as error:
                if not self._is_replaced(name, inode):
                    errors.append(f"unable to remove {path}/{name}: {reason(error)}")
                    continue
            del self._inodes[name]
        try:
            # A power cut must not bring back many messages that are queued already.
            if len(self._inodes) < before:
                commit.sync()
        except OSError as error:
            errors.append(f"unable to sync {path}: {reason(error)}")
        return errors

    def _held(self, name: str) -> str:
        """Return the path of a file that `queuectl maildrop hold` has moved."""
        return f"{os.path.dirname(self._directory.path)}/hold/maildrop/{name}"

    def _is_held(self, name: str, inode: int) -> bool:
        """Return whether a file was moved while it was being queued. Only the queue's owner can put files there."""
        try:
            return os.lstat(self._held(name)).st_ino == inode
        except OSError:
            return False

    def _is_same(self, name: str, inode: int) -> bool:
        """Return whether a name still belongs to the file that was queued. Raises OSError if that is unknown."""
        try:
            found = self._directory.look(name)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False  # A mount point.
            raise
        return found.st_ino == inode and stat.S_ISREG(found.st_mode)

    def _is_replaced(self, name: str, inode: int) -> bool:
        """Return whether a name certainly belongs to another file. If it were forgotten wrongly, the message would be
        queued again.
        """
        try:
            return not self._is_same(name, inode)
        except OSError:
            return False


class Collector:
    """Takes files of maildrop/ into the queue.

    failed: names to try again; missed: whether there are names that were not kept, so that a scan is needed; progress:
    whether the last `take` has queued a file.
    """

    def __init__(
        self, directory: Directory, writer: "PickupWriter", rules: OriginRules, corrupt: CorruptMail, log: LimitedLog
    ) -> None:
        self.failed = FailedFiles(LATER_MAX)
        self.missed = self.progress = False
        self._directory = directory
        self._writer = writer
        self._rules = rules
        self._corrupt = corrupt
        self._log = log
        self._small = UserQueues()
        self._large = UserQueues()
        self._copies: dict[str, FileCopy] = {}
        self._queued = QueuedFiles(directory)

    @property
    def waiting(self) -> bool:
        """Whether there are files for `take`."""
        return bool(self._small or self._large or self._copies) and len(self._queued) < QUEUED_MAX

    @property
    def has_queued(self) -> bool:
        """Whether there are queued files that could not be removed."""
        return len(self._queued) > 0

    def add(self, name: str) -> None:
        """Add a name that has appeared, if it is that of a finished file."""
        if not is_finished(name) or name in self.failed or name in self._queued or name in self._copies:
            return
        try:
            uid = self._directory.look(name).st_uid
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in OURS:
                self._put_off(name, UNKNOWN)
            else:
                self._corrupt.set_aside(name, None, reason(error))
            return
        if not self._small.add(uid, name):
            self.missed = True

    def begin_scan(self) -> None:
        """A scan begins, which will find all names."""
        self.missed = False
        self._small.forget_long()
        self._large.forget_long()

    def retry(self) -> None:
        """Let `take` try again the files that failed, and are due."""
        for uid, name in self.failed.take():
            if not self._small.add(uid, name):
                self.missed = True

    def take(self) -> bool:
        """Queue one group of files, and copy a piece of each large file; return whether nothing failed."""
        self.progress = False
        failures = self._take_group()
        self._begin_large()
        for name, copy in list(self._copies.items()):
            self._continue_large(name, copy, failures)
        self._warn(failures, "stays")
        removals = self._queued.remove()
        self._warn(removals, "is in the queue, and stays")
        if self.progress:
            self.failed.retry_all()
        return not failures and not removals

    def _warn(self, failures: list[str], what: str) -> None:
        if failures:
            others = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
            self._log.add(f"{failures[0]}{others}; it {what} in {self._directory.path} and is tried again")

    def _take_group(self) -> list[str]:
        """Queue as many files as share a commit; return the failures."""
        copies: dict[str, FileCopy] = {}
        failures: list[str] = []
        size = 0
        end = time.monotonic() + GROUP_SECONDS
        for _ in range(GROUP):
            found = self._small.next()
            if found is None:
                break
            uid, name = found
            if name in copies or name in self._copies or name in self._queued:
                continue
            coming = self._size(name)
            if coming > LARGE:
                if not self._large.add(uid, name):
                    self.missed = True
                continue
            if copies and size + coming > GROUP_BYTES:
                self._small.put_back(uid, name)
                break
            troubles: list[str] = []
            copy = self._copy(name, uid, LARGE, troubles)
            if troubles and copies:
                # There may be room when these are in the queue, and their files are gone.
                self.failed.remove(name)
                self._small.put_back(uid, name)
                break
            failures += troubles
            if copy is not None:
                copies[name] = copy
                size += coming
            if size >= GROUP_BYTES or time.monotonic() >= end:
                break
        self._commit(copies, failures)
        return failures

    def _size(self, name: str) -> int:
        try:
            return self._directory.look(name).st_size
        except OSError:
            return 0  # Opening the file will report the error.

    def _copy(self, name: str, uid: int, most: int, failures: list[str]) -> FileCopy | None:
        """Begin or continue the copy of a file; return it if it is complete.

        None means that the copy continues later, that the file is not mail, or that it failed.
        """
        copy = self._copies.pop(name, None)
        try:
            if copy is None:
                copy = open_copy(self._directory, name, self._rules, self._writer)
            if copy.run(most):
                copy.close()
                return copy
            self._copies[name] = copy
            return None
        except FileNotFoundError:
            pass
        except (NotMail, FormatError) as error:
            self._corrupt.set_aside(name, None if uid == UNKNOWN else uid, str(error))
        except (QueueTrouble, OSError) as error:
            failures.append(f"unable to open {name}: {reason(error)}" if isinstance(error, OSError) else str(error))
            self._put_off(name, uid)
        if copy is not None:
            copy.give_up()
        return None

    def _commit(self, copies: dict[str, FileCopy], failures: list[str]) -> None:
        drafts = {name: copy.draft for name, copy in copies.items() if copy.draft is not None}
        try:
            self._writer.commit(list(drafts.values()))
        except QueueTrouble as error:
            failures.append(str(error))
        for name, draft in drafts.items():
            if draft.queued:
                self.progress = True
                self._queued.add(name, copies[name].inode)
            else:
                self._put_off(name, copies[name].uid)

    def _put_off(self, name: str, uid: int) -> None:
        if not self.failed.add(name, uid):
            self.missed = True

    def _begin_large(self) -> None:
        """Begin copies of large files up to LARGE_AT_ONCE, one of each user, in turn."""
        while len(self._copies) < LARGE_AT_ONCE:
            found = self._large.next(but={copy.uid for copy in self._copies.values()})
            if found is None:
                return
            uid, name = found
            if name in self._copies or name in self._queued or name in self.failed:
                continue
            # Nothing is copied yet: the first piece is copied together with those of the others.
            failures: list[str] = []
            self._copy(name, uid, 0, failures)
            self._warn(failures, "stays")

    def _continue_large(self, name: str, copy: FileCopy, failures: list[str]) -> None:
        complete = self._copy(name, copy.uid, PIECE, failures)
        if complete is not None:
            self._commit({name: complete}, failures)
        elif name in self._copies and copy.draft is not None:
            # Otherwise the commit of this file, and those of others, would wait for all of its data.
            try:
                copy.draft.sync()
            except QueueTrouble as error:
                del self._copies[name]
                copy.give_up()
                failures.append(str(error))
                self._put_off(name, copy.uid)
