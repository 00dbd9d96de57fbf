"""Which logs are there, and what in them is new since the last build. This looks at every file, but reads few bytes.

A stream is one host's one queue: a directory LOGS/host/queue. Its files are read in the order of their names, `current`
last, where they are: they only grow. `current` alone may get another name meanwhile, so what is new in it is kept.
"""

import errno
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from queue_base.errors import Temporary, reason
from spark.logs.joints import AT_WORK, Joined, Joiner, Keep, Kept
from spark.logs.plan import Part, Plan, SourceError, State, Stream
from spark.runtime.places import REQUESTS, Entry, Place
from spark.tables.partitions import escape_name

__all__ = ["Part", "Plan", "SourceError", "State", "plan"]

# What multilog and svlogd keep beside the logs. `previous` is one: `current`, while multilog's processor is at work.
_NOT_LOGS = frozenset(("lock", "state", "newstate", "config", "processed"))
# How a directory of a table is called where the host is null.
_NO_HOST = "__HIVE_DEFAULT_PARTITION__"
_TRIES = 5
# Bytes that a directory's name may have.
_NAME_MAX = 255
# Up to so many bytes, what is new in a growing log is kept in memory; of all logs together up to KEPT_MAX.
_KEPT = 1 << 18
KEPT_MAX = 32 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_ROOM_TEXTS = ("no space left on device", "disk quota exceeded")


def plan(
    place: Place,
    state: Mapping[str, Any],
    staging: Place,
    host: str | None = None,
    queue: str | None = None,
) -> Plan:
    """Look at LOGS and return what is new.

    host and queue name what the directories do not: of LOGS/x, x is the host, or the queue where only host is given.
    Links or copies growing files into `staging`, which is this build's own and which the caller removes when the build
    is over. A stream that cannot be read is left as it was, with a warning, if another one has logs that can. Raises
    SourceError; Temporary where a log cannot be read now; OSError where there is no room for the copies.
    """
    warnings: list[str] = []
    troubles: list[Exception] = []
    try:
        streams = _find_streams(place, host, queue, warnings)
        listed = _list_all(place, streams) if place.local is not None else {}
    except OSError as error:
        raise _trouble(error, place) from error
    most = KEPT_MAX if place.local is not None and _new_bytes(listed, streams, state) <= KEPT_MAX else _KEPT
    room = _Room(KEPT_MAX)

    def look(number: int, below: str, stream: Stream) -> Joined | Exception:
        keep = _Keeper(place, staging, str(number), most, room)
        try:
            return _look(place, below, keep, state.get("/".join(stream), {}))
        except (OSError, SourceError) as error:
            if isinstance(error, OSError) and _is_no_room(error):
                raise
            return error if isinstance(error, SourceError) else _trouble(error, place, below)

    streams_in_order = list(streams.items())
    parts: dict[Stream, list[Part]] = {}
    after: State = dict(state)
    # Elsewhere each look at a file waits for an answer: many streams at once.
    with ThreadPoolExecutor(1 if place.local is not None else REQUESTS) as pool:
        looked = pool.map(look, count(), streams.keys(), streams.values())
        for (_, stream), found in zip(streams_in_order, looked, strict=True):
            if isinstance(found, Exception):
                troubles.append(found)
                warnings.append(f"queue {stream[1]} of host {stream[0]} is left as it was: {found}")
                continue
            if found.parts:
                parts[stream] = found.parts
            after["/".join(stream)] = found.state
            warnings += found.warnings
    if troubles and not any(after.get("/".join(stream), {}).get("files") for stream in streams.values()):
        raise troubles[0]
    warnings += _find_copies(state, after)
    return Plan(parts, after, warnings)


