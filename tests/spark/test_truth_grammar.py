"""Lines that are nearly right: the pipeline takes those that the reference takes, as it reads them, and no other."""

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark.windows.parse import parse_lines

from support.spark.log_files import GARBAGE, lines_of
from support.spark.log_reference import parse_event, time_of
from support.spark.log_world import World

pytestmark = pytest.mark.together
NOISE = [*" :/@<>_0123456789abcdefgxyz-\r\t\0ä", "  ", " 0", "+1", "99999999999999999999", "> qp 1 uid 2", "success:"]
FIELDS = {
    "status": ("local_now", "local_limit", "remote_now", "remote_limit"),
    "info": ("message", "bytes", "sender", "qp", "uid"),
    "start": ("delivery", "message", "channel", "recipient"),
    "done": ("delivery", "result", "reason"),
    "mangled": ("delivery",),
    **dict.fromkeys(("new", "end", "triple", "release", "hold", "corrupt"), ("message",)),
    **dict.fromkeys(("bounce", "delay"), ("message", "qp")),
}


def spoil(line: str, rng: random.Random) -> str:
    """Return a line with one place changed, doubled, lost or noisy; sometimes as it is."""
    place, other = rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)
    words = line.split(" ")
    word = rng.randrange(len(words))
    spoiled: list[str] = [
        line,
        line[:place] + rng.choice(NOISE) + line[place:],
        line[:place] + rng.choice(NOISE) + line[place + 1 :],
        line[:place],
        line[:place] + line[max(place, other) :],
        " ".join(words[:word] + words[word + 1 :]),
        " ".join([*words[: word + 1], words[word], *words[word + 1 :]]),
        " ".join([*words[:word], words[word] + rng.choice(NOISE), *words[word + 1 :]]),
    ]
    return rng.choice(spoiled)


def some_lines(seed: int, count: int) -> list[str]:
    """Return lines of simulated logs, most of them spoiled, each once."""
    rng = random.Random(seed)
    whole = [line[:-1].decode() for line in lines_of(World(seed).run(400).lines)] + [
        line[:-1].decode() for line in GARBAGE
    ]
    return list(dict.fromkeys(spoil(rng.choice(whole), rng) for _ in range(count)))


def compare(spark: SparkSession, lines: list[str]) -> None:
    """Fail where the pipeline makes another event of a line than the reference."""
    frame = spark.createDataFrame(list(enumerate(lines)), "seq long, value string")
    rows = parse_lines(frame.withColumns({"stream": F.lit(0), "torn": F.lit(False)})).collect()
    assert sorted(row["seq"] for row in rows) == list(range(len(lines)))
    found = {row["seq"]: row for row in rows if row["wrong"] is None}
    for number, line in enumerate(lines):
        time_ns = time_of(line.encode())
        event = None if time_ns is None else parse_event(line[26:])
        row = found.get(number)
        if event is None:
            assert row is None, line
            continue
        assert row is not None, line
        kind, values = event
        if kind in FIELDS:
            told = {"kind": "done" if kind == "mangled" else kind, "time_ns": time_ns}
            told |= dict(zip(FIELDS[kind], values, strict=False))
            assert {name: row[name] for name in told} == told, line
        elif kind != "alert":
            assert row["kind"] == kind, line
        else:
            assert row["kind"] in ("alert", "warning"), line


def test_lines_that_are_nearly_right_are_read_or_refused_as_the_grammar_says(spark: SparkSession) -> None:
    compare(spark, some_lines(1, 4000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_lines_that_are_nearly_right(spark: SparkSession, seed: int) -> None:
    compare(spark, some_lines(seed, 20_000))
