"""The marks for runs of several processes, and what tests tell a person: seen in a run of a few small tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

# Registered as conftest.py does, with directories of its own: this run may hold the lock on the usual ones.
CONFTEST = """
import os
from pathlib import Path
from support.plugins import saying
from support.plugins.side_by_side import SideBySide

def pytest_configure(config):
    config.pluginmanager.register(saying)
    if hasattr(config, "workerinput"):
        here = Path(__file__).parent
        config.pluginmanager.register(SideBySide(config.workerinput["workercount"], here / "turn", here / "gate"))
"""

FILE = """
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent

@contextmanager
def running(kind):
    marker = HERE / "running" / f"{kind}.{os.getpid()}"
    marker.touch()
    yield lambda: sorted(path.name.split(".")[0] for path in marker.parent.iterdir())
    marker.unlink()

# So far apart that without the mark several processes would have them.
TOGETHER = (0, 8, 16, 23)

@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.together) if n in TOGETHER else n for n in range(24)]
)
def test_ordinary(number, say):
    if number in TOGETHER:
        say(f"process {os.getpid()}")
    (HERE / f"began.{os.getpid()}").touch()
    with running("ordinary") as all:
        for _ in range(10):
            time.sleep(0.01)
            assert "alone" not in all()

@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_long(number, say, pytestconfig):
    say(f"long {os.getpid()}")
    assert not (hasattr(pytestconfig, "workerinput") and (HERE / f"began.{os.getpid()}").exists())
    with running("long") as all:
        for _ in range(10):
            time.sleep(0.01)
            assert "alone" not in all()

@pytest.mark.alone
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    with running("alone") as all:
        for _ in range(10):
            time.sleep(0.01)
            assert all() == ["alone"]
"""


# No other plugin: each process would import them all.
SETTINGS = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("turn", "gate", "running"):
        (tmp_path / name).mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_few.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    together\n    long\n")
    return tmp_path


def run(project: Path, *options: str) -> str:
    """Run its tests, which must pass; return what pytest prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *options],
        cwd=project,
        # There are no files of earlier runs there, which pytest would remove.
        env={**os.environ, **SETTINGS, "PYTEST_DEBUG_TEMPROOT": str(project)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_runs_beside_a_test_that_is_alone_one_process_has_those_that_are_together_others_begin_with_a_long_one(
    project: Path,
) -> None:
    printed = run(project, "--numprocesses", "3", "--dist", "worksteal")
    assert "28 passed" in printed
    said = printed.partition("what was found")[2].splitlines()[1:7]
    process = [line.split()[1] for line in said if line.startswith("process ")]
    long = [line.split()[1] for line in said if line.startswith("long ")]
    assert len(process) == 4 and len(set(process)) == 1
    assert len(long) == 2 and len({*process, *long}) == 3


def test_tests_keep_their_order_in_a_run_of_one_process(project: Path) -> None:
    printed = run(project, "--verbose")
    assert [line.split("::")[1].split("[")[0] for line in printed.splitlines() if "::" in line] == (
        ["test_ordinary"] * 24 + ["test_long"] * 2 + ["test_alone"] * 2
    )
