"""Compaction: the many small files that many builds leave in a date and host become few.

Only small files are read and written again, so that compacting each day does not write the whole lake each day.
"""

import posixpath
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

# pyspark takes long to import, and a small build or a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# More small files than this in one date and host are put together.
FEW = 4
# What is a small file, and how large the new ones are to be, in bytes.
SMALL = 32 << 20
WANTED = 128 << 20
# At most as many bytes of Parquet in one task, so that it fits into little memory.
TASK = 64 << 20


class Group(NamedTuple):
    """Files of a table that are put together, and into how many files each date and host goes."""

    table: str
    paths: tuple[str, ...]
    parts: int
    tasks: int


def groups(tables: Mapping[str, Mapping[str, int]], names: Iterable[str]) -> list[Group]:
    """Return what there is to be put together in the tables that are named."""
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for table in names:
        places: dict[str, list[tuple[str, int]]] = {}
        for path, size in tables.get(table, {}).items():
            if size < SMALL:
                places.setdefault(posixpath.dirname(path), []).append((path, size))
        for files in places.values():
            if len(files) > FEW:
                parts = -(-sum(size for _, size in files) // WANTED)
                found.setdefault((table, max(parts, 1)), []).extend(files)
    return [
        Group(table, tuple(sorted(path for path, _ in files)), parts, 1 + sum(size for _, size in files) // TASK)
        for (table, parts), files in sorted(found.items())
    ]


def put_together(lake: str, home: str, group: Group, sizes: Mapping[str, int]) -> None:
    """Write the group's rows again, into few files below `home`, a file of rows at a time. Raises OSError.

    lake, home: directories of this machine. sizes: bytes of the lake's files of that table.
    """
    from spark.lake.parquet import TableWriter, read_file

    places: dict[str, list[str]] = {}
    for path in group.paths:
        places.setdefault(posixpath.dirname(path), []).append(path)
    for number, paths in enumerate(places.values()):
        share = max(1, sum(sizes[path] for path in paths) // group.parts)
        taken = part = 0
        writer = TableWriter(home, f"{number}-{part}", date.min)
        for path in paths:
            if taken >= share:
                writer.close()
                taken, part = 0, part + 1
                writer = TableWriter(home, f"{number}-{part}", date.min)
            writer.add({group.table: read_file(lake, group.table, path)})
            taken += sizes[path]
        writer.close()


def rearrange(frame: "DataFrame", group: Group) -> "DataFrame":
    """Return the group's rows distributed so that Spark writes each date and host as `parts` files."""
    from pyspark.sql import functions as F

    if group.parts == 1:
        return frame.repartition(group.tasks, "date", "host")
    share = F.pmod(F.xxhash64(*frame.columns), F.lit(group.parts))
    return frame.repartition(max(group.tasks, group.parts), "date", "host", share)
