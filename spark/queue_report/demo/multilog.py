"""Directories of logs as multilog leaves them: rotated files named by the time of rotation, and `current`."""

from pathlib import Path

# The label of the epoch: TAI64, see docs/logs.md.
_EPOCH = (1 << 62) + 10
SIZE = 1_000_000


def stamp(time_ns: int) -> str:
    """Return a Unix time as TAI64N."""
    seconds, nanoseconds = divmod(time_ns, 10**9)
    return f"@{seconds + _EPOCH:016x}{nanoseconds:08x}"


class Multilog:
    """Writes lines into a directory. It must be closed."""

    def __init__(self, directory: Path, size: int = SIZE) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._size = directory, size
        self._lines: list[str] = []
        self._held = 0

    def write(self, time_ns: int, text: str) -> None:
        line = f"{stamp(time_ns)} {text}\n"
        self._lines.append(line)
        self._held += len(line)
        if self._held >= self._size:
            self._finish(f"{stamp(time_ns)}.s")

    def cut(self, time_ns: int, text: str) -> None:
        """Write a line that a power cut ends half-way, and begin a new file as multilog then does."""
        self._lines.append(f"{stamp(time_ns)} {text[: len(text) // 2]}")
        self._finish(f"{stamp(time_ns)}.u")

    def close(self) -> None:
        self._finish("current")

    def _finish(self, name: str) -> None:
        (self._directory / name).write_text("".join(self._lines), encoding="ascii")
        self._lines, self._held = [], 0
