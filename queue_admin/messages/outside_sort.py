"""Sorts more than fits in memory: SQLite does, in a file without a name (SQLITE_TMPDIR, TMPDIR, else /var/tmp)."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

from queue_base.errors import Temporary

# A key, and the number of a message.
Keyed = tuple[float | bytes, int]


def sort_outside(keys: Iterable[Keyed]) -> Iterator[Keyed]:
    """Yield the keys in order. Raises Temporary if there is no room for the file."""
    try:
        with closing(sqlite3.connect("")) as base:
            base.execute("CREATE TABLE keys (key, message)")
            # A file may have any time, and SQLite takes no integer of more than 64 bits.
            rows = ((key if isinstance(key, bytes) else float(key), message) for key, message in keys)
            base.executemany("INSERT INTO keys VALUES (?, ?)", rows)
            yield from base.execute("SELECT key, message FROM keys ORDER BY key, message")
    except sqlite3.Error as error:
        raise Temporary(f"unable to sort in a temporary file: {error}") from error
