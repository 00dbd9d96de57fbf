"""What tests have to tell a person, such as figures that they found: a plugin that says it in the run's summary.

Unlike what is printed it gets there also from one of several processes (pytest-xdist).
"""

from collections.abc import Callable

import pytest

Say = Callable[[str], None]
_PROPERTY = "said"


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Say:
    """Return what adds a line to the summary."""
    return lambda line: record_property(_PROPERTY, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for reports in terminalreporter.stats.values() for each in reports]
    calls = [each for each in reports if isinstance(each, pytest.TestReport) and each.when == "call"]
    said = [line for each in calls for name, line in each.user_properties if name == _PROPERTY]
    if said:
        terminalreporter.section("what was found")
        for line in said:
            terminalreporter.write_line(str(line))
