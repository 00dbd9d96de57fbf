"""What is left of a message that has lost its text: an injector that is about to use its number removes it.

The number is the inode number of a file that the injector holds, and mess/B/I is not there: so no message lives under
it, and whatever else has that name belongs to one that has lost its text (by a failing disk, fsck, or an injector
that was interrupted). It goes, durably, before mess/B/I gets its name: a new message never meets an old envelope.

It looks for the files that could do harm from then on: todo/ (S4 with the old recipients), info/ (S5, the same) and
hold/ (it would be held). What is there without one of these, queue-todo removes as it classifies the message.
"""

import os

from queue_base.durable import Commit
from queue_base.layout import Layout
from queue_base.states import is_there


def remove_leftovers(layout: Layout, message: int) -> None:
    """Remove an earlier message's files, durably; the usual case, in which there are none, costs three looks.

    Raises OSError.
    """
    name = f"{message % layout.split}/{message}"
    queue = layout.queue
    for path in (layout.todo(message), f"{queue}/info/{name}", f"{queue}/hold/{name}"):
        try:
            os.lstat(path)
        except FileNotFoundError:
            continue
        _remove(layout, message)
        return


def _remove(layout: Layout, message: int) -> None:
    if is_there(layout.mess(message)):
        return  # A copied queue, whose names are not its inode numbers: giving ours that name will fail.
    commit = Commit()
    for path in files_beside_mess(layout, message):
        if is_there(path):
            commit.unlink(path)
    commit.sync()


def leftover_birth(layout: Layout, message: int) -> int | None:
    """Return what names the rest of a message that has lost its text: the mtime of one of its files, in microseconds.

    None where nothing is left, and where mess/B/I is there. Raises OSError.
    """
    for path in (layout.mess(message), *files_beside_mess(layout, message)):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        return None if path == layout.mess(message) else found.st_mtime_ns // 1000
    return None


def files_beside_mess(layout: Layout, message: int) -> list[str]:
    """Return the paths of all files that a message may have, but its text's."""
    kinds = ("info", "local", "remote", "hold", "corrupt")
    hashed = [layout.hashed(kind, message) for kind in kinds]
    return [layout.todo(message), layout.intd(message), *hashed, layout.bounce(message)]
