"""last/B/I on disk, read for queue-send's notices and for queuectl. queue_wire.files.last_result has its format.

Nothing depends on it. A file of an earlier message with the same number has another birth, and counts for nothing.
"""

import os
from collections.abc import Iterator

from queue_base.queue.layout import Layout
from queue_wire.files.last_result import FILE_MAX, HEADER_SIZE, LastResult, pack_header, unpack_header, unpack_results


def read_results(layout: Layout, message: int, birth: int, most: int = FILE_MAX) -> Iterator[LastResult]:
    """Return the records about the message with this number and birth (microseconds), the newest last.

    `most` bytes from the end of the file are read. What cannot be read is passed by.
    """
    return unpack_results(_read_end(layout, message, birth, most))


def _read_end(layout: Layout, message: int, birth: int, most: int) -> bytes:
    try:
        # O_NONBLOCK: if the path is a FIFO, this does not wait for a writer.
        path = layout.hashed("last", message)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if unpack_header(os.pread(handle, HEADER_SIZE, 0)) != birth:
            return b""
        return os.pread(handle, most, max(HEADER_SIZE, os.fstat(handle).st_size - most))
    except OSError:
        return b""
    finally:
        os.close(handle)


def change_results_birth(layout: Layout, message: int, before: int, birth: int) -> None:
    """Give last/B/I the new birth of its message. If that fails, what it says is lost."""
    try:
        handle = os.open(layout.hashed("last", message), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.pread(handle, HEADER_SIZE, 0) == pack_header(before):
            os.pwrite(handle, pack_header(birth), 0)
    except OSError:
        pass
    finally:
        os.close(handle)
