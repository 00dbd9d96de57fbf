"""`queuectl repair`: mends what `queuectl check` finds. It can be killed at any point and run again.

In two parts. The first one works on directories, owners and modes, as root if root runs it, and step by step without
following links (queue_admin.home). Then root becomes the owner for the second part, which works on messages. While
queue/repair/ exists queue-start refuses the queue; its file `plan` has the split that is being made. pid/ is in it, so
that nothing is injected meanwhile: injectors fail with a temporary error.

What could be delivered is never removed. A message that cannot be delivered as it is is parked (corrupt/B/I); files
that belong to no message go to corrupt/unplaced/.
"""

import contextlib
import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable

from queue_admin.checks.findings import Finding
from queue_admin.checks.inspection import inspect_messages
from queue_admin.checks.message_paths import is_regular, look_at, message_paths, path_of
from queue_admin.checks.moving import Mover, SetAside
from queue_admin.checks.queue_stamp import REPAIR, read_stamp, write_stamp
from queue_admin.checks.renumber import (
    drop_textless,
    make_stages,
    place_files,
    remove_directories,
    remove_stages,
    renumber,
    renumber_copies,
    unstage,
    wrong_numbers,
)
from queue_admin.checks.stored_repair import StoredMender
from queue_admin.checks.structure import find_layout, find_split, owner_of_ours
from queue_admin.home.create import SPLIT_MAX
from queue_admin.home.done_marks import apply_marks, read_marks
from queue_admin.home.flatten import dissolve_classes_but_strays
from queue_admin.home.maker import Maker
from queue_admin.home.modes import (
    BUCKETED,
    KEPT,
    MAILDROP_HELD,
    MAY_BE_FLAT,
    OURS,
    QUEUE_MODE,
    SENDMUTEX_MODE,
    TRIGGER_MODE,
    UNPLACED,
)
from queue_admin.home.ownership import OwnerChanger, change_stored, known_uids
from queue_admin.home.tree import Tree, unable_to
from queue_admin.system_accounts import be_owner
from queue_base.accounts import Owner, queue_owner
from queue_base.daemon.lock import take_sendmutex
from queue_base.durable import Commit
from queue_base.errors import Failure, Permanent, Temporary, Usage, reason
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, PRIORITY, Layout
from queue_base.queue.marks_file import NAME as DONE_MARKS
from queue_base.queue.standing_holds import NAME as HOLDS
from queue_base.safe_open import UnsafePath, open_file_below
from queue_wire.ids import is_prime, nearest_primes

PLAN = f"{REPAIR}/plan"
_PRIVATE = 0o2700


def repair(home: Home, split: int | None, take_over: bool, step: Callable[[int], object] = int) -> list[str]:
    """Mend a queue while queue-send does not run; return lines that say what was done.

    `split` changes the split. `take_over` lets a copy that `queuectl copy` made run. `step` counts files. Raises Usage,
    Permanent, Temporary.
    """
    if split is not None and not is_prime(split):
        below, above = nearest_primes(split)
        raise Usage(f"unable to use split {split}: it is not prime; the nearest are {below} and {above}")
    try:
        lock, done, wanted = _mend_directories(home, split)
        try:
            be_owner(home)
            os.umask(0o027)
            return done + _mend_messages(home, wanted, take_over, step)
        finally:
            os.close(lock)
    except OSError as error:
        what = error.filename2 or error.filename or home.queue
        raise Temporary(f"unable to repair {what}: {reason(error)}{_left(home)}") from error
    except Temporary as error:
        raise Temporary(f"{error}{_left(home)}") from error


def _left(home: Home) -> str:
    """Return what a person must know after a failure: queue-start refuses a queue whose repair has begun."""
    begun = os.path.lexists(f"{home.queue}/{REPAIR}")
    return "; the queue stays closed until queuectl repair has been run again" if begun else ""


