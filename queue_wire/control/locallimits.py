"""control/locallimits: what a local delivery and its programs may use (setrlimit(2)).

    memory 512M
    cpu 600           seconds
    processes 200     of the user
    files 1024        open at once
    size 1G           of a file
    core 0

A limit is a number, with or without K, M, G or T (powers of 1,024), or `unlimited`. What has no line is inherited,
except files and core, which have defaults.
"""

from collections.abc import Mapping

from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.format_error import FormatError, LineError, quoted

LIMITED = ("memory", "cpu", "processes", "files", "size", "core")
DEFAULT_LIMITS: Mapping[str, int | None] = {"files": 1024, "core": 0}


def unpack_local_limits(data: bytes) -> dict[str, int | None]:
    """Return {name: limit}, with the defaults; None is `unlimited`. Raises LineError, which quotes the line."""
    limits = dict(DEFAULT_LIMITS)
    for number, line in numbered_lines(data):
        name, _, value = line.partition(b" ")
        word = name.decode("ascii", "replace")
        if word not in LIMITED:
            raise LineError(number, f"not one of {', '.join(LIMITED)}: {quoted(line)}")
        try:
            limits[word] = None if value.strip() == b"unlimited" else unpack_size(value.strip())
        except FormatError as error:
            raise LineError(number, f"not a limit: {quoted(line)}") from error
    return limits
