"""bench/worst-turn runs, with little mail: each scenario comes to its end and prints its figures.

The usual run has one scenario, in test_benches.py, and the backlog.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench/worst-turn"
SCENARIOS = ["relay", "domains", "greylisted", "refused", "expired", "returned", "delayed", "backlog", "tiny"]


@pytest.mark.exhaustive
def test_every_scenario_of_worst_turn_comes_to_its_end_and_prints_its_figures(tmp_path: Path) -> None:
    few = ["--recipients", "200", "--messages", "2", "--backlog", "30", "--seconds", "60", "--dir", str(tmp_path)]
    command = [sys.executable, str(BENCH), *few, *(name for name in SCENARIOS if name != "backlog")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert "cut off" not in done.stdout
    assert len(re.findall(r"worst turn [\d.]+ ms of CPU", done.stdout)) == len(SCENARIOS) - 1


def test_a_backlog_is_read_and_flushed_for_as_long_as_worst_turn_may_take(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH), "--backlog", "30", "--seconds", "2", "--dir", str(tmp_path), "backlog"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert "worst turn" in done.stdout