def _mend_directories(home: Home, split: int | None) -> tuple[int, list[str], int]:
    """Return the lock, what was done, and the split. Raises OSError, Permanent, Temporary."""
    owner = owner_of_ours(home)
    # If queue/ is a link, only an administrator can have made it.
    with Tree(home.queue, follow=True) as tree:
        maker = Maker(owner, tree=tree)
        if not tree.is_directory("lock"):
            maker.directory(f"{home.queue}/lock", OURS["lock"][0])
        try:
            lock = take_sendmutex(home)
        except Temporary as error:
            raise Temporary(f"{error}; stop the suite first, as with svc -d or sv down") from error
        try:
            planned = _read_plan(tree, owner)
            before = planned or find_split(home.queue)
            wanted = planned or split or before
            if split not in (None, wanted):
                raise Permanent(f"unable to use split {split}: a repair with split {wanted} must be finished first")
            done = [] if planned else _apply_done_marks(tree, find_layout(home.queue, before))
            # queue-start refuses the queue from now on.
            maker.directory(f"{home.queue}/{REPAIR}", _PRIVATE)
            try:
                maker.file(f"{home.queue}/{PLAN}", b"%d\n" % wanted, FILE_MODE)
            except Failure:
                if not planned:
                    _take_back(home.queue)
                raise
            tree.sync()
            _close_pid(tree)
            _make_missing(home, tree, maker, wanted)
            tree.sync()
            moved = dissolve_classes_but_strays(tree, wanted)
            done += [f"moved {moved} files of {PRIORITY}/ to todo/"] if moved else []
            done += [f"made {path}" for path in maker.made if REPAIR not in path]
            done += _mend_owners(home, tree, owner)
            tree.sync()
        except BaseException:
            os.close(lock)
            raise
    return lock, done, wanted


def _take_back(queue: str) -> None:
    """Let the queue be as it was before a repair that could not begin, as on a full disk: it may be started."""
    with contextlib.suppress(OSError):
        for name in (PLAN, f"{PLAN}.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{queue}/{name}")
        os.rmdir(f"{queue}/{REPAIR}")


def _read_plan(tree: Tree, owner: Owner) -> int:
    """Return the split that an interrupted run was making, 0 if there is none. Raises OSError, Permanent."""
    with unable_to("read", f"{tree.path}/{PLAN}"):
        try:
            handle = open_file_below(tree.handle, PLAN, (owner.uid, os.geteuid()))
        except FileNotFoundError:
            return 0
        try:
            data = os.read(handle, 100).strip()
        finally:
            os.close(handle)
    if not data.isdigit() or not 0 < int(data) <= SPLIT_MAX:
        raise Permanent(f"unable to read {tree.path}/{PLAN}: it has no split; write that of the queue into it")
    return int(data)


def _apply_done_marks(tree: Tree, layout: Layout) -> list[str]:
    """Apply queue/marks if messages will get other numbers, by which its records know them. Raises OSError."""
    if not any(True for path in layout.directories("mess") if os.path.isdir(path) for _ in wrong_numbers(layout, path)):
        return []
    owners = known_uids(tree, Owner(os.fstat(tree.handle).st_uid, 0))
    try:
        marks = read_marks(tree, owners)
    except Permanent:
        return []  # Its kind is mended below.
    with unable_to("make", f"{tree.path}/pid"):
        if not tree.is_directory("pid"):
            return []
    return apply_marks(tree, layout, owners, marks)


def _close_pid(tree: Tree) -> None:
    """Move pid/ into repair/, so that nothing is injected. Raises OSError."""
    with tree.directory(REPAIR) as inside:
        if tree.is_directory("pid"):
            # There is one already if somebody ran init after an interruption.
            name = f"pid.{time.time_ns()}" if tree.is_directory(f"{REPAIR}/pid") else "pid"
            os.rename("pid", name, src_dir_fd=tree.handle, dst_dir_fd=inside)


