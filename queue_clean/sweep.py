"""Removes what dead injectors have left: S2 and S3 older than 36 hours, and old names in pid/; and old files in last/
whose messages are gone.

36 hours is more than the 24 hours that an injector may take (qmail's OSSIFIED). A message with a file in todo/ or info/
is never removed, nor a message whose files cannot be looked up: only ENOENT, in a directory that exists, means that a
file does not exist. The sweep is a generator, so that requests are served between its steps.

A step of the clock makes a file old while its injector is at work, so `Sightings` must have seen it an hour before.
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

from queue_base.errors import Failure, reason
from queue_base.queue.layout import Layout, Presence, is_there
from queue_base.queue.removal import clear_left_marks, remove_messages
from queue_base.queue.sightings import Sightings
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id
from queue_wire.pipes.cleaning import Removal

OLD = 129600  # Seconds: 36 hours.
KINDS = ("intd", "todo", "info", "local", "remote", "bounce")


class Swept(NamedTuple):
    """The result for one directory: how many files or messages were removed, and what failed, "" for nothing."""

    removed: int
    trouble: str


def sweep(
    layout: Layout, now: float, failing: Collection[int] = (), sightings: Sightings | None = None
) -> Iterator[Swept]:
    """Yield after each directory. `now` is seconds since the epoch.

    `failing` are messages whose removal will be asked for again; they stay. Without `sightings` `now` alone counts.
    """
    if sightings is not None:
        sightings.begin()
    yield _sweep_pid(layout.queue + "/pid", now, sightings)
    for directory in layout.directories("mess"):
        yield _sweep_mess(layout, directory, now, failing, sightings)
    for directory in layout.directories("last"):
        if os.path.isdir(directory):  # A queue of an earlier release has none.
            yield _sweep_last(layout, directory, now)


def _sweep_pid(directory: str, now: float, sightings: Sightings | None) -> Swept:
    removed = 0
    troubles: list[OSError] = []
    for name, ctime_ns in _old_names(directory, now, troubles):
        if sightings is not None and not sightings.add(name, ctime_ns):
            continue
        try:
            os.unlink(f"{directory}/{name}")
            removed += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles.append(error)
    return Swept(removed, _tell("sweep", troubles))


def _sweep_last(layout: Layout, directory: str, now: float) -> Swept:
    """Remove the last results of messages that are gone, as a crash leaves them."""
    removed = 0
    troubles: list[OSError] = []
    for name, _ in _old_names(directory, now, troubles):
        try:
            if not is_there(layout.mess(unpack_id(os.fsencode(name)))):
                os.unlink(f"{directory}/{name}")
                removed += 1
        except FormatError:
            continue  # Not a message's.
        except OSError as error:
            troubles.append(error)
    return Swept(removed, _tell("sweep", troubles))


def _sweep_mess(
    layout: Layout, directory: str, now: float, failing: Collection[int], sightings: Sightings | None
) -> Swept:
    dead = []
    troubles: list[OSError] = []
    try:
        layout.learn_classes()  # A message in a tree that is not known would look like one of no state but S2.
    except Failure as error:
        return Swept(0, f"unable to sweep {directory}: {error}")
    for name, ctime_ns in _old_names(directory, now, troubles):
        try:
            message = unpack_id(os.fsencode(name))
        except FormatError:
            continue  # Not a message.
        try:
            if message not in failing and Presence(layout, message).state() in (2, 3):
                _check_directories(layout, message)
                if sightings is None or sightings.add(name, ctime_ns):
                    dead.append(message)
        except OSError as error:
            troubles.append(error)
    try:
        clear_left_marks(layout, dead)
    except OSError as error:
        troubles.append(error)
        dead = []
    failed = remove_messages(layout, map(Removal, dead)) if dead else {}
    troubles += failed.values()
    return Swept(len(dead) - len(failed), _tell("sweep", troubles))


def _check_directories(layout: Layout, message: int) -> None:
    """Raise OSError if a directory is missing that may contain a file of the message: its state is unknown then."""
    paths = {
        "todo": layout.todo(message),
        "intd": layout.intd(message),
        "bounce": layout.bounce(message),
    }
    for kind in KINDS:
        directory = os.path.dirname(paths.get(kind) or layout.hashed(kind, message))
        if not stat.S_ISDIR(os.stat(directory).st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)


def _tell(verb: str, troubles: list[OSError]) -> str:
    """Return one text for all failures in a directory."""
    if not troubles:
        return ""
    others = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
    return f"unable to {verb} {troubles[0].filename}{others}: {reason(troubles[0])}"


def _old_names(directory: str, now: float, troubles: list[OSError]) -> Iterator[tuple[str, int]]:
    """Yield the names of files whose mtime and ctime are older than OLD seconds, and the ctime in nanoseconds."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    troubles.append(error)
                    continue
                if max(found.st_mtime, found.st_ctime) < now - OLD:
                    yield entry.name, found.st_ctime_ns
    except OSError as error:
        troubles.append(error)
