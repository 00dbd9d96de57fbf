"""Logs that are cut short, doubled, said twice and full of garbage: the rest is read, and what is lost is told."""

import random
from pathlib import Path

import pytest

from support.spark.logs.log_files import damage, rotated, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_reference import read_stream
from support.spark.logs.log_rows import Truth, agree
from support.spark.logs.log_world import World


def write_damaged(logs: Path, seeds: range, steps: int) -> Truth:
    """Write a damaged log for each seed, each a host; return what the reference reads in them."""
    expected = Truth()
    for seed in seeds:
        rng = random.Random(seed)
        host = f"host{seed}"
        files = damage(rotated(World(seed, host, "main").run(steps).lines, rng, rng.randrange(1, 8)), rng)
        write_files(logs / host / "main", files)
        expected.add(read_stream(files, host, "main"))
    return expected


def test_damaged_logs_make_what_the_reference_reads_in_them(tmp_path: Path) -> None:
    expected = write_damaged(tmp_path / "logs", range(12), 150)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(1000, 2000, 50))
def test_many_damaged_logs_make_what_the_reference_reads(tmp_path: Path, start: int) -> None:
    expected = write_damaged(tmp_path / "logs", range(start, start + 50), 150)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())
