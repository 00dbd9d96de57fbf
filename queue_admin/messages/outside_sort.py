"""Sorts more than fits in little memory: parts are sorted, written to files without a name, and merged.

The files are in the directory for temporary files (TMPDIR, else /tmp). What fits in one part is sorted without a file.
"""

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import IO

from queue_base.errors import Temporary, reason

# A key, and the number of a message.
Keyed = tuple[float | bytes, int]

PART = 50_000  # Keys that are in memory.
BATCH = 500  # Keys of each part that are read from its file together.


def sort_outside(keys: Iterable[Keyed], part: int = PART) -> Iterator[Keyed]:
    """Yield the keys in order. Raises Temporary if there is no room for the files."""
    rest = iter(keys)
    parts: list[IO[bytes]] = []
    with ExitStack() as opened:
        try:
            while found := sorted(islice(rest, part)):
                if len(found) < part and not parts:
                    yield from found
                    return
                file = opened.enter_context(tempfile.TemporaryFile())
                for at in range(0, len(found), BATCH):
                    marshal.dump(found[at : at + BATCH], file)
                file.seek(0)
                parts.append(file)
            yield from heapq.merge(*map(_read, parts))
        except OSError as error:
            raise Temporary(f"unable to sort in {tempfile.gettempdir()}: {reason(error)}") from error


def _read(file: IO[bytes]) -> Iterator[Keyed]:
    while True:
        try:
            batch = marshal.load(file)
        except EOFError:
            return
        yield from batch