def _make_missing(home: Home, tree: Tree, maker: Maker, split: int) -> None:
    for kind, (mode, _) in OURS.items():
        if kind == "pid":
            continue
        flat = kind in MAY_BE_FLAT and tree.is_directory(kind) and not _has_buckets(tree, kind)
        maker.directory(f"{home.queue}/{kind}", mode, split if kind in BUCKETED and not flat else 0)
    for name, right in (("lock/trigger", stat.S_ISFIFO), ("lock/sendmutex", stat.S_ISREG), (DONE_MARKS, stat.S_ISREG)):
        if tree.has(name, lambda mode: not stat.S_ISDIR(mode)) and not tree.has(name, right):
            tree.unlink(name)
    maker.fifo(f"{home.queue}/lock/trigger", TRIGGER_MODE)


def _has_buckets(tree: Tree, kind: str) -> bool:
    with unable_to("read", f"{tree.path}/{kind}"), tree.directory(kind) as handle, os.scandir(handle) as entries:
        return any(entry.name.isdigit() and entry.is_dir(follow_symlinks=False) for entry in entries)


def _mend_owners(home: Home, tree: Tree, owner: Owner) -> list[str]:
    changer = OwnerChanger(tree, known_uids(tree, owner))
    for kind, (directory_mode, file_mode) in OURS.items():
        place = f"{REPAIR}/pid" if kind == "pid" else kind
        if tree.is_directory(place):
            changer.directory(place, owner, directory_mode, file_mode, kind in BUCKETED, KEPT.get(kind, 0))
    change_stored(tree, changer, owner)
    changer.one("lock/sendmutex", owner, SENDMUTEX_MODE)
    changer.one("lock/trigger", owner, TRIGGER_MODE, stat.S_ISFIFO)
    changer.one(DONE_MARKS, owner, FILE_MODE)
    changer.one(HOLDS, owner, FILE_MODE)
    if tree.is_directory(MAILDROP_HELD):
        # The files in it are those of users.
        changer.directory(MAILDROP_HELD, owner, OURS["hold"][0], None, False)
    changer.top(owner, QUEUE_MODE)
    return [f"changed owner or mode of {changer.changed} files and directories"] if changer.changed else []


def _mend_messages(home: Home, split: int, take_over: bool, step: Callable[[int], object]) -> list[str]:
    """Mend the messages and the rest, as the owner of the queue. Raises OSError, Temporary."""
    layout = find_layout(home.queue, split)
    aside = SetAside(home.queue)
    mover = Mover(aside)
    counts: Counter[str] = Counter()
    make_stages(home.queue)
    counts["files moved to their directories"] = place_files(layout, mover, aside, step)
    drop_textless(layout, aside)
    counts["messages given their numbers"] = renumber(layout, mover, aside, step)
    unstage(layout, mover)
    counts["copies for the postmaster given their numbers"] = renumber_copies(home.queue, mover)
    mender = Mender(layout, aside)
    owner = queue_owner(home)
    # What was set aside may leave the rest of its message in no state.
    while True:
        mender.again = False
        for finding in inspect_messages(layout, (owner.uid, owner.gid), time.time(), 0.0, step):
            mender.mend(finding)
        mender.finish()
        if not mender.again:
            break
    counts.update(mender.counts)
    stored = StoredMender(layout, aside)
    stored.mend()
    counts.update(stored.counts)
    counts["directories removed"] = remove_directories(layout)
    counts["files set aside in corrupt/unplaced"] = aside.count
    done = [f"{what}: {count}" for what, count in counts.items() if count]
    return done + _finish(home, layout, take_over)


