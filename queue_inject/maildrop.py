"""maildrop/ as queue-pickup sees it: which files are to be taken, taking them in groups, and what is wrong with others.

Anybody may put anything there, so nothing in it is trusted: a file is opened without following links
or waiting, must be a regular file with one name, and is parsed before it is copied. One that cannot
be taken is reported once and left for the administrator.
"""

import os
import stat

from queue_base.durable import sync_path
from queue_base.errors import reason
from queue_inject.draft import WRITE, Draft, QueueTrouble
from queue_inject.writer import QueueWriter
from queue_wire.errors import FormatError, quoted
from queue_wire.maildrop import HEADER_LENGTH, is_finished, is_temporary, unpack_envelope, unpack_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# So many messages, or so many bytes, share the syncs of one commit.
GROUP = 100
GROUP_BYTES = 64 * 1024 * 1024
# A file under construction that is older than this has no writer any more: the writer's limit is 24 hours.
ABANDONED_SECONDS = 36 * 3600
ENVELOPE_MAX = 64 * 1024 * 1024
_CHUNK = 1 << 18
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Unfit(Exception):
    """A file that cannot be mail; the text says why."""


class Maildrop:
    """`fresh`: names not tried yet; `pending`: those and the ones to try again. `warn` is told of each trouble once."""

    def __init__(self, directory: str, writer: QueueWriter, warn: "Callable[[str], None]") -> None:
        self.fresh = False
        self.pending: dict[str, None] = {}
        self._directory = directory
        self._writer = writer
        self._warn = warn
        # What has been reported, and what is queued but could not be removed; as long as it is there.
        self._reported: set[str] = set()
        self._taken: set[str] = set()

    def add(self, name: str) -> None:
        """Note a name that has appeared, if it is a finished file's."""
        if is_finished(name) and name not in self._reported:
            self.pending[name] = None
            self.fresh = True

    def scan(self, now: float) -> None:
        """Note every file there is, and remove what was abandoned; `now` in seconds since the epoch."""
        try:
            names = os.listdir(self._directory)
        except OSError as error:
            self._warn(f"unable to read {self._directory}: {reason(error)}; trying again later")
            return
        self._reported.intersection_update(names)
        self._taken.intersection_update(names)
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
        if name not in self._reported:
            self._reported.add(name)
            path = f"{self._directory}/{quoted(os.fsencode(name))[1:-1]}"
            self._warn(f"unable to take {path} of uid {self._owner(name)}: {why}; it stays there, untouched")

    def _owner(self, name: str) -> str:
        try:
            return str(os.lstat(f"{self._directory}/{name}").st_uid)
        except OSError:
            return "unknown"

    def take(self) -> bool:
        """Queue every pending file; return whether none of them has to be tried again."""
        self.fresh = False
        todo = list(self.pending)
        troubles: list[str] = []
        while todo:
            todo = self._take_group(todo, troubles)
        if troubles:
            others = f", and {len(troubles) - 1} more" if len(troubles) > 1 else ""
            self._warn(f"{troubles[0]}{others}; the mail stays in {self._directory} and is tried again")
        return not self.pending

    def _take_group(self, names: list[str], troubles: list[str]) -> list[str]:
        """Queue the first of the names, as many as share a commit; return the rest."""
        drafts: dict[str, Draft] = {}
        size = 0
        for number, name in enumerate(names):
            if len(drafts) == GROUP or size >= GROUP_BYTES:
                names = names[number:]
                break
            if name in self._taken:
                drafts[name] = _Taken(name)
                continue
            try:
                drafts[name], length = self._copy(name)
                size += length
            except FileNotFoundError:
                self.pending.pop(name)
            except Unfit as error:
                self.pending.pop(name)
                self._report(name, str(error))
            except QueueTrouble as error:
                troubles.append(str(error))
        else:
            names = []
        try:
            self._writer.commit([draft for name, draft in drafts.items() if name not in self._taken])
        except QueueTrouble as error:
            troubles.append(str(error))
        self._remove([name for name, draft in drafts.items() if draft.queued], troubles)
        return names
