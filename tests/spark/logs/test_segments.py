"""Streams are cut into segments that are whole lines, and together are all of them."""

import random
from collections import Counter
from pathlib import Path

import pytest

from spark.lake.batch import group_segments
from spark.logs import reader
from spark.logs.plan import Part
from spark.logs.reader import read_lines
from spark.logs.segments import LEAST, MOST, Segment, choose_size, cut
from spark.logs.sources import plan
from spark.runtime.places import LocalPlace
from support.spark.logs.log_files import lines_of, rotated, write_files
from support.spark.logs.log_plans import lines_in
from support.spark.logs.log_world import World


@pytest.mark.parametrize("seed", range(8))
def test_segments_are_whole_lines_and_together_are_the_log(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(reader, "BLOCK", rng.choice((64, 500, 1 << 20)))
    monkeypatch.setattr("spark.logs.sources.KEPT_MAX", rng.choice((0, 1 << 20)))
    monkeypatch.setattr("spark.logs.sources._KEPT", 0)
    lines = lines_of(World(seed, "h", "q").run(150).lines)
    write_files(tmp_path / "logs" / "h" / "q", rotated(World(seed, "h", "q").run(150).lines, rng, rng.randrange(1, 5)))
    logs = LocalPlace(str(tmp_path / "logs"))
    found = plan(logs, {}, LocalPlace(str(tmp_path / "copies")))
    size = rng.choice((200, 1000, 5000))
    segments = cut(logs, ("h", "q"), found.streams["h", "q"], size)
    assert [one.number for one in segments] == list(range(len(segments)))
    if size < 1000:
        assert len(segments) > 5
    divided = [one.size for one in segments if all(part.content is None for part in one.parts)]
    assert max(divided, default=0) < 2.5 * size + max(map(len, lines))
    read = [
        line.text + b"\n" for one in segments for block in read_lines(one.parts, Counter()) for line in lines_in(block)
    ]
    assert read == lines


def test_there_are_segments_enough_for_all_cores_and_none_is_very_small_or_large() -> None:
    assert choose_size(1 << 20, 2) == LEAST
    assert choose_size(240 << 20, 2) == 40 << 20
    assert choose_size(1 << 40, 2) == MOST


def test_small_segments_share_a_task_and_large_ones_come_first() -> None:
    segments = [Segment(("h", str(size)), 0, (Part("", "f", "f", 0, size, 1),)) for size in (5, 90, 30, 40, 7, 100)]
    assert [[one.size for one in group] for group in group_segments(segments, 80)] == [[100], [90], [40, 30, 7], [5]]
