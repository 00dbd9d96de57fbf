"""NUL-terminated records, as queue-todo's notices and queue-clean's ids are."""

from queue_wire.errors import FormatError


class RecordReader:
    """Takes bytes as they arrive, hands over the whole records, and buffers at most `cap` bytes of one."""

    def __init__(self, cap: int = 8192) -> None:
        self._cap = cap
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the records that `data` completes, without their NULs. Raises FormatError over the cap.

        What `data` held is then lost; the caller may go on with what comes next, or give up.
        """
        records = (self._rest + data).split(b"\0")
        if max(map(len, records)) > self._cap:
            self._rest = b""
            raise FormatError(f"record over {self._cap} bytes")
        self._rest = records.pop()
        return records
