"""Turns bytes and times into text that is safe to print: no control characters, one line."""

from queue_wire.logline import escape


def word(data: bytes) -> str:
    """Return `data` as the log would print it: no spaces, printable ASCII (docs/logs.md)."""
    return escape(data).decode("ascii")


def visible(data: bytes) -> str:
    """Return `data` read as UTF-8 with whatever is not printable as a backslash escape."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def span(seconds: float) -> str:
    """Return a length of time in its two largest units: 5s, 3m, 2h05m, 4d3h."""
    total = max(int(seconds), 0)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600}h"
