"""Tasks that Spark runs twice, since it took an executor for dead: the tables are those of one run."""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.spark.logs.log_files import rotated, write_files
from support.spark.logs.log_lake import Lake, Row
from support.spark.logs.log_world import World

CUT = 3000


def twice(work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
    """Do each task twice, and give what came of the second time."""
    for task in tasks:
        work(task)
        yield work(task)


def feed(lake: Lake, logs: Path) -> dict[str, list[Row]]:
    """Build twice from logs of two hosts that grow, with lines that cannot be read; return the tables."""
    for part in range(2):
        for host in ("a", "b"):
            lines = World(ord(host), host, "q").run(150).lines
            middle = len(lines) // 2
            given = lines[middle:] if part else lines[:middle]
            directory = logs / host / "q"
            write_files(directory, rotated(given, random.Random(part), 1))
            with open(next(iter(sorted(directory.iterdir()))), "ab") as file:
                file.writelines(b"garbage %d\n" % number for number in range(300))
        lake.feed(logs)
    tables = ("messages", "deliveries", "intervals", "quarantine", "pending", "lines", "alerts")
    return {table: sorted(lake.rows(table), key=repr) for table in tables}


@pytest.mark.parametrize("copies", [False, True])
def test_the_tables_are_those_of_tasks_that_run_once(
    tmp_path: Path, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A growing file is cut too, and the joins are tasks.
    monkeypatch.setattr("spark.logs.sources.KEPT_MAX", 0)
    monkeypatch.setattr("spark.logs.sources._KEPT", 0)
    monkeypatch.setattr("spark.lake.batch.EDGES_MAX", 0)
    if copies:
        # No segment stands as it was matched first.
        monkeypatch.setattr("spark.lake.matching.fits", lambda state, edge: edge.state is not None)
    once = feed(Lake(tmp_path / "once", CUT), tmp_path / "logs-once")
    again = feed(Lake(tmp_path / "twice", CUT, twice), tmp_path / "logs-twice")
    assert len(once["quarantine"]) > 300
    assert again == once
