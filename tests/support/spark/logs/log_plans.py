"""What a build would read of a directory of logs, as lines, without matching or a lake."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from spark.logs.plan import Plan
from spark.logs.reader import read_lines
from spark.logs.sources import plan
from spark.runtime.places import LocalPlace

from spark.match.lines import Lines


class ReadLine(NamedTuple):
    """A line as it is read; number: in its file, None for one that was put together."""

    text: bytes
    file: str
    number: int | None
    torn: bool


class Looks:
    """Looks at a directory of logs again and again; `warnings` are those of the last look."""

    def __init__(self, logs: Path, scratch: Path) -> None:
        self._place, self._scratch, self._looks = LocalPlace(str(logs)), scratch, 0
        self.state: dict[str, Any] = {}
        self.warnings: list[str] = []

    def plan(self) -> Plan:
        """Return what is new; it counts as read."""
        self._looks += 1
        found = plan(self._place, self.state, LocalPlace(str(self._scratch / str(self._looks))))
        self.state, self.warnings = found.state, found.warnings
        return found

    def read(self) -> list[ReadLine]:
        """Return the lines that are new, of all streams."""
        found: list[ReadLine] = []
        for (host, queue), parts in self.plan().streams.items():
            counted: Counter[str] = Counter()
            for block in read_lines(parts, counted):
                found += lines_in(block)
            files = self.state[f"{host}/{queue}"]["files"]
            for name, lines in counted.items():
                if name in files:
                    files[name][2] += lines
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
