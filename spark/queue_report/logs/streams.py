"""Which logs are there. A stream is one host's one queue: a directory LOGS/host/queue, with the files of a logger.

Only names and sizes are looked at here; what is in the files is read where they are matched (logs/reading.py).
"""

import os
import posixpath
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from queue_base.errors import reason
from queue_report.logs.packed import base_name
from queue_report.runtime.files import Entry, Files, LocalFiles

Stream: TypeAlias = tuple[str, str]  # Host and queue.

# What multilog and svlogd keep beside the logs. `previous` is one: `current`, while multilog's processor is at work.
_NOT_LOGS = frozenset(("lock", "state", "newstate", "config", "processed"))


class SourceError(Exception):
    """Logs that cannot be read: missing, not stamped, two directories for one stream. The text is the reason alone."""


class StreamLogs(NamedTuple):
    """A stream that is there: its directory below LOGS, and its logs in the order of their names, `current` last."""

    below: str
    logs: list[Entry]


def find_streams(files: Files, host: str | None, queue: str | None, warnings: list[str]) -> dict[Stream, StreamLogs]:
    """Return the streams, in the order of their directories.

    host and queue name what the directories do not: of LOGS/x, x is the host, or the queue where only host is given.
    A directory that cannot be a stream is passed by with a warning, if there are others; if not, SourceError. Raises
    OSError where LOGS cannot be read now.
    """
    places: dict[Stream, list[StreamLogs]] = {}
    troubles: list[str] = []
    try:
        directories = sorted(_find_places(files, warnings))
    except FileNotFoundError as error:
        raise SourceError(reason(error)) from error
    for found in directories:
        parts = found.below.split("/") if found.below else []
        if len(parts) == 1:
            parts = [parts[0], queue or "queue"] if host is None or queue is not None else [host, parts[0]]
        elif not parts:
            parts = [host or "localhost", queue or "queue"]
        if not _is_text(found.below):
            troubles.append(f"{posixpath.join(files.root, found.below)}: its name is not UTF-8; rename it")
        else:
            places.setdefault((parts[0], parts[1]), []).append(found)
    for stream, same in list(places.items()):
        if len(same) > 1:
            one, two = (posixpath.join(files.root, found.below) for found in same[:2])
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
    return {stream: same[0] for stream, same in places.items()}


def choose_logs(entries: list[Entry]) -> list[Entry]:
    """Return the logs among what is in a directory, in their order; empty ones are left out.

    While a rotated log is compressed it has two names, and the compressed one may not be whole: it is left out.
    """
    found = {one.name: one for one in entries if not one.is_directory and one.size and is_log(one.name)}
    twins = {name for name in found if name.startswith("@") and base_name(name) != name and base_name(name) in found}
    return sorted(
        (one for one in found.values() if one.name not in twins), key=lambda one: (one.name == "current", one.name)
    )


def is_log(name: str) -> bool:
    """Return whether a file of this name is read at all."""
    return not (name.startswith(".") or name in _NOT_LOGS or (name.startswith("@") and name.endswith(".t")))


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8; bytes that are none are surrogates here."""
    return all(not "\ud800" <= letter <= "\udfff" for letter in name)


def _find_places(files: Files, warnings: list[str]) -> Iterator[StreamLogs]:
    """Yield each directory that has logs. One that is in itself, by a link, is not looked at again."""
    left: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while left:
        below, above = left.pop()
        unread: list[OSError] = []
        try:
            if isinstance(files, LocalFiles):
                status = os.stat(posixpath.join(files.root, below))
                here = (status.st_dev, status.st_ino)
                if here in above:
                    continue
                above |= {here}
            entries = files.list(below, unread)
        except OSError as error:
            if not below:
                raise
            warnings.append(f"{posixpath.join(files.root, below)} is passed by: {reason(error)}")
            continue
        warnings += (f"{error.filename} is passed by: {reason(error)}" for error in unread)
        # An empty `current` makes a stream, too: its log is to come.
        if any(not one.is_directory and is_log(one.name) for one in entries):
            yield StreamLogs(below, choose_logs(entries))
        for one in entries:
            if one.is_directory and not one.name.startswith("."):
                left.append((posixpath.join(below, one.name), above))
