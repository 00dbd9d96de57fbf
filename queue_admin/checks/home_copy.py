"""`queuectl copy`: a copy of a home, of a queue that may be live, with right inode numbers.

Each message is copied as it is at one moment: it is looked at again when its files have been read, and copied anew if
its state changed; one that ended meanwhile is left out. The recipients that are done are read last. The copy has every
message that was accepted before the copy began and was not finished when it was copied.

It is made as HOME2.new, which only root may enter, and is renamed when it is complete and on the disk. Its stamp says
that it is a copy, so it does not start before somebody says so. What is read belongs to less trusted accounts, so no
link is followed (queue_base.safe_open). Raises Permanent, Temporary; OSError of the disk.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from queue_admin.checks.queue_stamp import REPAIR, write_stamp
from queue_admin.checks.structure import owner_of_ours
from queue_admin.home.create import create_queue
from queue_admin.home.maker import Maker
from queue_admin.home.modes import CONTROL_FILE_MODE, HOME_MODE, ONDEMAND, QUEUE_MODE, RUN
from queue_admin.home.tree import Tree
from queue_admin.messages.detail import read_done_marks
from queue_admin.messages.survey import Snapshot, look, survey
from queue_base.accounts import Owner
from queue_base.durable import sync_path, write_all
from queue_base.errors import Permanent, reason
from queue_base.home import CONTROL_QUEUES, Home
from queue_base.queue.layout import CLASS_BIT, FILE_MODE, MESS_MODE, Layout, birth_by, open_layout
from queue_base.queue.marks_file import LeftMarks
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below, open_file_below, open_given
from queue_wire.files.cluster import CLUSTER_MAX, DONE, SUFFIX, cluster_number, link_name, unpack_cluster
from queue_wire.files.envelope import drop_recipients, unpack_info_class
from queue_wire.files.last_result import FILE_MAX, unpack_header
from queue_wire.files.maildrop import is_finished
from queue_wire.files.marks import identify
from queue_wire.files.recipients import unpack_pending
from queue_wire.format_error import FormatError
from queue_wire.ids import ID_MAX
from queue_wire.logline import moment

PIECE = 1 << 20
TRIES = 5  # Looks at a message whose state changes while it is read.
# Seconds between looks at one whose files match no state: it may be between two steps of a change. In all, at most
# WAITED_MAX: a damaged queue may have many.
SETTLE = 0.05
WAITED_MAX = 5.0
ENVELOPE_MAX = 128 << 20  # Bytes of a file beside mess/, which is read into memory.
LAST_MAX = 2 * FILE_MAX  # Bytes of last/B/I; queue-send keeps it below FILE_MAX.
DEPTH = 100  # Directories below control/, alias/ or users/.
MARKS_AGE = 1.0  # Seconds after which queue/marks is read again.
STANDING = "holds"  # The standing holds, one file.
HELD_MAILDROP = "hold/maildrop"
QUEUES = "queues"  # Where the copy has several queues.
_BESIDE = ("hold", "corrupt", "bounce")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Copied(NamedTuple):
    """How many messages and files of maildrop/ were copied, how many had ended; and what was left out, with reasons."""

    messages: int
    maildrop: int
    ended: int
    left: list[str]

    def and_more(self, other: "Copied") -> "Copied":
        """Return both together."""
        return Copied(
            self.messages + other.messages, self.maildrop + other.maildrop, self.ended + other.ended,
            self.left + other.left,
        )  # fmt: skip


class _File(NamedTuple):
    data: bytes
    mtime_ns: int


class _Changed(Exception):
    """The message has another state than it had."""


def copy_home(home: Home, target: Home, step: Callable[[int], object] = int) -> Copied:
    """Copy a home to a directory that does not exist yet, with all of its queues, or the one that was chosen."""
    if os.path.lexists(target.path):
        raise Permanent(f"unable to make {target.path}: it exists; name a directory that does not")
    work = Home(f"{target.path}.new")
    if os.path.lexists(work.path):
        raise Permanent(f"unable to make {work.path}: it exists, perhaps of a copy that was interrupted; remove it")
    queues: list[tuple[Home, Layout, Owner]] = []
    for one in home.each():
        if os.path.lexists(f"{one.queue}/{REPAIR}"):
            raise Permanent(f"unable to copy {one.queue}: a repair was not finished; run queuectl repair again")
        # Root may copy all, so the owner of each is the same as that of its files.
        queues.append((one, open_layout(one.queue), owner_of_ours(one)))
    began = moment(time.time())
    os.mkdir(work.path, 0o700)
    if not home.is_chosen:
        os.mkdir(f"{work.path}/{QUEUES}", HOME_MODE)
        os.chmod(f"{work.path}/{QUEUES}", HOME_MODE)
    done = Copied(0, 0, 0, [])
    with Tree(work.path) as tree:
        for one, layout, owner in queues:
            place = f"{work.path}/queue" if home.is_chosen else f"{work.path}/{QUEUES}/{one.name}"
            done = done.and_more(_copy_queue(one, layout, owner, place, step))
            write_stamp(place, layout.split, owner, f"{began} {home.path}")
        for name in ("control", "alias", "users"):
            if os.path.lexists(f"{home.path}/{name}"):
                with _directory(f"{home.path}/{name}") as below:
                    _copy_tree(below, f"{work.path}/{name}", name, done.left)
        _name_queues(home, work, queues[0][2])
        tree.sync()
    os.chmod(work.path, HOME_MODE)
    sync_path(work.path)
    os.rename(work.path, target.path)
    sync_path(os.path.dirname(target.path))
    return done


def _copy_queue(home: Home, layout: Layout, owner: Owner, queue: str, step: Callable[[int], object]) -> Copied:
    """Copy one queue to the directory `queue`. Raises OSError."""
    Maker(owner).directory(queue, QUEUE_MODE)
    left: list[str] = []
    with Tree(home.queue, follow=True) as source, Tree(queue) as tree:
        create_queue(Maker(owner, tree=tree), tree, layout.split)
        dropped = sum(
            _copy_files(source.handle, tree.handle, place, names, left)
            for place, names in (("maildrop", is_finished), (HELD_MAILDROP, is_finished), ("", STANDING.__eq__))
        )
        copier = _MessageCopier(layout, source, queue, owner, left)
        for found in survey(layout):
            if isinstance(found, Snapshot):
                copier.copy(found)
                step(1)
        # After the messages: what was stored meanwhile is found here.
        _copy_stored(source, tree, left)
    if home.name:
        left = [f"queue {home.name}: {each}" for each in left]
    return Copied(copier.messages, dropped, copier.ended, left)


def _name_queues(home: Home, work: Home, owner: Owner) -> None:
    """Have control/queues of the copy name its queues, where they are, and make run/. Raises OSError."""
    path = f"{work.control}/{CONTROL_QUEUES}"
    if not os.path.lexists(path):
        return
    os.unlink(path)
    if home.is_chosen:
        return
    handle = os.open(path, _NEW, CONTROL_FILE_MODE)
    try:
        os.fchmod(handle, CONTROL_FILE_MODE)
        write_all(handle, "".join(f"{QUEUES}/{name}\n" for name in home.queues).encode())
    finally:
        os.close(handle)
    maker = Maker(owner)
    maker.directory(f"{work.path}/run", QUEUE_MODE)
    for kind, mode in RUN.items():
        maker.directory(f"{work.path}/run/{kind}", mode)


def _copy_stored(source: Tree, tree: Tree, left: list[str]) -> None:
    """Copy what is stored for on-demand domains to the queue `tree`. Raises OSError."""
    if not source.is_directory(ONDEMAND):
        return
    with source.directory(ONDEMAND) as below:
        _copy_tree(below, f"{tree.path}/{ONDEMAND}", f"queue/{ONDEMAND}", left)
    for domain in tree.list(ONDEMAND):
        if not tree.is_directory(f"{ONDEMAND}/{domain}"):
            continue  # Not a domain's.
        for name in tree.list(f"{ONDEMAND}/{domain}"):
            number = cluster_number(name)
            if number is not None:
                _mark_finished(tree, f"{ONDEMAND}/{domain}", number, left)


def _mark_finished(tree: Tree, directory: str, number: int, left: list[str]) -> None:
    """Mark records done whose messages are not there. Raises OSError.

    Clusters come before mess/ in the order in which they were copied, so such a message was finished meanwhile. The
    account that owns the queue may have put a link in the place of a cluster, which the copy has, too.
    """
    name = f"{directory}/{number}{SUFFIX}"
    try:
        handle = open_file_below(tree.handle, name, [os.fstat(tree.handle).st_uid], os.O_RDWR)
    except UnsafePath as error:
        left.append(f"queue/{name}: {error}")
        return
    try:
        for record in unpack_cluster(os.pread(handle, CLUSTER_MAX, 0)).pending:
            if not tree.has(f"{directory}/mess/{link_name(number, record.stored.long_id)}", stat.S_ISREG):
                os.pwrite(handle, DONE, record.offset)
    finally:
        os.close(handle)


class _AllDone(Exception):
    """All recipients of the message are done, and it is about to be removed."""


class _MessageCopier:
    """Copies messages one after the other."""

    def __init__(self, layout: Layout, source: Tree, queue: str, owner: Owner, left: list[str]) -> None:
        self._layout = layout
        self._source = source
        self._target = open_layout(queue)
        self._owner = owner
        self._left = left
        self._marks: LeftMarks | None = None
        self._marks_read = 0.0
        self._waited = 0.0
        self.messages = 0
        self.ended = 0

    def copy(self, found: Snapshot) -> None:
        """Copy a message that was found. Raises OSError of the copy's disk."""
        seen: Snapshot | None = found
        for _ in range(TRIES):
            if seen is None:
                self.ended += 1
                return
            if seen.state == "unknown":
                if self._waited < WAITED_MAX:
                    self._waited += SETTLE
                    time.sleep(SETTLE)
                seen = look(self._layout, seen.message)
                continue
            if seen.state not in ("queued", "classified"):
                return
            try:
                self._copy(seen)
                return
            except (_Changed, FileNotFoundError):
                seen = look(self._layout, seen.message)
            except _AllDone:
                seen = None
            except UnsafePath as error:
                self._left.append(f"message {seen.message}: {error}")
                return
        if seen is None:
            self.ended += 1
            return
        why = seen.trouble if seen.state == "unknown" else f"its state changed {TRIES} times"
        self._left.append(f"message {found.message}: {why}")

    def _copy(self, seen: Snapshot) -> None:
        """Copy a message in the state that was seen. Raises _Changed, _AllDone, FileNotFoundError, OSError."""
        number = seen.message
        with self._open(self._layout.mess(number)) as mess:
            status = os.fstat(mess)
            path = f"{self._target.queue}/pid/copy"
            new = os.open(path, _NEW, MESS_MODE)
            try:
                _copy_contents(mess, new)
                files = self._read_files(seen, birth_by(status))
                again = look(self._layout, number)
                if again is None or (again.state, again.birth) != (seen.state, seen.birth):
                    raise _Changed
                self._give(new, MESS_MODE, status.st_mtime_ns)
                copied = os.fstat(new).st_ino
                if copied > ID_MAX:
                    raise OSError(errno.EOVERFLOW, f"the file system numbers files above {ID_MAX}", path)
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(new)
        for kind, file in files.items():
            self._write(kind, copied, file)
        # Last: what an interrupted copy leaves is removed as a whole.
        os.rename(path, self._target.mess(copied))
        self.messages += 1

    def _read_files(self, seen: Snapshot, mess_birth: int) -> dict[str, _File]:
        """Return the other files of a message. Raises as `_copy` does."""
        layout, number = self._layout, seen.message
        files: dict[str, _File] = {}
        for kind in _BESIDE:
            path = layout.bounce(number) if kind == "bounce" else layout.hashed(kind, number)
            self._add(files, kind, path, needed=False)
        if seen.state == "queued":
            self._add(files, "todo", layout.todo(number))
            todo = files["todo"]
            marks = self._done_marks()
            done = 0 if marks is None else marks.done(identify(number, mess_birth, todo.data))
            files["todo"] = _File(drop_recipients(todo.data, done), todo.mtime_ns) if done else todo
            return files
        self._add(files, "info", layout.hashed("info", number))
        for kind in ("local", "remote"):
            self._add(files, kind, layout.hashed(kind, number), needed=False)
        self._add_results(files, number, seen.birth)
        if "bounce" not in files and not any(_pending(files[kind]) for kind in ("local", "remote") if kind in files):
            raise _AllDone
        return files

    def _done_marks(self) -> LeftMarks | None:
        if time.monotonic() > self._marks_read + MARKS_AGE:
            self._marks = read_done_marks(self._layout)
            self._marks_read = time.monotonic()
        return self._marks

    def _add_results(self, files: dict[str, _File], number: int, birth: int | None) -> None:
        """Add last/B/I if it is of this very message. No message stays behind because of it: it is only for people."""
        found: dict[str, _File] = {}
        with suppress(OSError):
            self._add(found, "last", self._layout.hashed("last", number), needed=False, most=LAST_MAX)
        # It has the birth of its message, which the copy keeps, and not its number.
        if "last" in found and unpack_header(found["last"].data) == birth:
            files |= found

    def _add(
        self, files: dict[str, _File], kind: str, path: str, needed: bool = True, most: int = ENVELOPE_MAX
    ) -> None:
        try:
            with self._open(path) as handle:
                found = os.fstat(handle)
                if found.st_size > most:
                    raise UnsafePath(f"{kind} has {found.st_size} bytes")
                files[kind] = _File(b"".join(_pieces(handle)), found.st_mtime_ns)
        except FileNotFoundError:
            if needed:
                raise

    @contextmanager
    def _open(self, path: str) -> Iterator[int]:
        handle = _open_regular(self._source.handle, os.path.relpath(path, self._layout.queue))
        try:
            # The copy belongs to the queue's owner, so nothing of another account may get into it by a link.
            uid = os.fstat(handle).st_uid
            if uid != self._owner.uid:
                raise UnsafePath(f"{os.path.basename(path)} belongs to uid {uid}, not to the queue's owner")
            yield handle
        finally:
            os.close(handle)

    def _write(self, kind: str, message: int, file: _File) -> None:
        target = self._target
        paths = {"todo": target.todo(message), "bounce": target.bounce(message)}
        handle = os.open(paths.get(kind) or target.hashed(kind, message), _NEW, FILE_MODE)
        try:
            write_all(handle, file.data) if file.data else None
            classed = kind == "info" and _has_class(file)
            self._give(handle, FILE_MODE | CLASS_BIT if classed else FILE_MODE, file.mtime_ns)
        finally:
            os.close(handle)

    def _give(self, handle: int, mode: int, mtime_ns: int) -> None:
        _give(handle, self._owner.uid, self._owner.gid, mode, mtime_ns)


