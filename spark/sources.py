"""Which files are there, and what in them is new since the last batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

# What a manifest keeps of the streams, as JSON: by "host/queue", which files were read and how far. `plan` and
# `match.make_batch` alone know what is in it. {} before the first batch.
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """A file that Spark reads whole: a log file in place, or a copy of what is new in one, in the staging directory.

    uri: as Spark names it. file: path below LOGS, for people. base: number of the stream's first block here.
    first_line: number in `file` of the first line, None if all is carried. carried: the first line is put together.
    torn: the one line in it was cut short.
    """

    uri: str
    host: str
    queue: str
    file: str
    base: int
    first_line: int
    carried: bool
    torn: bool
    size: int


@dataclass(frozen=True)
class Plan:
    """What a batch reads. pieces is empty where nothing is new. state: what the manifest keeps once it is done."""

    pieces: tuple[Piece, ...]
    state: State
    staging: str
    bytes: int


class SourceError(Exception):
    """Logs that cannot be read: missing, not stamped, two directories for one stream. The text is for the user."""


def plan(
    session: SparkSession,
    logs: str,
    state: Mapping[str, Any],
    staging: str,
    host: str | None = None,
    queue: str | None = None,
) -> Plan:
    """Look at LOGS (a path or a URI of any file system that Spark knows) and return what is new.

    Writes copies of growing files into `staging` (a URI of a directory that is this batch's own, which the caller
    removes when the batch is over). Raises SourceError.
    """
    raise NotImplementedError
