"""Gives messages the numbers that their files in mess/ have now, and files the directories that they belong in.

All functions work as the owner of the queue, with nobody else in it but injectors, and may be interrupted and begun
again at any point. A message whose new number is still the name of another one waits under that number in
queue/repair/, until no message has a wrong number any more; so cycles need no special case.
"""

import errno
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from queue_admin.checks.message_paths import (
    KINDS,
    MARKS,
    PLACES,
    is_ours,
    is_regular,
    look_at,
    message_paths,
    path_of,
    staged_paths,
)
from queue_admin.checks.moving import Mover, SetAside
from queue_admin.messages.survey import read_head
from queue_base.durable import Commit
from queue_base.queue.layout import Layout
from queue_base.queue.postman import DIRECTORY as POSTMAN
from queue_base.queue.postman import unpack_copy_name
from queue_wire.format_error import FormatError
from queue_wire.ids import ID_MAX, unpack_id

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_STAGED_COPY = "copy."
MARK_MAX = 65536  # Bytes of a mark that are read.
COPIED = b"the queue was copied"  # In the reason of queue-todo for parking a message with a wrong number.


def message_number(name: str) -> int | None:
    """Return the number that a name says, None if it is no message's name."""
    try:
        return unpack_id(os.fsencode(name))
    except FormatError:
        return None


