"""What every test run needs: its fixtures, its options, and what it tells at its end.

Tests marked `exhaustive` run only with --exhaustive; others try more with it (support/amount.py). No test may change
the umask of its process.
"""

import gc
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from queue_base.home import Home
from support.plugins import fast, rerun, run_report, saying
from support.plugins.amount import allow_time, choose_amounts
from support.plugins.side_by_side import SideBySide
from support.processes.forked import allow_forks
from support.queues import homes, others
from support.queues.home import CLASSIFYAFTER
from support.send.control import wait_for_backlog
from support.send.scripted_send import ScriptedSend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Such a test takes minutes on a machine of its own, and many times that beside others. What it waits for has deadlines.
EXHAUSTIVE_SECONDS = 3600
# tests/run --compiled sets it.
COMPILED = os.environ.get("QUEUE_SUITE_COMPILE") == "1"
# Those need a namespace of their own, which test_accounts.py makes.
collect_ignore = [] if os.environ.get("QUEUE_NAMESPACED") else ["admin/namespaced"]


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """Fail a test that leaves another umask, as a program's main() called in this process may; later ones suffer."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    after = os.umask(before)
    assert after == before, f"the test left umask {after:03o}; run the program as a process"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Give the test umask 022, and take back what a program's main() called in this process sets."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def send(home: Home) -> Iterator[ScriptedSend]:
    """Yield a queue-send on that home whose peers the test plays, with its backlog read: mail is new by its notice."""
    with ScriptedSend(home) as running:
        running.fence()
        wait_for_backlog(home)
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Yield the Spark session of this process. Tests that use it are marked `together`."""
    from support.spark.session import session  # Only who uses it waits for the import.

    yield session()
    session().stop()


def pytest_configure(config: pytest.Config) -> None:
    if after := config.getoption("--classifyafter"):
        os.environ[CLASSIFYAFTER] = after
    choose_amounts(bool(config.getoption("--exhaustive")))
    allow_time()
    allow_forks()
    for plugin in (saying, run_report, fast, homes, others):
        config.pluginmanager.register(plugin)
    rerun.register(config)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell ignores it for a command in the background, and the programs under test would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # One of the processes of pytest-xdist.
        config.pluginmanager.register(SideBySide(config.workerinput["workercount"]))
    # What collection makes lives until the end: some hundred MB, which the garbage collector need not look at.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run the tests that take minutes, too")
    parser.addoption("--classifyafter", help="the value of control/classifyafter in the homes of the tests")
    parser.addoption("--fast", action="store_true", help="run only the test files that start no process")
    rerun.add_options(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("exhaustive") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(EXHAUSTIVE_SECONDS))
        pure = item.get_closest_marker("pure")
        if pure is not None and COMPILED:
            item.add_marker(pytest.mark.skip(reason=f"compiled: it {pure.args[0]}"))
    if config.getoption("--exhaustive"):
        return
    run_report.leave_out(config, items, [item for item in items if item.get_closest_marker("exhaustive")])
