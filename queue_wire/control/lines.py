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
_YEARS = 10 * 365 * 86400
# (default, least, most) of each control file that is a number. Those of times are in seconds.
NUMBERS = {
    # 0: deliveries of the channel are on hold (qmail-send(8)). Each of 16 queue-remotes takes 2,000.
    "concurrencylocal": (10, 0, 10_000),
    "concurrencyremote": (250, 0, 32_000),
    "processesremote": (1, 1, 16),
    "activelimit": (20_000, 1, 1_000_000),
    "classifyafter": (1, 0, 86400),
    # In percent of the places.
    "bulkshare": (50, 1, 100),
    # With 0 every deferral would be a bounce.
    "queuelifetime": (604800, 60, _YEARS),
    "bouncelifetime": (86400, 60, _YEARS),
    # In percent; 0 by default for the schedule `quadratic`.
    "retryjitter": (10, 0, 100),
    # With addresses of 1,002 bytes, a job with 1,000 recipients has 1 MB.
    "destinationrecipients": (50, 1, 1000),
    "destinationinitial": (2, 1, 1_000_000),
    "destinationconcurrency": (20, 1, 1_000_000),
    "destinationcohorts": (3, 1, 1_000_000),
    "timeoutconnect": (60, 1, 3600),
    "timeoutremote": (1200, 1, 86400),
    "connectionidle": (5, 0, 3600),
    "connectionmessages": (100, 1, 1_000_000),
    "timeoutprogram": (3600, 1, 86400),
    # maildir(5): a delivery may not take longer, because readers remove files older than 36 hours from tmp/.
    "localtimeout": (1200, 1, 86400),
    "timeoutlocal": (1200, 1, 86400),
    "localstoptimeout": (60, 0, 86400),
    "concurrencyincoming": (1000, 1, 100_000),
    "processessmtpd": (1, 1, 16),
    # 0: every local recipient is taken.
    "checkrcpt": (1, 0, 1),
    "etrninterval": (60, 0, 86400),
}
# The same of those that are a size in bytes.
SIZES = {
    "queueminfree": (16 << 20, 0, 1 << 60),
    # 0: no limit.
    "databytes": (0, 0, 1 << 60),
    # A run takes the records of one cluster at a time: with 1M, 10,000 of them.
    "clustersize": (256 << 10, 4 << 10, 1 << 20),
}


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


def unpack_number(data: bytes, name: str = "") -> int:
    """Return the number on the first line, of at most 18 digits, in the range of the control file `name`.

    Raises LineError with the range.
    """
    with InLine(1):
        return unpack_ranged(unpack_line(data), name)


def unpack_ranged(word: bytes, name: str) -> int:
    """Return a number in the range of the control file `name`. Raises FormatError with the range."""
    _, least, most = NUMBERS.get(name, (0, 0, NUMBER_MAX))
    if not word.isdigit() or len(word) > 18 or not least <= int(word) <= most:
        allowed = f" from {least} to {most}" if name in NUMBERS else ""
        raise FormatError(f"not a number{allowed}: {quoted(word)}")
    return int(word)


def unpack_size(data: bytes, name: str = "") -> int:
    """Return the size on the first line in bytes, in the range of the control file `name`. Raises LineError.

    The suffixes K, M, G and T are powers of 1,024.
    """
    line = unpack_line(data)
    factor = _UNITS.get(line[-1:].upper(), 1)
    digits = line if factor == 1 else unpack_line(line[:-1])
    if not digits.isdigit() or len(digits) > 18:
        raise LineError(1, f"not a size, a number with or without K, M, G or T behind it: {quoted(line)}")
    size = int(digits) * factor
    if name in SIZES and not SIZES[name][1] <= size <= SIZES[name][2]:
        raise LineError(1, f"not a size from {SIZES[name][1]} to {SIZES[name][2]}: {quoted(line)}")
    return size


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
