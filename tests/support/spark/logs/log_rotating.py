"""A directory of logs, with what a logger, its processor and an administrator do to it, step by step."""

import gzip
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from support.spark.logs.log_files import stamp

ENDINGS = {"gz": ".gz", "xz": ".xz", "zst": ".zst", "": ""}
Step: TypeAlias = tuple[object, ...]
HOWS = st.sampled_from(tuple(ENDINGS))
DO = st.one_of(
    st.tuples(st.just("write"), st.one_of(st.integers(0, 40), st.integers(0, 3000))),
    st.tuples(st.just("write"), st.integers(0, 3000)),
    st.tuples(st.just("rotate"), st.sampled_from(("s", "s", "u", "previous"))),
    st.tuples(st.just("finish"), HOWS),
    st.tuples(st.just("pack"), st.integers(0, 50), HOWS),
    st.tuples(st.just("build")),
    st.tuples(st.just("build")),
    st.tuples(st.just("remove")),
)
WAYS = st.lists(DO, max_size=40)


def packed(how: str, data: bytes) -> bytes:
    """Return data compressed."""
    if how == "zst":
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return gzip.compress(data) if how == "gz" else lzma.compress(data) if how == "xz" else data


class RotatingLog:
    """Writes lines, each with its time, into `current`, and renames that. Each step returns whether it did anything."""

    def __init__(self, directory: Path, lines: list[tuple[int, bytes]]) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._data = b"".join(line for _, line in lines)
        self._times = [time_ns for time_ns, line in lines for _ in line]
        self._at = self._latest = 0
        # Content of rotated files by name (without what compression adds), and how each is compressed.
        self.rotated: dict[str, bytes] = {}
        self._how: dict[str, str] = {}
        self._current = b""
        self._waiting = ""  # What `previous`, or a file with .u, is to be called.

    def write(self, size: int) -> bool:
        """Write so many bytes more."""
        more = self._data[self._at : self._at + size]
        self._at += len(more)
        self._current += more
        (self._directory / "current").write_bytes(self._current)
        return bool(more)

    def rotate(self, way: str) -> bool:
        """Rename `current`: for good (s), or until finish (u, previous)."""
        if not self._current or self._waiting:
            return False
        # A logger's clock may be set back; its names go on all the same.
        self._latest = max(self._latest + 1, *self._times[self._at - len(self._current) : self._at])
        name = f"{stamp(self._latest)}.s"
        self.rotated[name], self._how[name] = self._current, ""
        called = {"s": name, "u": name[:-1] + "u", "previous": "previous"}[way]
        (self._directory / "current").rename(self._directory / called)
        (self._directory / "current").write_bytes(b"")
        self._current, self._waiting = b"", "" if way == "s" else called
        return True

    def finish(self, how: str) -> bool:
        """Give a file that waits for its processor its last name; the processor may have compressed it."""
        if not self._waiting:
            return False
        name = max(self.rotated)
        (self._directory / self._waiting).unlink()
        (self._directory / name).write_bytes(packed(how, self.rotated[name]))
        self._waiting = ""
        return True

    def pack(self, number: int, how: str) -> bool:
        """Compress a rotated file, or unpack it."""
        names = sorted(name for name in self.rotated if not self._waiting or name != max(self.rotated))
        if not names:
            return False
        name = names[number % len(names)]
        (self._directory / (name + ENDINGS[self._how[name]])).unlink()
        self._how[name] = how
        (self._directory / (name + ENDINGS[how])).write_bytes(packed(how, self.rotated[name]))
        return True

    def remove(self) -> bool:
        """Remove the oldest file, as a logger does that keeps few."""
        if len(self.rotated) < 2:
            return False
        name = min(self.rotated)
        (self._directory / (name + ENDINGS[self._how.pop(name)])).unlink()
        del self.rotated[name]
        return True


def follow(log: RotatingLog, steps: Sequence[Step], build: Callable[[], None]) -> None:
    """Do these steps, write what is left, and build once more. What is not read yet is not removed."""
    is_read = True
    for what, *how in [*steps, ("write", 1 << 30), ("build",)]:
        if what == "build":
            build()
            is_read = True
        elif what != "remove" or is_read:
            is_read &= not getattr(log, str(what))(*how)
