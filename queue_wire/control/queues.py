"""`control/queues`: the directories of the queues of a home, one a line. Pure.

    /disk1/first
    /disk2/second
    queue

A line is an absolute path, or one below the home. The name of a queue is the last part of its path: letters, digits,
`-` and `_`. It stands before the ids of its messages, `first/457-h5x3k2j1z9`, so no two queues have the same name.
Without the file there is one queue, `queue`.
"""

from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, LineError, quoted

# Each has a set of daemons of its own.
QUEUES_MAX = 32
NAME_MAX = 64
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
# Directories of the home that are none of a queue.
_TAKEN = frozenset(("alias", "control", "greylist", "run", "users"))
# Services, and their logs, have the names of their queues; these two are those of other programs.
_SERVICES = ("intake", "smtpd")


def is_queue_name(name: str) -> bool:
    """Return whether a text may be the name of a queue."""
    return 0 < len(name) <= NAME_MAX and name[0] != "-" and _NAME.issuperset(name)


def unpack_queues(data: bytes, home: str) -> dict[str, str]:
    """Return {name: absolute path} of the queues of a home, in their order. Raises LineError."""
    found: dict[str, str] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            name, path = _unpack_path(line, home)
            if name in found:
                raise FormatError(f"a second queue with the name {name}")
            for other in found.values():
                if path.startswith(other + "/") or other.startswith(path + "/"):
                    raise FormatError(f"it is within {other}, or contains it: {quoted(line)}")
            if len(found) == QUEUES_MAX:
                raise FormatError(f"more than {QUEUES_MAX} queues")
            found[name] = path
    if not found:
        raise LineError(1, "it names no queue; without the file there is one, `queue`")
    return found


def check_queues(data: bytes) -> dict[str, str]:
    """Return the queues of any home. Raises LineError."""
    return unpack_queues(data, "/home")


def _unpack_path(line: bytes, home: str) -> tuple[str, str]:
    try:
        text = line.decode("utf-8").rstrip("/")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8: {quoted(line)}") from error
    parts = text.split("/")
    if not is_queue_name(parts[-1]):
        raise FormatError(f"the last part of the path is no name of letters, digits, - and _: {quoted(line)}")
    if parts[-1] in _SERVICES:
        raise FormatError(f"{parts[-1]} is the name of another service: {quoted(line)}")
    if "." in parts or ".." in parts or "" in parts[1:]:
        raise FormatError(f"not a path without `.`, `..` and `//`: {quoted(line)}")
    if text.startswith("/"):
        return parts[-1], text
    if parts[0] in _TAKEN:
        raise FormatError(f"{parts[0]} is another directory of the home: {quoted(line)}")
    return parts[-1], f"{home}/{text}"
