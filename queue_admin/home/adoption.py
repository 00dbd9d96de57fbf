"""Takes a qmail home over in place (`adopt`), and gives a home back to qmail (`undo`).

`adopt` changes owners and modes in queue/ to ours and makes what is missing. The bytes, names, inode numbers and mtimes
of messages do not change, nor does anything in alias/ and control/, which both mailers read.

`undo` gives queue/ the owners and modes of netqmail 1.03 (hier.c), with the messages that are in it then. Recipients
that queue/marks says are done are removed from their envelopes (done_marks.py). It refuses,
before anything has changed, if maildrop/ holds mail, which qmail would never find; if files of users were set aside
from maildrop/, which only a person may remove; if messages are held or corrupt, which qmail cannot express, unless
`force`; and if todo/ or intd/ is hashed, unless the caller says what it becomes.

Each step can be repeated. The last one gives queue/ itself to its new owner, so after an interruption either function
can be run to finish or to go back. Both return lines that say what was done, and raise Permanent or Temporary.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from queue_admin.checks.queue_stamp import NAME as STAMP
from queue_admin.checks.queue_stamp import REPAIR
from queue_admin.home.closed_queue import ClosedQueue
from queue_admin.home.create import create_queue
from queue_admin.home.done_marks import apply_marks, read_marks
from queue_admin.home.flatten import check_names, class_files, dissolve_classes, flatten, is_half_flat
from queue_admin.home.maker import Maker
from queue_admin.home.modes import (
    ALIAS_MODE,
    BUCKETED,
    CONTROL_MODE,
    EXTRA,
    KEPT,
    MAILDROP_HELD,
    MAILDROP_REJECTS,
    MAY_BE_FLAT,
    ONDEMAND,
    OURS,
    QMAIL,
    QMAIL_QUEUE_MODE,
    QUEUE_MODE,
    RUN,
    SENDMUTEX_MODE,
    TCPTO_MODE,
    TCPTO_SIZE,
    TRIGGER_MODE,
    UNPLACED,
    QmailAccounts,
)
from queue_admin.home.ownership import OwnerChanger, change_stored, check_directories, known_uids
from queue_admin.home.tree import Tree, unable_to
from queue_admin.progress import Progress
from queue_base.accounts import Owner
from queue_base.control import read_value
from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, PRIORITY, open_layout
from queue_base.queue.marks_file import NAME as DONE_MARKS
from queue_base.queue.postman import DIRECTORY as POSTMAN
from queue_base.safe_open import READ_DIRECTORY
from queue_wire.control.registry import SMTPROUTES
from queue_wire.files.maildrop import is_temporary
from queue_wire.pipes.qmtp import SOCKET_DIRECTORY

STANDING_HOLDS = "holds"
MARKS = ("hold", "corrupt")
# Marks of queue-todo, which a crash may have left in lock/.
MARKS_IN_LOCK = ("slow", "refuse")
NAMED_MAX = 5  # Names that an error lists.
# A Maildir in alias/ is some levels deep.
ALIAS_DEPTH = 100


def adopt(home: Home, owner: Owner, progress: Progress | None = None) -> list[str]:
    """Give the queue to `owner`. `progress` counts the files that are looked at."""
    done: list[str] = []
    with ClosedQueue(home) as closed:
        tree = closed.tree
        maker = Maker(owner, tree=tree)
        above = Maker(owner)
        changer = OwnerChanger(tree, known_uids(tree, owner), progress)
        _check_no_repair(tree)
        layout = open_layout(home.queue)
        # An interrupted undo left these half flat. Flattening is finished, since we can use flat directories.
        half = [kind for kind in MAY_BE_FLAT if is_half_flat(tree, kind, layout.split)]
        for kind in half:
            check_names(tree, kind, layout.split)
        check_directories(tree, OURS)
        closed.begin(None)
        done += [f"made {kind}/ flat: {flatten(tree, kind, layout.split)} files moved" for kind in half]
        create_queue(maker, tree, layout.split)
        above.directory(home.alias, ALIAS_MODE)
        with unable_to("sync", home.path):
            above.commit.sync()
        for kind, (directory_mode, file_mode) in OURS.items():
            changer.directory(kind, owner, directory_mode, file_mode, kind in BUCKETED, KEPT.get(kind, 0))
            tree.sync()
        if tree.is_directory(PRIORITY):
            directory_mode, file_mode = OURS["todo"]
            changer.directory(PRIORITY, owner, directory_mode, None, False)
            for name in tree.list(PRIORITY):
                changer.directory(f"{PRIORITY}/{name}", owner, directory_mode, file_mode, True, KEPT["todo"])
            tree.sync()
        changer.one("lock/sendmutex", owner, SENDMUTEX_MODE)
        changer.one("lock/trigger", owner, TRIGGER_MODE, stat.S_ISFIFO)
        change_stored(tree, changer, owner)
        tree.sync()
        for name in (DONE_MARKS, STAMP, STANDING_HOLDS):
            changer.one(name, owner, FILE_MODE)
        closed.open(owner, QUEUE_MODE)
    done += [f"made {path}" for path in maker.made + above.made]
    known = {f"{home.queue}/{kind}" for kind in OURS}
    done += [f"left alone {path!a}: {why}" for path, why in changer.left.items() if path not in known]
    done.append(f"changed owner or mode of {changer.changed} files and directories")
    return done


def adopt_run(home: Home, owner: Owner) -> list[str]:
    """Give `owner` what several queues share: run/, with its directories, and the files of locks in it."""
    above = Maker(owner)
    above.directory(home.run, QUEUE_MODE)
    with Tree(home.run) as tree:
        below = Maker(owner, tree=tree)
        changer = OwnerChanger(tree, known_uids(tree, owner))
        for kind, mode in RUN.items():
            below.directory(f"{home.run}/{kind}", mode)
            changer.directory(kind, owner, mode, None, False)
            for name in tree.list(kind):
                # Sockets are made anew by who listens.
                if tree.has(f"{kind}/{name}", stat.S_ISREG):
                    changer.one(f"{kind}/{name}", owner, SENDMUTEX_MODE)
        tree.sync()
        # Last: its owner is whom the suite runs as.
        changer.top(owner, QUEUE_MODE)
        tree.sync()
    with unable_to("sync", home.path):
        above.commit.sync()
    done = [f"made {path}" for path in above.made + below.made]
    done += [f"left alone {path!a}: {why}" for path, why in changer.left.items()]
    return [*done, f"changed owner or mode of {changer.changed} files and directories"] if changer.changed else done


def undo(
    home: Home,
    accounts: QmailAccounts,
    *,
    todo: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> list[str]:
    """Give the queue to qmail.

    `todo` is what a hashed todo/ and intd/ become: "flat" for stock qmail, "hashed" for a qmail with the big-todo
    patch, None to refuse. `force` drops the marks of held and corrupt messages. `progress` counts the files that are
    looked at.
    """
    qmailq = accounts.owner("qmailq")
    with ClosedQueue(home) as closed:
        tree = closed.tree
        known = known_uids(tree, qmailq)
        changer = OwnerChanger(tree, known, progress)
        _check_no_repair(tree)
        layout = open_layout(home.queue)
        half = [kind for kind in MAY_BE_FLAT if is_half_flat(tree, kind, layout.split)]
        hashed = [kind for kind, flat in (("todo", layout.flat_todo), ("intd", layout.flat_intd)) if not flat]
        _check_can_undo(home, tree, force, [kind for kind in hashed if kind not in half] if todo is None else [])
        if todo == "hashed" and half:
            kinds = " and ".join(f"{kind}/" for kind in half)
            raise Permanent(
                f"unable to leave {kinds} hashed: files of messages lie beside the numbered directories, or some of"
                " those are gone, as after an interrupted --todo flat; use --todo flat, or move the files into them"
            )
        flat = [kind for kind in MAY_BE_FLAT if kind in half or (kind in hashed and todo == "flat")]
        for kind in flat:
            check_names(tree, kind, layout.split)
        check_directories(tree, (*QMAIL, *EXTRA))
        directories, _ = class_files(tree)
        check_directories(tree, directories)
        done_marks = read_marks(tree, known)
        with _open_alias(home) as alias:
            # From now on queue-start refuses to run, and names queuectl adopt, because of the owner.
            closed.begin(qmailq)
            # Before the others: they are moved again if todo/ is made flat.
            moved = dissolve_classes(tree, layout.split)
            done = [f"moved {moved} files of {PRIORITY}/ to todo/"] if moved else []
            done += [f"made {kind}/ flat: {flatten(tree, kind, layout.split)} files moved" for kind in flat]
            done += apply_marks(tree, open_layout(home.queue) if flat or moved else layout, known, done_marks)
            done += _remove_extra(tree)
            maker = Maker(qmailq, tree=tree)
            for kind, (account, directory_mode, file_mode) in QMAIL.items():
                # qmail does not look at the bit of a class, and a later adopt finds it.
                kept = KEPT[kind] if kind == "info" else 0
                changer.directory(kind, accounts.owner(account), directory_mode, file_mode, kind in BUCKETED, kept)
                tree.sync()
            _give_lock(accounts, tree, maker, changer)
            left = changer.left | _give_rest(home, accounts, alias)
            closed.open(qmailq, QMAIL_QUEUE_MODE)
    done += [f"made {path}" for path in maker.made]
    done += [f"left alone {path!a}: {why}" for path, why in left.items()]
    done.append(f"changed owner or mode of {changer.changed} files and directories")
    if layout.split != 23:
        done.append(f"note: qmail must be one that was built with conf-split {layout.split}")
    return done


def _check_no_repair(tree: Tree) -> None:
    if tree.is_directory(REPAIR):
        raise Permanent(f"unable to use {tree.path}: a repair was not finished; run queuectl repair again")


def _marks(tree: Tree, kind: str) -> list[str]:
    """Return the files in hold/ or corrupt/, as names below queue/."""
    found = []
    for name in (f"{kind}/{each}" for each in tree.list(kind)):
        if name in (MAILDROP_REJECTS, MAILDROP_HELD, UNPLACED):
            continue
        found += [f"{name}/{mark}" for mark in tree.list(name)] if tree.is_directory(name) else [name]
    return found


def _is_stale(tree: Tree, mark: str) -> bool:
    """Return whether a mark is that of a message that is gone. Such a mark may be removed."""
    _, *place = mark.split("/")
    return len(place) == 2 and all(part.isdigit() for part in place) and not tree.has("/".join(["mess", *place]), bool)


def _check_can_undo(home: Home, tree: Tree, force: bool, undecided: list[str]) -> None:
    maildrop = f"{home.queue}/maildrop"
    # A temporary file was never accepted, and cannot be finished while the queue is closed.
    mail = [name for name in tree.list("maildrop") if not is_temporary(name)]
    if mail:
        raise Permanent(f"unable to undo: {maildrop} has {_named(mail)}; run the suite until it is empty")
    if stored := tree.list(ONDEMAND):
        where = f"{home.queue}/{ONDEMAND}"
        raise Permanent(f"unable to undo: {where} has {_named(stored)}; have that mail delivered, or returned")
    for place in (MAILDROP_REJECTS, MAILDROP_HELD, UNPLACED):
        if rejects := tree.list(place):
            where = f"{home.queue}/{place}"
            raise Permanent(f"unable to undo: {where} has {_named(rejects)}; move or remove what is there")
    if (copies := tree.list(POSTMAN)) and not force:
        raise Permanent(
            f"unable to undo: {home.queue}/{POSTMAN} has {_named(copies)}; read and remove them (queuectl postman),"
            " or use --force to drop them"
        )
    marks = [mark for kind in MARKS for mark in _marks(tree, kind) if not _is_stale(tree, mark)]
    if marks and not force:
        raise Permanent(
            f"unable to undo: qmail has no equivalent of {_named(marks)}; release them, or use --force to drop them"
        )
    if not force and _has_lmtp(home):
        raise Permanent(
            "unable to undo: control/smtproutes names LMTP servers, and qmail-remote bounces mail for them;"
            " give these lines other relays, or use --force to leave them"
        )
    if undecided:
        kinds = " and ".join(f"{kind}/" for kind in undecided)
        raise Permanent(
            f"unable to undo: {kinds} is hashed, and stock qmail sees only flat ones;"
            " use --todo flat, or --todo hashed for a qmail with the big-todo patch"
        )


def _has_lmtp(home: Home) -> bool:
    """Return whether smtproutes names an LMTP server; what cannot be read as ours is qmail's business."""
    try:
        routes = read_value(home, SMTPROUTES)
    except Temporary:
        return False
    relays = [relays for relays in routes.values() if relays is not None]
    return any(relay.lmtp for each in relays for group in each.groups for relay in group)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ascii(", ".join(names[:NAMED_MAX]))[1:-1] + more


