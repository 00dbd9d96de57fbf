"""Keeps everybody out of a queue while its owner changes.

sendmutex is held, which keeps queue-send and qmail-send from running. As root, queue/ also gets mode 0000, so that
injectors fail temporarily. A crash leaves the queue closed; the next run, in either direction, opens it again. Without
root there is only one user, and the mode stays as it is.
"""

import os
import stat

from queue_admin.home.tree import Tree, unable_to
from queue_base.accounts import Owner
from queue_base.daemon.lock import take_sendmutex
from queue_base.errors import Failure, Permanent
from queue_base.home import Home

ADVICE = "; the queue stays closed until queuectl adopt, with or without --undo, is run again"


class ClosedQueue:
    """A context in which nobody else can use the queue, which is `tree`.

    An exception before `begin` restores the mode that queue/ had.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._begun = False
        self._lock = -1
        self._before = 0
        self.tree: Tree

    def __enter__(self) -> "ClosedQueue":
        """Raises Permanent if it is no qmail home or contains a link, Temporary if queue-send or qmail-send runs."""
        for path in (self._home.control, self._home.queue):
            if not os.path.isdir(path):
                raise _not_a_home(self._home, path)
        self.tree = Tree(self._home.queue)
        try:
            for name in ("mess", "lock"):
                with unable_to("use", f"{self._home.queue}/{name}"):
                    try:
                        with self.tree.directory(name):
                            pass
                    except FileNotFoundError:
                        raise _not_a_home(self._home, f"{self._home.queue}/{name}") from None
            self._lock = take_sendmutex(self._home)
            self._before = stat.S_IMODE(os.fstat(self.tree.handle).st_mode)
            if os.geteuid() == 0:
                self._set(None, 0)
        except BaseException:
            self._close()
            raise
        return self

    def begin(self, owner: Owner | None) -> None:
        """Give queue/ to `owner`, if one is given. From now on a failure leaves the queue closed. Raises Temporary."""
        self._begun = True
        if owner is not None:
            self._set(owner, 0 if os.geteuid() == 0 else self._before)

    def open(self, owner: Owner, mode: int) -> None:
        """Make all changes durable, then give queue/ to `owner` with a mode that opens it. Raises Temporary."""
        self.tree.sync()
        self._set(owner, mode)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            if error is not None and not self._begun:
                self._set(None, self._before)
        finally:
            self._close()
        if isinstance(error, Failure) and self._begun and os.geteuid() == 0:
            raise type(error)(f"{error}{ADVICE}") from error

    def _close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        self.tree.__exit__()

    def _set(self, owner: Owner | None, mode: int) -> None:
        with unable_to("change owner or mode of", self._home.queue):
            if owner is not None:
                os.fchown(self.tree.handle, owner.uid, owner.gid)
            os.fchmod(self.tree.handle, mode)
        self.tree.sync()


def _not_a_home(home: Home, path: str) -> Permanent:
    advice = f"mount its disk, or make it with queuectl --queue {home.name} init" if home.name else ""
    return Permanent(f"unable to use {home.path}: {path} is not there; {advice or 'queuectl init makes a home'}")
