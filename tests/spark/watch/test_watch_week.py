"""watch, minute by minute, killed again and again: nothing is lost or counted twice, memory and lake stay small."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queue_report.lake.data_files import read_streams
from queue_report.lake.lake import open_lake
from support.spark.logs.log_lake import rows_of_table
from support.spark.watched_week import HOUR, RETRY, WEEK, hours, watch

# A batch makes fewer changes of the disk, with the minute of log that comes before it.
CHANGES = 20

# More memory than this, in bytes, between the first day of a process and its last is growth.
ALLOWED = 16 << 20


def rows(lake: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows_of_table(str(lake), table)]


def events(minutes: int) -> Counter[str]:
    """Return how many lines of each kind there are in the log, and how many lines."""
    counted: Counter[str] = Counter()
    for hour in hours(minutes):
        for line in hour.decode().splitlines():
            words = line.split(" ", 3)
            counted[words[1]] += 1
            if words[1] == "delivery":
                counted[words[3].split(":")[0]] += 1
    return counted


def watch_and_kill(top: Path, minutes: int, kills: int, longest: float, seed: int = 1) -> list[str]:
    """Watch so many minutes, killed so many times after at most `longest` seconds. Returns what was printed."""
    rng = random.Random(seed)
    log = top / "said"
    for _ in range(kills):
        with watch(top, minutes, log) as process:
            time.sleep(rng.uniform(0.3, longest))
            process.kill()
    with watch(top, minutes, log) as process:
        assert process.wait(3600) == 0, log.read_text()[-2000:]
    return log.read_text().splitlines()


def check(lake: Path, minutes: int) -> None:
    """Compare what is in the tables with what is in the log."""
    logged = events(minutes)
    ended = rows(lake, "messages", "key")
    assert len(ended) == len(set(ended)) == logged["end"]
    deliveries = rows(lake, "deliveries", "start_ns", "delivery", "result")
    assert len(deliveries) == len(set(deliveries)) == logged["delivery"]
    assert Counter(result for *_, result in deliveries) == {
        "success": logged["success"], "deferral": logged["deferral"]
    }  # fmt: skip
    open_messages = [key for what, key in rows(lake, "pending", "what", "key") if what == "message"]
    assert len(open_messages) == len(set(open_messages)) == logged["new"] - logged["end"]
    counts = read_streams(open_lake(str(lake)))["mx1", "q"]["counts"]
    assert sum(counts.values()) == logged.total() - logged["success"] - logged["deferral"]
    assert not rows(lake, "quarantine", "reason")


# multilog with a very small s rotates with each minute; with three, a batch sees one that was rotated at every change.
@pytest.mark.parametrize(
    "rotated", [1, *(pytest.param(minutes, marks=pytest.mark.exhaustive) for minutes in (3, HOUR))]
)
def test_killed_before_each_change_of_the_disk_it_reads_the_log_once(tmp_path: Path, rotated: int) -> None:
    minutes = RETRY + 5
    log = tmp_path / "said"
    with watch(tmp_path, minutes, log, rotated) as process:
        assert process.wait(280) == 0, log.read_text()[-2000:]
    said = log.read_text().splitlines()
    assert said[-2] == "status: exiting" and not [line for line in said if line.startswith(("warning", "Traceback"))]
    what, killed = said[-1].split()
    # Each change of a batch was the last of a run that began with it, and of one that had made a batch before.
    assert what == "killed:" and int(killed) > CHANGES + 10
    check(tmp_path / "lake", minutes)


@pytest.mark.exhaustive
def test_an_hour_under_watch_killed_three_times_is_read_once(tmp_path: Path) -> None:
    minutes = HOUR + RETRY
    said = watch_and_kill(tmp_path, minutes, kills=3, longest=4.0)
    assert said[-1] == "status: exiting" and not [line for line in said if line.startswith(("warning", "Traceback"))]
    check(tmp_path / "lake", minutes)


@pytest.mark.exhaustive
@pytest.mark.timeout(5400)
def test_a_week_under_watch_killed_fifty_times_is_read_once_in_little_memory_and_few_files(tmp_path: Path) -> None:
    said = watch_and_kill(tmp_path, WEEK, kills=50, longest=12.0)
    lake = tmp_path / "lake"
    check(lake, WEEK)
    batches = [line for line in said if line.startswith("batch ")]
    # A batch that was killed said nothing.
    assert len(batches) >= WEEK - 2 * 50
    # The last process was not killed.
    last = said[max(place for place, line in enumerate(said) if line.startswith("begun: ")) :]
    memory = [int(line.split()[2]) for line in last if line.startswith("memory: ")]
    assert len(memory) > 14 and max(memory[-6:]) <= max(memory[1:7]) + ALLOWED, memory
    assert [line for line in said if line.startswith("tidy: ")]
    files = Counter(
        (table, path.rpartition("/")[0]) for table, paths in open_lake(str(lake)).tables.items() for path in paths
    )
    # All days but the last have been put together.
    assert max(number for (_, place), number in files.items() if "2026-01-07" not in place) <= 6, files
    on_disk = sum(1 for path in lake.rglob("*.parquet"))
    assert on_disk <= sum(files.values()) + 2 * 60 * len(files)
