"""maildrop/ as queue-pickup sees it: looks through it piece by piece, and takes what is there in groups.

Anybody may put anything there, so nothing in it is trusted (untrusted, copying). What cannot be mail is
set aside (aside). Users take turns (turns), and large files are copied a piece at a time beside the groups of
small ones, so that nobody's mail waits for somebody else's. Memory is bounded, however many files there are.
"""

import time

from queue_base.draft import QueueTrouble
from queue_base.errors import reason
from queue_base.writer import QueueWriter
from queue_inject.pickup.bounded import BoundedLines
from queue_inject.pickup.copying import Copy, Rules, open_copy
from queue_inject.pickup.corrupt import Aside
from queue_inject.pickup.removing import MOST as QUEUED_MOST
from queue_inject.pickup.removing import Queued
from queue_inject.pickup.turns import Turns
from queue_inject.pickup.untrusted import OURS, Directory, Unfit
from queue_wire.format_error import FormatError
from queue_wire.maildrop import is_finished

# So many messages, or so many bytes, share the syncs of one commit; one that has taken so long already begins no other.
GROUP = 100
GROUP_BYTES = 16 * 1024 * 1024
GROUP_SECONDS = 0.2
# A file over this size is copied in pieces, one of each turn; so many at once, one a user.
LARGE = 4 * 1024 * 1024
PIECE = 4 * 1024 * 1024
LARGE_AT_ONCE = 4
# Those that the queue refused, to be tried again: beyond this number a scan finds them.
LATER_MOST = 10_000
UNKNOWN = -1  # Whose a file is that could not be looked at.


class Maildrop:
    """`later`: names to be tried again, with their users. `warn` and `aside` are told of trouble and of bad files."""

    def __init__(self, directory: str, writer: QueueWriter, rules: Rules, aside: Aside, warn: BoundedLines) -> None:
        self.later: dict[str, int] = {}
        # A scan would find names that could not be kept.
        self.missed = False
        self._directory = directory
        self._writer = writer
        self._rules = rules
        self._aside = aside
        self._warn = warn
        self._open: Directory | None = None
        self._small = Turns()
        self._larger = Turns()
        self._copies: dict[str, Copy] = {}
        self._queued = Queued(directory, self.opened)

    @property
    def waiting(self) -> bool:
        """Whether `take` would find something to do."""
        return bool(self._small or self._larger or self._copies) and len(self._queued) < QUEUED_MOST

    @property
    def troubled(self) -> bool:
        """Whether there is something for `retry`."""
        return bool(self.later or self._queued)

    def opened(self, anew: bool = False) -> Directory:
        """Return the directory, opened, `anew` where it may be another one by now. Raises OSError."""
        if self._open is None or anew:
            directory = Directory(self._directory)
            if self._open is not None:
                self._open.close()
            self._open = directory
        return self._open

    def add(self, name: str) -> None:
        """Note a name that has appeared, if it is a finished file's."""
        if not is_finished(name) or name in self.later or name in self._queued or name in self._copies:
            return
        try:
            uid = self.opened().look(name).st_uid
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in OURS:
                self._put_off(name, UNKNOWN)
            else:
                self._aside.put(name, None, reason(error))
            return
        if not self._small.add(uid, name):
            self.missed = True

    def begin_scan(self) -> None:
        """A scan is about to find everything."""
        self.missed = False
        self._small.forget_crowds()
        self._larger.forget_crowds()

    def retry(self) -> None:
        """Try again what was refused."""
        later, self.later = self.later, {}
        for name, uid in later.items():
            if not self._small.add(uid, name):
                self.missed = True
        self._tell(self._queued.remove(), "is in the queue, and stays")

    def take(self) -> bool:
        """Queue one group, and a piece of each large file; return whether the queue took them all."""
        troubles = self._take_group()
        self._begin_large()
        for name, copy in list(self._copies.items()):
            self._go_on(name, copy, troubles)
        self._tell(troubles, "stays")
        removals = self._queued.remove()
        self._tell(removals, "is in the queue, and stays")
        return not troubles and not removals

    def _tell(self, troubles: list[str], what: str) -> None:
        if troubles:
            others = f", and {len(troubles) - 1} more" if len(troubles) > 1 else ""
            self._warn.tell(f"{troubles[0]}{others}; it {what} in {self._directory} and is tried again")

    def _take_group(self) -> list[str]:
        """Queue those whose turn it is, as many as share a commit; return what went wrong."""
        copies: dict[str, Copy] = {}
        troubles: list[str] = []
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
                if not self._larger.add(uid, name):
                    self.missed = True
                continue
            if copies and size + coming > GROUP_BYTES:
                self._small.put_back(uid, name)
                break
            copy = self._copied(name, uid, LARGE, troubles)
            if copy is not None:
                copies[name] = copy
                size += coming
            if size >= GROUP_BYTES or time.monotonic() >= end:
                break
        self._commit(copies, troubles)
        return troubles

    def _size(self, name: str) -> int:
        try:
            return self.opened().look(name).st_size
        except OSError:
            return 0  # Opening it will tell.

    def _copied(self, name: str, uid: int, most: int, troubles: list[str]) -> Copy | None:
        """Return a copy that is whole, or None: it goes on in pieces, or it is no mail, or there is trouble."""
        copy = self._copies.pop(name, None)
        try:
            if copy is None:
                copy = open_copy(self.opened(), name, self._rules, self._writer)
            if copy.run(most):
                copy.close()
                return copy
            self._copies[name] = copy
            return None
        except FileNotFoundError:
            pass
        except (Unfit, FormatError) as error:
            self._aside.put(name, None if uid == UNKNOWN else uid, str(error))
        except (QueueTrouble, OSError) as error:
            text = f"unable to open {name}: {reason(error)}" if isinstance(error, OSError) else str(error)
            self._put_off(name, uid, text, troubles)
        if copy is not None:
            copy.give_up()
        return None

    def _commit(self, copies: dict[str, Copy], troubles: list[str]) -> None:
        drafts = {name: copy.draft for name, copy in copies.items() if copy.draft is not None}
        try:
            self._writer.commit(list(drafts.values()))
        except QueueTrouble as error:
            troubles.append(str(error))
        for name, draft in drafts.items():
            if draft.queued:
                self._queued.add(name, copies[name].inode)
            else:
                self._put_off(name, copies[name].uid)

    def _put_off(self, name: str, uid: int, why: str = "", troubles: list[str] | None = None) -> None:
        if len(self.later) < LATER_MOST:
            self.later[name] = uid
        else:
            self.missed = True
        if troubles is not None:
            troubles.append(why)

    def _begin_large(self) -> None:
        """Let large files go on where there is room for more: users in turn, one file of each."""
        while len(self._copies) < LARGE_AT_ONCE:
            found = self._larger.next(but={copy.uid for copy in self._copies.values()})
            if found is None:
                return
            uid, name = found
            if name in self._copies or name in self._queued or name in self.later:
                continue
            # Nothing is copied yet: its first piece comes with those of the others.
            troubles: list[str] = []
            self._copied(name, uid, 0, troubles)
            self._tell(troubles, "stays")

    def _go_on(self, name: str, copy: Copy, troubles: list[str]) -> None:
        whole = self._copied(name, copy.uid, PIECE, troubles)
        if whole is not None:
            self._commit({name: whole}, troubles)
        elif name in self._copies and copy.draft is not None:
            # Or the commits of others, and its own, would wait for all of it.
            try:
                copy.draft.sync()
            except QueueTrouble as error:
                del self._copies[name]
                copy.give_up()
                self._put_off(name, copy.uid, str(error), troubles)
