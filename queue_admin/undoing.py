"""Gives a home back to qmail: its owners and modes (hier.c of netqmail 1.03), with what is in the queue now.

Refused before anything changes: mail in maildrop/, which qmail would never find; files of users that were
set aside from there, which nobody but a person may throw away; messages held or
parked as corrupt, which qmail has no word for, unless `force`; a hashed todo/ or intd/, unless it
is said what to do with it. Every step can be repeated, in either direction.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from queue_admin.closing import ClosedQueue
from queue_admin.flatten import check_names, flatten, is_half_flat
from queue_admin.make import Maker
from queue_admin.modes import (
    ALIAS_MODE,
    ASIDE,
    BUCKETED,
    CONTROL_MODE,
    EITHER,
    EXTRA,
    QMAIL,
    QMAIL_QUEUE_MODE,
    SENDMUTEX_MODE,
    TCPTO_MODE,
    TCPTO_SIZE,
    TRIGGER_MODE,
    QmailAccounts,
)
from queue_admin.ownership import Giver, check_directories, known_uids
from queue_admin.tree import Tree, naming
from queue_base.accounts import Owner
from queue_base.errors import Permanent, reason
from queue_base.home import Home
from queue_base.layout import open_layout
from queue_base.safe_open import READ_DIRECTORY
from queue_wire.maildrop import is_temporary

MARKS = ("hold", "corrupt")
# Those of queue-todo, that a crash may have left.
MARKS_IN_LOCK = ("slow", "refuse")
_NAMED = 5
# A Maildir in alias/ is some levels deep.
ALIAS_DEPTH = 100


def undo(home: Home, accounts: QmailAccounts, *, todo: str | None = None, force: bool = False) -> list[str]:
    """Give the queue to qmail; return lines that say what was done. Raises Permanent or Temporary.

    `todo` is what becomes of a hashed todo/ and intd/: "flat" for stock qmail, "hashed" for one
    with the big-todo patch, None to refuse. `force` drops the marks of held and corrupt messages.
    """
    qmailq = accounts.owner("qmailq")
    with ClosedQueue(home) as closed:
        tree = closed.tree
        giver = Giver(tree, known_uids(tree, qmailq))
        layout = open_layout(home.queue)
        half = [kind for kind in EITHER if is_half_flat(tree, kind, layout.split)]
        hashed = [kind for kind, flat in (("todo", layout.flat_todo), ("intd", layout.flat_intd)) if not flat]
        _refuse(home, tree, force, [kind for kind in hashed if kind not in half] if todo is None else [])
        if todo == "hashed" and half:
            kinds = " and ".join(f"{kind}/" for kind in half)
            raise Permanent(
                f"unable to leave {kinds} hashed: files of messages lie beside the numbered directories, or some of"
                " those are gone, as when --todo flat was cut off; say --todo flat, or move the files into them"
            )
        flat = [kind for kind in EITHER if kind in half or (kind in hashed and todo == "flat")]
        for kind in flat:
            check_names(tree, kind, layout.split)
        check_directories(tree, (*QMAIL, *EXTRA))
        with _alias(home) as alias:
            # From here the owner says whose it is going to be: queue-start names queuectl adopt.
            closed.begin(qmailq)
            done = [f"made {kind}/ flat: {flatten(tree, kind, layout.split)} files moved" for kind in flat]
            done += _remove_extra(tree)
            maker = Maker(qmailq, tree=tree)
            for kind, (account, directory_mode, file_mode) in QMAIL.items():
                giver.directory(kind, accounts.owner(account), directory_mode, file_mode, kind in BUCKETED)
                tree.sync()
            _give_lock(accounts, tree, maker, giver)
            left = giver.left | _give_rest(home, accounts, alias)
            closed.open(qmailq, QMAIL_QUEUE_MODE)
    done += [f"made {path}" for path in maker.made]
    done += [f"left alone {path!a}: {why}" for path, why in left.items()]
    done.append(f"changed owner or mode of {giver.changed} files and directories")
    if layout.split != 23:
        done.append(f"note: qmail must be one that was built with conf-split {layout.split}")
    return done


def _marks(tree: Tree, kind: str) -> list[str]:
    """Return what hold/ or corrupt/ holds, as names below queue/."""
    found = []
    for name in (f"{kind}/{each}" for each in tree.list(kind)):
        if name == ASIDE:
            continue
        found += [f"{name}/{mark}" for mark in tree.list(name)] if tree.is_directory(name) else [name]
    return found


def _is_stale(tree: Tree, mark: str) -> bool:
    """Return whether it is the mark of a message that is gone; nobody misses such a mark."""
    _, *place = mark.split("/")
    return len(place) == 2 and all(part.isdigit() for part in place) and not tree.has("/".join(["mess", *place]), bool)


def _refuse(home: Home, tree: Tree, force: bool, undecided: list[str]) -> None:
    maildrop = f"{home.queue}/maildrop"
    # A file under construction was accepted from nobody, and the closed queue keeps it from being finished.
    mail = [name for name in tree.list("maildrop") if not is_temporary(name)]
    if mail:
        raise Permanent(f"unable to undo: {maildrop} has {_named(mail)}; run the suite until it is empty")
    aside = tree.list(ASIDE)
    if aside:
        raise Permanent(f"unable to undo: {home.queue}/{ASIDE} has {_named(aside)}; move or remove what is there")
    marks = [mark for kind in MARKS for mark in _marks(tree, kind) if not _is_stale(tree, mark)]
    if marks and not force:
        raise Permanent(
            f"unable to undo: qmail has no word for {_named(marks)}; release them, or say --force to drop them"
        )
    if undecided:
        kinds = " and ".join(f"{kind}/" for kind in undecided)
        raise Permanent(
            f"unable to undo: {kinds} is hashed, and stock qmail sees only flat ones;"
            " say --todo flat, or --todo hashed for a qmail with the big-todo patch"
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ascii(", ".join(names[:_NAMED]))[1:-1] + more


def _remove_extra(tree: Tree) -> list[str]:
    done = []
    for mark in (mark for kind in MARKS for mark in _marks(tree, kind)):
        with naming("remove", f"{tree.path}/{mark}"):
            tree.unlink(mark)
        done.append(f"dropped the mark {mark}")
    with naming("remove", f"{tree.path}/lock/control"):
        if tree.has("lock/control", stat.S_ISSOCK):
            tree.unlink("lock/control")
        for name in MARKS_IN_LOCK:
            tree.unlink(f"lock/{name}")
    for name in tree.list("maildrop"):
        with naming("remove", f"{tree.path}/maildrop/{name}"):
            if is_temporary(name):
                tree.unlink(f"maildrop/{name}")
    tree.sync()
    # NAME.new is what an adoption that was cut off left.
    for kind in (*EXTRA, *(f"{kind}.new" for kind in EXTRA)):
        if not tree.is_directory(kind):
            continue
        with naming("remove", f"{tree.path}/{kind}"):
            for name in tree.list(kind):
                tree.rmdir(f"{kind}/{name}")
            tree.rmdir(kind)
        done.append(f"removed {tree.path}/{kind}")
    return done


def _give_lock(accounts: QmailAccounts, tree: Tree, maker: Maker, giver: Giver) -> None:
    maker.file(f"{tree.path}/lock/sendmutex", b"", SENDMUTEX_MODE)
    maker.fifo(f"{tree.path}/lock/trigger", TRIGGER_MODE)
    maker.file(f"{tree.path}/lock/tcpto", bytes(TCPTO_SIZE), TCPTO_MODE)
    giver.one("lock/sendmutex", accounts.owner("qmails"), SENDMUTEX_MODE)
    giver.one("lock/trigger", accounts.owner("qmails"), TRIGGER_MODE, stat.S_ISFIFO)
    giver.one("lock/tcpto", accounts.owner("qmailr"), TCPTO_MODE)


@contextmanager
def _alias(home: Home) -> Iterator[Tree | None]:
    """Open alias/, None where there is none. Raises Permanent where a link is in its place."""
    if not os.path.lexists(home.alias):
        yield None
        return
    with Tree(home.alias) as tree:
        yield tree


def _give_rest(home: Home, accounts: QmailAccounts, tree: Tree | None) -> dict[str, str]:
    """alias/ and what our deliveries left in it; HOME and control/ keep their owner and get qmail's group.

    Return what was passed by: {path: reason}.
    """
    alias = accounts.owner("alias")
    left: dict[str, str] = {}
    if tree is not None:
        before = os.fstat(tree.handle).st_uid
        if before not in (0, alias.uid):
            with naming("change owner in", tree.path):
                left = _give_contents(tree.handle, tree.path, before, alias)
        Giver(tree, frozenset()).top(alias, ALIAS_MODE)
        tree.sync()
    for path in (home.path, home.control):
        with naming("change owner of", path):
            _give_group(path, accounts.gid)
    return left


def _give_group(path: str, gid: int) -> None:
    """Give a directory that only root may write, or the way to it, to a group."""
    with Tree(path, follow=True) as tree:
        Giver(tree, frozenset()).top(Owner(os.fstat(tree.handle).st_uid, gid), CONTROL_MODE)
        tree.sync()


def _give_contents(handle: int, path: str, before: int, owner: Owner, depth: int = ALIAS_DEPTH) -> dict[str, str]:
    """Give what `before` owns in a directory; a file that somebody else put there stays theirs.

    Return what was passed by: {path: reason}. Raises OSError.
    """
    left: dict[str, str] = {}
    for name in os.listdir(handle):
        try:
            found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        except FileNotFoundError:
            continue
        below = f"{path}/{name}"
        try:
            status = os.fstat(found)
            if status.st_uid == before:
                # By descriptor, also of a link and a socket, which cannot be opened otherwise: `before` may put
                # another's file in its place at any moment.
                os.chown(f"/proc/self/fd/{found}", owner.uid, owner.gid)
            if not stat.S_ISDIR(status.st_mode):
                continue
            if not depth:
                # A descriptor and a call for each level: whoever owns alias/ must not be able to use up either.
                left[below] = f"it is more than {ALIAS_DEPTH} directories deep"
                continue
            inner = os.open(".", READ_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
            try:
                left.update(_give_contents(inner, below, before, owner, depth - 1))
            finally:
                os.close(inner)
        except PermissionError as error:
            # A user's file system is mounted there, which root may not look into, or the file may not be changed.
            left[below] = reason(error)
        finally:
            os.close(found)
    return left
