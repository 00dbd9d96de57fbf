"""Which logs are there, and what in them is new since the last batch. This looks at every file, but reads few bytes.

A stream is one host's one queue: a directory LOGS/host/queue. Its files are read in the order of their names, `current`
last. A file that is whole lines is read in place. What grows, was read in part, or has part of a line at an end is
copied to the staging directory first, so that what Spark reads are whole lines that nobody changes (spark.logs.joints).
"""

import posixpath
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from pyspark.sql import SparkSession

from queue_base.errors import Temporary, reason
from spark.logs.files import Entry, Files, LocalFiles, open_files
from spark.logs.joints import Joiner
from spark.logs.plan import Piece, Plan, SourceError, State
from spark.logs.streams import Stream

__all__ = ["Piece", "Plan", "SourceError", "State", "plan"]

# What multilog and svlogd keep beside the logs. A file that their processor has at work comes back as a rotated one.
_NOT_LOGS = frozenset(("lock", "state", "newstate", "config", "previous", "processed"))
# How a directory of a table is called where the host is null.
_NO_HOST = "__HIVE_DEFAULT_PARTITION__"
_TRIES = 5
_LOOKERS = 16
_NO_ROOM = ("no space left on device", "disk quota exceeded")


def plan(
    session: SparkSession,
    logs: str,
    state: Mapping[str, Any],
    staging: str,
    host: str | None = None,
    queue: str | None = None,
) -> Plan:
    """Look at LOGS (a path or a URI of any file system that Spark knows) and return what is new.

    host and queue name what the directories do not: of LOGS/x, x is the host, or the queue where only host is given.
    Writes copies of growing files into `staging` (a URI of a directory that is this batch's own, which the caller
    removes when the batch is over). Raises SourceError; Temporary where a log cannot be read now; OSError where there
    is no room for the copies.
    """
    files, (root, copies) = open_files(session, logs, staging)
    block = _smallest_block(session)
    pieces: list[Piece] = []
    after: State = dict(state)

    def look(number: int, place: str, stream: Stream) -> tuple[list[Piece], State]:
        for attempt in range(_TRIES):
            found = _list_logs(files, place)
            copy = f"{copies}/lines/{number}.{attempt}"
            joiner = Joiner(files, place, posixpath.relpath(place, root), copy, block)
            try:
                looked = joiner.join(*stream, found, state.get("/".join(stream), {}))
            except FileNotFoundError:
                if attempt + 1 == _TRIES:
                    raise
                continue
            # A file that was renamed or removed while it was looked at is not missed: look again.
            if {one.name for one in _list_logs(files, place)} <= {one.name for one in found}:
                break
        return looked

    try:
        streams = _find_streams(files, root, host, queue)
        # Elsewhere each look at a file waits for an answer: many streams at once.
        with ThreadPoolExecutor(1 if isinstance(files, LocalFiles) else _LOOKERS) as pool:
            for stream, (made, known) in zip(
                streams.values(), pool.map(look, count(), streams, streams.values()), strict=True
            ):
                pieces += made
                after["/".join(stream)] = known
    except OSError as error:
        raise _trouble(error, logs, root) from error
    return Plan(tuple(pieces), after, staging, block, sum(piece.size for piece in pieces))


def _trouble(error: OSError, logs: str, root: str) -> Exception:
    """Return what to raise for a failing system call, of which only a missing file is no passing trouble."""
    why = reason(error)
    if why in _NO_ROOM:
        # No log is written here: it is the lake that has no room for copies.
        return OSError(why)
    text = why if error.filename in (None, root) else f"{error.filename}: {why}"
    if isinstance(error, FileNotFoundError):
        return SourceError(text)
    return Temporary(f"unable to read logs {logs}: {text}; the lake is as it was, run this again to go on")


def _smallest_block(session: SparkSession) -> int:
    """Return a size that Spark's blocks reach, all but a file's last: FilePartition.maxSplitBytes is never less."""
    sizes = [
        session.sparkContext._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(session.conf.get(name))  # type: ignore[union-attr]
        for name in ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    ]
    return max(1, min(int(size) for size in sizes))


def is_log(name: str) -> bool:
    """Return whether a file of this name is read at all."""
    return not (name.startswith(".") or name in _NOT_LOGS or (name.startswith("@") and name.endswith(".t")))


def _list_logs(files: Files, place: str) -> list[Entry]:
    """Return the logs of a directory in their order, empty ones left out; of a file, that one."""
    found = [one for one in files.list(place) if not one.is_directory and one.size and is_log(one.name)]
    return sorted(found, key=lambda one: (one.name == "current", one.name))


def _find_streams(files: Files, root: str, host: str | None, queue: str | None) -> dict[str, Stream]:
    """Return the directories that have logs, and the host and queue of each, in the order of their names."""
    places: dict[str, Stream] = {}
    owners: dict[Stream, str] = {}
    for place in sorted(_find_places(files, root)):
        parts = [part for part in posixpath.relpath(place, root).split("/") if part != "."]
        if len(parts) == 1:
            parts = [parts[0], queue or "queue"] if host is None or queue is not None else [host, parts[0]]
        elif not parts:
            parts = [host or "localhost", queue or "queue"]
        if not _is_text(place):
            raise SourceError(f"{place}: its name is not UTF-8; rename it")
        if parts[0] == _NO_HOST:
            raise SourceError(f"{place}: no host may be called {_NO_HOST}; rename it")
        stream = (parts[0], parts[1])
        if stream in owners:
            raise SourceError(
                f"{owners[stream]} and {place} would both be queue {stream[1]} of host {stream[0]}; "
                "give one directory at a time, or one of them another place below it"
            )
        owners[stream] = place
        places[place] = stream
    if not places:
        raise SourceError(
            "it has no log files; wanted are directories of multilog or svlogd, as LOGS/HOST/QUEUE/current"
        )
    return places


def _is_text(name: str) -> bool:
    """Return whether Java can be told a name; bytes that are no UTF-8 are surrogates here."""
    return all(not "\ud800" <= letter <= "\udfff" for letter in name)


def _find_places(files: Files, place: str) -> Iterator[str]:
    entries = files.list(place)
    if any(not one.is_directory and is_log(one.name) for one in entries):
        yield place
    for one in entries:
        if one.is_directory and not one.name.startswith("."):
            yield from _find_places(files, posixpath.join(place, one.name))