def _find_copies(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each new stream that has a log of another one: a copy of it, by another name."""
    new = [name for name in after if name not in before]
    if not new:
        return
    whose: dict[tuple[int, str], str] = {}
    for name in [*(name for name in after if name in before), *new]:
        for known in after[name].get("files", {}).values():
            other = whose.setdefault((known[0], known[1]), name)
            if other != name:
                yield f"{name} has the same log as {other}: each counts as a queue of its own; give one of them"
                break


class _Room:
    """How many bytes may still be kept in memory."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Take so many bytes, if there is room."""
        if size > self._left:
            return False
        self._left -= size
        return True


class _Keeper:
    """Keeps what is new in a file that may be renamed: in memory, or in the staging directory."""

    def __init__(self, place: Place, staging: Place, name: str, most: int, room: _Room) -> None:
        self._place, self._staging, self._name, self._room = place, staging, name, room
        self.most = most
        self._copies = count()

    def __call__(self, path: str, start: int, end: int) -> Kept:
        if end - start <= self.most and self._room.take(end - start):
            return Kept("", 0, self._place.read(path, start, end - start))
        name = f"{self._name}.{next(self._copies)}"
        copy = posixpath.join(self._staging.root, name)
        if self._place.local is not None and self._staging.local is not None:
            # Another name for the same file costs nothing.
            self._staging.make_directory()
            try:
                os.link(posixpath.join(self._place.local, path), copy)
                return Kept(copy, start, None)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
        self._place.copy(path, start, end, self._staging, name)
        return Kept(copy, 0, None)

    def take_room(self, size: int) -> bool:
        return self._room.take(size)


def _look(place: Place, below: str, keep: Keep, state: State) -> Joined:
    """Look at a stream's files. A file that was renamed or removed meanwhile is not missed: look again.

    Where there is always a new one, the last look leaves the files at work to the next build: only these get other
    names, so that what is read by such a name may be of another file.
    """
    for attempt in range(_TRIES):
        found = _list_logs(place, below)
        if attempt + 1 == _TRIES:
            found = [one for one in found if one.name not in AT_WORK]
        try:
            joined = Joiner(place, below, keep).join(found, state)
        except FileNotFoundError:
            if attempt + 1 == _TRIES:
                raise
            continue
        if {one.name for one in _list_logs(place, below)} <= {one.name for one in found}:
            break
    return joined


def _list_all(place: Place, streams: Iterable[str]) -> dict[str, list[Entry]]:
    """Return the logs of each stream; one that is gone, or cannot be read, is met again when it is looked at."""
    found: dict[str, list[Entry]] = {}
    for below in streams:
        try:
            found[below] = _list_logs(place, below)
        except OSError:
            continue
    return found


def _new_bytes(listed: Mapping[str, list[Entry]], streams: Mapping[str, Stream], state: Mapping[str, Any]) -> int:
    """Return how many bytes may be new, at most."""
    total = 0
    for below, logs in listed.items():
        known = state.get("/".join(streams[below]), {}).get("files", {})
        total += sum(max(0, log.size - known.get(log.name, (0,))[0]) for log in logs)
    return total


def _is_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM or str(error) in _NO_ROOM_TEXTS


def _trouble(error: OSError, place: Place, below: str = "") -> Exception:
    """Return what to raise for a failing system call, of which only a missing file is no passing trouble."""
    why = reason(error)
    root = posixpath.join(place.root, below) if below else place.root
    text = why if error.filename in (None, root, place.root) else f"{error.filename}: {why}"
    if isinstance(error, FileNotFoundError):
        return SourceError(text)
    return Temporary(f"unable to read logs {root}: {text}; the lake is as it was, run this again to go on")


def is_log(name: str) -> bool:
    """Return whether a file of this name is read at all."""
    return not (name.startswith(".") or name in _NOT_LOGS or (name.startswith("@") and name.endswith(".t")))


def _list_logs(place: Place, below: str) -> list[Entry]:
    """Return the logs of a directory in their order, empty ones left out; of a file, that one."""
    found = [one for one in place.list(below) if not one.is_directory and one.size and is_log(one.name)]
    return sorted(found, key=lambda one: (one.name == "current", one.name))


def _find_streams(place: Place, host: str | None, queue: str | None, warnings: list[str]) -> dict[str, Stream]:
    """Return the directories that have logs, and the host and queue of each, in the order of their names.

    Those that no table can name, and those that would be the same stream, are passed by with a warning, if there are
    others; if not, SourceError.
    """
    places: dict[Stream, list[str]] = {}
    troubles: list[str] = []
    for below in sorted(_find_places(place, warnings)):
        parts = below.split("/") if below else []
        if len(parts) == 1:
            parts = [parts[0], queue or "queue"] if host is None or queue is not None else [host, parts[0]]
        elif not parts:
            parts = [host or "localhost", queue or "queue"]
        why = _unfit(parts[0], below)
        if why:
            troubles.append(f"{posixpath.join(place.root, below)}: {why}")
        else:
            places.setdefault((parts[0], parts[1]), []).append(below)
    for stream, found in list(places.items()):
        if len(found) > 1:
            one, two = (posixpath.join(place.root, below) for below in found[:2])
            troubles.append(
                f"{one} and {two} would both be queue {stream[1]} of host {stream[0]}; "
                "give one directory at a time, or one of them another place below it"
            )
            del places[stream]
    if not places:
        raise SourceError(
            troubles[0]
            if troubles
            else "it has no log files; wanted are directories of multilog or svlogd, as LOGS/HOST/QUEUE/current"
        )
    warnings += (f"passed by: {trouble}" for trouble in troubles)
    return dict(sorted((found[0], stream) for stream, found in places.items()))


def _unfit(host: str, below: str) -> str | None:
    """Return why no table can name a host or what is below its directory."""
    if not _is_text(below):
        return "its name is not UTF-8; rename it"
    if host == _NO_HOST:
        return f"no host may be called {_NO_HOST}; rename it"
    if len(f"host={escape_name(host)}".encode()) > _NAME_MAX:
        return "its host's name is too long; rename it"
    return None


def _is_text(name: str) -> bool:
    """Return whether Java can be told a name; bytes that are no UTF-8 are surrogates here."""
    return all(not "\ud800" <= letter <= "\udfff" for letter in name)


def _find_places(place: Place, warnings: list[str]) -> Iterator[str]:
    """Yield each directory that has logs. One that is in itself, by a link, is not looked at again."""
    left: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while left:
        below, above = left.pop()
        try:
            if place.local is not None:
                status = os.stat(posixpath.join(place.local, below) if below else place.local)
                here = (status.st_dev, status.st_ino)
                if here in above:
                    continue
                above |= {here}
            entries = _list_entries(place, below, warnings)
        except OSError as error:
            if not below:
                raise
            warnings.append(f"{posixpath.join(place.root, below)} is passed by: {reason(error)}")
            continue
        if any(not one.is_directory and is_log(one.name) for one in entries):
            yield below
        for one in entries:
            if one.is_directory and not one.name.startswith("."):
                left.append((posixpath.join(below, one.name), above))


def _list_entries(place: Place, below: str, warnings: list[str]) -> list[Entry]:
    """Return what is in a directory, without what the system tells nothing of, as a link to a host that is down."""
    if place.local is None or not os.path.isdir(path := posixpath.join(place.local, below)):
        return place.list(below)
    found: list[Entry] = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                found.append(Entry(entry.name, entry.is_dir(), entry.stat().st_size))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ELOOP):
                    warnings.append(f"{posixpath.join(place.root, below, entry.name)} is passed by: {reason(error)}")
    return sorted(found)
