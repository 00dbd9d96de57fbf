"""What a batch reads: the words that sources, joints, read and match share."""

from dataclasses import dataclass
from typing import Any, TypeAlias

# What a manifest keeps of the streams, as JSON: by "host/queue", which files were read and how far (see
# spark.logs.joints). {} before the first batch.
State: TypeAlias = dict[str, Any]


class SourceError(Exception):
    """Logs that cannot be read: missing, not stamped, two directories for one stream. The text is the reason alone."""


@dataclass(frozen=True)
class Piece:
    """A file that Spark reads whole: a log file in place, or a copy of what is new in one, in the staging directory.

    path and uri: as Spark takes it, and as it shows it. file: the log's path below LOGS, for people; name: its last
    part. base: number of the stream's first block here. first_line: number in `file` of the first line that this batch
    reads of it. carried: the first line is put together. torn: the one line in it was cut short.
    """

    path: str
    uri: str
    host: str
    queue: str
    file: str
    name: str
    base: int
    first_line: int
    carried: bool
    torn: bool
    size: int


@dataclass(frozen=True)
class Plan:
    """What a batch reads. pieces is empty where nothing is new. state: what the manifest keeps once it is done.

    block: bytes that no block of Spark's is smaller than, but the last of a file. staging: a directory of the batch's
    own, as Spark names it. bytes: all that is read.
    """

    pieces: tuple[Piece, ...]
    state: State
    staging: str
    block: int
    bytes: int
