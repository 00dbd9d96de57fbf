"""Gives a home back to qmail: its owners and modes (hier.c of netqmail 1.03), with what is in the queue now.

Refused before anything changes: mail in maildrop/, which qmail would never find; files of users that were
set aside from there, which nobody but a person may throw away; messages held or
parked as corrupt, which qmail has no word for, unless `force`; a hashed todo/ or intd/, unless it
is said what to do with it. Every step can be repeated, in either direction.
"""

import os
import stat

from queue_admin.closing import ClosedQueue
from queue_admin.flatten import check_names, flatten, is_half_flat
from queue_admin.make import Maker, naming
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
from queue_admin.ownership import Giver
from queue_base.accounts import Owner
from queue_base.durable import Commit
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.layout import open_layout
from queue_base.states import is_there
from queue_wire.maildrop import is_temporary

MARKS = ("hold", "corrupt")
# Those of queue-todo, that a crash may have left.
MARKS_IN_LOCK = ("slow", "refuse")
_NAMED = 5


def undo(home: Home, accounts: QmailAccounts, *, todo: str | None = None, force: bool = False) -> list[str]:
    """Give the queue to qmail; return lines that say what was done. Raises Permanent or Temporary.

    `todo` is what becomes of a hashed todo/ and intd/: "flat" for stock qmail, "hashed" for one
    with the big-todo patch, None to refuse. `force` drops the marks of held and corrupt messages.
    """
    commit = Commit()
    giver = Giver(commit)
    qmailq = accounts.owner("qmailq")
    with ClosedQueue(home, commit) as closed:
        layout = open_layout(home.queue)
        half = [kind for kind in EITHER if is_half_flat(home.queue, kind, layout.split)]
        hashed = [kind for kind, flat in (("todo", layout.flat_todo), ("intd", layout.flat_intd)) if not flat]
        _refuse(home, force, [kind for kind in hashed if kind not in half] if todo is None else [])
        flat = [kind for kind in EITHER if kind in half or (kind in hashed and todo == "flat")]
        for kind in flat:
            check_names(home.queue, kind, layout.split)
        # From here the owner says whose it is going to be: queue-start names queuectl adopt.
        closed.begin(qmailq)
        done = [f"made {kind}/ flat: {flatten(home.queue, kind, layout.split, commit)} files moved" for kind in flat]
        done += _remove_extra(home, commit)
        maker = Maker(qmailq, commit)
        for kind, (account, directory_mode, file_mode) in QMAIL.items():
            owner = accounts.owner(account)
            giver.tree(f"{home.queue}/{kind}", owner, directory_mode, file_mode, kind in BUCKETED)
            with naming("sync", home.queue):
                commit.sync()
        _give_lock(home, accounts, maker, giver)
        _give_rest(home, accounts, giver)
        closed.open(qmailq, QMAIL_QUEUE_MODE)
    done += [f"made {path}" for path in maker.made]
    done += [f"left alone {path!a}: neither a file nor a directory of a queue" for path in giver.left]
    done.append(f"changed owner or mode of {giver.changed} files and directories")
    if layout.split != 23:
        done.append(f"note: qmail must be one that was built with conf-split {layout.split}")
    return done


def _marks(home: Home, kind: str) -> list[str]:
    """Return what hold/ or corrupt/ holds, as paths."""
    found = []
    for name in _listed(f"{home.queue}/{kind}"):
        path = f"{home.queue}/{kind}/{name}"
        if path == f"{home.queue}/{ASIDE}":
            continue
        found += [f"{path}/{mark}" for mark in _listed(path)] if os.path.isdir(path) else [path]
    return found


def _is_stale(home: Home, mark: str) -> bool:
    """Return whether the mark's message is gone; nobody misses such a mark."""
    mess = "/".join([home.queue, "mess", *mark.split("/")[-2:]])
    with naming("look at", mess):
        return not is_there(mess)


def _listed(directory: str) -> list[str]:
    with naming("read", directory):
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []


def _refuse(home: Home, force: bool, undecided: list[str]) -> None:
    maildrop = f"{home.queue}/maildrop"
    # A file under construction was accepted from nobody, and the closed queue keeps it from being finished.
    mail = [name for name in _listed(maildrop) if not is_temporary(name)]
    if mail:
        raise Permanent(f"unable to undo: {maildrop} has {_named(mail)}; run the suite until it is empty")
    aside = _listed(f"{home.queue}/{ASIDE}")
    if aside:
        raise Permanent(f"unable to undo: {home.queue}/{ASIDE} has {_named(aside)}; move or remove what is there")
    marks = [path for kind in MARKS for path in _marks(home, kind) if not _is_stale(home, path)]
    if marks and not force:
        shown = _named([os.path.relpath(path, home.queue) for path in marks])
        raise Permanent(f"unable to undo: qmail has no word for {shown}; release them, or say --force to drop them")
    if undecided:
        kinds = " and ".join(f"{kind}/" for kind in undecided)
        raise Permanent(
            f"unable to undo: {kinds} is hashed, and stock qmail sees only flat ones;"
            " say --todo flat, or --todo hashed for a qmail with the big-todo patch"
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ascii(", ".join(names[:_NAMED]))[1:-1] + more


def _remove_extra(home: Home, commit: Commit) -> list[str]:
    done = []
    for path in (path for kind in MARKS for path in _marks(home, kind)):
        with naming("remove", path):
            commit.unlink(path)
        done.append(f"dropped the mark {os.path.relpath(path, home.queue)}")
    control = f"{home.queue}/lock/control"
    with naming("remove", control):
        if os.path.lexists(control) and stat.S_ISSOCK(os.lstat(control).st_mode):
            commit.unlink(control)
        for name in MARKS_IN_LOCK:
            commit.unlink(f"{home.queue}/lock/{name}")
    for name in _listed(f"{home.queue}/maildrop"):
        with naming("remove", f"{home.queue}/maildrop/{name}"):
            if is_temporary(name):
                commit.unlink(f"{home.queue}/maildrop/{name}")
    with naming("sync", home.queue):
        # Before the directories go that the commit has to sync.
        commit.sync()
    # NAME.new is what an adoption that was cut off left.
    for kind in (*EXTRA, *(f"{kind}.new" for kind in EXTRA)):
        top = f"{home.queue}/{kind}"
        with naming("remove", top):
            if not os.path.isdir(top):
                continue
            for name in os.listdir(top):
                os.rmdir(f"{top}/{name}")
            os.rmdir(top)
            commit.contents(home.queue)
        done.append(f"removed {top}")
    return done


def _give_lock(home: Home, accounts: QmailAccounts, maker: Maker, giver: Giver) -> None:
    lock = f"{home.queue}/lock"
    maker.file(f"{lock}/sendmutex", b"", SENDMUTEX_MODE)
    maker.fifo(f"{lock}/trigger", TRIGGER_MODE)
    maker.file(f"{lock}/tcpto", bytes(TCPTO_SIZE), TCPTO_MODE)
    giver.one(f"{lock}/sendmutex", accounts.owner("qmails"), SENDMUTEX_MODE)
    giver.one(f"{lock}/trigger", accounts.owner("qmails"), TRIGGER_MODE)
    giver.one(f"{lock}/tcpto", accounts.owner("qmailr"), TCPTO_MODE)


def _give_rest(home: Home, accounts: QmailAccounts, giver: Giver) -> None:
    """alias/ and what our deliveries left in it; HOME and control/ keep their owner and get qmail's group."""
    alias = accounts.owner("alias")
    with naming("change owner in", home.alias):
        if os.path.isdir(home.alias):
            before = os.stat(home.alias).st_uid
            if before not in (0, alias.uid):
                _give_contents(home.alias, before, alias)
            giver.one(home.alias, alias, ALIAS_MODE)
        for path in (home.path, home.control):
            giver.one(path, Owner(os.stat(path).st_uid, accounts.gid), CONTROL_MODE)


def _give_contents(top: str, before: int, owner: Owner) -> None:
    # Only what `before` owns: a file that somebody else put there stays theirs. fwalk follows no links.
    for _, directories, files, handle in os.fwalk(top):
        for name in directories + files:
            if os.stat(name, dir_fd=handle, follow_symlinks=False).st_uid == before:
                os.chown(name, owner.uid, owner.gid, dir_fd=handle, follow_symlinks=False)
        os.fsync(handle)
