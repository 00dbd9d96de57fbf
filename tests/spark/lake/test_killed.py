"""The driver is killed in each phase of a build: the lake is as it was, or as it is to be, and the next goes on."""

from pathlib import Path

import pytest

from support.spark.killed_build import build_and_tidy, run_and_kill, script
from support.spark.logs.scripted_logs import CrashAt, ScriptedLake

# The batch is in the lake by then.
TIDYING = ["dropping old dates", "putting small files together", "putting messages together"]
PHASES = [
    "looking at the lake",
    "looking at the logs",
    "matching lines",
    "matching lines+",
    "writing pending",
    "moving files in",
    "moving files in+",
    "writing the manifest",
    "cleaning up",
    *TIDYING,
]


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_driver_leaves_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    lake = ScriptedLake(str(tmp_path / "lake"), monkeypatch)
    lake.script = script(1)
    lake.build()
    assert run_and_kill(lake.place, 2, phase) == -9
    built = len(lake.rows("messages", "key"))
    if not phase.endswith("+"):
        assert built == (2 if phase in ("cleaning up", *TIDYING) else 1)
    assert lake.rows("messages", "key") == [(f"{n}.1",) for n in range(built)]
    assert lake.rows("pending", "key") == [(f"{built}.1",)]
    lake.script = script(2)
    lake.build()
    assert lake.rows("messages", "key") == [("0.1",), ("1.1",)]
    assert lake.rows("pending", "key") == [("2.1",)]
    assert not list((tmp_path / "lake" / "_batch").iterdir())


def test_each_phase_of_a_build_is_among_those(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake(str(tmp_path / "lake"), monkeypatch)
    lake.script = script(1)
    lake.build()
    lake.script = script(2)
    seen = CrashAt()
    build_and_tidy(lake, monkeypatch, seen)
    assert set(seen.seen) == {phase.removesuffix("+") for phase in PHASES}
