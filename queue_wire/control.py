"""Control files (qmail-control(5)): one line, a list of lines, a number, or a map of `key:value` lines.

Trailing spaces, tabs and newlines of a line do not count. In lists, empty lines and lines that start
with `#` do not count. Keys of maps and entries of sets compare without regard to case (ASCII).
"""

from queue_wire.errors import FormatError, quoted

_UNITS = {b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30, b"T": 1 << 40}


def unpack_line(data: bytes) -> bytes:
    """Return the first line; empty where the file is."""
    return data.split(b"\n", 1)[0].rstrip(b" \t\r")


def unpack_lines(data: bytes) -> list[bytes]:
    """Return the lines that count, in order."""
    lines = (line.rstrip(b" \t\r") for line in data.split(b"\n"))
    return [line for line in lines if line and not line.startswith(b"#")]


def unpack_number(data: bytes) -> int:
    """Return the number on the first line (not negative, at most 18 digits). Raises FormatError."""
    line = unpack_line(data)
    if not line.isdigit() or len(line) > 18:
        raise FormatError(f"not a number: {quoted(line)}")
    return int(line)


def unpack_size(data: bytes) -> int:
    """Return the size on the first line, in bytes; K, M, G and T behind the number are powers of 1,024.

    Raises FormatError.
    """
    line = unpack_line(data)
    factor = _UNITS.get(line[-1:].upper(), 1)
    return unpack_number(line if factor == 1 else line[:-1]) * factor


def unpack_set(data: bytes) -> frozenset[bytes]:
    """Return the lines that count, in lower case."""
    return frozenset(line.lower() for line in unpack_lines(data))


def unpack_map(data: bytes) -> dict[bytes, bytes]:
    """Return {key in lower case: value}; the first colon divides.

    As in qmail's constmap, the last of two equal keys wins, and a line without a colon is skipped.
    """
    divided = (line.partition(b":") for line in unpack_lines(data))
    return {key.lower(): value for key, colon, value in divided if colon}
