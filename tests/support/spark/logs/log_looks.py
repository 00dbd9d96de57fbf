"""What builds would read of a directory of logs, as lines, without matching or a lake."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from queue_report.logs.reading import Reading
from queue_report.match.block import Lines
from queue_report.runtime.files import LocalFiles


class ReadLine(NamedTuple):
    """A line as it is read; number: in its file, None for one that was put together."""

    text: bytes
    file: str
    number: int | None
    torn: bool


class Looks:
    """Reads a directory of logs again and again, as builds do; `warnings` are those of the last time."""

    def __init__(self, logs: Path) -> None:
        self._files = LocalFiles(str(logs.parent))
        self._below = logs.name
        self.state: dict[str, Any] = {}
        self.warnings: list[str] = []

    def read(self) -> list[ReadLine]:
        """Return the lines that are new."""
        reading = Reading(self._files, self._below, json.loads(json.dumps(self.state)))
        found = [line for block in reading.lines() for line in lines_in(block)]
        self.state, self.warnings = reading.pack(), reading.warnings
        return found

    def texts(self) -> list[bytes]:
        """Return the lines that are new and were not cut short, without their stamps."""
        return [line.text[26:] for line in self.read() if not line.torn]


def lines_in(block: Lines) -> list[ReadLine]:
    """Return the lines of a block one by one."""
    data = bytes(block.data)
    return [
        ReadLine(data[start:end], block.file, None if block.first is None else block.first + at, block.torn)
        for at, (start, end) in enumerate(zip(block.starts.tolist(), block.ends.tolist(), strict=True))
    ]
