"""What memory a resident build takes: sizes as people write them, what processes have, and giving back what is free."""

import ctypes
import gc
import os
import re

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d{1,12})([kmgt]?)(?:i?b)?", re.IGNORECASE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Arrow's own allocator keeps a little more with each of thousands of small batches; the system's does not.
SYSTEM_MEMORY = ("ARROW_DEFAULT_MEMORY_POOL", "system")


def use_system_memory() -> None:
    """Have Arrow take its memory from the system, unless somebody chose otherwise. Call it before Arrow is loaded."""
    os.environ.setdefault(*SYSTEM_MEMORY)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 512m, 2g or 1048576. Raises ValueError with a text for the user."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text} is no size; write 512m, 2g or a number of bytes")
    return int(found[1]) * _UNITS[found[2].lower()]


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has now; 0 for one that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """Give free memory of this process back to the system: Python's, Arrow's and the C library's."""
    gc.collect()
    try:
        import pyarrow

        pyarrow.default_memory_pool().release_unused()
    except ImportError:
        pass
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        # Only the GNU C library has it.
        pass
