"""What ran and what did not: a plugin that ends the summary with the seconds of each folder of tests.

The seconds of a folder are the sum of its tests' seconds, set-up included. In a run of several processes they add up
to more than the run took. It also counts the tests that were left out as exhaustive or were skipped; `-ra` lists the
latter.
"""

from collections import defaultdict
from pathlib import PurePosixPath
from typing import Any

import pytest

_LEFT_OUT = pytest.StashKey[int]()
_OUTPUT = "left_out"


def leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    """Deselect tests that only --exhaustive runs, and count them for the report."""
    config.stash[_LEFT_OUT] = len(left_out)
    if hasattr(config, "workeroutput"):
        config.workeroutput[_OUTPUT] = len(left_out)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the number from a process of pytest-xdist. All of them collect the same tests."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get(_OUTPUT, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [each for reports in terminalreporter.stats.values() for each in reports]
    phases = [each for each in reports if isinstance(each, pytest.TestReport)]
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: dict[str, set[str]] = {}
    for phase in phases:
        folder = str(PurePosixPath(phase.nodeid.partition("::")[0]).parent)
        seconds[folder] += phase.duration
        tests.setdefault(folder, set()).add(phase.nodeid)
    if not tests:
        return
    terminalreporter.section("what ran")
    for folder, names in sorted(tests.items()):
        terminalreporter.write_line(f"{folder:<24} {len(names):>6} tests {seconds[folder]:>8.1f} s")
    processes = config.getoption("numprocesses", None) or 1
    total, count = sum(seconds.values()), sum(map(len, tests.values()))
    terminalreporter.write_line(f"{'all':<24} {count:>6} tests {total:>8.1f} s, in {processes} process(es)")
    left_out, skipped = config.stash.get(_LEFT_OUT, 0), len(terminalreporter.stats.get("skipped", []))
    if left_out:
        terminalreporter.write_line(f"not run: {left_out} exhaustive tests; tests/run --exhaustive runs them")
    if skipped:
        terminalreporter.write_line(f"not run: {skipped} tests that need root or a program that is missing (see above)")