def _remove_extra(tree: Tree) -> list[str]:
    done = []
    for mark in (mark for kind in MARKS for mark in _marks(tree, kind)):
        with unable_to("remove", f"{tree.path}/{mark}"):
            tree.unlink(mark)
        done.append(f"dropped the mark {mark}")
    with unable_to("remove", f"{tree.path}/{STANDING_HOLDS}"):
        if tree.unlink(STANDING_HOLDS):
            done.append(f"dropped the standing holds in {STANDING_HOLDS}")
    with unable_to("remove", f"{tree.path}/lock/control"):
        if tree.has("lock/control", stat.S_ISSOCK):
            tree.unlink("lock/control")
        for name in (STAMP, f"{STAMP}.new", *(f"lock/{name}" for name in (*MARKS_IN_LOCK, "clock", "clock.new"))):
            tree.unlink(name)
    for name in tree.list(SOCKET_DIRECTORY):
        with unable_to("remove", f"{tree.path}/{SOCKET_DIRECTORY}/{name}"):
            if tree.has(f"{SOCKET_DIRECTORY}/{name}", stat.S_ISSOCK):
                tree.unlink(f"{SOCKET_DIRECTORY}/{name}")
    for bucket in tree.list("last"):
        with unable_to("remove", f"{tree.path}/last/{bucket}"):
            for name in tree.list(f"last/{bucket}"):
                tree.unlink(f"last/{bucket}/{name}")
    # Their messages were sent all the same.
    copies = tree.list(POSTMAN)
    for name in copies:
        with unable_to("remove", f"{tree.path}/{POSTMAN}/{name}"):
            tree.unlink(f"{POSTMAN}/{name}")
    if copies:
        done.append(f"removed {len(copies)} copies for the postmaster from {tree.path}/{POSTMAN}: {_named(copies)}")
    for name in tree.list("maildrop"):
        with unable_to("remove", f"{tree.path}/maildrop/{name}"):
            if is_temporary(name):
                tree.unlink(f"maildrop/{name}")
    tree.sync()
    # An interrupted adoption may have left NAME.new.
    for kind in (*EXTRA, *(f"{kind}.new" for kind in EXTRA)):
        if not tree.is_directory(kind):
            continue
        with unable_to("remove", f"{tree.path}/{kind}"):
            for name in tree.list(kind):
                tree.rmdir(f"{kind}/{name}")
            tree.rmdir(kind)
        done.append(f"removed {tree.path}/{kind}")
    return done


