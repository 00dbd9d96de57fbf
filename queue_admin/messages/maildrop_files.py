"""The mail of one user that lies in maildrop/ and that queue-pickup has not taken yet: list, remove, hold, release.

Files of maildrop/ belong to the users who made them, and any user may put anything there. They are looked at by
descriptors that follow no link (O_PATH), and never opened for more than their status. The owner of the directory may
rename and remove them.

A file on hold is moved to hold/maildrop/, where its owner cannot reach it, with its name. If queue-pickup is copying it
at that moment, its message gets into the queue all the same, and queue-pickup removes the file from hold/maildrop/.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from queue_admin.home.modes import MAILDROP_HELD as HELD
from queue_base.durable import Commit
from queue_base.errors import Temporary, reason
from queue_base.queue.layout import is_there
from queue_wire.files.maildrop import FINISHED_PREFIX, is_finished

HELD_MODE = 0o2700
NAME_LENGTH = 16  # Bytes that the digits of a name stand for.


class DroppedFile(NamedTuple):
    """A finished file: its name, the uid of its owner, its size in bytes, and its mtime in seconds."""

    name: str
    uid: int
    size: int
    since: float
    held: bool


def dropped_files(queue: str, uid: int | None) -> Iterator[DroppedFile]:
    """Yield the finished files of a user, or of all: those in maildrop/, then those on hold. Raises Temporary."""
    for place, held in (("maildrop", False), (HELD, True)):
        yield from _files(f"{queue}/{place}", uid, held)


def _files(path: str, uid: int | None, held: bool) -> Iterator[DroppedFile]:
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unable("read", path, error) from error
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                # scandir has the type: what is no regular file is not looked at. It may be a mount point.
                if not is_finished(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                found = _look(directory, entry.name)
                if found is not None and (uid is None or found.st_uid == uid):
                    yield DroppedFile(entry.name, found.st_uid, found.st_size, found.st_mtime, held)
    except OSError as error:
        raise _unable("read", path, error) from error
    finally:
        os.close(directory)


def _look(directory: int, name: str) -> os.stat_result | None:
    """Return the status of a regular file, None for anything else, or if it is gone."""
    try:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
    finally:
        os.close(handle)
    return found if stat.S_ISREG(found.st_mode) else None


def remove_dropped(queue: str, uid: int, done: Callable[[], None]) -> int:
    """Remove a user's files, also those on hold, durably; return how many. Raises Temporary."""
    return _each(queue, uid, (False, True), lambda commit, old, new: commit.unlink(old), done)


def hold_dropped(queue: str, uid: int, done: Callable[[], None]) -> int:
    """Put a user's files on hold, durably; return how many. Raises Temporary."""
    _make_held(queue)
    return _each(queue, uid, (False,), _move, done)


def release_dropped(queue: str, uid: int, done: Callable[[], None]) -> int:
    """Give a user's files on hold back to maildrop/, where queue-pickup takes them; return how many."""
    return _each(queue, uid, (True,), _move, done)


def _make_held(queue: str) -> None:
    path = f"{queue}/{HELD}"
    try:
        commit = Commit()
        commit.directory(path, HELD_MODE)
        commit.sync()
    except OSError as error:
        raise _unable("make", path, error) from error


def _move(commit: Commit, old: str, new: str) -> bool:
    """Move a file to a name that is free: its user may have made another file of the same name meanwhile."""
    try:
        if is_there(new):
            new = f"{os.path.dirname(new)}/{FINISHED_PREFIX}{os.urandom(16).hex()}"
        commit.rename(old, new)
    except FileNotFoundError:
        return False
    return True


def _each(
    queue: str, uid: int, places: tuple[bool, ...], change: Callable[[Commit, str, str], bool], done: Callable[[], None]
) -> int:
    """Change a user's files in maildrop/ (False) or on hold (True); return how many were still there."""
    count = 0
    commit = Commit()
    try:
        for held in places:
            here, there = (HELD, "maildrop") if held else ("maildrop", HELD)
            # All are read first: a directory that is changed while it is read may show a name twice, or not at all.
            for name in _Names(each.name for each in _files(f"{queue}/{here}", uid, held)):
                count += change(commit, f"{queue}/{here}/{name}", f"{queue}/{there}/{name}")
                done()
        commit.sync()
    except OSError as error:
        raise _unable("change", error.filename or f"{queue}/maildrop", error) from error
    return count


class _Names:
    """The names of finished files, in 16 bytes each: a user may leave a million."""

    def __init__(self, names: Iterable[str]) -> None:
        self._packed = bytearray()
        for name in names:
            self._packed += bytes.fromhex(name.removeprefix(FINISHED_PREFIX))

    def __iter__(self) -> Iterator[str]:
        for at in range(0, len(self._packed), NAME_LENGTH):
            yield FINISHED_PREFIX + self._packed[at : at + NAME_LENGTH].hex()


def _unable(verb: str, path: str, error: OSError) -> Temporary:
    return Temporary(f"unable to {verb} {path}: {reason(error)}")
