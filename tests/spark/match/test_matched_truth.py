"""The matcher makes of simulated logs exactly the tables that the simulation knows, whole, damaged and cut anywhere."""

import random

import pytest

from support.spark.logs.log_files import damage, rotated
from support.spark.logs.log_reference import read_lines, whole_lines
from support.spark.logs.log_rows import agree
from support.spark.logs.log_world import World
from support.spark.matched import HOST, QUEUE, Line, Stream, carry_state


def lines_of(seed: int, steps: int, damaged: bool) -> tuple[World, list[Line]]:
    """Return a simulation and the lines of its log."""
    rng = random.Random(seed)
    world = World(seed, HOST, QUEUE).run(steps)
    files = rotated(world.lines, rng, rng.choice((1, 2, 5, 12)))
    return world, list(whole_lines(damage(files, rng) if damaged else files))


def match_cut(lines: list[Line], seed: int) -> Stream:
    """Match lines in up to twelve pieces, each in blocks of some size, or each in a build of its own."""
    rng = random.Random(seed)
    stream = Stream(carry=rng.choice((None, carry_state)))
    cuts = sorted(rng.randrange(len(lines) + 1) for _ in range(rng.randrange(12)))
    for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        stream.match(lines[start:end], rng.choice((1, 3, 50, 1 << 30)))
    return stream


def check(seeds: range, steps: int, damaged: bool) -> None:
    for seed in seeds:
        world, lines = lines_of(seed, steps, damaged)
        expected = read_lines(lines, HOST, QUEUE) if damaged else world.truth
        whole = Stream()
        whole.match(lines)
        agree(expected, whole.truth())
        agree(expected, match_cut(lines, seed).truth())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_makes_the_tables_that_are_true_in_one_pass_and_cut_anywhere(damaged: bool) -> None:
    check(range(15), 150, damaged)


@pytest.mark.exhaustive
@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("start", range(1000, 2000, 50))
def test_many_logs_make_the_tables_that_are_true(start: int, damaged: bool) -> None:
    check(range(start, start + 50), 300, damaged)
