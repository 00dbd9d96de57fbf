"""queue/holds on the disk: reads and replaces the standing holds (queue_wire.files.standing_hold).

The functions raise OSError and FormatError.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from queue_base.durable import Commit, read_file
from queue_base.queue.layout import FILE_MODE
from queue_wire.files.standing_hold import BYTES_MAX, StandingHold, pack_holds, unpack_holds

NAME = "holds"


def read_holds(queue: str) -> list[StandingHold]:
    """Return the standing holds of a queue; none if the file does not exist."""
    try:
        return unpack_holds(read_file(f"{queue}/{NAME}", BYTES_MAX))
    except FileNotFoundError:
        return []


def holds_version(queue: str) -> tuple[int, int, int] | None:
    """Return what changes with the file, None if it does not exist."""
    try:
        found = os.stat(f"{queue}/{NAME}")
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def changing_holds(queue: str) -> Iterator[None]:
    """Let no other process change the holds meanwhile."""
    directory = os.open(f"{queue}/pid", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def write_holds(queue: str, holds: list[StandingHold]) -> None:
    """Replace the standing holds, durably."""
    commit = Commit()
    passing = f"{queue}/pid/{NAME}.{os.getpid()}"
    commit.unlink(passing)
    commit.create(passing, pack_holds(holds), FILE_MODE)
    commit.sync()  # Its bytes must not come after its name.
    commit.rename(passing, f"{queue}/{NAME}")
    commit.sync()
