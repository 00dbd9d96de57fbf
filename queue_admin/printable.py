"""Text for people from bytes, times and sizes: one line without control characters."""

import datetime
from collections.abc import Collection, Iterator, Sequence

from queue_wire.logline import escape


def word(data: bytes) -> str:
    """Return `data` as it is escaped in the log: printable ASCII without spaces."""
    return escape(data).decode("ascii")


def visible(data: bytes) -> str:
    """Return `data` decoded as UTF-8, with backslash escapes for everything that is not printable."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def one_line(data: bytes) -> str:
    """Return the lines of `data`, such as a server's reply, as `visible` has them, with ` / ` between them."""
    return visible(data.strip().replace(b"\n", b" / "))


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield the lines of a table, each column as wide as its widest cell; the columns in `right` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        line = (cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(cells))
        yield "  ".join(line).rstrip()


def precise(microseconds: int) -> str:
    """Return a time in microseconds since the epoch as `2026-11-20T13:11:21.123456Z`; as a number if no date has it."""
    try:
        since = datetime.timedelta(microseconds=microseconds)
        return (datetime.datetime(1970, 1, 1) + since).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (OverflowError, ValueError):
        return str(microseconds)


def span(seconds: float) -> str:
    """Return a length of time in its one or two largest units: 5s, 3m, 2h05m, 4d3h."""
    total = max(int(seconds), 0)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600}h"


def size_text(size: float) -> str:
    """Return a number of bytes in decimal units, such as `1.2 GB`."""
    for unit, letter in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {letter}"
    return f"{size:.0f} B"
