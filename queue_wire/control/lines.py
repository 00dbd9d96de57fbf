"""Control files (qmail-control(5)): one line, a list of lines, a number, or a map of `key:value` lines.

Trailing spaces, tabs and carriage returns of a line are ignored. In lists and maps, empty lines and lines that begin
with `#` are ignored, but are counted in the line numbers of errors. Keys of maps and entries of sets ignore case
(ASCII).
"""

from queue_wire.format_error import FormatError, InLine, LineError, quoted

_UNITS = {b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30, b"T": 1 << 40}

NUMBER_MOST = 10**18 - 1
# The range of the number in a control file; for other files it is 0 to NUMBER_MOST.
RANGES = {
    # With addresses of 1,002 bytes, a job with 1,000 recipients has 1 MB.
    "destinationrecipients": (1, 1000),
    "destinationinitial": (1, 1_000_000),
    "destinationconcurrency": (1, 1_000_000),
    "destinationcohorts": (1, 1_000_000),
    "processesremote": (1, 16),
}


def unpack_line(data: bytes) -> bytes:
    """Return the first line; empty if the file is empty."""
    return data.split(b"\n", 1)[0].rstrip(b" \t\r")


def numbered_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not ignored, in order, each with its number in the file."""
    lines = ((number, line.rstrip(b" \t\r")) for number, line in enumerate(data.split(b"\n"), 1))
    return [(number, line) for number, line in lines if line and not line.startswith(b"#")]


def unpack_lines(data: bytes) -> list[bytes]:
    """Return the lines that are not ignored, in order."""
    return [line for _, line in numbered_lines(data)]


def unpack_number(data: bytes, name: str = "") -> int:
    """Return the number on the first line, of at most 18 digits, in the range of the control file `name`.

    Raises LineError with the range.
    """
    with InLine(1):
        return unpack_ranged(unpack_line(data), name)


def unpack_ranged(word: bytes, name: str) -> int:
    """Return a number in the range of the control file `name`. Raises FormatError with the range."""
    least, most = RANGES.get(name, (0, NUMBER_MOST))
    if not word.isdigit() or len(word) > 18 or not least <= int(word) <= most:
        allowed = f" from {least} to {most}" if name in RANGES else ""
        raise FormatError(f"not a number{allowed}: {quoted(word)}")
    return int(word)


def unpack_size(data: bytes) -> int:
    """Return the size on the first line in bytes. The suffixes K, M, G and T are powers of 1,024. Raises LineError."""
    line = unpack_line(data)
    factor = _UNITS.get(line[-1:].upper(), 1)
    digits = line if factor == 1 else unpack_line(line[:-1])
    if not digits.isdigit() or len(digits) > 18:
        raise LineError(1, f"not a size, a number with or without K, M, G or T behind it: {quoted(line)}")
    return int(digits) * factor


def unpack_set(data: bytes) -> frozenset[bytes]:
    """Return the lines that are not ignored, in lower case."""
    return frozenset(line.lower() for line in unpack_lines(data))


def unpack_map(data: bytes) -> dict[bytes, bytes]:
    """Return {key in lower case: value}; the first colon divides.

    As in qmail's constmap, the last of equal keys is used, and lines without a colon are ignored.
    """
    return {key: value for key, (_, value) in numbered_map(data).items()}


def numbered_map(data: bytes) -> dict[bytes, tuple[int, bytes]]:
    """Return {key in lower case: (number of the line, value)}, as unpack_map does."""
    divided = ((number, *line.partition(b":")) for number, line in numbered_lines(data))
    return {key.lower(): (number, value) for number, key, colon, value in divided if colon}
