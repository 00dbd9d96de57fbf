"""The option --rerun: if a few tests failed, they run once more, each alone in a process of its own.

The tests start hundreds of processes on machines that we do not know, and a pause of such a machine can make one of
thousands fail. That must not hide whether the rest is right. It is told at the end of the output which tests failed
first and passed alone, with their first error: each is still a defect, of the test or of the program.

The run succeeds only if all of them pass. It fails as without the option if more than MOST failed, if a process of
pytest crashed, or if the run was cut short: then nothing runs once more.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

MOST = 5


class Rerun:
    """The plugin, for the process that collects all reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # The tests that failed, in their order, and the first line of the first error.
        self._failed: dict[str, str] = {}
        self._crashed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.setdefault(report.nodeid, _first_line(report))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Note that a process of pytest-xdist ended before its time."""
        self._crashed = self._crashed or bool(error)

    # Around everything else, so that the summary and the times have been printed, and no other process of pytest runs.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._failed:
            return
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._crashed or session.shouldfail or session.shouldstop:
            reporter.write_line("the run was cut short: no test runs once more")
        elif len(self._failed) > MOST:
            reporter.write_line(f"{len(self._failed)} tests failed, more than {MOST}: none runs once more")
        elif self._run_again(reporter):
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, reporter: Any) -> bool:
        """Run what failed once more, and tell what came of it; return whether all of it passed."""
        reporter.section("once more, alone")
        again = []
        for test in self._failed:
            reporter.write_line(test)
            passed, output = self._run(test)
            if not passed:
                again.append(test)
                reporter.write_line(output)
        for title, tests in (
            ("FAILED FIRST, PASSED ALONE: a defect all the same", [test for test in self._failed if test not in again]),
            ("FAILED TWICE", again),
        ):
            if tests:
                reporter.section(title, red=True, bold=True)
            for test in tests:
                reporter.write_line(f"{test}\n    {self._failed[test]}")
        return not again

    def _run(self, test: str) -> tuple[bool, str]:
        """Run one test with the options of this run; return whether it passed, and the output."""
        given = self._config.option.file_or_dir
        options = [word for word in map(str, self._config.invocation_params.args) if word not in given]
        options.append("--no-rerun")
        if self._config.getoption("numprocesses", None):
            options += ["--numprocesses", "0"]
        # The cache of this run, with what failed first, stays for `pytest --last-failed`.
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, "-o", f"cache_dir={cache}", test],
                cwd=self._config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        return done.returncode == 0, done.stdout


def _first_line(report: pytest.TestReport) -> str:
    """Return the first line of a failure's error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return next((line.strip() for line in text.splitlines() if line.strip()), "no error is known")


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--rerun", action="store_true", help=f"run up to {MOST} tests that failed once more, alone")
    parser.addoption("--no-rerun", action="store_false", dest="rerun", help="do not, whatever came before")


def register(config: pytest.Config) -> None:
    """Make the plugin if it is asked for."""
    if config.getoption("rerun") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Rerun(config))
