"""Bytes of a log as text that Arrow, Parquet and UTF-8 can hold, and that can be turned back into the bytes.

A byte that is no UTF-8 becomes `%XX` (two hex digits, upper case), so texts that differ stay different. That a text has
`%XX` in the log itself shows as `%25XX`; any other `%` stays. Text of queue-send never has either.
"""

import re

# What would be read as an escaped byte.
_LIKE_ESCAPED = re.compile(rb"%(?=[0-9A-F]{2})")


def is_plain(data: bytes) -> bool:
    """Return whether nothing in data has to be escaped; False where it would have to be looked at more closely."""
    return data.isascii() and b"%" not in data


def escape(data: bytes) -> bytes:
    """Return data as UTF-8, escaped where it has to be."""
    data = _LIKE_ESCAPED.sub(b"%25", data)
    try:
        data.decode()
    except UnicodeDecodeError:
        # Python keeps a byte that it cannot decode as a surrogate, which no valid UTF-8 makes.
        text = data.decode("utf-8", "surrogateescape")
        return "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text).encode()
    return data