def _has_class(file: _File) -> bool:
    """Return whether info/B/I has the record of a class."""
    try:
        return bool(unpack_info_class(file.data)[1])
    except FormatError:
        return False


def _pending(file: _File) -> bool:
    """Return whether a file of recipients has one that is not done. One that cannot be understood has."""
    try:
        return bool(unpack_pending(file.data))
    except FormatError:
        return True


def _pieces(handle: int) -> Iterator[bytes]:
    while data := os.read(handle, PIECE):
        yield data


def _copy_contents(source: int, target: int) -> None:
    """Copy a file as long as it is now; holes stay holes, because a user may make one of any length. Raises OSError."""
    at, size = 0, os.fstat(source).st_size
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # The rest is a hole.
        end = min(size, os.lseek(source, at, os.SEEK_HOLE))
        os.lseek(target, at, os.SEEK_SET)
        while at < end and (data := os.pread(source, min(PIECE, end - at), at)):
            write_all(target, data)
            at += len(data)
        if at < end:
            size = at  # It was cut meanwhile.
    os.ftruncate(target, size)


def _give(handle: int, uid: int, gid: int, mode: int, mtime_ns: int) -> None:
    """Set owner, mode and mtime. A user who is not root keeps what is copied. Raises OSError."""
    try:
        os.fchown(handle, uid, gid)
    except PermissionError:
        if os.geteuid() == 0:
            raise
    # chmod follows chown, which may clear bits.
    os.fchmod(handle, mode)
    os.utime(handle, ns=(mtime_ns, mtime_ns))


