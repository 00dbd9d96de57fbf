"""Text for a terminal from bytes and times: one line without control characters."""

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