def _give_lock(accounts: QmailAccounts, tree: Tree, maker: Maker, changer: OwnerChanger) -> None:
    maker.file(f"{tree.path}/lock/sendmutex", b"", SENDMUTEX_MODE)
    maker.fifo(f"{tree.path}/lock/trigger", TRIGGER_MODE)
    maker.file(f"{tree.path}/lock/tcpto", bytes(TCPTO_SIZE), TCPTO_MODE)
    changer.one("lock/sendmutex", accounts.owner("qmails"), SENDMUTEX_MODE)
    changer.one("lock/trigger", accounts.owner("qmails"), TRIGGER_MODE, stat.S_ISFIFO)
    changer.one("lock/tcpto", accounts.owner("qmailr"), TCPTO_MODE)


@contextmanager
def _open_alias(home: Home) -> Iterator[Tree | None]:
    """Open alias/; None if it does not exist. Raises Permanent if it is a link."""
    if not os.path.lexists(home.alias):
        yield None
        return
    with Tree(home.alias) as tree:
        yield tree


def _give_rest(home: Home, accounts: QmailAccounts, tree: Tree | None) -> dict[str, str]:
    """Give alias/ and the mail in it to account alias; give HOME and control/, whose owners stay, to group qmail.

    Returns what was left as it is: {path: reason}.
    """
    alias = accounts.owner("alias")
    left: dict[str, str] = {}
    if tree is not None:
        before = os.fstat(tree.handle).st_uid
        if before not in (0, alias.uid):
            with unable_to("change owner in", tree.path):
                left = _give_contents(tree.handle, tree.path, before, alias)
        OwnerChanger(tree, frozenset()).top(alias, ALIAS_MODE)
        tree.sync()
    for path in (home.path, home.control):
        with unable_to("change owner of", path):
            _give_group(path, accounts.gid)
    return left


