"""Follows a log: how often a text has come, and when."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

# Without any news for so long, what is waited for never comes.
STALL = 120.0
# Often enough for rates of each 100 ms, and cheap: what is new is read once and searched for a few texts.
EVERY = 0.02


class LogFollower:
    """Counts the lines of a growing file that have certain texts, by name; `times` and `counts` are the samples."""

    def __init__(self, path: Path, texts: Mapping[str, bytes]) -> None:
        self.path = path
        self.times: list[float] = []
        self.counts: dict[str, list[int]] = {name: [] for name in texts}
        self._texts = texts
        self._now = dict.fromkeys(texts, 0)
        self._rest = b""
        self._at = 0
        self._last_news = time.monotonic()

    def look(self) -> dict[str, int]:
        """Read what is new, and return the counts so far."""
        now = time.monotonic()
        whole = self.read()
        for name, text in self._texts.items():
            self._now[name] += whole.count(text)
            self.counts[name].append(self._now[name])
        self.times.append(now)
        if whole:
            self._last_news = now
        elif now - self._last_news > STALL:
            sys.exit(f"nothing new in {self.path} for {STALL:.0f} s; so far {self._now}; it ends:\n{self.tail()}")
        return self._now

    def read(self) -> bytes:
        """Return the whole lines that are new."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._at += len(data)
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        return whole + newline

    def wait(self, enough: Callable[[dict[str, int]], bool]) -> float:
        """Look until the counts are enough; return the monotonic time. Ends the bench where nothing comes any more."""
        while not enough(self.look()):
            time.sleep(EVERY)
        return self.times[-1]

    def tail(self) -> str:
        """Return the end of the log."""
        data = self.path.read_bytes()[-4000:] if self.path.exists() else b""
        return data.decode("utf-8", "replace")


def first_unexpected(path: Path, pattern: bytes) -> str:
    """Return the first line of a log that has a pattern, as text; empty where there is none."""
    found = re.search(b"^.*(?:" + pattern + b").*$", path.read_bytes(), re.MULTILINE)
    return found[0].decode("utf-8", "replace") if found else ""
