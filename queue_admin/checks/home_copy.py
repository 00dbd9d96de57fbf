"""`queuectl copy`: a copy of a home, of a queue that may be live, with right inode numbers.

Each message is copied as it is at one moment: it is looked at again when its files have been read, and copied anew if
its state changed; one that ended meanwhile is left out. The recipients that are done are read last. The copy has every
message that was accepted before the copy began and was not finished when it was copied.

Mail moves while it is copied: a message is forwarded or bounces, and ends; what is stored is requeued; a file goes from
new/ to cur/. So the names are taken again, and what is new is copied, until nothing has gone between two looks. What is
there then is in the copy.

It is made as HOME2.new, which only root may enter, and is renamed when it is complete and on the disk. Its stamp says
that it is a copy, so it does not start before somebody says so. What is read belongs to less trusted accounts, so no
link is followed (queue_base.safe_open). Raises Permanent, Temporary; OSError of the disk.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
from queue_base.errors import Failure, Permanent, reason
from queue_base.home import CONTROL_QUEUES, Home
from queue_base.queue.layout import CLASS_BIT, FILE_MODE, MESS_MODE, Layout, birth_by, open_layout
from queue_base.queue.marks_file import LeftMarks
from queue_base.queue.postman import DIRECTORY as POSTMAN
from queue_base.queue.postman import unpack_copy_name
from queue_base.safe_open import READ_DIRECTORY, UnsafePath, open_below, open_given
from queue_wire.files.cluster import CLUSTER_MAX, DONE, SUFFIX, cluster_number, link_name, unpack_cluster
from queue_wire.files.envelope import drop_recipients, unpack_whole_info
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
LOOKS_MAX = 30  # Looks at a queue or a directory where mail goes from one place to another all the time.
STANDING = "holds"  # The standing holds, one file.
HELD_MAILDROP = "hold/maildrop"
QUEUES = "queues"  # Where the copy has several queues.
_REPLACED = "something else was put in its place meanwhile"
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
    done = Copied(0, 0, 0, [])
    with Tree(work.path) as tree, _pinned(tree) as inside:
        if not home.is_chosen:
            os.mkdir(f"{inside.path}/{QUEUES}", HOME_MODE)
            os.chmod(f"{inside.path}/{QUEUES}", HOME_MODE)
        for one, layout, owner in queues:
            place = f"{inside.path}/queue" if home.is_chosen else f"{inside.path}/{QUEUES}/{one.name}"
            done = done.and_more(_copy_queue(one, layout, owner, place, step))
            write_stamp(place, layout.split, owner, f"{began} {home.path}")
        for name in ("control", "alias", "users"):
            if os.path.lexists(f"{home.path}/{name}"):
                with _directory(f"{home.path}/{name}") as below:
                    copier = _TreeCopier(below, f"{inside.path}/{name}", name, done.left)
                    if not _is_settled(copier.look):
                        done.left.append(f"{name}: files moved during each of {LOOKS_MAX} looks; some may be missed")
        _name_queues(home, inside, queues[0][2])
        tree.sync()
        os.fchmod(tree.handle, HOME_MODE)
        os.fsync(tree.handle)
        os.rename(work.path, target.path)
        if not os.path.samestat(os.lstat(target.path), os.fstat(tree.handle)):
            raise Permanent(f"unable to make {target.path}: {_REPLACED}")
    sync_path(os.path.dirname(target.path))
    # What cannot be copied was found by each look.
    return done._replace(left=list(dict.fromkeys(done.left)))


@contextmanager
def _pinned(tree: Tree) -> Iterator[Home]:
    """Yield the new home by its descriptor: who may write the directory above it may put another one in its place.

    What is raised names the path as it was given.
    """
    found = os.fstat(tree.handle)
    if found.st_uid != os.geteuid() or os.listdir(tree.handle):
        raise Permanent(f"unable to make {tree.path}: {_REPLACED}")
    inside = f"/proc/self/fd/{tree.handle}"
    try:
        yield Home(inside)
    except Failure as error:
        raise type(error)(str(error).replace(inside, tree.path)) from error
    except OSError as error:
        for name in ("filename", "filename2"):
            if isinstance(path := getattr(error, name), str):
                setattr(error, name, path.replace(inside, tree.path))
        raise


def _copy_queue(home: Home, layout: Layout, owner: Owner, queue: str, step: Callable[[int], object]) -> Copied:
    """Copy one queue to the directory `queue`. Raises OSError."""
    Maker(owner).directory(queue, QUEUE_MODE)
    left: list[str] = []
    with Tree(home.queue, follow=True) as source, Tree(queue) as tree, ExitStack() as stack:
        create_queue(Maker(owner, tree=tree), tree, layout.split)
        try:
            _copy_file(source.handle, tree.handle, STANDING)
        except FileNotFoundError:
            pass
        except UnsafePath as error:
            left.append(f"queue/{STANDING}: {error}")
        drops = [
            _TreeCopier(below, f"{queue}/{place}", f"queue/{place}", left, links=False, chosen=is_finished)
            for place in ("maildrop", HELD_MAILDROP)
            for below in _opened(source, place, stack)
        ]
        stored = [
            _StoredCopier(below, f"{queue}/{ONDEMAND}", f"queue/{ONDEMAND}", left, links=False)
            for below in _opened(source, ONDEMAND, stack)
        ]
        copier = _MessageCopier(layout, source, queue, owner, left)

        def look_around() -> int:
            # In the order in which mail goes on, so that most of it is found at the next place.
            moved = sum([each.look() for each in drops])
            moved += copier.look(step)
            copier.copy_postman()
            return moved + sum([each.look() for each in stored])

        if not _is_settled(look_around):
            left.append(f"what moved: in each of {LOOKS_MAX} looks mail ended or moved before it was copied; try again")
    dropped = sum([each.files for each in drops])
    if home.name:
        left = [f"queue {home.name}: {each}" for each in left]
    return Copied(copier.messages, dropped, copier.ended, left)


def _opened(source: Tree, place: str, stack: ExitStack) -> list[int]:
    """Return the descriptor of a directory of the queue; none if it does not exist. Raises OSError."""
    return [stack.enter_context(source.directory(place))] if source.is_directory(place) else []


def _is_settled(look: Callable[[], int]) -> bool:
    """Look until nothing has gone between two looks; return False after LOOKS_MAX. Raises OSError."""
    look()
    return any(not look() for _ in range(1, LOOKS_MAX))


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


class _AllDone(Exception):
    """All recipients of the message are done, and it is about to be removed."""


class _MessageCopier:
    """Copies messages one after the other."""

    def __init__(self, layout: Layout, source: Tree, queue: str, owner: Owner, left: list[str]) -> None:
        self._layout = layout
        self._source = source
        self._target = open_layout(queue)
        self._passing = f"{queue}/pid/copy"
        self._owner = owner
        self._left = left
        self._marks: LeftMarks | None = None
        self._marks_read = 0.0
        self._waited = 0.0
        # The messages, by number and birth, that were copied, or had ended, or were left out; those that were being
        # injected, or removed; and the copies for the postmaster.
        self._known: set[tuple[int, int | None]] = set()
        self._incoming: set[tuple[int, int | None]] = set()
        self._postman: set[str] = set()
        self.messages = 0
        self.ended = 0

    def look(self, step: Callable[[int], object]) -> int:
        """Copy the messages that are new; return how many ended before they were copied, perhaps into new ones.

        Raises OSError of the copy's disk.
        """
        before = self.ended + len(self._incoming)
        for found in survey(self._layout):
            if isinstance(found, Snapshot) and (found.message, found.birth) not in self._known:
                self._known.add((found.message, found.birth))
                self.copy(found)
                step(1)
        return self.ended + len(self._incoming) - before

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
                self._incoming.add((seen.message, seen.birth))
                self._known.discard((found.message, found.birth))
                return
            try:
                self._copy(seen)
                self._known.add((seen.message, seen.birth))
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

    def copy_postman(self) -> None:
        """Copy the copies for the postmaster that are new, each under the number of its new file. Raises OSError."""
        if not self._source.is_directory(POSTMAN):
            return  # A home of an earlier version has none.
        with self._source.directory(POSTMAN) as below:
            names = os.listdir(below)
        for name in sorted(set(names) - self._postman):
            self._postman.add(name)
            parts = unpack_copy_name(name)
            try:
                if parts is None:
                    raise UnsafePath("it is no copy for the postmaster")
                with self._open(f"{self._layout.queue}/{POSTMAN}/{name}") as handle:
                    number = self._new_file(handle)
                os.rename(self._passing, f"{self._target.queue}/{POSTMAN}/{number}_{parts[1]}")
            except FileNotFoundError:
                continue  # A person has removed it.
            except UnsafePath as error:
                self._left.append(f"queue/{POSTMAN}/{name}: {error}")

    def _new_file(self, handle: int) -> int:
        """Copy a file of a message to a passing name; return the number of the copy. Raises OSError."""
        new = os.open(self._passing, _NEW, MESS_MODE)
        try:
            _copy_contents(handle, new)
            self._give(new, MESS_MODE, os.fstat(handle).st_mtime_ns)
            return os.fstat(new).st_ino
        finally:
            os.close(new)

    def _copy(self, seen: Snapshot) -> None:
        """Copy a message in the state that was seen. Raises _Changed, _AllDone, FileNotFoundError, OSError."""
        number = seen.message
        with self._open(self._layout.mess(number)) as mess:
            status = os.fstat(mess)
            path = self._passing
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
        return bool(unpack_whole_info(file.data)[1])
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


def _copy_file(source: int, target: int, name: str) -> None:
    handle = _open_regular(source, name)
    try:
        found = os.fstat(handle)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=target)  # As an earlier look has copied it.
        new = os.open(name, _NEW, 0o600, dir_fd=target)
        try:
            _copy_contents(handle, new)
            _give(new, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
        finally:
            os.close(new)
    finally:
        os.close(handle)


class _TreeCopier:
    """Makes a directory like another one, with what is in it: a look copies what is new, and removes what has gone.

    `source` is a descriptor, `name` is for people. Links are copied as links, or not; other special files are not.
    Of the names in the directory itself only those that are `chosen` count. `files` are those that the copy has.
    """

    def __init__(
        self,
        source: int,
        target: str,
        name: str,
        left: list[str],
        links: bool = True,
        chosen: Callable[[str], object] = bool,
    ) -> None:
        self._source = source
        self._target = target
        self._name = name
        self._left = left
        self._links = links
        self._chosen = chosen
        self._copied: dict[str, tuple[int, ...]] = {}
        self._seen: set[str] = set()
        self._gone = 0

    @property
    def files(self) -> int:
        """How many names the copy has."""
        return len(self._copied)

    def look(self) -> int:
        """Copy what is new; return how many names had gone, or what else has moved. Raises OSError."""
        self._seen, self._gone = set(), 0
        parent, name = os.path.split(self._target)
        with _directory(parent) as above:
            self._copy_directory(self._source, above, name, "", DEPTH)
            self._remove(above, name)
        return self._gone

    def _remove(self, above: int, name: str) -> None:
        """Remove from the copy what has gone. The deepest names come first."""
        for path in sorted(self._copied.keys() - self._seen, reverse=True):
            kind = self._copied.pop(path)[0]
            place, last = os.path.split(f"{name}/{path}")
            with _below(above, place) as handle:
                os.rmdir(last, dir_fd=handle) if stat.S_ISDIR(kind) else os.unlink(last, dir_fd=handle)
            self._gone += 1

    def _copy_directory(self, source: int, above: int, name: str, path: str, depth: int) -> None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
        with _below(above, name) as into:
            for entry in sorted(os.listdir(source)):
                below = f"{path}/{entry}" if path else entry
                if not path and not self._chosen(entry):
                    continue
                try:
                    self._copy_entry(source, into, entry, below, depth)
                except FileNotFoundError:
                    self._gone += 1
                except (UnsafePath, PermissionError) as error:
                    self._left.append(f"{self._name}/{below}: {error.strerror or error}")
            found = os.fstat(source)
            _give(into, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), found.st_mtime_ns)

    def _copy_entry(self, source: int, into: int, entry: str, path: str, depth: int) -> None:
        found = os.stat(entry, dir_fd=source, follow_symlinks=False)
        identity = (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns)
        before = self._copied.get(path)
        is_directory = stat.S_ISDIR(found.st_mode)
        if before is not None and stat.S_ISDIR(before[0]) != is_directory:
            raise FileNotFoundError(path)  # The next look copies it.
        if is_directory and depth:
            with _below(source, entry) as inner:
                self._copied[path] = identity
                self._seen.add(path)
                self._copy_directory(inner, into, entry, path, depth - 1)
            return
        if before != identity:
            if stat.S_ISREG(found.st_mode):
                self._copy_regular(source, into, entry)
            elif stat.S_ISLNK(found.st_mode) and self._links:
                _replace_link(os.readlink(entry, dir_fd=source), into, entry)
            elif stat.S_ISSOCK(found.st_mode):
                raise UnsafePath("it is a socket")
            else:
                raise UnsafePath("it is no file, directory or link, or too deep")
            self._copied[path] = identity
        self._seen.add(path)

    def _copy_regular(self, source: int, into: int, entry: str) -> None:
        _copy_file(source, into, entry)


class _StoredCopier(_TreeCopier):
    """Copies what is stored for on-demand domains. What is done by a later look has gone."""

    def look(self) -> int:
        """Do the same; mark what was finished meanwhile."""
        before = set(self._copied.items())
        super().look()
        changed = {path.partition("/")[0] for path, _ in before ^ set(self._copied.items())}
        with _directory(self._target) as top:
            for path in self._copied:
                domain, _, name = path.partition("/")
                number = cluster_number(name)
                if number is not None and domain in changed:
                    with _below(top, domain) as place:
                        _mark_finished(place, number)
        return self._gone

    def _copy_regular(self, source: int, into: int, entry: str) -> None:
        if cluster_number(entry) is None:
            _copy_file(source, into, entry)
            return
        before = _pending_in(into, entry)
        _copy_file(source, into, entry)
        self._gone += len(before - _pending_in(into, entry))


def _pending_in(place: int, name: str) -> set[tuple[str, bytes]]:
    """Return what is pending in a cluster of the copy, which may have none of this name. Raises OSError."""
    try:
        handle = open_below(place, name)
    except FileNotFoundError:
        return set()
    try:
        pending = unpack_cluster(os.pread(handle, CLUSTER_MAX, 0)).pending
    finally:
        os.close(handle)
    return {(each.stored.long_id, each.stored.recipient) for each in pending}


def _mark_finished(place: int, number: int) -> None:
    """Mark records done whose messages are not there. Raises OSError.

    Clusters come before mess/ in the order in which they were copied, so such a message was finished meanwhile.
    """
    name = f"{number}{SUFFIX}"
    handle = open_below(place, name, os.O_RDWR)
    try:
        found = os.fstat(handle)
        for record in unpack_cluster(os.pread(handle, CLUSTER_MAX, 0)).pending:
            if not _is_there(place, f"mess/{link_name(number, record.stored.long_id)}"):
                os.pwrite(handle, DONE, record.offset)
        os.utime(handle, ns=(found.st_mtime_ns, found.st_mtime_ns))
    finally:
        os.close(handle)


def _is_there(place: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _below(above: int, name: str) -> Iterator[int]:
    handle = open_below(above, name, READ_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def _replace_link(text: str, into: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=into)
    os.symlink(text, name, dir_fd=into)
