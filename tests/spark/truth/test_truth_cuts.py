"""A log that is cut anywhere, in lines and in stamps, and fed in as many batches, makes the tables of one pass."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from support.plugins.amount import amount
from support.spark.logs.log_feeding import WAYS, pieces_of
from support.spark.logs.log_files import damage, lines_of, rotated
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_reference import read_stream
from support.spark.logs.log_rotating import WAYS as WAYS_TO_ROTATE
from support.spark.logs.log_rotating import RotatingLog, Step, follow
from support.spark.logs.log_rows import Truth, agree
from support.spark.logs.log_world import World

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
CUTS = st.integers(0, 2**24 - 1)  # Of so few bits, which hypothesis draws evenly.


def feed(pieces: list[bytes], way: str, seed: int) -> Truth:
    """Feed the pieces in that way, one batch each, and look again after some batches; return what came of it."""
    with TemporaryDirectory() as directory:
        rng = random.Random(seed)
        lake = Lake(Path(directory) / "lake")
        for logs in WAYS[way](pieces, Path(directory) / "logs", "alpha/main", rng):
            lake.feed(logs)
            if rng.random() < 0.2:
                assert not lake.feed(logs), "what was read is new again"
        return lake.truth()


def cut_and_compare(seed: int, cuts: list[int], way: str, steps: int) -> None:
    world = World(seed, "alpha", "main").run(steps)
    pieces = pieces_of(b"".join(lines_of(world.lines)), cuts)
    agree(world.truth, feed(pieces, way, seed))


# Each piece is a batch, so a few seconds on a busy machine. The way with most that can go wrong runs always.
@pytest.mark.parametrize(
    "way", [way if way == "growing" else pytest.param(way, marks=pytest.mark.exhaustive) for way in WAYS]
)
def test_a_log_that_is_cut_anywhere_makes_the_same_tables(way: str) -> None:
    rng = random.Random(way)
    cut_and_compare(len(way), [rng.randrange(2**30) for _ in range(5)], way, 200)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@settings(SLOW, max_examples=10)  # Of 51 batches.
@given(st.integers(0, 2**20), st.lists(CUTS, min_size=50, max_size=50, unique=True), st.sampled_from(list(WAYS)))
def test_a_log_that_is_cut_at_50_places_makes_the_same_tables(seed: int, cuts: list[int], way: str) -> None:
    assume(max(cuts) > 2**20)  # What hypothesis tries first is the least of each.
    cut_and_compare(seed, cuts, way, 200)


@pytest.mark.timeout(1200)
@settings(SLOW, max_examples=amount(3, 100))
@given(st.integers(0, 2**20), WAYS_TO_ROTATE)
def test_a_log_that_is_rotated_and_compressed_in_any_way_makes_the_same_tables(seed: int, steps: list[Step]) -> None:
    world = World(seed, "alpha", "main").run(100)
    times = [time_ns for time_ns, _ in world.lines]
    with TemporaryDirectory() as directory:
        log = RotatingLog(
            Path(directory) / "logs" / "alpha" / "main", list(zip(times, lines_of(world.lines), strict=True))
        )
        lake = Lake(Path(directory) / "lake")

        def build() -> None:
            lake.feed(Path(directory) / "logs")

        follow(log, [("write", 1), *steps], build)
        agree(world.truth, lake.truth())


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@settings(SLOW, max_examples=10)
@given(st.integers(0, 2**20), st.lists(CUTS, min_size=1, max_size=6), st.sampled_from(list(WAYS)))
def test_a_damaged_log_that_is_cut_makes_what_the_reference_reads(seed: int, cuts: list[int], way: str) -> None:
    rng = random.Random(seed)
    files = damage(rotated(World(seed, "alpha", "main").run(150).lines, rng, 4, 0.0), rng)
    log = b"".join(data for _, data in files)
    pieces = pieces_of(log, cuts)
    expected = read_stream([(str(number), piece) for number, piece in enumerate(pieces)], "alpha", "main")
    agree(expected, feed(pieces, way, seed))
