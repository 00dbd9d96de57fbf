"""A suite whose log lines are known with the moment at which they came."""

import re
import time
from typing import Self

from queue_base.home import Home
from support.processes.suite import Suite


class TimedSuite(Suite):
    """`heard` holds (monotonic time in seconds, line) for the log so far."""

    def __init__(self, home: Home) -> None:
        self.heard: list[tuple[float, str]] = []
        super().__init__(home, on_line=lambda line: self.heard.append((time.monotonic(), line)))

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def first_times(self, pattern: str) -> dict[int, float]:
        """Return when a line about each message first came; the pattern's group is the message's id."""
        found: dict[int, float] = {}
        for moment, line in list(self.heard):
            match = re.fullmatch(pattern, line)
            if match:
                found.setdefault(int(match[1]), moment)
        return found
