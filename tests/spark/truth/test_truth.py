"""The log pipeline makes of simulated logs exactly the tables that the simulation knows, on one host and on many."""

import random
import subprocess
from pathlib import Path

import pytest

from support.spark.logs.log_files import lines_of, rotated, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_rows import Truth, agree
from support.spark.logs.log_world import World
from support.tools import need


def write_worlds(logs: Path, seed: int, places: list[tuple[str, str]], steps: int) -> Truth:
    """Simulate a queue for each place, host and queue, and write its log; return what all of them did."""
    truth = Truth()
    for number, (host, queue) in enumerate(places):
        world = World(seed, host, queue).run(steps)
        rng = random.Random(f"{seed} {number}")
        files = rotated(world.lines, rng, rng.choice((1, 2, 5, 12)))
        write_files(logs / host / queue, files, rng.choice(("multilog", "svlogd")))
        truth.add(world.truth)
    return truth


def test_the_log_of_one_host_makes_the_tables_that_are_true(tmp_path: Path) -> None:
    expected = write_worlds(tmp_path / "logs", 1, [("alpha", "main")], 600)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


def test_the_logs_of_many_hosts_and_queues_do_not_mix(tmp_path: Path) -> None:
    places = [(f"host{number % 5}.example", f"queue{number // 5}") for number in range(12)]
    expected = write_worlds(tmp_path / "logs", 2, places, 250)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


def test_a_batch_over_what_was_read_already_changes_nothing(tmp_path: Path) -> None:
    expected = write_worlds(tmp_path / "logs", 3, [("alpha", "main"), ("beta", "main")], 150)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    assert not lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_logs_make_the_tables_that_are_true(tmp_path: Path, seed: int) -> None:
    places = [(f"host{number}", "main") for number in range(1 + seed % 7)]
    expected = write_worlds(tmp_path / "logs", seed, places, 2000)
    lake = Lake(tmp_path / "lake")
    assert lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


def test_what_multilog_and_svlogd_themselves_rotate_is_read(tmp_path: Path) -> None:
    expected = Truth()
    for host, command in {
        "multilog": [need("multilog"), "s4096", "n1000", "."],
        "svlogd": [need("svlogd"), "-l", "100000", "-b", "200000", "."],
    }.items():
        world = World(4, host, "main").run(300)
        directory = tmp_path / "logs" / host / "main"
        directory.mkdir(parents=True)
        (directory / "config").write_text("s4096\nn0\n")
        subprocess.run(command, cwd=directory, input=b"".join(lines_of(world.lines)), check=True, timeout=60)
        assert len(list(directory.glob("@*.s"))) > 5
        expected.add(world.truth)
    lake = Lake(tmp_path / "lake")
    lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())