def _give_group(path: str, gid: int) -> None:
    """Give a directory that only root can replace to a group."""
    with Tree(path, follow=True) as tree:
        OwnerChanger(tree, frozenset()).top(Owner(os.fstat(tree.handle).st_uid, gid), CONTROL_MODE)
        tree.sync()


def _give_contents(handle: int, path: str, before: int, owner: Owner, depth: int = ALIAS_DEPTH) -> dict[str, str]:
    """Give the files in a directory that `before` owns to another owner; other users' files stay theirs.

    Returns what was left as it is: {path: reason}. Raises OSError.
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
                # By descriptor, since `before` may replace the name with another user's file at any moment. Links
                # and sockets cannot be opened for fchown.
                os.chown(f"/proc/self/fd/{found}", owner.uid, owner.gid)
            if not stat.S_ISDIR(status.st_mode):
                continue
            if not depth:
                # Each level takes a descriptor and a stack frame. The owner of alias/ must not exhaust them.
                left[below] = f"it is more than {ALIAS_DEPTH} directories deep"
                continue
            inner = os.open(".", READ_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
            try:
                left.update(_give_contents(inner, below, before, owner, depth - 1))
            finally:
                os.close(inner)
        except PermissionError as error:
            # A user's FUSE mount, which root cannot read, or an immutable file.
            left[below] = reason(error)
        finally:
            os.close(found)
    return left
