"""What a build reads: the words that sources, joints, segments and reader share."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

# What a manifest keeps of the streams, as JSON: by "host/queue", which files were read and how far (see
# spark.logs.joints). {} before the first build.
State: TypeAlias = dict[str, Any]
Stream: TypeAlias = tuple[str, str]  # Host and queue.


class SourceError(Exception):
    """Logs that cannot be read: missing, not stamped, two directories for one stream. The text is the reason alone."""


@dataclass(frozen=True)
class Part:
    """Whole lines of one log, to be read from `start` to `end` (bytes, unpacked) of a file.

    path: below LOGS, as Python opens it or as Spark takes it; a copy of what is new in a log that grows, too. content:
    the bytes themselves, where they are few; then there is no path. file: the log's path below LOGS, for people; name:
    its last part. head: what an earlier file or build had of the first line. first: number in `file` of the first line
    that this build reads of it. torn: head was cut short, and is all that is read. packed: gzip, xz, zstd or ''.
    """

    path: str
    file: str
    name: str
    start: int
    end: int
    first: int
    head: bytes = b""
    torn: bool = False
    packed: str = ""
    content: bytes | None = None

    @property
    def size(self) -> int:
        return self.end - self.start + len(self.head)


@dataclass(frozen=True)
class Plan:
    """What a build reads: by stream its parts, in order; streams without anything new are left out.

    state: what the manifest keeps once it is done, but for lines counted and `latest`. warnings: of files that cannot
    be read, or are out of order.
    """

    streams: dict[Stream, list[Part]]
    state: State
    warnings: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(part.size for parts in self.streams.values() for part in parts)

    @property
    def files(self) -> int:
        return len({part.file for parts in self.streams.values() for part in parts})
