"""The driver is killed in each phase of a build: the lake is as it was, or as it is to be, and the next goes on."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.spark.killed_build import build_and_tidy, run_and_kill, script
from support.spark.scripted_logs import CrashAt, ScriptedLake

pytestmark = pytest.mark.together

# The batch is in the lake by then.
TIDYING = ["dropping old dates", "putting small files together", "putting messages together"]
PHASES = [
    "looking at the lake",
    "looking at the logs",
    "reading lines",
    "writing messages",
    "writing messages+",
    "writing deliveries",
    "writing intervals",
    "writing pending+",
    "writing quarantine",
    "writing lines",
    "moving files in",
    "writing the manifest",
    "cleaning up",
    *TIDYING,
]
# Each takes a JVM of its own, some 15 s. In the middle of Spark's work runs always; test_spark_crash.py has the rest.
ALWAYS = ("writing messages+",)


@pytest.mark.parametrize(
    "phase", [phase if phase in ALWAYS else pytest.param(phase, marks=pytest.mark.exhaustive) for phase in PHASES]
)
def test_a_killed_driver_leaves_the_last_good_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    lake = ScriptedLake(spark, str(tmp_path / "lake"), monkeypatch)
    lake.script = script(1)
    lake.build()
    assert run_and_kill(lake.place, 2, phase) == -9
    built = 2 if phase in ("cleaning up", *TIDYING) else 1
    assert lake.rows("messages", "key") == [(f"{n}.1",) for n in range(built)]
    assert lake.rows("pending", "key") == [(f"{built}.1",)]
    lake.script = script(2)
    lake.build()
    assert lake.rows("messages", "key") == [("0.1",), ("1.1",)]
    assert lake.rows("pending", "key") == [("2.1",)]
    assert not list((tmp_path / "lake" / "_batch").iterdir())


def test_each_phase_of_a_build_is_among_those(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ScriptedLake(spark, str(tmp_path / "lake"), monkeypatch)
    lake.script = script(1)
    lake.build()
    lake.script = script(2)
    seen = CrashAt()
    build_and_tidy(lake, monkeypatch, seen)
    assert set(seen.seen) == {phase.removesuffix("+") for phase in PHASES}
