"""Copies for the postmaster: postman/I_CAUSE, a further name of mess/B/I, which stays until a person removes it.

A copy takes no room while its message is in the queue, and keeps the number I from being given again. It is made before
the message is in todo/, so a message that was accepted has it; after a power cut there may be one of a message that was
not. When there are COPIES_MAX, or they have BYTES_MAX bytes, no more are made, and the messages are queued without.
"""

import os
import re

from queue_base.durable import Commit

DIRECTORY = "postman"
DIRECTORY_MODE = 0o2700
COPIES_MAX = 1000
BYTES_MAX = 256 << 20
CAUSE_MAX = 60  # Bytes of the cause in a name.
_UNFIT = re.compile(rb"[^A-Za-z0-9.=-]+")
_NAME = re.compile(rf"([1-9][0-9]{{0,19}})_([A-Za-z0-9.=-]{{1,{CAUSE_MAX}}})")


def copy_path(queue: str, message: int, cause: bytes) -> str:
    """Return the path of a message's copy. What a name should not have is shown as `-`."""
    word = _UNFIT.sub(b"-", cause)[:CAUSE_MAX].strip(b"-.") or b"copy"
    return f"{queue}/{DIRECTORY}/{message}_{word.decode('ascii')}"


def unpack_copy_name(name: str) -> tuple[int, str] | None:
    """Return the number of the message and the cause in the name of a copy; None if it is none."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def has_room(queue: str) -> bool:
    """Return whether a further copy may be made. Raises OSError."""
    count = size = 0
    with os.scandir(f"{queue}/{DIRECTORY}") as entries:
        for entry in entries:
            try:
                size += entry.stat(follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
            count += 1
            if count >= COPIES_MAX or size >= BYTES_MAX:
                return False
    return True


def make_copy(queue: str, mess: str, path: str, commit: Commit) -> str:
    """Name a message's file in postman/ too; return why that is not possible, or an empty text."""
    directory = f"{queue}/{DIRECTORY}"
    try:
        # A home that was made by an earlier version has none.
        commit.directory(directory, DIRECTORY_MODE)
        if not has_room(queue):
            return f"{directory} is full"
        commit.link(mess, path)
    except FileExistsError:
        pass  # Of a message that has lost its own name; the file is the same.
    except OSError as error:
        from queue_base.errors import reason

        return f"unable to create {path}: {reason(error)}"
    return ""
