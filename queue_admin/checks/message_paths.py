"""The paths of all files that a message may have, in the queue and while it is renumbered."""

import os
import stat

from queue_admin.home.modes import BUCKETED
from queue_base.queue.layout import Layout

# Beside mess/. Those in MARKS say something about a message; without it they mean nothing.
KINDS = (*sorted(BUCKETED - {"mess"}), "bounce")
MARKS = ("hold", "corrupt", "last")
PLACES = ("mess", *KINDS)


def path_of(layout: Layout, kind: str, message: int) -> str:
    """Return the path of a file of a message, of any kind."""
    if kind == "todo":
        return layout.todo(message)
    if kind == "intd":
        return layout.intd(message)
    return layout.bounce(message) if kind == "bounce" else layout.hashed(kind, message)


def message_paths(layout: Layout, message: int) -> dict[str, str]:
    """Return {kind: path} of all files that a message may have."""
    return {kind: path_of(layout, kind, message) for kind in PLACES}


def staged_paths(queue: str, number: int) -> dict[str, str]:
    """Return {kind: path} of a message that waits for its number to be free, by that number."""
    return {kind: f"{queue}/repair/{kind}/{number}" for kind in PLACES}


def look_at(path: str) -> os.stat_result | None:
    """Return what lstat says of a path, None if it does not exist. Raises OSError."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_ours(found: os.stat_result | None) -> bool:
    """Return whether a path was a regular file of this account, which may give it a further name by link(2)."""
    return is_regular(found) and found is not None and os.geteuid() in (0, found.st_uid)


def is_regular(found: os.stat_result | None) -> bool:
    """Return whether a path was a regular file."""
    return found is not None and stat.S_ISREG(found.st_mode)
