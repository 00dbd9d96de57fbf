"""control/locallimits: what a local delivery, and the programs that it runs, may use at most (setrlimit(2)).

Lines `memory 512M`, `cpu 600` (seconds), `processes 200` (of that user), `files 1024` (open), `size 1G` (of a
file), `core 0`; K, M, G and T are powers of 1,024, and `unlimited` is a value.
"""

from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.format_error import FormatError, LineError, quoted

NAMES = ("memory", "cpu", "processes", "files", "size", "core")
DEFAULTS: dict[str, int | None] = {"files": 1024, "core": 0}


def unpack_limits(data: bytes) -> dict[str, int | None]:
    """Return {name: limit} with the defaults; None is unlimited, a name that is not there is as inherited.

    Raises LineError, quoting the line.
    """
    limits = dict(DEFAULTS)
    for number, line in numbered_lines(data):
        name, _, value = line.partition(b" ")
        word = name.decode("ascii", "replace")
        if word not in NAMES:
            raise LineError(number, f"not one of {', '.join(NAMES)}: {quoted(line)}")
        try:
            limits[word] = None if value.strip() == b"unlimited" else unpack_size(value.strip())
        except FormatError as error:
            raise LineError(number, f"not a limit: {quoted(line)}") from error
    return limits
