"""The directories of a queue and the files that belong to no message: what is wrong with them. Reads only."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from queue_admin.checks.file_system import find_unfit, why_unfit
from queue_admin.checks.findings import OLD, FileFacts, Finding, directory_mode, judge_owner
from queue_admin.checks.message_paths import look_at
from queue_admin.checks.queue_stamp import NAME as STAMP
from queue_admin.checks.queue_stamp import REPAIR, is_under_repair, read_stamp
from queue_admin.checks.stored_records import check_stored
from queue_admin.home.create import DEFAULT_SPLIT, SPLIT_MAX
from queue_admin.home.modes import (
    BUCKETED,
    MAILDROP_HELD,
    MAY_BE_FLAT,
    ONDEMAND,
    OURS,
    QUEUE_MODE,
    SENDMUTEX_MODE,
    TRIGGER_MODE,
    UNPLACED,
)
from queue_admin.system_accounts import account_uid
from queue_base.accounts import QMAIL_ACCOUNT, Owner, queue_owner
from queue_base.errors import Permanent, Temporary, why_refused
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, HASHED, PRIORITY, Layout, is_class_tree, open_layout
from queue_base.queue.marks_file import NAME as MARKS
from queue_base.queue.postman import DIRECTORY as POSTMAN
from queue_base.queue.postman import unpack_copy_name
from queue_base.queue.standing_holds import NAME as HOLDS
from queue_base.safe_open import UnsafePath
from queue_wire.files.envelope import is_class_name
from queue_wire.files.maildrop import is_finished
from queue_wire.ids import is_prime, nearest_primes
from queue_wire.pipes.qmtp import SOCKET_DIRECTORY

KNOWN = frozenset(
    (STAMP, MARKS, REPAIR, PRIORITY, HOLDS, ONDEMAND, *(kind for kind in OURS if "/" not in kind))
)

# What programs make in lock/ and intake/, whatever follows a dot.
_LOCKS = frozenset(("sendmutex", "trigger", "control", "slow", "refuse", "clock", "tcpto"))
_SOCKETS = frozenset(("socket", "ondemand", "recipients"))
_NAMES: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("lock", lambda name: name.partition(".")[0] in _LOCKS),
    (SOCKET_DIRECTORY, lambda name: name.partition(".")[0] in _SOCKETS),
    (POSTMAN, unpack_copy_name),
    (MAILDROP_HELD, is_finished),
)

NAMES_MAX = 1000  # Messages by which the split of a damaged queue is guessed.
SPLITS_MAX = 1000  # Splits that are tried, besides those that the directories say.


def buckets(queue: str, kind: str) -> set[int]:
    """Return the numbers of the directories of a kind. Raises OSError."""
    try:
        with os.scandir(f"{queue}/{kind}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {int(name) for name in names if is_number(name)}


def is_flat(queue: str, kind: str) -> bool:
    """Return whether todo/ or intd/ has no numbered directories; one that does not exist is not flat."""
    return kind in MAY_BE_FLAT and os.path.isdir(f"{queue}/{kind}") and not buckets(queue, kind)


def find_layout(queue: str, split: int | None = None) -> Layout:
    """Return the layout that a queue has, or had before something happened to it. Raises OSError, Permanent.

    Without `split` it is what the directories agree on, else what the stamp says, else what fits the most messages.
    """
    flat_todo, flat_intd = (is_flat(queue, kind) for kind in MAY_BE_FLAT)
    return Layout(queue, split or find_split(queue), flat_todo, flat_intd, tuple(class_names(queue)))


def find_split(queue: str) -> int:
    """Return the split. Raises OSError, and Permanent if nothing of the queue tells."""
    try:
        return open_layout(queue).split
    except (Permanent, Temporary):
        pass
    try:
        found = read_stamp(queue, (os.stat(queue).st_uid, os.geteuid()))
    except UnsafePath:
        found = None
    if found is not None and found.stamp.split <= SPLIT_MAX:
        return found.stamp.split
    there = {kind: buckets(queue, kind) for kind in HASHED}
    split = guess_split(there, islice(_names_of_messages(queue, there), NAMES_MAX))
    if not split:
        raise Permanent(f"unable to use {queue}: mess/ has no numbered directories; queuectl init makes a queue")
    return split


def guess_split(there: dict[str, set[int]], names: Iterable[tuple[int, int]]) -> int:
    """Return the split that fits the most messages, 0 if there are no directories. Pure.

    `there` are the numbers of each kind's directories, `names` are (number of the directory, number of a message).
    """
    sizes = [size for numbers in there.values() if numbers and (size := max(numbers) + 1) <= SPLIT_MAX]
    if not sizes:
        return 0
    known = list(names)
    # In this order: what most kinds have, what init makes, primes.
    likely = [*sorted(set(sizes), key=sizes.count, reverse=True), DEFAULT_SPLIT]
    candidates = [*likely, *(number for number in range(2, SPLITS_MAX) if is_prime(number))]
    return max(candidates, key=lambda split: sum(message % split == number for number, message in known))


def _names_of_messages(queue: str, there: dict[str, set[int]]) -> Iterator[tuple[int, int]]:
    for kind, numbers in there.items():
        for number in numbers:
            with os.scandir(f"{queue}/{kind}/{number}") as entries:
                for entry in entries:
                    if entry.name.isascii() and entry.name.isdigit():
                        yield number, int(entry.name)


def owner_of_ours(home: Home) -> Owner:
    """Return the owner of queue/. Raises Permanent if it is qmail's, or closed by queuectl adopt; Temporary."""
    owner = queue_owner(home)
    try:
        mode = stat.S_IMODE(os.stat(home.queue).st_mode)
    except OSError as error:
        raise unable(error, home.queue) from error
    if owner.uid == account_uid(QMAIL_ACCOUNT) or not mode:
        raise Permanent(f"unable to use {home.queue}: qmail's, or an adoption was cut off; run queuectl adopt")
    return owner


