"""Removes finished messages, a group at a time, in an order that is safe against a crash.

    1. intd, local, remote, bounce; pid/removing.N, which lists the group    sync     info is now the last of the files
    2. info, and the marks in hold and corrupt                               sync     nobody tries the messages again
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
from collections.abc import Callable, Iterable

from queue_base.durable import Commit, read_file, write_all
from queue_base.layout import FILE_MODE, Layout, Presence, is_there
from queue_base.marks_file import clear_messages, clear_slots, open_marks
from queue_base.safe_open import UnsafePath
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id
from queue_wire.pipes.cleaning import ANY, BOTH, LOCAL, REMOTE, TODO, Removal

LIST_PREFIX = "removing."
LIST_MOST = 16_000_000  # Bytes of a list that is read. A line has about 30.
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
        for removal in left:
            try:
                step(layout, removal, commit)
            except OSError as error:
                failed[removal.message] = error
        left = [removal for removal in left if removal.message not in failed]
        try:
            commit.sync()
        except OSError as error:
            failed.update((removal.message, error) for removal in left)
            left = []
    left = _clear_marks(layout, left, failed)
    for removal in left:
        try:
            # If a power cut undoes this, S2 remains, which the sweep removes.
            os.unlink(layout.mess(removal.message))
        except FileNotFoundError:
            continue
        except OSError as error:
            failed[removal.message] = error
    if group_list is not None:
        _forget_list(group_list)
    return failed


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
            lines.append(b"%d %s\n" % (removal.message, _identity(os.stat(layout.mess(removal.message)))))
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


def _identity(found: os.stat_result) -> bytes:
    return b"%d %d %d" % (found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def _forget_list(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # The next group replaces it, or the next start reads it.


def _remove_work(layout: Layout, removal: Removal, commit: Commit) -> None:
    for kind in _WORK[removal.files]:
        commit.unlink(layout.hashed(kind, removal.message))
    if removal.files == ANY:
        commit.unlink(layout.intd(removal.message))
        commit.unlink(layout.bounce(removal.message))


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


def _remove_info(layout: Layout, removal: Removal, commit: Commit) -> None:
    if removal.files == TODO:
        commit.unlink(layout.todo(removal.message))
        commit.unlink(layout.intd(removal.message))
        return
    commit.unlink(layout.hashed("info", removal.message))
    if removal.files == ANY:
        _remove_marks(layout, removal.message, commit)


def _remove_marks(layout: Layout, message: int, commit: Commit) -> None:
    """Remove marks, which must not apply to the next message with this number. Without marks no sync is needed."""
    for kind in ("hold", "corrupt"):
        if is_there(layout.hashed(kind, message)):
            commit.unlink(layout.hashed(kind, message))


def finish_removals(layout: Layout) -> list[OSError]:
    """Finish the removals that a crash interrupted: messages of a list whose info/ is gone.

    A message that still has info/ is in S5: queue-send finds it, and requests its removal again. Returns the errors,
    one for each message that remains; the sweep will remove it. Raises OSError if pid/ cannot be read.
    """
    troubles = []
    for name in os.listdir(layout.queue + "/pid"):
        if not (name.startswith(LIST_PREFIX) and name[len(LIST_PREFIX) :].isdigit()):
            continue
        path = f"{layout.queue}/pid/{name}"
        try:
            listed = os.lstat(path)
            if not stat.S_ISREG(listed.st_mode):
                continue  # A person's: reading a FIFO would not end.
            data = read_file(path, LIST_MOST)
        except OSError as error:
            troubles.append(error)
            continue
        finished = []
        for line in data.splitlines():
            try:
                message = _finished(layout, line, listed.st_mtime_ns)
            except OSError as error:
                troubles.append(error)
            else:
                finished += [] if message is None else [message]
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


def _finished(layout: Layout, line: bytes, listed: int) -> int | None:
    """Return the message of a line of a list that was made at `listed`, if it is still the one that was finished.

    Raises OSError.
    """
    number, _, identity = line.partition(b" ")
    try:
        message = unpack_id(number)
    except FormatError:
        return None  # A power cut has left a part of the list, or garbage.
    if Presence(layout, message).state() != 2:
        return None
    found = os.stat(layout.mess(message))
    # Times are coarse: another message could look the same if both were made in one tick, or in one second, where files
    # have times of whole seconds. A file that is older than the list is the one that was listed: a number is used again
    # only after the list was written, and both times come from the same clock of the kernel, which is behind by a tick.
    coarse = not (found.st_mtime_ns % 1_000_000_000 and found.st_ctime_ns % 1_000_000_000)
    known = identity in (_identity(found), b"%d" % (found.st_mtime_ns // 1000))
    if not known or coarse or found.st_ctime_ns >= listed:
        return None
    return message


def clear_left_marks(layout: Layout, messages: list[int]) -> None:
    """Clear what a killed run has left in queue/marks for messages that are not in todo/ any more. Raises OSError."""
    if messages:
        _change_marks(layout, lambda handle: clear_messages(handle, messages))


def _finish_removal(layout: Layout, message: int) -> None:
    """Remove a finished message. Raises OSError."""
    commit = Commit()
    # The removals of the earlier steps may not have been synced.
    _remove_work(layout, Removal(message), commit)
    _remove_info(layout, Removal(message), commit)
    commit.sync()
    os.unlink(layout.mess(message))
