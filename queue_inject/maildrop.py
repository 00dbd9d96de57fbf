"""maildrop/ as queue-pickup sees it: which files are to be taken, taking them in groups, and what is wrong with others.

Anybody may put anything there, so nothing in it is trusted: a file is opened without following links
or waiting, must be a regular file with one name, and is parsed before it is copied. One that cannot
be taken is reported once and left for the administrator.
"""

import errno
import os
import stat

from queue_base.draft import READ, QueueTrouble
from queue_base.durable import sync_path
from queue_base.errors import reason
from queue_base.writer import QueueDraft, QueueWriter
from queue_wire.errors import FormatError, quoted
from queue_wire.maildrop import HEADER_LENGTH, is_finished, is_temporary, unpack_envelope, unpack_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# So many messages, or so many bytes, share the syncs of one commit.
GROUP = 100
GROUP_BYTES = 64 * 1024 * 1024
# A larger file that takes up less than this share of its size on the disk is made of holes: it costs its owner
# nothing, and us all that we copy. No file system compresses mail that much.
HOLES_FROM = 16 * 1024 * 1024
SMALLEST_SHARE = 64
# A file under construction that is older than this has no writer any more: the writer's limit is 24 hours.
ABANDONED_SECONDS = 36 * 3600
ENVELOPE_MAX = 64 * 1024 * 1024
_CHUNK = 1 << 18
# A link, a socket, a file that its owner has closed to us: nothing that passes by itself.
_UNFIT = frozenset((errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EPERM))
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Unfit(Exception):
    """A file that cannot be mail; the text says why."""


