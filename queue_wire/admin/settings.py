"""What a daemon has in force of its control files: a line for each, `NAME CHECKSUM VALUE`. Pure.

CHECKSUM and VALUE are those of queue_wire.control.registry (fingerprint, shown_value). A line that begins with `!` says
why the last reading was refused; what the other lines say stays in force.
"""

from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.control.control_file import fingerprint, shown_value
from queue_wire.control.registry import BY_NAME
from queue_wire.format_error import FormatError, quoted

ERROR_MAX = 2000  # Bytes of an error.


class InForce(NamedTuple):
    """The control files of a daemon: name, check sum and value of each, and why they were not read again."""

    files: tuple[tuple[str, str, str], ...]
    error: str = ""


def in_force(contents: Mapping[str, bytes | None], error: str = "") -> InForce:
    """Return what is in force by the contents of the files; None is a file that does not exist."""
    known = [(BY_NAME[name], data) for name, data in contents.items() if name in BY_NAME]
    return InForce(tuple((file.name, fingerprint(file, data), shown_value(file, data)) for file, data in known), error)


def pack_in_force(settings: InForce) -> bytes:
    """Return the lines. They contain no NUL."""
    lines = [" ".join(file) for file in settings.files]
    if settings.error:
        lines.append("!" + settings.error.replace("\n", " ").replace("\0", "_"))
    return b"\n".join([line.encode("utf-8", "backslashreplace")[:ERROR_MAX] for line in lines])


def unpack_in_force(data: bytes) -> InForce:
    """Return what the lines say. Raises FormatError."""
    files, error = [], ""
    for line in data.decode("utf-8", "backslashreplace").split("\n") if data else []:
        if line.startswith("!"):
            error = line[1:]
            continue
        name, _, rest = line.partition(" ")
        check, _, value = rest.partition(" ")
        if not name or not check or not value:
            raise FormatError(f"settings: not name, check sum, value: {quoted(line.encode())}")
        files.append((name, check, value))
    return InForce(tuple(files), error)
