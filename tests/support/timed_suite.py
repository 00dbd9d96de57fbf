"""A suite whose log lines are kept with the moment at which they came."""

import re
import time

from support.suite import Suite


class TimedSuite(Suite):
    """`times` holds the monotonic time in seconds of each of `lines`."""

    def _read(self) -> None:
        self.times: list[float] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.times.append(time.monotonic())
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def first_times(self, pattern: str) -> dict[int, float]:
        """Return when the line about each message first came; the pattern's group is the message's id."""
        found: dict[int, float] = {}
        with self._more:
            for line, moment in zip(self.lines, self.times, strict=True):
                match = re.fullmatch(pattern, line)
                if match:
                    found.setdefault(int(match[1]), moment)
        return found
