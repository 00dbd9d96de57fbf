"""Sweeps away what injectors that died have left: S2 and S3 older than 36 hours, and old names in pid/.

36 hours is more than the 24 that an injector allows itself (qmail's OSSIFIED). A message with a file in
todo/ or info/ is never touched. The sweep is a generator, so that requests are served between its steps.
"""

import os
from collections.abc import Iterator

from queue_base.layout import Layout
from queue_base.removal import remove_messages
from queue_base.states import Presence
from queue_wire.errors import FormatError
from queue_wire.ids import unpack_id

OLD = 129600  # Seconds: 36 hours.


def sweep(layout: Layout, now: float) -> Iterator[int]:
    """Yield after each directory the number of files removed from it. `now` is seconds since the epoch."""
    yield _sweep_pid(layout.queue + "/pid", now)
    for directory in layout.directories("mess"):
        yield _sweep_mess(layout, directory, now)


def _sweep_pid(directory: str, now: float) -> int:
    removed = 0
    for name in _old_names(directory, now):
        try:
            os.unlink(f"{directory}/{name}")
            removed += 1
        except OSError:
            continue  # Gone already, or not ours to remove; the next sweep tries again.
    return removed


def _sweep_mess(layout: Layout, directory: str, now: float) -> int:
    dead = []
    for name in _old_names(directory, now):
        try:
            message = unpack_id(os.fsencode(name))
        except FormatError:
            continue  # Not a message: a person's file.
        if Presence(layout, message).state() in (2, 3):
            dead.append(message)
    return len(dead) - len(remove_messages(layout, dead)) if dead else 0


def _old_names(directory: str, now: float) -> Iterator[str]:
    """Yield the names of files whose last change, of contents or of names, is older than OLD."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if max(found.st_mtime, found.st_ctime) < now - OLD:
                    yield entry.name
    except OSError:
        return
