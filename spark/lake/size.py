"""Whether a lake in a directory of this machine is small; Java need not run to tell that.

A report of a small one is done before Java's better compiler has paid for itself (session.start_session, `little`).
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

LITTLE_LAKE = 64 << 20


def is_small_lake(lake: str) -> bool:
    """Return whether a lake has less than LITTLE_LAKE bytes of files; False where that is not known."""
    return os.path.exists(lake) and _is_less((status.st_size for status in _files(Path(lake))), LITTLE_LAKE)


def _is_less(sizes: Iterator[int], most: int) -> bool:
    """Return whether the sum is less than most; go no further than that tells."""
    total = 0
    for size in sizes:
        total += size
        if total >= most:
            return False
    return True


def _files(place: Path) -> Iterator[os.stat_result]:
    """Yield the status of a file, or of all regular files below a directory; what cannot be read is left out."""
    below = (os.path.join(at, name) for at, _, names in os.walk(place) for name in names)
    for path in [place] if place.is_file() else below:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield status