def check_structure(
    layout: Layout, owner: tuple[int, int], now: float, home: Home | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with the queue itself; `home` is by default the directory above it. Raises OSError."""
    queue = layout.queue
    if kind := find_unfit(home or Home(os.path.dirname(queue))):
        yield Finding("file-system", "", why_unfit(kind))
    yield from _check_stamp(queue)
    yield from _check_modes(queue, "", owner, QUEUE_MODE)
    if not is_prime(layout.split):
        below, above = nearest_primes(layout.split)
        text = f"has split {layout.split}, which is not prime; repair --split {below} or {above} changes it"
        yield Finding("split", "mess", text)
    for kind in OURS:
        yield from _check_directory(queue, kind, owner)
        if kind in BUCKETED and os.path.isdir(f"{queue}/{kind}") and not is_flat(queue, kind):
            yield from _check_buckets(layout, kind, owner)
    yield from _check_classes(layout, owner, now)
    yield from _check_special(queue, "lock/sendmutex", stat.S_ISREG, SENDMUTEX_MODE, owner)
    yield from _check_special(queue, "lock/trigger", stat.S_ISFIFO, TRIGGER_MODE, owner)
    yield from _check_marks(queue, owner)
    yield from _check_holds(queue, owner)
    yield from check_stored(queue, owner, now)
    yield from _check_names(queue, now)


def _check_stamp(queue: str) -> Iterator[Finding]:
    if is_under_repair(queue):
        yield Finding("repair", REPAIR, "a repair was begun and is not finished")
    try:
        found = read_stamp(queue, (os.stat(queue).st_uid, os.geteuid()))
    except UnsafePath as error:
        yield Finding("stamp", STAMP, f"cannot be used: {error}")
        return
    if found is not None and not found.right:
        yield Finding("stamp", STAMP, f"says inode number {found.stamp.inode}, and has another one")
    if found is not None and found.stamp.copy:
        yield Finding("copy", STAMP, f"says that the queue is a copy: {found.stamp.copy}")


def _facts(found: os.stat_result) -> FileFacts:
    return FileFacts(found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_mtime, found.st_ctime)


def _check_modes(queue: str, path: str, owner: tuple[int, int], mode: int) -> Iterator[Finding]:
    found = look_at(f"{queue}/{path}")
    if found is not None:
        for verdict in judge_owner(path, _facts(found), owner, mode):
            yield Finding(verdict.code, path, verdict.what)


def _check_directory(queue: str, path: str, owner: tuple[int, int]) -> Iterator[Finding]:
    found = look_at(f"{queue}/{path}")
    if found is None:
        yield Finding("directory", path, "is missing")
    elif not stat.S_ISDIR(found.st_mode):
        yield Finding("directory", path, "is not a directory")
    else:
        yield from _check_modes(queue, path, owner, directory_mode(path))


def _check_buckets(layout: Layout, kind: str, owner: tuple[int, int]) -> Iterator[Finding]:
    there = buckets(layout.queue, kind)
    for number in range(layout.split):
        if number not in there:
            yield Finding("split", f"{kind}/{number}", "is missing")
        else:
            yield from _check_modes(layout.queue, f"{kind}/{number}", owner, directory_mode(kind))
    for number in sorted(there):
        if number >= layout.split:
            yield Finding("split", f"{kind}/{number}", f"is one too many: the split is {layout.split}")


def _check_classes(layout: Layout, owner: tuple[int, int], now: float) -> Iterator[Finding]:
    """Yield what is wrong with the trees of the lower classes."""
    trees = class_names(layout.queue)
    for name in trees:
        yield from _check_directory(layout.queue, f"{PRIORITY}/{name}", owner)
        yield from _check_buckets(layout, f"{PRIORITY}/{name}", owner)
        for entry in _listed(f"{layout.queue}/{PRIORITY}/{name}"):
            if not (is_number(entry) and os.path.isdir(f"{layout.queue}/{PRIORITY}/{name}/{entry}")):
                yield Finding("stray", f"{PRIORITY}/{name}/{entry}", "is no directory of a class")
    for name in _listed(f"{layout.queue}/{PRIORITY}"):
        found = look_at(f"{layout.queue}/{PRIORITY}/{name}")
        # An injector makes a tree under a name that begins with a dot.
        is_new = found is not None and name[:1] == "." and max(found.st_mtime, found.st_ctime) > now - OLD
        if name not in trees and not is_new:
            yield Finding("stray", f"{PRIORITY}/{name}", "is not the tree of a class")


def class_names(queue: str) -> list[str]:
    """Return the names of the trees of the lower classes. Raises OSError, Temporary."""
    names = [name for name in _listed(f"{queue}/{PRIORITY}") if is_class_name(os.fsencode(name))]
    return [name for name in names if is_class_tree(f"{queue}/{PRIORITY}/{name}")]


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_number(name: str) -> bool:
    """Return whether a name is that of a numbered directory."""
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _check_special(
    queue: str, path: str, right_kind: Callable[[int], bool], mode: int, owner: tuple[int, int]
) -> Iterator[Finding]:
    found = look_at(f"{queue}/{path}")
    if found is None:
        if os.path.isdir(os.path.dirname(f"{queue}/{path}")):
            yield Finding("lock", path, "is missing")
    elif not right_kind(found.st_mode):
        yield Finding("lock", path, "is of another kind")
    else:
        yield from _check_modes(queue, path, owner, mode)


def _check_marks(queue: str, owner: tuple[int, int]) -> Iterator[Finding]:
    found = look_at(f"{queue}/{MARKS}")
    if found is None:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != owner[0]:
        yield Finding("marks", MARKS, "is not a regular file of the queue's owner with one name")
    else:
        yield from _check_modes(queue, MARKS, owner, FILE_MODE)


def _check_holds(queue: str, owner: tuple[int, int]) -> Iterator[Finding]:
    """Yield what is wrong with what a restore may have given to another account: nothing is classified then."""
    for path, is_right, mode in (
        (HOLDS, stat.S_ISREG, FILE_MODE), (MAILDROP_HELD, stat.S_ISDIR, OURS["hold"][0])
    ):  # fmt: skip
        found = look_at(f"{queue}/{path}")
        if found is not None and not is_right(found.st_mode):
            yield Finding("stray", path, "is of another kind")
        elif found is not None:
            yield from _check_modes(queue, path, owner, mode)


def _check_names(queue: str, now: float) -> Iterator[Finding]:
    """Yield names of queue/ that nothing uses, old files in pid/, and what a repair has set aside."""
    for name in sorted(os.listdir(queue)):
        if name not in KNOWN and not name.endswith(".new"):
            yield Finding("stray", name, "is no name of a queue")
    for place, is_known in _NAMES:
        for name in _listed(f"{queue}/{place}"):
            if not is_known(name):
                yield Finding("stray", f"{place}/{name}", "is no name that a program gives there")
    for place, code, text in (("pid", "pid", "is older than 36 hours"), (UNPLACED, "unplaced", "was set aside")):
        try:
            with os.scandir(f"{queue}/{place}") as entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if code == "unplaced" or max(found.st_mtime, found.st_ctime) < now - OLD:
                        yield Finding(code, f"{place}/{entry.name}", text)
        except (FileNotFoundError, NotADirectoryError):
            continue


def unable(error: OSError, queue: str) -> Temporary:
    """Return the failure for an error of the disk."""
    return Temporary(f"unable to look at {error.filename or queue}: {why_refused(error)}")