def directories_of(queue: str, kind: str) -> list[str]:
    """Return the numbered directories of a kind that exist, sorted by number, whatever the split is."""
    try:
        with os.scandir(f"{queue}/{kind}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    found = [name for name in names if name.isascii() and name.isdigit()]
    return [f"{queue}/{kind}/{name}" for name in sorted(found, key=int)]


def place_files(layout: Layout, mover: Mover, aside: SetAside, step: Callable[[int], object]) -> int:
    """Move each file to the directory that it belongs in; return how many were in another one. Raises OSError.

    What lies in a directory that is not one of the split's and is no file of a message is set aside.
    """
    moved = 0
    for kind in PLACES:
        top = f"{layout.queue}/{kind}"
        here = {os.path.dirname(path_of(layout, kind, 1 + number)) for number in range(layout.split)}
        for directory in (top, *directories_of(layout.queue, kind)):
            for name in os.listdir(directory):
                path = f"{directory}/{name}"
                # flatten.py names a file so whose number is that of a directory.
                message = message_number(name.removeprefix(".") if directory == top else name)
                if message is None:
                    if directory not in here and directory != top:
                        # Names that SetAside has a meaning for.
                        new = f"{name}.file" if name in (*MARKS, "reason") else name
                        aside.put({new: path}, "names", f"{path} was in a directory that is not one of the split's")
                    continue
                right = path_of(layout, kind, message)
                found = look_at(path) if right != path else None
                if found is None or (directory == top and not is_regular(found)):
                    continue  # In its place, or a numbered directory.
                moved += 1
                if is_ours(found):
                    mover.move_file(kind, path, right)
                else:
                    aside.put({kind: path}, message, f"{path} is not a regular file of the queue's owner")
            step(1)
    mover.flush()
    aside.flush()
    return moved


def remove_directories(layout: Layout) -> int:
    """Remove the empty directories that the split does not have; return how many. Raises OSError."""
    commit, removed = Commit(), 0
    for kind in PLACES:
        for directory in directories_of(layout.queue, kind):
            name = os.path.basename(directory)
            if int(name) >= layout.split or str(int(name)) != name:
                commit.removed(directory)
                try:
                    os.rmdir(directory)
                except OSError as error:
                    if error.errno not in _NOT_EMPTY:
                        raise
                    continue  # Something that is nobody's is in it.
                removed += 1
                if commit.is_full:
                    commit.sync()
    commit.sync()
    return removed


class Wrong(NamedTuple):
    """A message whose name is not its number: the name, the file, and the number."""

    message: int
    path: str
    number: int


def wrong_numbers(layout: Layout, directory: str) -> Iterator[Wrong]:
    """Yield the messages with a wrong number in one directory of mess/. Raises OSError."""
    with os.scandir(directory) as entries:
        listed = [(entry.name, entry.inode()) for entry in entries]
    for name, inode in listed:
        message = message_number(name)
        if message is None or inode == message:
            continue
        path = f"{directory}/{name}"
        found = look_at(path)
        if found is not None and found.st_ino != message and found.st_ino <= ID_MAX:
            yield Wrong(message, path, found.st_ino)


def drop_textless(layout: Layout, aside: SetAside) -> None:
    """Set aside the files of messages that have no file in mess/. Raises OSError.

    A file with two names is left: it may be one of a message that is being moved.
    """
    flat = [kind for kind in KINDS if os.path.basename(layout.directories(kind)[0]) == kind]
    hashed = [kind for kind in KINDS if kind not in flat]
    for number in range(layout.split):
        found: dict[str, list[str]] = {}
        for kind in hashed:
            for name in os.listdir(f"{layout.queue}/{kind}/{number}"):
                found.setdefault(name, []).append(kind)
        known = set(os.listdir(f"{layout.queue}/mess/{number}"))
        for name, kinds in found.items():
            if name not in known:
                _drop_textless(layout, aside, name, kinds)
    for kind in flat:
        for name in os.listdir(f"{layout.queue}/{kind}"):
            message = message_number(name)
            if message is not None and look_at(layout.mess(message)) is None:
                _drop_textless(layout, aside, name, [kind])
    aside.flush()


def _drop_textless(layout: Layout, aside: SetAside, name: str, kinds: list[str]) -> None:
    message = message_number(name)
    if message is None:
        return
    paths = {}
    for kind in kinds:
        path = path_of(layout, kind, message)
        found = look_at(path)
        if found is not None and (found.st_nlink == 1 or not is_regular(found)):
            paths[kind] = path
    aside.put(paths, message, "its message has lost its text: mess/ has no file of this number")


def renumber(layout: Layout, mover: Mover, aside: SetAside, step: Callable[[int], object]) -> int:
    """Move each message with a wrong number to its right one, or to repair/; return how many. Raises OSError."""
    moved = 0
    commit = Commit()
    for directory in layout.directories("mess"):
        for wrong in wrong_numbers(layout, directory):
            old, new = message_paths(layout, wrong.message), message_paths(layout, wrong.number)
            staged = staged_paths(layout.queue, wrong.number)
            moved += 1
            mess = look_at(old["mess"])
            if mess is None:
                continue
            if not is_ours(mess):
                aside.put({"mess": old["mess"]}, wrong.message, "it is not a regular file of the queue's owner")
                continue
            there = look_at(new["mess"])
            if look_at(staged["mess"]) is not None or (there is not None and not os.path.samestat(there, mess)):
                new = staged
            elif there is None and not any(look_at(old[kind]) for kind in ("todo", "info")):
                why = "it has no envelope: it was being injected, or had ended, when the queue was copied"
                aside.put(old, wrong.message, why)
                continue
            _drop_copied_mark(old["corrupt"], commit)
            if commit.is_full:
                commit.sync()
            mover.move_message(old, new, wrong.message)
            step(1)
    mover.flush()
    commit.sync()
    aside.flush()
    return moved


def _drop_copied_mark(path: str, commit: Commit) -> None:
    """Remove a mark that says that the queue was copied, which is mended now. Raises OSError."""
    if is_regular(look_at(path)) and COPIED in read_head(path, MARK_MAX):
        commit.unlink(path)


def unstage(layout: Layout, mover: Mover) -> int:
    """Move the messages that wait in repair/ to their numbers; return how many. Raises OSError."""
    moved = 0
    for name in os.listdir(f"{layout.queue}/repair/mess"):
        number = message_number(name)
        if number is not None:
            mover.move_message(staged_paths(layout.queue, number), message_paths(layout, number), number)
            moved += 1
    mover.flush()
    return moved


def renumber_copies(queue: str, mover: Mover) -> int:
    """Name each copy for the postmaster by the number that its file has now; return how many were renamed.

    They pass through repair/, since the new name may be another's old one; what an interrupted run has left there is
    put back. Raises OSError.
    """
    directory, stage = f"{queue}/{POSTMAN}", f"{queue}/repair"
    for name in os.listdir(directory):
        path, found = f"{directory}/{name}", unpack_copy_name(name)
        if found is not None and found[0] != os.lstat(path).st_ino:
            mover.move_file(POSTMAN, path, f"{stage}/{_STAGED_COPY}{name}")
    mover.flush()
    count = 0
    for name in os.listdir(stage):
        found = unpack_copy_name(name.removeprefix(_STAGED_COPY)) if name.startswith(_STAGED_COPY) else None
        if found is not None:
            path = f"{stage}/{name}"
            mover.move_file(POSTMAN, path, f"{directory}/{os.lstat(path).st_ino}_{found[1]}")
            count += 1
    mover.flush()
    return count


def make_stages(queue: str) -> None:
    """Make the directories in repair/. Raises OSError."""
    commit = Commit()
    for kind in PLACES:
        commit.removed(f"{queue}/repair/{kind}")
        try:
            os.mkdir(f"{queue}/repair/{kind}", 0o700)
        except FileExistsError:
            continue
    commit.sync()


def remove_stages(queue: str) -> None:
    """Remove the directories in repair/ that are empty. Raises OSError."""
    for kind in PLACES:
        try:
            os.rmdir(f"{queue}/repair/{kind}")
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise


