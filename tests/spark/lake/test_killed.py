"""The driver is killed in each phase of a build: the lake is as it was, or as it is to be, and the next goes on."""

from pathlib import Path

import pytest

from support.spark.killed_build import CrashAt, build_and_tidy, run_and_kill
from support.spark.logs.growing_log import GrowingLog, assert_exact, numbers
from support.spark.logs.log_lake import Lake

# What was new is in the lake by then.
TIDYING = ["dropping old dates", "putting small files together", "removing what does not count"]
PHASES = [
    "looking at the lake",
    "looking at the logs",
    "starting Spark",
    "matching lines",
    "matching lines+",
    "writing what is open",
    "committing",
    "committing+",
    *TIDYING,
    "putting small files together+",
    "removing what does not count+",
]


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_driver_leaves_the_last_good_state(tmp_path: Path, phase: str) -> None:
    log, logs, lake = GrowingLog(tmp_path / "logs" / "a" / "q"), tmp_path / "logs", tmp_path / "lake"
    log.grow(1)
    Lake(lake).build(logs)
    log.grow(1)
    code = run_and_kill(logs, lake, phase)
    # The middle of a phase may be after the end of a quick build.
    assert code == -9 or (phase.endswith("+") and code == 0)
    ended, _ = numbers(Lake(lake))
    if not phase.endswith("+"):
        assert len(ended) == (2 if phase in TIDYING else 1)
    assert_exact(Lake(lake), len(ended))
    Lake(lake).build(logs)
    assert_exact(Lake(lake), 2)


def test_each_phase_of_a_build_is_among_those(tmp_path: Path) -> None:
    GrowingLog(tmp_path / "logs" / "a" / "q")
    seen = CrashAt()
    build_and_tidy(tmp_path / "logs", tmp_path / "lake", seen)
    assert set(seen.seen) == {phase.removesuffix("+") for phase in PHASES}
