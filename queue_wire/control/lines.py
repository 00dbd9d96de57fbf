"""Control files (qmail-control(5)): one line, a list of lines, a number, or a map of `key:value` lines.

Trailing spaces, tabs and carriage returns of a line are ignored. In lists and maps, empty lines and lines that begin
with `#` are ignored, but are counted in the line numbers of errors. A byte order mark at the beginning is ignored: some
editors write one. Keys of maps and entries of sets ignore case
(ASCII).
"""

from queue_wire.format_error import FormatError, InLine, LineError, quoted

_UNITS = {b"K": 1 << 10, b"M": 1 << 20, b"G": 1 << 30, b"T": 1 << 40}

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NUMBER_MAX = 10**18 - 1
# The default, least and most of control/queueminfree. It is here because injectors read it, and import nothing heavy.
FREE_BOUNDS = (16 << 20, 0, 1 << 60)


def refuse_nul(data: bytes) -> None:
    """Raise LineError for a NUL byte: no path can hold one, and records on disk and on pipes end with it."""
    if b"\0" in data:
        raise LineError(data.count(b"\n", 0, data.index(b"\0")) + 1, "it holds a NUL byte")


def unpack_line(data: bytes) -> bytes:
    """Return the first line; empty if the file is empty."""
    return data.removeprefix(_BYTE_ORDER_MARK).split(b"\n", 1)[0].rstrip(b" \t\r")


def numbered_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return the lines that are not ignored, in order, each with its number in the file."""
    data = data.removeprefix(_BYTE_ORDER_MARK)
    lines = ((number, line.rstrip(b" \t\r")) for number, line in enumerate(data.split(b"\n"), 1))
    return [(number, line) for number, line in lines if line and not line.startswith(b"#")]


def line_words(line: bytes) -> list[bytes]:
    """Return the words of a line, at least one. Raises FormatError for a line of form feeds and their like."""
    words = line.split()
    if not words:
        raise FormatError(f"no word, but bytes that are not seen; remove the line: {quoted(line)}")
    return words


def unpack_lines(data: bytes) -> list[bytes]:
    """Return the lines that are not ignored, in order."""
    return [line for _, line in numbered_lines(data)]


def unpack_number(data: bytes, bounds: "tuple[int, int, int] | None" = None) -> int:
    """Return the number on the first line, of at most 18 digits. `bounds` are its default, the least and the most.

    Raises LineError with the range.
    """
    with InLine(1):
        return unpack_ranged(unpack_line(data), bounds)


def unpack_ranged(word: bytes, bounds: "tuple[int, int, int] | None") -> int:
    """Return a number within bounds. Raises FormatError with the range."""
    _, least, most = bounds or (0, 0, NUMBER_MAX)
    if not word.isdigit() or len(word) > 18 or not least <= int(word) <= most:
        allowed = f" from {least} to {most}" if bounds else ""
        raise FormatError(f"not a number{allowed}: {quoted(word)}")
    return int(word)


def unpack_size(data: bytes, bounds: "tuple[int, int, int] | None" = None) -> int:
    """Return the size on the first line in bytes. `bounds` are its default, the least and the most. Raises LineError.

    The suffixes K, M, G and T are powers of 1,024.
    """
    line = unpack_line(data)
    factor = _UNITS.get(line[-1:].upper(), 1)
    digits = line if factor == 1 else unpack_line(line[:-1])
    if not digits.isdigit() or len(digits) > 18:
        raise LineError(1, f"not a size, a number with or without K, M, G or T behind it: {quoted(line)}")
    size = int(digits) * factor
    if bounds and not bounds[1] <= size <= bounds[2]:
        raise LineError(1, f"not a size from {bounds[1]} to {bounds[2]}: {quoted(line)}")
    return size


def shown_size(size: int) -> str:
    """Return a size as people write it, such as 16M."""
    for unit in b"TGMK":
        factor = _UNITS[bytes([unit])]
        if size and size % factor == 0:
            return f"{size // factor}{chr(unit)}"
    return str(size)


def unpack_word(data: bytes, words: "tuple[bytes, ...]") -> bytes:
    """Return the word on the first line, the first of `words` if there is none. Raises LineError."""
    word = unpack_line(data).strip().lower() or words[0]
    if word not in words:
        allowed = b", ".join(words[:-1]) + b" or " + words[-1]
        raise LineError(1, f"not {allowed.decode('ascii')}: {quoted(word)}")
    return word


def lines_without_colon(data: bytes) -> list[int]:
    """Return the numbers of lines without a colon, which numbered_map and unpack_map ignore."""
    return [number for number, line in numbered_lines(data) if b":" not in line]


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
