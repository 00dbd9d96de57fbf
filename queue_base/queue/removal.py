"""Removes finished messages, a group at a time, in an order that is safe against a crash.

    1. intd, local, remote, bounce; pid/removing.N, which lists the group    sync     info is now the last of the files
    2. info, and the marks in hold and corrupt; last, which needs no sync    sync     nobody tries the messages again
    3. mess, then pid/removing.N                                                      the numbers may be used again

If mess/ were removed before the removal of the others is durable, a power cut could bring back an old local/ or remote/
file under the number of a new message, whose mail would then go to the old recipients. The list distinguishes a message
that was finished when queue-clean died from a message that is being injected, which looks the same (S2);
`finish_removals` reads it at the next start. It has the mtime and the ctime, in nanoseconds, and the size of each mess/
file, because a new message may have got the number since.

A message that was delivered without being classified has only todo/, perhaps intd/, and a record in queue/marks
(marks_file.py). They go in step 2; the record is cleared before step 3, so that the next message with the number does
not find it. The list has its birth, which the request says, so that mess/ is not looked at. A group of only such
messages has a list that is not synced: it counts after a kill, and after a power cut the sweep removes mess/.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from queue_base.durable import Commit, count_waits, read_file, run_in_threads, write_all
from queue_base.queue.layout import FILE_MODE, Layout, Presence, birth_by, is_there
from queue_base.queue.marks_file import clear_messages, clear_slots, open_marks
from queue_base.safe_open import UnsafePath
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id
from queue_wire.pipes.cleaning import ANY, BOTH, LOCAL, REMOTE, TODO, Removal

LIST_PREFIX = "removing."
LIST_FROM = 8  # Messages for each directory: then listing it, in four calls, costs less than trying each name.
SAMPLE = 32  # Files of a group that show whether the disk has unlink wait.
THREADS = 8  # That remove files then: such a disk has several requests in progress at once.
LIST_MAX = 16_000_000  # Bytes of a list that is read. A line has about 30.
# The files of step 1, by what the request says.
_WORK = {ANY: ("local", "remote"), LOCAL: ("local",), REMOTE: ("remote",), BOTH: ("local", "remote"), TODO: ()}


def remove_messages(layout: Layout, removals: Iterable[Removal]) -> dict[int, OSError]:
    """Remove all files of the messages; return those that could not be removed, with the error.

    A message that failed keeps the files of the later steps, so that its removal can be requested again.
    """
    failed: dict[int, OSError] = {}
    commit = Commit()
    left = list({removal.message: removal for removal in removals}.values())
    group_list = _make_list(layout, left, commit) if left else None
    for step in (_remove_work, _remove_info):
        failed.update(step(layout, left, commit))
        left = [removal for removal in left if removal.message not in failed]
        try:
            commit.sync()
        except OSError as error:
            failed.update((removal.message, error) for removal in left)
            left = []
    left = _clear_marks(layout, left, failed)
    # If a power cut undoes this, S2 remains, which the sweep removes.
    mess = {layout.mess(removal.message): removal.message for removal in left}
    failed.update((mess[path], error) for path, error in remove_files(list(mess)).items())
    if group_list is not None:
        _forget_list(group_list)
    return failed


def remove_files(paths: Sequence[str]) -> dict[str, OSError]:
    """Remove files; return the errors by path. It is no error if there is no such file.

    A disk may have unlink(2) wait, for what it reads or for blocks that it discards. Then the files of THREADS
    directories are removed at once.
    """
    errors: dict[str, OSError] = {}

    def remove(some: Sequence[str]) -> None:
        for path in some:
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                errors[path] = error

    sample, rest = paths[:SAMPLE], paths[SAMPLE:]
    if not rest:
        remove(sample)
        return errors
    waits = count_waits()
    remove(sample)
    if count_waits() - waits < SAMPLE // 4:
        remove(rest)
        return errors
    directories: dict[str, list[str]] = {}
    for path in rest:
        directories.setdefault(os.path.dirname(path), []).append(path)
    run_in_threads(directories.values(), remove, min(THREADS, len(directories)))
    return errors


def _make_list(layout: Layout, removals: list[Removal], commit: Commit) -> str | None:
    """Make the list of the group; return its path.

    It is only a hint for the next start. If it cannot be made, a crash leaves S2, which the sweep removes.
    """
    lines = []
    for removal in removals:
        if removal.files == TODO:
            lines.append(b"%d %d\n" % (removal.message, removal.birth))
            continue
        try:
            found = os.stat(layout.mess(removal.message))
            lines.append(b"%d %d %d %d\n" % (removal.message, *_identity(found)))
        except OSError:
            continue  # It is gone, or the removal will report the error.
    path = f"{layout.queue}/pid/{LIST_PREFIX}{os.getpid()}"
    try:
        if any(removal.files != TODO for removal in removals):
            commit.unlink(path)
            commit.create(path, b"".join(lines), FILE_MODE)
        else:
            _write_list(path, b"".join(lines))
    except OSError:
        return None
    return path


def _write_list(path: str, data: bytes) -> None:
    """Write a list that is not synced. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, FILE_MODE)
    except FileExistsError:
        os.unlink(path)  # An earlier removal of it has failed.
        handle = os.open(path, flags, FILE_MODE)
    try:
        write_all(handle, data)
    finally:
        os.close(handle)


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _forget_list(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # The next group replaces it, or the next start reads it.


def _remove_work(layout: Layout, removals: list[Removal], commit: Commit) -> dict[int, OSError]:
    """Step 1: remove local, remote, intd and bounce; return the errors."""
    failed = {}
    for removal in removals:
        try:
            for kind in _WORK[removal.files]:
                commit.unlink(layout.hashed(kind, removal.message))
            if removal.files == ANY:
                commit.unlink(layout.intd(removal.message))
                commit.unlink(layout.bounce(removal.message))
        except OSError as error:
            failed[removal.message] = error
    return failed


def _clear_marks(layout: Layout, removals: list[Removal], failed: dict[int, OSError]) -> list[Removal]:
    """Clear the records in queue/marks; return the messages that have none any more, add the others to `failed`."""
    slots = [removal.slot for removal in removals if removal.slot is not None]
    if not slots:
        return removals
    try:
        _change_marks(layout, lambda handle: clear_slots(handle, slots))
    except OSError as error:
        failed.update((removal.message, error) for removal in removals if removal.slot is not None)
        return [removal for removal in removals if removal.slot is None]
    return removals


def _change_marks(layout: Layout, change: Callable[[int], None]) -> None:
    """Call `change` with a descriptor of queue/marks, if there is one. Raises OSError."""
    try:
        handle = open_marks(layout.queue)
    except UnsafePath as error:
        raise OSError(errno.EPERM, str(error), f"{layout.queue}/marks") from error
    if handle is not None:
        try:
            change(handle)
        finally:
            os.close(handle)


def _remove_info(layout: Layout, removals: list[Removal], commit: Commit) -> dict[int, OSError]:
    """Step 2: remove info, or todo and intd of a message that was not classified; return the errors."""
    failed: dict[int, OSError] = {}
    unclassified = []
    for removal in removals:
        if removal.files == TODO:
            unclassified.append(removal)
            continue
        try:
            commit.unlink(layout.hashed("info", removal.message))
            if removal.files == ANY:
                _remove_marks(layout, removal.message, commit)
                _remove_results(layout, removal.message)
        except OSError as error:
            failed[removal.message] = error
    failed.update(_remove_todo(layout, unclassified, commit))
    return failed


def _remove_todo(layout: Layout, removals: list[Removal], commit: Commit) -> dict[int, OSError]:
    failed: dict[int, OSError] = {}
    messages = [removal.message for removal in removals]
    todo = {layout.todo_in(removal.priority, removal.message): removal.message for removal in removals}
    try:
        left_in_intd = _left_in_intd(layout, messages)
        # The directories of intd/ are synced even if nothing is removed: an earlier removal may not have been synced.
        for message in {message % layout.split: message for message in messages}.values():
            commit.removed(layout.intd(message))
        for path in {os.path.dirname(path): path for path in todo}.values():
            commit.removed(path)
    except OSError as error:
        return dict.fromkeys(messages, error)
    files = todo
    files.update((layout.intd(message), message) for message in left_in_intd)
    for path, trouble in remove_files(list(files)).items():
        failed[files[path]] = trouble
    return failed


def _left_in_intd(layout: Layout, messages: list[int]) -> list[int]:
    """Return those messages that may have a file in intd/. Raises OSError.

    Only an injector that was killed leaves one beside todo/, and none is made for a message that has been queued. So a
    few small directories are read for many messages; a flat intd/ may be large and is not read.
    """
    if layout.flat_intd or len(messages) < LIST_FROM * layout.split:
        return messages
    names = {name for directory in layout.directories("intd") for name in os.listdir(directory)}
    return [message for message in messages if str(message) in names] if names else []


def _remove_marks(layout: Layout, message: int, commit: Commit) -> None:
    """Remove marks, which must not apply to the next message with this number. Without marks no sync is needed."""
    for kind in ("hold", "corrupt"):
        if is_there(layout.hashed(kind, message)):
            commit.unlink(layout.hashed(kind, message))


def _remove_results(layout: Layout, message: int) -> None:
    """Remove last/B/I. It has the birth of its message, so one that stays or comes back harms nobody."""
    try:
        os.unlink(layout.hashed("last", message))
    except OSError:
        pass


def find_lists(layout: Layout) -> dict[str, os.stat_result]:
    """Return the lists by path, as they are on the disk. Raises OSError.

    A name without a number, and what is not a regular file, is a person's: reading a FIFO would not end.
    """
    found = {}
    for name in os.listdir(layout.queue + "/pid"):
        if name.startswith(LIST_PREFIX) and name[len(LIST_PREFIX) :].isdigit():
            path = f"{layout.queue}/pid/{name}"
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[path] = status
    return found


class ListedRemoval(NamedTuple):
    """A line of a list: the message, its birth in microseconds, and (mtime, ctime, size) of mess/ if the line has it.

    Times of mess/ are in nanoseconds.
    """

    message: int
    birth: int
    identity: tuple[int, int, int] | None


def read_list(path: str) -> list[ListedRemoval]:
    """Return what a list has. Raises OSError. A line that a power cut has left in part, or garbage, is passed by."""
    found = []
    for line in read_file(path, LIST_MAX).splitlines():
        number, *words = line.split(b" ")
        if len(words) not in (1, 3) or not all(word.isdigit() and len(word) < 30 for word in words):
            continue
        try:
            message = unpack_id(number)
        except FormatError:
            continue
        if len(words) == 1:
            found.append(ListedRemoval(message, int(words[0]), None))
        else:
            mtime, ctime, size = map(int, words)
            found.append(ListedRemoval(message, mtime // 1000, (mtime, ctime, size)))
    return found


def read_removals(lists: Iterable[str]) -> set[tuple[int, int]]:
    """Return the numbers and births of the messages in lists of what is being removed.

    A list that cannot be read is passed by.
    """
    found: set[tuple[int, int]] = set()
    for path in lists:
        try:
            found.update((removal.message, removal.birth) for removal in read_list(path))
        except OSError:
            continue
    return found


def finish_removals(layout: Layout) -> list[OSError]:
    """Finish the removals that a crash interrupted: messages of a list whose info/ is gone.

    A message that still has info/ is in S5: queue-send finds it, and requests its removal again. Returns the errors,
    one for each message that remains; the sweep will remove it. Raises OSError if pid/ cannot be read.
    """
    troubles = []
    for path, status in find_lists(layout).items():
        try:
            listed = read_list(path)
        except OSError as error:
            troubles.append(error)
            continue
        finished = []
        for removal in listed:
            try:
                if _is_finished(layout, removal, status.st_mtime_ns):
                    finished.append(removal.message)
            except OSError as error:
                troubles.append(error)
        try:
            clear_left_marks(layout, finished)
        except OSError as error:
            troubles += [error] * len(finished)
            finished = []
        for message in finished:
            try:
                _finish_removal(layout, message)
            except OSError as error:
                troubles.append(error)
        _forget_list(path)
    return troubles


def _is_finished(layout: Layout, listed: ListedRemoval, when: int) -> bool:
    """Return whether a message is still the one in a list that was made at `when`, in nanoseconds. Raises OSError."""
    if Presence(layout, listed.message).state() != 2:
        return False
    found = os.stat(layout.mess(listed.message))
    # Times are coarse: another message could look the same if both were made in one tick, or in one second, where files
    # have times of whole seconds. A file that is older than the list is the one that was listed: a number is used again
    # only after the list was written, and both times come from the same clock of the kernel, which is behind by a tick.
    coarse = not (found.st_mtime_ns % 1_000_000_000 and found.st_ctime_ns % 1_000_000_000)
    known = listed.birth == birth_by(found) if listed.identity is None else listed.identity == _identity(found)
    return known and not coarse and found.st_ctime_ns < when


def clear_left_marks(layout: Layout, messages: list[int]) -> None:
    """Clear what a killed run has left in queue/marks for messages that are not in todo/ any more. Raises OSError."""
    if messages:
        _change_marks(layout, lambda handle: clear_messages(handle, messages))


def _finish_removal(layout: Layout, message: int) -> None:
    """Remove a finished message. Raises OSError."""
    commit = Commit()
    # The removals of the earlier steps may not have been synced.
    for step in (_remove_work, _remove_info):
        for trouble in step(layout, [Removal(message)], commit).values():
            raise trouble
    commit.sync()
    os.unlink(layout.mess(message))