def _open_regular(top: int, path: str) -> int:
    """Open a regular file for reading, without following a link. Raises OSError, UnsafePath."""
    try:
        handle = open_below(top, path)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UnsafePath(f"{path} is a socket") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UnsafePath(f"{path} cannot be read: {reason(error)}") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnsafePath(f"{path} is not a regular file")
    return handle


@contextmanager
def _directory(path: str) -> Iterator[int]:
    handle = open_given(path, READ_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def _copy_files(source: int, target: int, place: str, chosen: Callable[[str], object], left: list[str]) -> int:
    """Copy the regular files in one directory of the queue whose names are chosen; return how many. Raises OSError."""
    try:
        below = open_below(source, place, READ_DIRECTORY) if place else os.dup(source)
    except FileNotFoundError:
        return 0
    count = 0
    try:
        for name in filter(chosen, os.listdir(below)):
            into = os.dup(target) if not place else _make_below(target, place)
            try:
                _copy_file(below, into, name)
                count += bool(place)
            except FileNotFoundError:
                continue  # queue-pickup has taken it.
            except UnsafePath as error:
                left.append(f"queue/{place}/{name}: {error}")
            finally:
                os.close(into)
    finally:
        os.close(below)
    return count


def _make_below(target: int, place: str) -> int:
    try:
        return open_below(target, place, READ_DIRECTORY)
    except FileNotFoundError:
        os.mkdir(place, 0o700, dir_fd=target)
        handle = open_below(target, place, READ_DIRECTORY)
        found = os.fstat(target)
        _give(handle, found.st_uid, found.st_gid, 0o2700, found.st_mtime_ns)
        return handle


def _copy_file(source: int, target: int, name: str) -> None:
    handle = _open_regular(source, name)
    try:
        found = os.fstat(handle)
        new = os.open(name, _NEW, 0o600, dir_fd=target)
        try:
            _copy_contents(handle, new)
            _give(new, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
        finally:
            os.close(new)
    finally:
        os.close(handle)


def _copy_tree(source: int, target: str, name: str, left: list[str], depth: int = DEPTH) -> None:
    """Copy a directory with what is in it; links are copied as links, other special files are left. Raises OSError."""
    os.mkdir(target, 0o700)
    with _directory(target) as into:
        for entry in sorted(os.listdir(source)):
            below = f"{name}/{entry}"
            try:
                found = os.stat(entry, dir_fd=source, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    os.symlink(os.readlink(entry, dir_fd=source), entry, dir_fd=into)
                elif stat.S_ISREG(found.st_mode):
                    _copy_file(source, into, entry)
                elif stat.S_ISDIR(found.st_mode) and depth:
                    inner = open_below(source, entry, READ_DIRECTORY)
                    try:
                        _copy_tree(inner, f"{target}/{entry}", below, left, depth - 1)
                    finally:
                        os.close(inner)
                else:
                    left.append(f"{below}: it is no file, directory or link, or too deep")
            except FileNotFoundError:
                continue  # It was removed meanwhile.
            except (UnsafePath, PermissionError) as error:
                left.append(f"{below}: {error.strerror or error}")
        found = os.fstat(source)
        _give(into, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
