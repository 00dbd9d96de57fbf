"""Everything that is wrong in a queue (`queuectl check`), one bucket after the other. Takes no lock, changes nothing.

Messages arrive, finish and change state meanwhile. So a message with which something is wrong is looked at again before
it is reported. Only the numbers of one bucket, and of the flat directories, are in memory.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator

from queue_admin.checks.findings import FileFacts, Finding, Verdict, judge_message
from queue_admin.checks.message_paths import KINDS, PLACES, is_regular, look_at, path_of
from queue_admin.checks.renumber import message_number
from queue_admin.checks.structure import buckets, check_structure
from queue_admin.home.modes import MAILDROP_HELD, OURS
from queue_admin.messages.survey import read_regular
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_wire.files.envelope import TodoReader, unpack_info
from queue_wire.files.recipients import unpack_piece
from queue_wire.format_error import FormatError

PIECE = 65536
SETTLE = 0.1  # Seconds after which what looked wrong is looked at again.
WAITED_MAX = 5.0  # Seconds, for all directories together.
_ORDER = ("todo", "mess", *(kind for kind in KINDS if kind not in ("todo", "info")), "info")
_DIRECTORIES = frozenset((*OURS, MAILDROP_HELD, *(f"{kind}/0" for kind in PLACES)))
_BITS = {kind: 1 << place for place, kind in enumerate(PLACES)}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def inspect(
    layout: Layout,
    owner: tuple[int, int],
    now: float,
    settle: float = SETTLE,
    step: Callable[[int], object] = int,
    home: Home | None = None,
) -> Iterator[Finding]:
    """Yield everything that is wrong. `now` is in seconds since the epoch; `step` counts messages. Raises OSError.

    `home` is by default the directory above the queue.
    """
    yield from check_structure(layout, owner, now, home)
    yield from inspect_messages(layout, owner, now, settle, step)


def inspect_messages(
    layout: Layout, owner: tuple[int, int], now: float, settle: float = SETTLE, step: Callable[[int], object] = int
) -> Iterator[Finding]:
    """Yield what is wrong with messages, and names that belong to none. Raises OSError."""
    flat = {kind: os.path.basename(layout.directories(kind)[0]) == kind for kind in PLACES}
    beside: dict[int, int] = {}
    for kind in PLACES:
        if flat[kind]:
            yield from _names(layout, kind, f"{layout.queue}/{kind}", beside)
        else:
            yield from _strays_at_top(layout, kind)
    waited = 0.0
    numbers = sorted(set().union(*(buckets(layout.queue, kind) for kind in PLACES if not flat[kind])))
    for number in numbers:
        here: dict[int, int] = {}
        for kind in PLACES:
            if not flat[kind]:
                yield from _names(layout, kind, f"{layout.queue}/{kind}/{number}", here)
        for directory in layout.lower_directories(number):
            yield from _names(layout, "todo", directory, here)
        for message in here:
            here[message] |= beside.pop(message, 0)
        suspects = _suspects(layout, here, owner, now, step)
        if suspects and waited < WAITED_MAX:
            waited += settle
            time.sleep(settle)
        yield from _confirmed(layout, suspects, owner, now)
    yield from _confirmed(layout, _suspects(layout, beside, owner, now, step), owner, now)


def _suspects(
    layout: Layout, messages: dict[int, int], owner: tuple[int, int], now: float, step: Callable[[int], object]
) -> list[int]:
    """Return the messages with which something seems to be wrong; `messages` has the kinds of their files, as bits."""
    found = []
    for message in sorted(messages):
        step(1)
        if judge_message(message, look_at_files(layout, message, messages[message]), owner, now):
            found.append(message)
    return found


def _confirmed(layout: Layout, suspects: list[int], owner: tuple[int, int], now: float) -> Iterator[Finding]:
    for message in suspects:
        for verdict in judge_message(message, look_at_files(layout, message), owner, now):
            yield _finding(layout, message, verdict)


def _finding(layout: Layout, message: int, verdict: Verdict) -> Finding:
    path = os.path.relpath(path_of(layout, verdict.kind, message), layout.queue)
    return Finding(verdict.code, path, verdict.what, message)


def look_at_files(layout: Layout, message: int, kinds: int = -1) -> dict[str, FileFacts]:
    """Return the facts of the files of a message, by kind, of all kinds or of those in `kinds`. Raises OSError.

    todo/ is looked at first and info/ last: so a message that is classified meanwhile has one of them.
    """
    found: dict[str, FileFacts] = {}
    for kind in _ORDER:
        if not kinds & _BITS[kind]:
            continue
        path = path_of(layout, kind, message)
        there = look_at(path)
        if there is None:
            continue
        trouble = ""
        if kind in _READERS and is_regular(there):
            try:
                trouble = _READERS[kind](path, there.st_size)
            except FormatError as error:
                trouble = f"cannot be understood: {error}"
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    raise
                trouble = f"cannot be read: {reason(error)}"
        found[kind] = FileFacts(
            there.st_ino, there.st_mode, there.st_uid, there.st_gid, there.st_mtime, there.st_ctime, trouble
        )
    return found


def _read_todo(path: str, size: int) -> str:
    reader = TodoReader()
    for data in _pieces(path):
        reader.feed(data)
    reader.end()
    return ""


def _read_info(path: str, size: int) -> str:
    unpack_info(read_regular(path, PIECE))
    return ""


def _read_recipients(path: str, size: int) -> str:
    rest, at = b"", 0
    for data in _pieces(path):
        rest += data
        _, end = unpack_piece(rest, at, at + len(rest) + 1)
        rest, at = rest[end - at :], end
    if rest:
        raise FormatError("recipients: last record is not ended by a NUL")
    return ""


_READERS: dict[str, Callable[[str, int], str]] = {
    "todo": _read_todo,
    "info": _read_info,
    "local": _read_recipients,
    "remote": _read_recipients,
}


def _pieces(path: str) -> Iterator[bytes]:
    handle = os.open(path, _READ)
    try:
        while data := os.read(handle, PIECE):
            yield data
    finally:
        os.close(handle)


def _names(layout: Layout, kind: str, directory: str, found: dict[int, int]) -> Iterator[Finding]:
    """Add the kind's bit to the messages in a directory; yield the names that do not belong there."""
    bit = _BITS[kind]
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                message = message_number(entry.name)
                path = f"{directory[len(layout.queue) + 1 :]}/{entry.name}"
                if message is None:
                    yield Finding("stray", path, "is not the name of a message")
                elif path_of(layout, kind, message) == entry.path:
                    found[message] = found.get(message, 0) | bit
                elif os.path.lexists(entry.path):
                    right = os.path.relpath(path_of(layout, kind, message), layout.queue)
                    yield Finding("bucket", path, f"belongs in {os.path.dirname(right)}", message)
    except FileNotFoundError:
        return  # check_structure reports it.


def _strays_at_top(layout: Layout, kind: str) -> Iterator[Finding]:
    """Yield files next to the numbered directories, and directories without a number."""
    try:
        with os.scandir(f"{layout.queue}/{kind}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if message_number(entry.name) is None and f"{kind}/{entry.name}" not in _DIRECTORIES:
                        yield Finding("stray", f"{kind}/{entry.name}", "is no directory of the queue")
                    continue
                message = message_number(entry.name.removeprefix("."))
                if message is None:
                    yield Finding("stray", f"{kind}/{entry.name}", "is not the name of a message")
                else:
                    right = os.path.relpath(path_of(layout, kind, message), layout.queue)
                    yield Finding("bucket", f"{kind}/{entry.name}", f"belongs in {os.path.dirname(right)}", message)
    except (FileNotFoundError, NotADirectoryError):
        return


