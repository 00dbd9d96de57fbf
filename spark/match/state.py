"""What is open between two lines of a stream."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


class State:
    """What is open at one place of a stream's log: messages, deliveries, bounces, the level, and the last stamps."""

    def __init__(self, host: str, queue: str) -> None:
        self.host, self.queue = host, queue

    def pack(self) -> pa.Table:
        """Return the rows of the table `pending`."""
        raise NotImplementedError

    def mark(self) -> dict[str, Any]:
        """Return what is beside `pending` (the last stamps), for JSON."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, host: str, queue: str, pending: pa.Table | None, mark: Mapping[str, Any] | None = None) -> "State":
        """Return the state of a stream. pending: rows of any streams; mark: of `mark`, or of a lake made before."""
        raise NotImplementedError