class Maildrop:
    """`fresh`: names not tried yet; `deferred`: those to try again. `warn` is told of each trouble.

    `queued` are those that are in the queue but could not be removed here.
    """

    def __init__(self, directory: str, writer: QueueWriter, warn: "Callable[[str], None]") -> None:
        self.fresh: dict[str, None] = {}
        self.deferred: dict[str, None] = {}
        self.queued: dict[str, None] = {}
        self._directory = directory
        self._writer = writer
        self._warn = warn
        self._reported: set[str] = set()
        self._readable = True

    def add(self, name: str) -> None:
        """Note a name that has appeared, if it is a finished file's."""
        known = name in self._reported or name in self.deferred or name in self.queued
        if is_finished(name) and not known:
            self.fresh[name] = None

    def scan(self, now: float) -> None:
        """Note every file there is, and remove what was abandoned; `now` in seconds since the epoch."""
        try:
            names = os.listdir(self._directory)
        except OSError as error:
            if self._readable:
                self._warn(f"unable to read {self._directory}: {reason(error)}; trying again later")
            self._readable = False
            return
        self._readable = True
        self._reported.intersection_update(names)
        for name in names:
            if is_finished(name):
                self.add(name)
            elif is_temporary(name):
                self._remove_abandoned(name, now)
            else:
                self._report(name, "queue-inject leaves no file of such a name")

    def _remove_abandoned(self, name: str, now: float) -> None:
        path = f"{self._directory}/{name}"
        try:
            if os.lstat(path).st_mtime < now - ABANDONED_SECONDS:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._report(name, reason(error))

    def _report(self, name: str, why: str) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        try:
            owner = str(os.lstat(f"{self._directory}/{name}").st_uid)
        except OSError:
            owner = "unknown"
        shown = quoted(os.fsencode(name))[1:].replace("'", "")
        self._warn(f"unable to take {self._directory}/{shown} of uid {owner}: {why}; it stays there untouched")

    def has_work(self, again: bool) -> bool:
        """Return whether `take` would find something to do."""
        return bool(self.fresh or (again and (self.deferred or self.queued)))

    def take(self, again: bool, one_group: bool = False) -> bool:
        """Queue the fresh files, with `again` the deferred ones too; return whether there was no trouble.

        With `one_group`, those that do not fit into the first commit are left for the next call.
        """
        names = [*self.deferred, *self.fresh] if again else list(self.fresh)
        troubles = self._remove_queued() if again else []
        while names:
            names = self._take_group(names, troubles)
            if one_group:
                break
        if troubles:
            others = f", and {len(troubles) - 1} more" if len(troubles) > 1 else ""
            self._warn(f"{troubles[0]}{others}; it stays in {self._directory} and is tried again")
        return not troubles

    def _take_group(self, names: list[str], troubles: list[str]) -> list[str]:
        """Queue the first of the names, as many as share a commit; return the rest."""
        drafts: dict[str, QueueDraft] = {}
        size = place = 0
        while place < len(names) and len(drafts) < GROUP and size < GROUP_BYTES:
            name = names[place]
            if drafts and size + self._size(name) > GROUP_BYTES:
                break
            place += 1
            self.fresh.pop(name, None)
            self.deferred.pop(name, None)
            try:
                drafts[name], length = self._copy(f"{self._directory}/{name}")
                size += length
            except FileNotFoundError:
                pass
            except Unfit as error:
                self._report(name, str(error))
            except QueueTrouble as error:
                self.deferred[name] = None
                troubles.append(str(error))
        try:
            self._writer.commit(list(drafts.values()))
        except QueueTrouble as error:
            troubles.append(str(error))
        for name, draft in drafts.items():
            (self.queued if draft.queued else self.deferred)[name] = None
        troubles += self._remove_queued()
        return names[place:]

    def _size(self, name: str) -> int:
        try:
            return os.lstat(f"{self._directory}/{name}").st_size
        except OSError:
            return 0  # Opening it will tell.

    def _remove_queued(self) -> list[str]:
        """Remove what is in the queue now; return what went wrong."""
        if not self.queued:
            return []
        try:
            for name in list(self.queued):
                if os.path.lexists(f"{self._directory}/{name}"):
                    os.unlink(f"{self._directory}/{name}")
                del self.queued[name]
            # A power cut may not bring back many messages that are queued already.
            sync_path(self._directory)
        except OSError as error:
            return [f"unable to remove queued mail from {self._directory}: {reason(error)}"]
        return []

    def _copy(self, path: str) -> tuple[QueueDraft, int]:
        """Return a finished draft of a file, and its length. Raises Unfit, QueueTrouble, FileNotFoundError."""
        try:
            handle = os.open(path, _OPEN)
        except OSError as error:
            if error.errno in _UNFIT:
                raise Unfit(reason(error)) from error
            if error.errno == errno.ENOENT:
                raise
            raise QueueTrouble(READ, f"unable to open {path}: {reason(error)}") from error
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise Unfit("it is not a regular file")
            if status.st_nlink > 1:
                raise Unfit("it has a second name")
            return self._copy_open(handle, status)
        except FormatError as error:
            raise Unfit(str(error)) from error
        except OSError as error:
            raise QueueTrouble(READ, f"unable to read {path}: {reason(error)}") from error
        finally:
            os.close(handle)

    def _copy_open(self, handle: int, status: os.stat_result) -> tuple[QueueDraft, int]:
        held = status.st_blocks * 512
        if status.st_size > HOLES_FROM and held * SMALLEST_SHARE < status.st_size:
            raise Unfit(f"it claims to be of {status.st_size} bytes but takes up {held} on the disk")
        length = unpack_header(os.pread(handle, HEADER_LENGTH, 0))
        end = HEADER_LENGTH + length
        if not end < status.st_size <= end + ENVELOPE_MAX:
            raise Unfit(f"it has {status.st_size} bytes, and its message alone should have {length}")
        sender, recipients = unpack_envelope(b"".join(_pieces(handle, end, status.st_size)))
        # Here the size is known before: no copy is begun in vain.
        self._writer.intake.check(coming=length)
        draft = self._writer.begin(status.st_uid)
        try:
            for piece in _pieces(handle, HEADER_LENGTH, end):
                draft.write(piece)
            draft.finish(sender, recipients)
        except BaseException:
            draft.discard()
            raise
        return draft, status.st_size


def _pieces(handle: int, start: int, end: int) -> "Iterator[bytes]":
    """Yield a file's bytes from start to end. Raises Unfit where it has become shorter."""
    while start < end:
        data = os.pread(handle, min(_CHUNK, end - start), start)
        if not data:
            raise Unfit("it has become shorter while it was read")
        start += len(data)
        yield data
