"""The option --rerun of pytest, as tests/run uses it: seen in runs of a few small tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# The tests of FIRST fail in their first run, those of EVER in each, CRASH ends its process.
FILE = """
import os
from pathlib import Path

import pytest

def kinds():
    return [kind for kind in os.environ["KINDS"].split(",") if kind]

@pytest.mark.parametrize("kind", kinds())
def test_kind(kind):
    if kind == "crash":
        os._exit(1)
    marker = Path(__file__).parent / f"{kind.replace('/', '-')}.ran"
    again = marker.exists()
    marker.touch()
    assert kind.startswith("good") or (kind.startswith("first") and again), f"the trouble of {kind}"

@pytest.fixture
def broken():
    yield
    if "teardown" in os.environ["KINDS"]:
        raise OSError("the trouble of teardown")

def test_with_a_fixture(broken):
    pass
"""
CONFTEST = """
from support.plugins import rerun

def pytest_addoption(parser):
    rerun.add_options(parser)

def pytest_configure(config):
    rerun.register(config)
"""
PASSED_ALONE = "FAILED FIRST, PASSED ALONE"
FAILED_TWICE = "FAILED TWICE"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_few.py").write_text(FILE)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(project: Path, kinds: str, *options: str) -> tuple[int, str]:
    """Run its tests; return the exit code, and what pytest prints."""
    settings = {
        "PYTHONPATH": str(TESTS),
        "PYTEST_ADDOPTS": "",
        # No other plugin: each process would import them all.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # Where there are no files of earlier runs, which pytest would remove.
        "PYTEST_DEBUG_TEMPROOT": str(project),
        "KINDS": kinds,
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rerun", "-p", "xdist", *options],
        cwd=project,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_that_passes_alone_is_named_at_the_end_with_its_first_error(project: Path) -> None:
    code, printed = run(project, "good,first,first [2]::x/y", "--numprocesses", "2", "test_few.py")
    assert code == 0, printed
    assert "2 failed, 2 passed" in printed
    assert printed.count("E       AssertionError: the trouble of first\n") == 1
    assert FAILED_TWICE not in printed
    lines = printed.rpartition(PASSED_ALONE)[2].splitlines()[1:]
    # Their order is that in which two processes of pytest ran them.
    assert sorted(zip(lines[::2], lines[1::2], strict=True)) == [
        ("test_few.py::test_kind[first [2]::x/y]", "    AssertionError: the trouble of first [2]::x/y"),
        ("test_few.py::test_kind[first]", "    AssertionError: the trouble of first"),
    ]


def test_a_test_that_fails_again_fails_the_run_whatever_passes(project: Path) -> None:
    code, printed = run(project, "ever,first,teardown")
    assert code == pytest.ExitCode.TESTS_FAILED
    passed, failed = printed.rpartition(PASSED_ALONE)[2].split(FAILED_TWICE)
    assert "test_few.py::test_kind[first]\n" in passed and "[ever]" not in passed
    assert failed.splitlines()[1:] == [
        "test_few.py::test_kind[ever]",
        "    AssertionError: the trouble of ever",
        "test_few.py::test_kind[teardown]",
        "    AssertionError: the trouble of teardown",
        "test_few.py::test_with_a_fixture",
        "    OSError: the trouble of teardown",
    ]
    # The second failure is shown, too.
    assert printed.count("E       AssertionError: the trouble of ever\n") == 2


@pytest.mark.parametrize(
    ("kinds", "options", "said"),
    [
        ("first1,first2,first3,first4,first5,first6", [], "6 tests failed, more than 5: none runs once more"),
        ("first1,good,first2", ["--maxfail=1"], "cut short"),
        pytest.param("first1,crash", ["--numprocesses", "1"], "cut short", marks=pytest.mark.exhaustive),
        ("first", ["--no-rerun"], "1 failed, 1 passed"),
    ],
)
def test_nothing_runs_again_where_much_failed_or_not_all_ran(
    project: Path, kinds: str, options: list[str], said: str
) -> None:
    code, printed = run(project, kinds, *options)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said in printed
    assert PASSED_ALONE not in printed and FAILED_TWICE not in printed