def _finish(home: Home, layout: Layout, take_over: bool) -> list[str]:
    """Renew the stamp and open the queue again. Raises OSError, Temporary."""
    queue = home.queue
    done = []
    try:
        found = read_stamp(queue, (os.geteuid(),))
    except UnsafePath:
        os.unlink(f"{queue}/stamp")
        found = None
    copy = found.stamp.copy if found is not None else ""
    if copy and take_over:
        done.append("the copy may run now; the queue that it was copied from must not")
    elif copy:
        done.append("it is a copy, and stays closed; repair --take-over lets it run")
    owner = queue_owner(home)
    write_stamp(queue, layout.split, owner, "" if take_over else copy)
    commit = Commit()
    for name in sorted(os.listdir(f"{queue}/{REPAIR}")):
        path = f"{queue}/{REPAIR}/{name}"
        if name.partition(".")[0] == "pid":
            _empty_pid(path, commit)
            if look_at(f"{queue}/pid") is None:
                commit.rename(path, f"{queue}/pid")
            else:
                _remove_empty(path)
    if look_at(f"{queue}/pid") is None:
        os.mkdir(f"{queue}/pid", _PRIVATE)
        os.chmod(f"{queue}/pid", _PRIVATE)
    commit.removed(f"{queue}/pid")
    commit.sync()
    remove_stages(queue)
    for name in (PLAN, f"{PLAN}.new"):
        commit.unlink(f"{queue}/{name}")
    if not _remove_empty(f"{queue}/{REPAIR}"):
        # Nothing of a message is in it any more.
        place = f"{UNPLACED}/{REPAIR}.{time.time_ns()}"
        commit.rename(f"{queue}/{REPAIR}", f"{queue}/{place}")
        done.append(f"moved what was left in {REPAIR}/ to {place}")
    commit.removed(f"{queue}/{REPAIR}")
    commit.sync()
    return done


def _remove_empty(directory: str) -> bool:
    """Remove a directory; return False if something is in it. Raises OSError."""
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _empty_pid(directory: str, commit: Commit) -> None:
    """Remove what injectors have begun and not finished, and lists of removals, which have old numbers."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if is_regular(look_at(f"{directory}/{name}")):
            commit.unlink(f"{directory}/{name}")


class Mender:
    """Mends what is wrong with single messages. Methods raise OSError.

    `counts` says what was done, `again` whether it may have made something else wrong.
    """

    def __init__(self, layout: Layout, aside: SetAside) -> None:
        self._layout = layout
        self._aside = aside
        self._commit = Commit()
        self.counts: Counter[str] = Counter()
        self.again = False

    def mend(self, finding: Finding) -> None:
        """Mend one finding, if it is one about a message that can be mended."""
        kind = finding.path.split("/")[0]
        path = f"{self._layout.queue}/{finding.path}"
        if finding.code == "no-text":
            self._aside.put(message_paths(self._layout, finding.message), finding.message, "mess/ has no such message")
        elif finding.code == "kind":
            self._aside.put({kind: path}, finding.message, f"{finding.path} is not a regular file")
            self.again = True
        elif finding.code == "mark":
            self._commit.unlink(path)
            self.counts["marks of no message removed"] += 1
        elif finding.code == "state" and kind == "intd":
            # todo/ had the same, and info/ says that it was classified.
            self._commit.unlink(path)
            self.counts["envelopes of classified messages removed from intd"] += 1
        elif finding.code == "state" and look_at(path_of(self._layout, "todo", finding.message)) is not None:
            self._aside.put({kind: path}, finding.message, finding.what)
        elif finding.code in ("state", "unreadable"):
            self._park(finding)
        if self._commit.is_full:
            self._commit.sync()

    def _park(self, finding: Finding) -> None:
        path = path_of(self._layout, "corrupt", finding.message)
        if look_at(path) is None:
            text = f"{finding.path} {finding.what}".replace("\n", " ")
            self._commit.create(path, f"{text}\n".encode("utf-8", "backslashreplace"), FILE_MODE)
            self.counts["messages parked"] += 1

    def finish(self) -> None:
        """Make it durable."""
        self._commit.sync()
        self._aside.flush()
